//! Promise P2, exact: all members that commit a step in a view, or resume in it, hold one state, and it is the one that
//! the committed steps lead to.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::{Digest, PeerId, ViewId};

use crate::steps::state::State;
use crate::verdict::invariants::Broken;

const NAME: &str = "bitwise_agreement";

/// Remembers all committed states.
#[derive(Debug, Default)]
pub struct BitwiseAgreement {
    /// After each step of each view, and at its start.
    expected: BTreeMap<(ViewId, u64), Digest>,
    known: BTreeSet<Digest>,
}

impl BitwiseAgreement {
    /// `peer` went from `before` to `after` in `view`.
    ///
    /// # Errors
    /// If the state before is none that was committed, or another member of the view holds another one.
    pub fn committed(&mut self, peer: PeerId, view: ViewId, before: &State, after: &State) -> Result<(), Broken> {
        self.holds(peer, before)?;
        self.known.insert(after.digest);
        self.agrees(peer, view, after)
    }

    /// `peer` goes on in `view` with `state`.
    ///
    /// # Errors
    /// If it is none that was committed, or another member holds another one after the same step.
    pub fn resumes(&mut self, peer: PeerId, view: ViewId, state: &State) -> Result<(), Broken> {
        self.holds(peer, state)?;
        self.agrees(peer, view, state)
    }

    /// `peer` holds `state`, from wherever it has it.
    ///
    /// # Errors
    /// If it is none that was committed.
    pub fn holds(&mut self, peer: PeerId, state: &State) -> Result<(), Broken> {
        if state.step == 0 || self.known.contains(&state.digest) {
            return Ok(());
        }
        let (step, digest) = (state.step, state.digest);
        Err(Broken::new(NAME, format!("{peer:?} holds {digest:?} after step {step}, which nobody committed")))
    }

    fn agrees(&mut self, peer: PeerId, view: ViewId, state: &State) -> Result<(), Broken> {
        let (step, digest) = (state.step, state.digest);
        let expected = *self.expected.entry((view, step)).or_insert(digest);
        if digest == expected {
            return Ok(());
        }
        let seen = format!("{peer:?} holds {digest:?} after step {step} in {view:?}, others {expected:?}");
        Err(Broken::new(NAME, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::ledger::Ledger;

    fn state(step: u64, digest: u8) -> State {
        State { step, digest: Digest([digest; 32]), ..State::initial(Ledger::new(1, 9, 3)) }
    }

    #[test]
    fn another_state_is_noticed() {
        let (one, two, view) = (PeerId([1; 32]), PeerId([2; 32]), ViewId([5; 32]));
        let mut invariant = BitwiseAgreement::default();
        assert_eq!(invariant.committed(one, view, &state(0, 0), &state(1, 1)), Ok(()));
        assert_eq!(invariant.committed(two, view, &state(0, 0), &state(1, 1)), Ok(()));
        assert!(invariant.committed(two, view, &state(0, 0), &state(1, 2)).is_err(), "they differ");
        assert!(invariant.holds(two, &state(1, 7)).is_err(), "nobody has committed it");
        assert_eq!(invariant.resumes(one, ViewId([6; 32]), &state(1, 1)), Ok(()));
        assert!(invariant.resumes(two, ViewId([6; 32]), &state(1, 2)).is_err());
    }
}
