//! What a member notes outside of its checkpoints before it signs one: that it had it. Whoever loses its checkpoints and keeps this
//! knows what it has lost, and says so.

use serde::{Deserialize, Serialize};

use crate::lineage::{Lineage, Root};

/// The longest encoded mark, in bytes.
pub const MAX_MARK_BYTES: usize = 10 + Lineage::BYTES + 16;

/// The highest checkpoint of its branch that a member has saved to sign it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Its step.
    pub step: u64,
    /// That of its state.
    pub lineage: Lineage,
}

impl Mark {
    /// Whether this says as much as `saved` does to one whose branch has this root: then nothing is to be noted. A mark of a branch
    /// that was left, or of what was lost with those who died, gives way to a lower one.
    pub fn covers(&self, saved: Self, root: &Root) -> bool {
        *self == saved || (self.step >= saved.step && root.admits(self.step, self.lineage))
    }

    /// The step of what a member has lost that comes back to the branch of `root` and holds no more than the state after `held`;
    /// `None` if it has lost nothing of that branch.
    pub fn lost(&self, root: &Root, held: Option<u64>) -> Option<u64> {
        let is_lost = held.is_none_or(|held| held < self.step) && root.admits(self.step, self.lineage);
        (is_lost && self.step > 0).then_some(self.step)
    }

    /// Whether this is of the branch of `root`, and a member that holds the state after `held` has lost nothing of what it had saved
    /// to sign it: then it has signed nothing later there.
    pub fn is_held(&self, root: &Root, held: Option<u64>) -> bool {
        root.admits(self.step, self.lineage) && held >= Some(self.step)
    }

    /// The canonical bytes (postcard).
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: a mark always encodes")
    }

    /// Reads bytes that came from a file; `None` if they are no mark.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (mark, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{PeerId, RunId};
    use crate::view::View;

    const ME: PeerId = PeerId([1; 32]);

    #[test]
    fn a_mark_counts_as_long_as_its_branch_does() {
        let first = View::found(RunId([1; 32]), ME).on_branch(7);
        let next = first.succeed([ME]);
        let root = Root::new(&first, 0, Lineage::NONE);
        let mark = |step, view| Mark { step, lineage: Lineage::of(view) };
        let saved = mark(120, &first);
        assert_eq!(saved.lost(&root, None), Some(120));
        assert_eq!(saved.lost(&root, Some(100)), Some(120));
        assert_eq!(saved.lost(&root, Some(120)), None);
        assert_eq!(saved.lost(&root.cut(&next, 100), Some(100)), None, "it was gone back behind");
        assert_eq!(saved.lost(&Root::new(&next, 30, Lineage::of(&first)), None), None, "another branch");
        assert!(saved.is_held(&root, Some(120)) && saved.is_held(&root, Some(160)));
        assert!(!saved.is_held(&root, Some(110)) && !saved.is_held(&root, None));
        assert!(!saved.is_held(&root.cut(&next, 100), Some(120)), "it says nothing of what was signed since");
        assert!(saved.covers(mark(80, &first), &root) && saved.covers(saved, &root));
        assert!(!saved.covers(mark(160, &first), &root));
        assert!(!saved.covers(mark(110, &next), &root.cut(&next, 100)), "what counts now is lower");
    }

    #[test]
    fn what_is_no_mark_is_none() {
        let view = View::found(RunId([1; 32]), ME);
        let mark = Mark { step: u64::MAX, lineage: Lineage { branch: u64::MAX, ..Lineage::of(&view) } };
        let bytes = mark.encode();
        assert!(bytes.len() <= MAX_MARK_BYTES);
        assert_eq!(Mark::decode(&bytes), Some(mark));
        assert_eq!(Mark::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Mark::decode(&[&bytes[..], &[0]].concat()), None);
    }
}
