//! What a member notes outside of its checkpoints before it signs one: that it had it. Whoever loses its checkpoints and keeps this
//! knows what it has lost, and says so. Whoever has lost this too knows that, and says that it may have been anything.

use serde::{Deserialize, Serialize};

use crate::view::lineage::{Lineage, Root};

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

    /// Whether a member has lost this that comes back to the branch of `root` and holds no more than the state after `held`.
    fn is_lost(&self, root: &Root, held: Option<u64>) -> bool {
        self.step > 0 && held.is_none_or(|held| held < self.step) && root.admits(self.step, self.lineage)
    }
}

/// What a member knows of what it has saved to sign it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MarkStatus {
    /// It has saved nothing yet.
    #[default]
    Nothing,
    /// This, and nothing of its branch after it.
    Saved(Mark),
    /// Its note is lost or damaged: that may be anything.
    Unknown,
}

impl MarkStatus {
    /// Whether this says as much as `saved` does, as [`Mark::covers`].
    pub fn covers(&self, saved: Mark, root: &Root) -> bool {
        if let Self::Saved(mark) = self { mark.covers(saved, root) } else { false }
    }

    /// What a member has lost of the branch of `root` that comes back to it and holds no more than the state after `held`.
    pub fn lost(&self, root: &Root, held: Option<u64>) -> LostState {
        match self {
            Self::Saved(mark) if mark.is_lost(root, held) => LostState::Step(mark.step),
            Self::Nothing | Self::Saved(_) => LostState::Nothing,
            Self::Unknown => LostState::Unknown,
        }
    }

    /// Whether a member that holds the state after `held` has certainly signed nothing later on the branch of `root`: it has lost nothing
    /// of what it had saved to sign it.
    pub fn is_held(&self, root: &Root, held: Option<u64>) -> bool {
        match self {
            Self::Nothing => true,
            Self::Saved(mark) => root.admits(mark.step, mark.lineage) && held >= Some(mark.step),
            Self::Unknown => false,
        }
    }

    /// What is written of it: nothing, or the mark in its canonical bytes (postcard); `None` if there is nothing to be written, as
    /// nobody notes that a note is lost.
    pub fn encode(&self) -> Option<Vec<u8>> {
        match self {
            Self::Nothing => Some(Vec::new()),
            Self::Saved(mark) => Some(postcard::to_allocvec(mark).expect("invariant: a mark always encodes")),
            Self::Unknown => None,
        }
    }

    /// Reads bytes that came from a file; `None` if they are no note.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::Nothing);
        }
        let (mark, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(Self::Saved(mark))
    }
}

/// What a member says that it has lost, of what it had saved to sign it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum LostState {
    /// Nothing.
    #[default]
    Nothing,
    /// The state after this step, and no later one.
    Step(u64),
    /// It does not know: it may have signed any state, and have lost that.
    Unknown,
}

impl LostState {
    /// The same where nobody can have signed a state after a later step than `most`, if that is known.
    pub(crate) fn up_to(self, most: Option<u64>) -> Self {
        match (self, most) {
            (Self::Unknown, Some(most)) => Self::Step(most),
            (lost, _) => lost,
        }
    }

    /// Whether that may be a state after a later step than this.
    pub fn is_after(self, step: u64) -> bool {
        match self {
            Self::Nothing => false,
            Self::Step(lost) => lost > step,
            Self::Unknown => true,
        }
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
        let lost = |root: &Root, held| MarkStatus::Saved(saved).lost(root, held);
        assert_eq!(lost(&root, None), LostState::Step(120));
        assert_eq!(lost(&root, Some(100)), LostState::Step(120));
        assert_eq!(lost(&root, Some(120)), LostState::Nothing);
        assert_eq!(
            lost(&root.cut(&next, 100, Lineage::of(&first)), Some(100)),
            LostState::Nothing,
            "it was gone back behind"
        );
        assert_eq!(lost(&Root::new(&next, 30, Lineage::of(&first)), None), LostState::Nothing, "another branch");
        assert_eq!(MarkStatus::Nothing.lost(&root, None), LostState::Nothing);
        assert_eq!(MarkStatus::Unknown.lost(&root, Some(120)), LostState::Unknown);
        let is_held = |root: &Root, held| MarkStatus::Saved(saved).is_held(root, held);
        assert!(is_held(&root, Some(120)) && is_held(&root, Some(160)));
        assert!(!is_held(&root, Some(110)) && !is_held(&root, None));
        assert!(
            !is_held(&root.cut(&next, 100, Lineage::of(&first)), Some(120)),
            "it says nothing of what was signed since"
        );
        assert!(MarkStatus::Nothing.is_held(&root, None) && !MarkStatus::Unknown.is_held(&root, Some(120)));
        assert!(saved.covers(mark(80, &first), &root) && saved.covers(saved, &root));
        assert!(!saved.covers(mark(160, &first), &root));
        assert!(
            !saved.covers(mark(110, &next), &root.cut(&next, 100, Lineage::of(&first))),
            "what counts now is lower"
        );
    }

    #[test]
    fn what_is_no_mark_is_none() {
        let view = View::found(RunId([1; 32]), ME);
        let mark = Mark { step: u64::MAX, lineage: Lineage { branch: u64::MAX, ..Lineage::of(&view) } };
        let saved = MarkStatus::Saved(mark);
        let bytes = saved.encode().expect("it is known");
        assert!(bytes.len() <= MAX_MARK_BYTES);
        assert_eq!(MarkStatus::decode(&bytes), Some(saved));
        assert_eq!(MarkStatus::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(MarkStatus::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(
            MarkStatus::Nothing.encode().and_then(|bytes| MarkStatus::decode(&bytes)),
            Some(MarkStatus::Nothing)
        );
        assert_eq!(MarkStatus::Unknown.encode(), None, "nobody notes that");
    }

    #[test]
    fn what_is_not_known_may_be_anything() {
        assert!(LostState::Unknown.is_after(u64::MAX) && LostState::Step(7).is_after(6));
        assert!(!LostState::Step(7).is_after(7) && !LostState::Nothing.is_after(0));
        assert!(LostState::Unknown > LostState::Step(u64::MAX) && LostState::Step(0) > LostState::Nothing);
    }
}
