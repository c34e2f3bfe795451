//! Promise P3, all or nothing: a step is committed in one view, by each of its peers once and in order, with one
//! contribution of each member, divided once.

use std::collections::BTreeMap;

use starling_topology::{PeerId, ViewId, WorldSize};

use super::Broken;
use crate::contribution::{Cell, Contributions};
use crate::oracle;

const NAME: &str = "exactly_once";

/// Remembers in which view each step was committed, and how far each peer is.
#[derive(Debug, Default)]
pub struct ExactlyOnce {
    views: BTreeMap<u64, ViewId>,
    steps: BTreeMap<PeerId, u64>,
}

impl ExactlyOnce {
    /// `peer` loaded the state after `step`.
    pub fn loaded(&mut self, peer: PeerId, step: u64) {
        self.steps.insert(peer, step);
    }

    /// `peer` committed `step` with `result`.
    ///
    /// # Errors
    /// If the step is not the peer's next one, was committed in another view, or counts a rank not exactly once.
    pub fn committed<'a>(
        &mut self,
        peer: PeerId,
        step: u64,
        view: ViewId,
        world: WorldSize,
        result: impl IntoIterator<Item = (&'a Cell, &'a Contributions)>,
    ) -> Result<(), Broken> {
        let before = self.steps.insert(peer, step).unwrap_or(0);
        if step != before + 1 {
            return Err(Broken::new(NAME, format!("{peer:?} committed step {step} after step {before}")));
        }
        let first = *self.views.entry(step).or_insert(view);
        if first != view {
            return Err(Broken::new(
                NAME,
                format!("step {step} was committed in {first:?} and, by {peer:?}, in {view:?}"),
            ));
        }
        let exact = oracle::exact(world);
        match result.into_iter().find(|(_, contributions)| **contributions != exact) {
            None => Ok(()),
            Some((cell, wrong)) => {
                Err(Broken::new(NAME, format!("{peer:?} committed step {step} with {wrong:?} in {cell:?}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::Rank;

    const VIEW: ViewId = ViewId([1; 32]);
    const CELL: Cell = Cell { bucket: 0, chunk: Rank(0), segment: 0 };

    fn commit(
        invariant: &mut ExactlyOnce,
        step: u64,
        view: ViewId,
        counts: &[u32],
        divided: u32,
    ) -> Result<(), Broken> {
        let contributions = Contributions { counts: counts.to_vec(), divided };
        invariant.committed(PeerId([1; 32]), step, view, WorldSize::new(2), [(&CELL, &contributions)])
    }

    #[test]
    fn each_rank_counts_once() {
        assert_eq!(commit(&mut ExactlyOnce::default(), 1, VIEW, &[1, 1], 1), Ok(()));
        for (counts, divided) in [(&[1, 0][..], 1), (&[1, 2], 1), (&[1, 1], 0), (&[1, 1], 2), (&[1], 1)] {
            assert!(commit(&mut ExactlyOnce::default(), 1, VIEW, counts, divided).is_err(), "{counts:?}, {divided}");
        }
    }

    #[test]
    fn steps_come_in_order_and_once() {
        let mut invariant = ExactlyOnce::default();
        assert_eq!(commit(&mut invariant, 1, VIEW, &[1, 1], 1), Ok(()));
        assert!(commit(&mut invariant, 1, VIEW, &[1, 1], 1).is_err());
        assert!(commit(&mut invariant, 3, VIEW, &[1, 1], 1).is_err());
        invariant.loaded(PeerId([1; 32]), 6);
        assert_eq!(commit(&mut invariant, 7, VIEW, &[1, 1], 1), Ok(()));
    }

    #[test]
    fn a_step_is_committed_in_one_view() {
        let mut invariant = ExactlyOnce::default();
        assert_eq!(commit(&mut invariant, 1, VIEW, &[1, 1], 1), Ok(()));
        invariant.loaded(PeerId([1; 32]), 0);
        assert!(commit(&mut invariant, 1, ViewId([2; 32]), &[1, 1], 1).is_err());
    }
}
