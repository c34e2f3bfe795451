//! How a peer keeps checkpoints: what `starling-run`'s store does, over a simulated disk.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use starling_engine::return_engine::DiskSummary;
use starling_engine::{ReturningMember, SeatDecision};
use starling_topology::heads::follower::{BranchKey, MAX_BRANCHES, branch};
use starling_topology::heads::retention::{self, CheckpointRecord, RetentionInput};
use starling_topology::ledger::Ledger;
use starling_topology::{
    Digest, Generation, Head, Lineage, Mark, MarkStatus, PeerId, Proof, Reason, Record, Root, View,
};

use crate::hardware::machine::disk::{Disk, Name, Refused, Saved};
use crate::steps::state::State;
use crate::sweep::canary::Sabotage;
use crate::world::RUN;

/// Checkpoints that are kept.
pub const KEPT: usize = 2;

/// Writes the checkpoint of `state` and, once it reads back well, deletes what is not needed any more and notes what is saved. Its name
/// for those who sign it, if both are there then.
///
/// # Errors
/// [`Refused`] if the disk does not take it: nothing has changed then.
pub fn save(
    disk: &mut Disk,
    root: Root,
    state: &State,
    rotten: bool,
    sabotage: Option<Sabotage>,
) -> Result<Option<Digest>, Refused> {
    if !root.admits(state.step, state.lineage) {
        return Ok(None); // Of a branch that was left.
    }
    let mut bytes = state.encode();
    if rotten && let Some(byte) = bytes.last_mut() {
        *byte ^= 1; // The disk wrote something else than it was told.
    }
    let trusts = sabotage == Some(Sabotage::DeletesLastCheckpoint);
    let file = Saved::new(bytes);
    if !trusts && !file.is_good() {
        return Ok(None); // Read back before it gets its name, so it replaces nothing.
    }
    let (name, manifest) = ((state.step, state.lineage), file.manifest());
    disk.write_checkpoint(name, file)?;
    if trusts {
        let older: Vec<Name> = disk.checkpoints().keys().copied().filter(|other| *other != name).collect();
        older.into_iter().for_each(|other| disk.delete_checkpoint(other));
    } else {
        tidy(disk, Some(&root), name);
    }
    Ok(mark(disk, &root, state).is_ok().then_some(manifest))
}

/// Notes outside of the checkpoints that this one is there: it is signed only then.
fn mark(disk: &mut Disk, root: &Root, state: &State) -> Result<(), Refused> {
    let saved = Mark { step: state.step, lineage: state.lineage };
    if disk.noted().covers(saved, root) { Ok(()) } else { disk.write_mark(saved) }
}

/// What is known of a file without reading it.
fn held((step, lineage): Name, saved: &Saved) -> CheckpointRecord {
    CheckpointRecord { step, lineage, stable: saved.stable() }
}

/// What a disk has.
fn list(disk: &Disk) -> (Vec<Name>, Vec<CheckpointRecord>) {
    disk.checkpoints().iter().map(|(name, saved)| (*name, held(*name, saved))).unzip()
}

/// Lists what `root` does not admit, for those who look without it.
pub fn put_aside(disk: &mut Disk, root: &Root) {
    let (names, all) = list(disk);
    sort_out(disk, Some(root), &names, &all);
}

/// Which are of branches that were left, and which of these stay nevertheless.
fn sort_out(
    disk: &mut Disk,
    root: Option<&Root>,
    names: &[Name],
    all: &[CheckpointRecord],
) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let is_left = |held: &CheckpointRecord| root.is_some_and(|root| !root.admits(held.step, held.lineage));
    let left: BTreeSet<usize> = (0..all.len()).filter(|at| is_left(&all[*at])).collect();
    let known = left.iter().copied().filter(|at| disk.kept().contains(&names[*at]));
    let lost = root.map(|root| retention::lost(all, &left, root)).unwrap_or_default();
    let kept: BTreeSet<usize> = known.chain(lost).collect();
    disk.keep(kept.iter().map(|at| names[*at]).collect());
    (left, kept)
}

fn tidy(disk: &mut Disk, root: Option<&Root>, saved: Name) {
    let (names, all) = list(disk);
    let (left, kept) = sort_out(disk, root, &names, &all);
    let Some(saved) = names.iter().position(|name| *name == saved) else { return };
    let folder = RetentionInput { all: &all, saved, left: &left, kept: &kept, root, keep: KEPT };
    let gone = folder.surplus(|at| disk.checkpoints().get(&names[at]).is_some_and(Saved::is_good));
    gone.into_iter().for_each(|at| disk.delete_checkpoint(names[at]));
}

/// Writes a checkpoint that others had, and deletes what is not needed any more.
///
/// # Errors
/// [`Refused`] if the disk does not take it: nothing has changed then.
pub fn keep(
    disk: &mut Disk,
    root: Option<&Root>,
    (name, file): (Name, Saved),
    sabotage: Option<Sabotage>,
) -> Result<(), Refused> {
    disk.write_checkpoint(name, file)?;
    tidy(disk, root, name);
    if sabotage == Some(Sabotage::KeeperPrunes) {
        let older: Vec<Name> = disk.checkpoints().keys().copied().filter(|other| *other != name).collect();
        older.into_iter().for_each(|other| disk.delete_checkpoint(other));
    }
    Ok(())
}

/// Whether `root` admits it; without one, whether it was not put aside.
fn counts(disk: &Disk, root: Option<&Root>, name: &Name) -> bool {
    root.map_or_else(|| !disk.kept().contains(name), |root| root.admits(name.0, name.1))
}

/// What shows the newest good one of each branch to be stable, of those that count.
pub fn newest_proofs(disk: &Disk, root: Option<&Root>) -> Vec<Rc<Proof>> {
    let all = disk.checkpoints().iter().filter(|(name, saved)| counts(disk, root, name) && saved.is_good());
    // By ascending step.
    let newest: BTreeMap<BranchKey, &Rc<Proof>> =
        all.filter_map(|(_, saved)| saved.proof()).map(|proof| (branch(&proof.view), proof)).collect();
    newest.into_values().take(MAX_BRANCHES).cloned().collect()
}

/// What shows the newest good one to be stable, of those that count.
pub fn newest_proof(disk: &Disk, root: Option<&Root>) -> Option<Rc<Proof>> {
    let admits = |name: &Name| counts(disk, root, name);
    let all = disk.checkpoints().iter().rev().filter(|(name, saved)| admits(name) && saved.is_good());
    all.filter_map(|(_, saved)| saved.proof()).max_by_key(|proof| proof.head.step).cloned()
}

/// The branch of an earlier attempt at the same run.
const OTHER_ATTEMPT: u64 = u64::MAX;

/// Leaves on a disk what an earlier attempt at the same run had saved: all settings are equal, and its steps are higher. Its
/// members had signed the last one.
pub fn leave_from_earlier_attempt(disk: &mut Disk, initial: &Ledger, steps: u64) {
    let lineage = Lineage { branch: OTHER_ATTEMPT, generation: Generation(7), ..Lineage::NONE };
    for step in [steps / 2, steps].into_iter().filter(|step| *step > 0) {
        let state = State { step, lineage, digest: Digest([0xee; 32]), ..State::initial(initial.clone()) };
        let (file, member) = (Saved::new(state.encode()), PeerId([0xee; 32]));
        let view = View::found(RUN, member).on_branch(lineage.branch);
        let head = Head { run: RUN, step, view: view.id(), digest: state.digest, manifest: file.manifest() };
        let proof = Proof { head, view, signatures: vec![(member, [0; 64])] };
        let file = if step == steps { file.proven_by(&proof) } else { file };
        let _ = disk.write_checkpoint((step, lineage), file);
    }
}

/// The checkpoint to go on from, of the good ones that `admits` takes, with the file it is from. `verify` is switched off only to
/// see that this is missed.
fn first(
    disk: &Disk,
    admits: impl Fn(&State) -> bool,
    verify: bool,
    sabotage: Option<Sabotage>,
) -> Option<(State, Saved)> {
    let good = |(name, saved): (&Name, &Saved)| {
        let state = State::decode(saved.bytes(), verify).filter(|state| admits(state))?;
        Some((held(*name, saved), state, saved.clone()))
    };
    let good = disk.checkpoints().iter().filter_map(good);
    let prefers_stable = sabotage == Some(Sabotage::PrefersStable);
    let order = |held: &CheckpointRecord| (prefers_stable && held.stable.is_none(), held.precedence());
    good.min_by_key(|(held, ..)| order(held)).map(|(_, state, saved)| (state, saved))
}

/// What can be loaded: of what `root` admits, or without one, of what was not put aside.
pub fn holdings(disk: &Disk, root: Option<&Root>, sabotage: Option<Sabotage>) -> DiskSummary {
    let all = || disk.checkpoints().iter().filter(|(name, _)| counts(disk, root, name));
    let named = all().map(|((step, _), _)| *step).max();
    let loadable = all().filter(|(_, saved)| saved.is_good()).map(|((step, _), _)| *step).max();
    let stable = newest_proof(disk, root).map(|proof| proof.head.step);
    let can_begin = disk.checkpoints().values().all(Saved::is_good);
    DiskSummary {
        loadable: if sabotage == Some(Sabotage::BelievesNames) { named } else { loadable },
        can_begin,
        stable,
        ended: None,
    }
}

/// What a fork goes on from: what its record admits, else what was not put aside, else whatever there is, the stable ones first. Never
/// another attempt's.
pub fn for_fork(disk: &Disk, record: Option<&Record>, initial: Ledger) -> Option<State> {
    let is_ours = |state: &State| state.lineage.branch != OTHER_ATTEMPT;
    let is_kept = |state: &State| disk.kept().contains(&(state.step, state.lineage));
    let root = record.map(|record| &record.root);
    let admits = |state: &State| root.map_or_else(|| !is_kept(state), |root| root.admits(state.step, state.lineage));
    let known = first(disk, |state| is_ours(state) && admits(state), true, None);
    let whatever = || {
        let stable = |state: &State| disk.checkpoints().get(&(state.step, state.lineage))?.stable();
        let is_stable = |state: &State| is_ours(state) && stable(state).is_some();
        first(disk, is_stable, true, None).or_else(|| first(disk, is_ours, true, None))
    };
    let found = known.or_else(whatever).map(|(state, _)| state);
    let can_begin = disk.checkpoints().values().all(Saved::is_good);
    found.or_else(|| can_begin.then(|| State::initial(initial)))
}

/// Whether the state before the first step counts for the process of `me` that starts with `record` and can load no checkpoint, of those
/// that it knows to have had; and whether it may, where nobody holds any.
pub fn begins(disk: &Disk, noted: MarkStatus, (me, record): (PeerId, &Record)) -> (bool, bool) {
    // What is damaged may have been a later state.
    let can_begin = disk.checkpoints().values().all(Saved::is_good);
    let heard = record.origin.iter().flat_map(|origin| &origin.reasons).filter_map(Reason::peer).collect();
    let returning = ReturningMember { me, record, found: None, noted, can_begin, stride: 0, heard: &heard };
    match returning.outcome() {
        SeatDecision::Seat { has_state, can_begin } => (has_state, can_begin),
        SeatDecision::Behind(_) => (false, false),
    }
}

/// The state with which a process starts that has `record`: the best checkpoint, else that before the first step, if it is to say that it
/// holds one.
pub fn found(
    disk: &Disk,
    (record, has_state): (&Record, bool),
    initial: Ledger,
    sabotage: Option<Sabotage>,
) -> (Option<State>, Option<Saved>) {
    let revives = sabotage == Some(Sabotage::RevivesAbandoned);
    let admits = |state: &State| revives || record.root.admits(state.step, state.lineage);
    if let Some((state, saved)) = first(disk, admits, sabotage != Some(Sabotage::TrustsItsDisk), sabotage) {
        return (Some(state), Some(saved));
    }
    let claims = has_state || sabotage == Some(Sabotage::ClaimsInitialState);
    (claims.then(|| State::initial(initial)), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::RunId;

    const ME: PeerId = PeerId([1; 32]);

    fn state(step: u64, generation: u64) -> State {
        let lineage = Lineage { generation: Generation(generation), ..Lineage::NONE };
        State { step, lineage, ..State::initial(Ledger::new(1, 9, 3)) }
    }

    fn steps(disk: &Disk) -> Vec<u64> {
        disk.checkpoints().keys().map(|(step, _)| *step).collect()
    }

    #[test]
    fn the_newest_good_ones_stay() {
        let mut disk = Disk::default();
        let mut keep = |step, rotten| save(&mut disk, Root::default(), &state(step, 1), rotten, None);
        for step in [3, 6, 9] {
            assert!(keep(step, false).is_ok_and(|name| name.is_some()));
        }
        assert_eq!(keep(12, true), Ok(None));
        assert_eq!(steps(&disk), [6, 9], "a bad one pushes none out");
        assert_eq!(first(&disk, |_| true, true, None).map(|(state, _)| state.step), Some(9));
    }

    #[test]
    fn what_a_quorum_has_signed_stays_and_is_not_gone_back_to() {
        let mut disk = Disk::default();
        let view = View::found(RunId([7; 32]), ME);
        for step in [3, 6, 9, 12] {
            let manifest = save(&mut disk, Root::default(), &state(step, 1), false, None).expect("there is room");
            let (manifest, digest) = (manifest.expect("it is good"), state(step, 1).digest);
            let head = Head { run: RunId([7; 32]), step, view: view.id(), digest, manifest };
            if step == 3 {
                disk.sign(&Proof { head, view: view.clone(), signatures: vec![(ME, [0; 64])] });
            }
        }
        assert_eq!(steps(&disk), [3, 9, 12]);
        let found = |sabotage| first(&disk, |_| true, true, sabotage).map(|(state, _)| state.step);
        assert_eq!((found(None), found(Some(Sabotage::PrefersStable))), (Some(12), Some(3)));
    }

    #[test]
    fn another_branch_is_not_gone_back_to() {
        let mut disk = Disk::default();
        let ledger = || Ledger::new(1, 9, 3);
        let view = View::found(RunId([7; 32]), ME);
        let of = |root| Record { root, ..Record::of(view.clone(), None) };
        let found = |disk: &Disk, root| {
            found(disk, (&of(root), begins(disk, MarkStatus::Nothing, (ME, &of(root))).0), ledger(), None).0
        };
        let root = Root::default();
        assert_eq!(found(&disk, root), Some(State::initial(ledger())));
        save(&mut disk, root, &state(3, 1), false, None).expect("there is room");
        assert_eq!(found(&disk, root), Some(state(3, 1)));
        let anew = Root { generation: Generation(2), ..root };
        assert_eq!((found(&disk, anew), disk.checkpoints().len()), (Some(State::initial(ledger())), 1));
        assert_eq!(save(&mut disk, anew, &state(4, 1), false, None), Ok(None), "it is left out");
        save(&mut disk, anew, &state(2, 2), false, None).expect("there is room");
        assert_eq!((found(&disk, anew), disk.checkpoints().len()), (Some(state(2, 2)), 1));
    }
}
