//! No split brain: once a quorum of a view has decided its successor, the view itself does not go on. The step that was
//! under way may still complete on a member that has not heard of it; the one after it can't.

use std::collections::BTreeMap;

use starling_topology::{PeerId, View, ViewId};

use crate::verdict::invariants::Broken;

const NAME: &str = "no_split_brain";

/// Remembers from which step on each view is over.
#[derive(Debug, Default)]
pub struct NoSplitBrain {
    over: BTreeMap<ViewId, u64>,
    /// The highest step committed in each view.
    reached: BTreeMap<ViewId, u64>,
}

impl NoSplitBrain {
    /// Somebody entered `view`, which goes on after `step`, and was installed without a quorum if `fork`.
    pub fn entered(&mut self, view: &View, step: u64, fork: bool) {
        if let (Some(parent), false) = (view.parent, fork) {
            // Those who come back from checkpoints may go on after less than their view had committed.
            let reached = self.reached.get(&parent).copied().unwrap_or_default();
            self.over.entry(parent).or_insert_with(|| step.max(reached));
        }
    }

    /// `peer` committed `step` in `view`.
    ///
    /// # Errors
    /// If the view is over, and this step began after that.
    pub fn committed(&mut self, peer: PeerId, view: ViewId, step: u64) -> Result<(), Broken> {
        match self.over.get(&view) {
            Some(over) if step > over + 1 => {
                let seen = format!("{peer:?} committed step {step} in {view:?}, which was over after step {over}");
                Err(Broken::new(NAME, seen))
            }
            Some(_) | None => {
                let reached = self.reached.entry(view).or_default();
                *reached = step.max(*reached);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::RunId;

    #[test]
    fn a_view_that_goes_on_beside_its_successor_is_noticed() {
        let (one, two) = (PeerId([1; 32]), PeerId([2; 32]));
        let first = View::found(RunId([0; 32]), one);
        let next = first.succeed([one, two]);
        let mut invariant = NoSplitBrain::default();
        invariant.entered(&first, 0, false);
        assert_eq!(invariant.committed(one, first.id(), 9), Ok(()));
        invariant.entered(&next, 9, false);
        assert_eq!(invariant.committed(one, first.id(), 10), Ok(()));
        assert!(invariant.committed(one, first.id(), 11).is_err());
        let mut restarted = NoSplitBrain::default();
        assert_eq!(restarted.committed(one, first.id(), 10), Ok(()));
        restarted.entered(&next, 6, false);
        assert_eq!(restarted.committed(two, first.id(), 11), Ok(()), "it was under way when the others died");
        assert!(restarted.committed(two, first.id(), 12).is_err());
        let mut forked = NoSplitBrain::default();
        forked.entered(&next, 9, true);
        assert_eq!(forked.committed(one, first.id(), 11), Ok(()));
    }
}
