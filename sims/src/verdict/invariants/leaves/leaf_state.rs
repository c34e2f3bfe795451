//! After each step a leaf holds the state that those hold who have committed it in its lineage, its carrier among them, to the last bit.

use std::collections::BTreeMap;

use starling_topology::{Digest, Lineage, PeerId};

use crate::steps::state::State;
use crate::verdict::invariants::Broken;

const NAME: &str = "leaf_state";

/// Remembers what was committed.
#[derive(Debug, Default)]
pub struct LeafState {
    committed: BTreeMap<(u64, Lineage), Digest>,
    ends: Vec<Digest>,
}

impl LeafState {
    /// A member has committed a step, and came to this.
    pub fn committed(&mut self, after: &State, last_step: u64) {
        self.committed.entry((after.step, after.lineage)).or_insert(after.digest);
        if after.step == last_step {
            self.ends.push(after.digest);
        }
    }

    /// `leaf` has applied a step, or loaded the state after it.
    ///
    /// # Errors
    /// If no member came to that.
    pub fn holds(&self, leaf: PeerId, state: &State) -> Result<(), Broken> {
        let (step, lineage) = (state.step, state.lineage);
        match self.committed.get(&(step, lineage)) {
            Some(digest) if *digest == state.digest => Ok(()),
            Some(digest) => {
                let seen =
                    format!("{leaf:?} holds {:?} after step {step}, and members came to {digest:?}", state.digest);
                Err(Broken::new(NAME, seen))
            }
            None => Err(Broken::new(NAME, format!("{leaf:?} holds a state after step {step} that nobody committed"))),
        }
    }

    /// `leaf` was told that the run is complete with this state.
    ///
    /// # Errors
    /// If no member came to that.
    pub fn completes(&self, leaf: PeerId, digest: Digest) -> Result<(), Broken> {
        let seen = || Broken::new(NAME, format!("{leaf:?} was told of an end that nobody came to"));
        if self.ends.contains(&digest) { Ok(()) } else { Err(seen()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::ledger::Ledger;

    #[test]
    fn a_leaf_that_holds_another_state_is_noticed() {
        let leaf = PeerId([9; 32]);
        let mut state = State { step: 3, ..State::initial(Ledger::new(1, 50, 8)) };
        let mut invariant = LeafState::default();
        assert!(invariant.holds(leaf, &state).is_err(), "nobody committed it");
        invariant.committed(&state, 3);
        assert_eq!((invariant.holds(leaf, &state), invariant.completes(leaf, state.digest)), (Ok(()), Ok(())));
        state.digest.0[0] ^= 1;
        assert!(invariant.holds(leaf, &state).is_err() && invariant.completes(leaf, state.digest).is_err());
    }
}
