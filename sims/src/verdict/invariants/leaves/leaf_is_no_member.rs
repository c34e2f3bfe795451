//! No leaf votes, and none is in a view.

use std::collections::BTreeSet;

use starling_topology::{PeerId, Record, View};

use crate::verdict::invariants::Broken;

const NAME: &str = "leaf_is_no_member";

/// Remembers who is a leaf.
#[derive(Debug, Default)]
pub struct LeafIsNoMember {
    leaves: BTreeSet<PeerId>,
}

impl LeafIsNoMember {
    /// These are leaves.
    pub fn are_leaves(&mut self, leaves: impl Iterator<Item = PeerId>) {
        self.leaves.extend(leaves);
    }

    /// This one is a leaf no more, and asks to be let in.
    pub fn joins(&mut self, peer: PeerId) {
        self.leaves.remove(&peer);
    }

    /// Somebody enters a view.
    ///
    /// # Errors
    /// If a leaf is in it.
    pub fn entered(&self, view: &View) -> Result<(), Broken> {
        let is_in = |leaf: &&PeerId| view.contains(**leaf);
        self.leaves.iter().find(is_in).map_or(Ok(()), |leaf| Err(Broken::new(NAME, format!("{leaf:?} is in {view:?}"))))
    }

    /// Somebody writes down that it is in the view of `record`.
    ///
    /// # Errors
    /// If a leaf has accepted that view.
    pub fn wrote(&self, record: &Record) -> Result<(), Broken> {
        self.entered(&record.view)?;
        let voted = |leaf: &&PeerId| record.certificate.as_ref().is_some_and(|it| it.is_signed_by(**leaf));
        let seen = |leaf: &PeerId| format!("{leaf:?} has accepted {:?}", record.view);
        self.leaves.iter().find(voted).map_or(Ok(()), |leaf| Err(Broken::new(NAME, seen(leaf))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::RunId;

    #[test]
    fn a_view_with_a_leaf_is_noticed() {
        let [member, leaf] = [1, 9].map(|name| PeerId([name; 32]));
        let mut invariant = LeafIsNoMember::default();
        invariant.are_leaves([leaf].into_iter());
        let view = View::found(RunId([1; 32]), member);
        assert_eq!(invariant.entered(&view), Ok(()));
        assert!(invariant.entered(&view.succeed([member, leaf])).is_err());
        invariant.joins(leaf);
        assert_eq!(invariant.entered(&view.succeed([member, leaf])), Ok(()));
    }
}
