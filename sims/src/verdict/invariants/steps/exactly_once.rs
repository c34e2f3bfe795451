//! Promise P3, all or nothing: a committed step counts each member of its view once, is divided once, and its sum is that
//! of the gradients that the ledger asked the ready members for. No gradient of another step, share or peer is in it.

use std::collections::BTreeSet;

use starling_topology::{Digest, PeerId};

use crate::steps::state::{ResultRecord, State};
use crate::verdict::invariants::Broken;
use crate::verdict::report::oracle;

const NAME: &str = "exactly_once";

/// Remembers what was checked: the digests cover all of it.
#[derive(Debug, Default)]
pub struct ExactlyOnce {
    checked: BTreeSet<(Digest, Digest)>,
}

impl ExactlyOnce {
    /// `peer` committed `record` on top of `before` and came to `after`.
    ///
    /// # Errors
    /// If a member was counted not exactly once, or the sum is not what the ledger asked for.
    pub fn committed(
        &mut self,
        peer: PeerId,
        before: &State,
        record: &ResultRecord,
        after: &State,
    ) -> Result<(), Broken> {
        if !self.checked.insert((before.digest, after.digest)) {
            return Ok(());
        }
        let step = record.step;
        if step != before.step + 1 || after.step != step {
            return Err(Broken::new(NAME, format!("{peer:?} committed step {step} after step {}", before.step)));
        }
        let speeds = record.speeds();
        if speeds.len() != record.members.len() {
            return Err(Broken::new(NAME, format!("{peer:?} committed step {step} with {} speeds", speeds.len())));
        }
        let sum = oracle::sum(before, record);
        let wrong = record.cells.iter().find(|(_, contributions)| {
            let once = contributions.counts.len() == record.members.len()
                && contributions.counts.iter().all(|count| *count == 1);
            !once || contributions.divided != 1 || contributions.sum != sum
        });
        match wrong {
            None => Ok(()),
            Some((cell, wrong)) => {
                let seen =
                    format!("{peer:?} committed step {step} with {wrong:?} in {cell:?}; the sum should be {sum}");
                Err(Broken::new(NAME, seen))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::contribution::{Cell, Contributions, gradient};
    use starling_topology::ledger::Ledger;
    use starling_topology::{Lineage, Rank};

    fn peers() -> [PeerId; 2] {
        [PeerId([1; 32]), PeerId([2; 32])]
    }

    fn before() -> State {
        State::assigned(Ledger::new(1, 50, 8), &peers())
    }

    fn check(counts: &[u32], divided: u32, sum: u64, speeds: &[u32]) -> Result<(), Broken> {
        let cell = Cell { bucket: 0, chunk: Rank(0), segment: 0 };
        let contributions = Contributions { counts: counts.to_vec(), divided, sum, speeds: speeds.to_vec() };
        let record = ResultRecord {
            step: 1,
            lineage: Lineage { branch: 5, ..Lineage::NONE },
            after: Lineage::NONE,
            members: peers().to_vec(),
            cells: vec![(cell, contributions)],
            mean: vec![1.5],
        };
        let after = State { step: 1, digest: Digest([9; 32]), ..before() };
        ExactlyOnce::default().committed(peers()[0], &before(), &record, &after)
    }

    fn of(index: usize, step: u64) -> u64 {
        gradient(peers()[index], step, before().ledger.share_of(peers()[index]))
    }

    #[test]
    fn each_rank_counts_once() {
        let sum = of(0, 1).wrapping_add(of(1, 1));
        assert_eq!(check(&[1, 1], 1, sum, &[3, 3]), Ok(()));
        for (counts, divided) in [(&[1, 0][..], 1), (&[1, 2], 1), (&[1, 1], 0), (&[1, 1], 2), (&[1], 1)] {
            assert!(check(counts, divided, sum, &[3, 3]).is_err(), "{counts:?}, {divided}");
        }
    }

    #[test]
    fn the_sum_is_what_the_ledger_asked_for() {
        assert_eq!(check(&[1, 1], 1, of(0, 1), &[3, 0]), Ok(()), "one that has no state yet brings nothing");
        let whole = of(0, 1).wrapping_add(of(1, 1));
        assert!(check(&[1, 1], 1, whole, &[3, 0]).is_err());
        assert!(check(&[1, 1], 1, of(0, 1), &[3, 3]).is_err());
        let stale = of(0, 1).wrapping_add(of(1, 0));
        assert!(check(&[1, 1], 1, stale, &[3, 3]).is_err());
        assert!(check(&[1, 1], 1, whole, &[3]).is_err());
    }
}
