//! Promise P2, exact: after each committed step, all members hold the state that the oracle computes from the views
//! alone.

use std::collections::BTreeMap;

use starling_topology::{Digest, PeerId, View};

use super::Broken;
use crate::oracle;
use crate::workload::Workload;

const NAME: &str = "bitwise_agreement";

/// Remembers the oracle's digest after each step.
#[derive(Debug, Default)]
pub struct BitwiseAgreement {
    expected: BTreeMap<u64, Digest>,
}

impl BitwiseAgreement {
    /// `peer` holds `digest` after it committed `step` in `view`.
    ///
    /// # Errors
    /// If the oracle's digest is another one.
    pub fn committed(
        &mut self,
        peer: PeerId,
        step: u64,
        view: &View,
        digest: Digest,
        workload: &Workload,
    ) -> Result<(), Broken> {
        if !self.expected.contains_key(&step) {
            let before = self.after(step - 1)?;
            self.expected.insert(step, oracle::expected(before, step, view, workload));
        }
        self.holds(peer, step, digest)
    }

    /// `peer` holds `digest` as the state after `step`.
    ///
    /// # Errors
    /// If the oracle's digest is another one.
    pub fn holds(&self, peer: PeerId, step: u64, digest: Digest) -> Result<(), Broken> {
        let expected = self.after(step)?;
        if digest == expected {
            return Ok(());
        }
        Err(Broken::new(NAME, format!("{peer:?} holds {digest:?} after step {step}, not {expected:?}")))
    }

    fn after(&self, step: u64) -> Result<Digest, Broken> {
        if step == 0 {
            return Ok(oracle::INITIAL);
        }
        let expected = self.expected.get(&step).copied();
        expected.ok_or_else(|| Broken::new(NAME, format!("nobody has committed step {step}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use starling_topology::RunId;

    #[test]
    fn another_state_is_noticed() {
        let peer = PeerId([1; 32]);
        let view = View::found(RunId([0; 32]), peer);
        let workload = Workload::draw(&mut Rng::new(1), 3);
        let right = oracle::expected(oracle::INITIAL, 1, &view, &workload);
        let mut invariant = BitwiseAgreement::default();
        assert!(invariant.holds(peer, 1, right).is_err(), "nobody has committed it");
        assert_eq!(invariant.committed(peer, 1, &view, right, &workload), Ok(()));
        assert_eq!(invariant.holds(peer, 1, right), Ok(()));
        assert!(invariant.holds(peer, 1, Digest([9; 32])).is_err());
        assert!(invariant.holds(peer, 0, right).is_err());
        assert!(invariant.committed(peer, 2, &view, right, &workload).is_err());
        assert!(invariant.committed(peer, 5, &view, right, &workload).is_err(), "steps 3 and 4 are missing");
    }
}
