//! How a peer keeps checkpoints: what `starling-run`'s store does, over a simulated disk.

use starling_topology::ledger::Ledger;
use starling_topology::{PeerId, Record};

use crate::canary::Sabotage;
use crate::disk::{Disk, Refused, Saved};
use crate::state::State;

/// Checkpoints that are kept.
pub const KEPT: usize = 2;

/// Writes the checkpoint of `state` and, once it reads back well, deletes what is not needed any more.
///
/// # Errors
/// [`Refused`] if the disk does not take it: nothing has changed then.
pub fn save(disk: &mut Disk, state: &State, rotten: bool, sabotage: Option<Sabotage>) -> Result<(), Refused> {
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
    let abandoned: Vec<u64> =
        disk.checkpoints().iter().filter(|(_, saved)| saved.abandoned).map(|(step, _)| *step).collect();
    abandoned.into_iter().for_each(|step| disk.delete_checkpoint(step));
    while disk.checkpoints().len() > KEPT {
        // An older one may be verified last: it is the only one that is known to be good.
        let Some(oldest) = disk.checkpoints().keys().copied().find(|step| *step != state.step) else { break };
        disk.delete_checkpoint(oldest);
    }
    Ok(())
}

/// The newest checkpoint that is good and belongs to the branch that its peer was on, with the file it is from.
/// `verify` is switched off only to see that this is missed.
pub fn newest(disk: &Disk, verify: bool) -> Option<(State, Saved)> {
    let mut newest_first = disk.checkpoints().values().rev().filter(|saved| !saved.abandoned);
    newest_first.find_map(|saved| State::decode(saved.bytes(), verify).map(|state| (state, saved.clone())))
}

/// The state that the process of `me` finds when it starts with `record`: the newest checkpoint, else that before the first
/// step, if the record says that it counts.
pub fn found(
    disk: &Disk,
    (me, record): (PeerId, &Record),
    initial: Ledger,
    sabotage: Option<Sabotage>,
) -> (Option<State>, Option<Saved>) {
    let newest = newest(disk, sabotage != Some(Sabotage::TrustsItsDisk));
    let step = newest.as_ref().map(|(state, _)| state.step);
    if !record.can_go_on_from(me, step) && sabotage != Some(Sabotage::ClaimsInitialState) {
        return (None, None);
    }
    newest.map_or_else(|| (Some(State::initial(initial)), None), |(state, saved)| (Some(state), Some(saved)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::{RunId, View};

    fn state(step: u64) -> State {
        State { step, ..State::initial(Ledger::new(1, 9, 3)) }
    }

    #[test]
    fn the_newest_good_ones_stay() {
        let mut disk = Disk::default();
        for step in [3, 6, 9] {
            assert_eq!(save(&mut disk, &state(step), false, None), Ok(()));
        }
        assert_eq!(disk.checkpoints().keys().copied().collect::<Vec<_>>(), [6, 9]);
        assert_eq!(save(&mut disk, &state(12), true, None), Ok(()));
        assert_eq!(disk.checkpoints().keys().copied().collect::<Vec<_>>(), [6, 9], "a bad one pushes none out");
        assert_eq!(newest(&disk, true).map(|(state, _)| state.step), Some(9));
    }

    #[test]
    fn another_branch_is_not_gone_back_to() {
        let mut disk = Disk::default();
        let (ledger, me) = (|| Ledger::new(1, 9, 3), PeerId([1; 32]));
        let view = View::found(RunId([7; 32]), me);
        let record = Record { view, origin: None, promised: None, accepted: None };
        let found = |disk: &Disk| found(disk, (me, &record), ledger(), None).0;
        assert_eq!(found(&disk), Some(State::initial(ledger())));
        save(&mut disk, &state(3), false, None).expect("there is room");
        assert_eq!(found(&disk), Some(state(3)));
        disk.abandon_checkpoints();
        assert_eq!((newest(&disk, true).map(|(state, _)| state), disk.checkpoints().len()), (None, 1));
        save(&mut disk, &state(5), false, None).expect("there is room");
        assert_eq!((found(&disk), disk.checkpoints().len()), (Some(state(5)), 1));
    }
}
