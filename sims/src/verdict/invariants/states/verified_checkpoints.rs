//! Part of promise P9: a process never starts from a checkpoint that is not, bit for bit, a state that was committed.

use starling_topology::PeerId;

use crate::hardware::machine::disk::Saved;
use crate::steps::state::State;
use crate::verdict::invariants::Broken;

const NAME: &str = "verified_checkpoints";

/// Looks at what is loaded.
#[derive(Debug, Default)]
pub struct VerifiedCheckpoints {
    loaded: u64,
}

impl VerifiedCheckpoints {
    /// `peer` starts from `state`, which it read from `file`.
    ///
    /// # Errors
    /// If the file does not hash to what it says.
    pub fn loaded(&mut self, peer: PeerId, file: &Saved, state: &State) -> Result<(), Broken> {
        self.loaded += 1;
        if State::decode(file.bytes(), true).as_ref() != Some(state) {
            let step = state.step;
            return Err(Broken::new(NAME, format!("{peer:?} loaded a bad checkpoint of step {step}")));
        }
        Ok(())
    }

    /// How many were loaded.
    pub fn count(&self) -> u64 {
        self.loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::ledger::Ledger;

    #[test]
    fn a_bad_file_is_noticed() {
        let state = State::initial(Ledger::new(1, 9, 3));
        let good = Saved::new(state.encode());
        let mut invariant = VerifiedCheckpoints::default();
        assert_eq!(invariant.loaded(PeerId([1; 32]), &good, &state), Ok(()));
        let mut flipped = good;
        flipped.bytes_mut()[3] ^= 1;
        assert!(invariant.loaded(PeerId([1; 32]), &flipped, &state).is_err());
        assert_eq!(invariant.count(), 2);
    }
}
