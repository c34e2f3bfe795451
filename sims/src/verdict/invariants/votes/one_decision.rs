//! Agreement: a view has at most one successor that a quorum decided. Every view that a peer enters has it as a member.

use std::collections::BTreeMap;

use starling_topology::{PeerId, View, ViewId};

use crate::verdict::invariants::Broken;

const NAME: &str = "one_decision";

/// Remembers the successor of each view.
#[derive(Debug, Default)]
pub struct OneDecision {
    successors: BTreeMap<Option<ViewId>, ViewId>,
}

impl OneDecision {
    /// `peer` entered `view`, which was installed without a quorum if `fork`.
    ///
    /// # Errors
    /// If another view was decided after the same one, or `peer` is not in it.
    pub fn entered(&mut self, peer: PeerId, view: &View, id: ViewId, fork: bool) -> Result<(), Broken> {
        if !view.contains(peer) {
            return Err(Broken::new(NAME, format!("{peer:?} entered {id:?} without being a member")));
        }
        if fork {
            return Ok(());
        }
        let first = *self.successors.entry(view.parent).or_insert(id);
        if first == id {
            return Ok(());
        }
        let generation = view.generation;
        Err(Broken::new(NAME, format!("{peer:?} is in {id:?} of generation {generation}, others in {first:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::RunId;

    #[test]
    fn a_second_decision_is_noticed() {
        let (one, two) = (PeerId([1; 32]), PeerId([2; 32]));
        let first = View::found(RunId([0; 32]), one);
        let (both, alone) = (first.succeed([one, two]), first.succeed([two]));
        let mut invariant = OneDecision::default();
        assert_eq!(invariant.entered(one, &first, first.id(), false), Ok(()));
        assert_eq!(invariant.entered(one, &both, both.id(), false), Ok(()));
        assert_eq!(invariant.entered(two, &both, both.id(), false), Ok(()));
        assert_eq!(invariant.entered(two, &alone, alone.id(), true), Ok(()), "a fork says so");
        assert!(invariant.entered(two, &alone, alone.id(), false).is_err());
    }

    #[test]
    fn a_stranger_is_noticed() {
        let view = View::found(RunId([0; 32]), PeerId([1; 32]));
        assert!(OneDecision::default().entered(PeerId([2; 32]), &view, view.id(), false).is_err());
    }
}
