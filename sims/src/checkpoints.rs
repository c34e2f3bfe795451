//! How a peer keeps checkpoints: what `starling-run`'s store does, over a simulated disk.

use starling_topology::ledger::Ledger;
use starling_topology::{Digest, Generation, Lineage, PeerId, Record, Root};

use crate::canary::Sabotage;
use crate::disk::{Disk, Refused, Saved};
use crate::state::State;

/// Checkpoints that are kept.
pub const KEPT: usize = 2;

/// Writes the checkpoint of `state` and, once it reads back well, deletes what is not needed any more.
///
/// # Errors
/// [`Refused`] if the disk does not take it: nothing has changed then.
pub fn save(
    disk: &mut Disk,
    root: Root,
    state: &State,
    rotten: bool,
    sabotage: Option<Sabotage>,
) -> Result<(), Refused> {
    let is_admitted = |state: &State| root.admits(state.step, state.lineage);
    if !is_admitted(state) {
        return Ok(()); // Of a branch that was left.
    }
    let mut bytes = state.encode();
    if rotten && let Some(byte) = bytes.last_mut() {
        *byte ^= 1; // The disk wrote something else than it was told.
    }
    let trusts = sabotage == Some(Sabotage::DeletesLastCheckpoint);
    let file = Saved::new(bytes);
    if !trusts && !file.is_good() {
        return Ok(()); // Read back before it gets its name, so it replaces nothing.
    }
    disk.write_checkpoint(state.step, file)?;
    if trusts {
        let older: Vec<u64> = disk.checkpoints().keys().copied().filter(|step| *step != state.step).collect();
        older.into_iter().for_each(|step| disk.delete_checkpoint(step));
        return Ok(());
    }
    let is_left = |saved: &Saved| State::decode(saved.bytes(), false).is_none_or(|state| !is_admitted(&state));
    let left: Vec<u64> = disk.checkpoints().iter().filter(|(_, saved)| is_left(saved)).map(|(step, _)| *step).collect();
    left.into_iter().for_each(|step| disk.delete_checkpoint(step));
    while disk.checkpoints().len() > KEPT {
        // An older one may be verified last: it is the only one that is known to be good.
        let Some(oldest) = disk.checkpoints().keys().copied().find(|step| *step != state.step) else { break };
        disk.delete_checkpoint(oldest);
    }
    Ok(())
}

/// Leaves on a disk what an earlier attempt at the same run had saved: all settings are equal, and its steps are higher.
pub fn leave_from_earlier_attempt(disk: &mut Disk, initial: &Ledger, steps: u64) {
    let lineage = Lineage { branch: u64::MAX, generation: Generation(7), ..Lineage::NONE };
    for step in [steps / 2, steps].into_iter().filter(|step| *step > 0) {
        let state = State { step, lineage, digest: Digest([0xee; 32]), ..State::initial(initial.clone()) };
        let _ = disk.write_checkpoint(step, Saved::new(state.encode()));
    }
}

/// The newest checkpoint that is good and that `admits` takes, with the file it is from. `verify` is switched off only to see
/// that this is missed.
fn newest(disk: &Disk, admits: impl Fn(&State) -> bool, verify: bool) -> Option<(State, Saved)> {
    let good = |saved: &Saved| State::decode(saved.bytes(), verify).map(|state| (state, saved.clone()));
    disk.checkpoints().values().rev().filter_map(good).find(|(state, _)| admits(state))
}

/// The state that the process of `me` finds when it starts with `record`: the newest checkpoint, else that before the first
/// step, if the record says that it counts.
pub fn found(
    disk: &Disk,
    (me, record): (PeerId, &Record),
    initial: Ledger,
    sabotage: Option<Sabotage>,
) -> (Option<State>, Option<Saved>) {
    let revives = sabotage == Some(Sabotage::RevivesAbandoned);
    let admits = |state: &State| revives || record.root.admits(state.step, state.lineage);
    let newest = newest(disk, admits, sabotage != Some(Sabotage::TrustsItsDisk));
    if let Some((state, saved)) = newest {
        return (Some(state), Some(saved));
    }
    let begins = record.can_begin_anew(me) || sabotage == Some(Sabotage::ClaimsInitialState);
    (begins.then(|| State::initial(initial)), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::{RunId, View};

    const ME: PeerId = PeerId([1; 32]);

    fn state(step: u64, generation: u64) -> State {
        let lineage = Lineage { generation: Generation(generation), ..Lineage::NONE };
        State { step, lineage, ..State::initial(Ledger::new(1, 9, 3)) }
    }

    #[test]
    fn the_newest_good_ones_stay() {
        let mut disk = Disk::default();
        let mut keep = |step, rotten| save(&mut disk, Root::default(), &state(step, 1), rotten, None);
        for step in [3, 6, 9] {
            assert_eq!(keep(step, false), Ok(()));
        }
        assert_eq!(keep(12, true), Ok(()));
        assert_eq!(disk.checkpoints().keys().copied().collect::<Vec<_>>(), [6, 9], "a bad one pushes none out");
        assert_eq!(newest(&disk, |_| true, true).map(|(state, _)| state.step), Some(9));
    }

    #[test]
    fn another_branch_is_not_gone_back_to() {
        let mut disk = Disk::default();
        let ledger = || Ledger::new(1, 9, 3);
        let view = View::found(RunId([7; 32]), ME);
        let of =
            |root| Record { view: view.clone(), origin: None, certificate: None, root, promised: None, accepted: None };
        let found = |disk: &Disk, root| found(disk, (ME, &of(root)), ledger(), None).0;
        let root = Root::default();
        assert_eq!(found(&disk, root), Some(State::initial(ledger())));
        save(&mut disk, root, &state(3, 1), false, None).expect("there is room");
        assert_eq!(found(&disk, root), Some(state(3, 1)));
        let anew = Root { generation: Generation(2), ..root };
        assert_eq!((found(&disk, anew), disk.checkpoints().len()), (Some(State::initial(ledger())), 1));
        save(&mut disk, anew, &state(4, 1), false, None).expect("it is left out");
        save(&mut disk, anew, &state(2, 2), false, None).expect("there is room");
        assert_eq!((found(&disk, anew), disk.checkpoints().len()), (Some(state(2, 2)), 1));
    }
}
