//! Which state a step's state is: two runs, two attempts or two branches can each have a state after step 100, and those are
//! not the same.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{Generation, ViewId};
use crate::view::View;

/// The view in which a step was committed. Two states of one step and one lineage are equal; of two lineages they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lineage {
    /// [`View::branch`].
    pub branch: u64,
    /// [`View::generation`].
    pub generation: Generation,
    /// The view.
    pub view: ViewId,
}

impl Lineage {
    /// That of the state which a run begins with: its settings determine it.
    pub const NONE: Self = Self { branch: 0, generation: Generation(0), view: ViewId::NONE };

    /// How long its bytes are.
    pub const BYTES: usize = 48;

    /// Of the steps that `view` commits.
    pub fn of(view: &View) -> Self {
        Self { branch: view.branch, generation: view.generation, view: view.id() }
    }

    /// Branch and generation, little-endian, then the view.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.branch.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.generation.0.to_le_bytes());
        bytes[16..].copy_from_slice(&self.view.0);
        bytes
    }

    /// What [`Self::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let view = ViewId(std::array::from_fn(|byte| bytes[16 + byte]));
        Self { branch: number(0), generation: Generation(number(8)), view }
    }
}

impl Default for Lineage {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for Lineage {
    /// Its bytes in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Which of a member's checkpoints are of the branch that it is on: those since the state that it began with, or loaded last,
/// and the view in which it did. What it had saved before may be of a branch that was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Root {
    /// The last step of that state.
    pub step: u64,
    /// Its lineage.
    pub lineage: Lineage,
    /// The branch of the view.
    pub branch: u64,
    /// The generation of the view.
    pub generation: Generation,
    /// Where it came back from a checkpoint later: the step from which all went on, and the generation of the view in which they
    /// did, by ascending step. What it had saved after that step, before that view, was lost with those who died.
    pub cuts: [Option<(u64, Generation)>; MAX_CUTS],
}

/// So many cuts are remembered. What an older one left is gone from the disk long since.
const MAX_CUTS: usize = 4;

impl Root {
    /// Of a member that goes on in `view` from the state after `step` of this lineage.
    pub(crate) fn new(view: &View, step: u64, lineage: Lineage) -> Self {
        Self { step, lineage, branch: view.branch, generation: view.generation, cuts: Default::default() }
    }

    /// The member came back, and goes on in `view` from the state after `step` of this lineage.
    pub(crate) fn cut(self, view: &View, step: u64, lineage: Lineage) -> Self {
        if step < self.step {
            return Self::new(view, step, lineage); // All went back behind where it came in: nothing of what it had counts.
        }
        // A cut at an earlier step still says what lay between.
        let earlier = self.cuts.into_iter().flatten().filter(|(last, _)| *last < step);
        let all: Vec<_> = earlier.chain([(step, view.generation)]).collect();
        let newest = &all[all.len().saturating_sub(MAX_CUTS)..];
        Self { cuts: std::array::from_fn(|at| newest.get(at).copied()), ..self }
    }

    /// Whether the state after `step` of this lineage is of the branch that the member is on.
    pub fn admits(&self, step: u64, lineage: Lineage) -> bool {
        let is_root = step == self.step && lineage == self.lineage;
        let is_since = step > self.step && lineage.branch == self.branch && lineage.generation >= self.generation;
        (is_root || is_since) && !self.is_cut(step, lineage.generation)
    }

    /// Whether it may admit a state after `step` that members of `view` have signed, though an earlier view may have committed
    /// it.
    pub fn may_admit(&self, step: u64, view: &View) -> bool {
        let is_root = step == self.step && Lineage::of(view) == self.lineage;
        let is_since = step >= self.step && view.branch == self.branch && view.generation >= self.generation;
        (is_root || is_since) && !self.is_cut(step, view.generation)
    }

    fn is_cut(&self, step: u64, generation: Generation) -> bool {
        self.cuts.iter().flatten().any(|(last, since)| step > *last && generation < *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{PeerId, RunId};

    #[test]
    fn what_was_saved_before_is_of_another_branch() {
        let me = PeerId([1; 32]);
        let first = View::found(RunId([1; 32]), me).on_branch(7);
        let (second, other) = (first.succeed([me]), first.clone().on_branch(8));
        let (third, older) = (Lineage::of(&second.succeed([me])), Lineage::of(&first));
        let root = Root::new(&second, 40, older);
        assert!(root.admits(40, older), "what it went on from");
        assert!(root.admits(41, Lineage::of(&second)) && root.admits(90, third), "committed since");
        assert!(!root.admits(57, older), "committed before, by those who are gone");
        assert!(!root.admits(39, older) && !root.admits(40, third), "not what it went on from");
        assert!(!root.admits(90, Lineage { branch: 8, ..third }) && !root.admits(90, Lineage::of(&other)));
        assert_eq!(Lineage::from_bytes(third.to_bytes()), third);
        assert!(!root.admits(0, Lineage::NONE) && Root::new(&first, 0, Lineage::NONE).admits(0, Lineage::NONE));
    }

    #[test]
    fn what_was_saved_after_the_state_that_all_came_back_to_is_lost() {
        let me = PeerId([1; 32]);
        let first = View::found(RunId([1; 32]), me).on_branch(7);
        let (before, next) = (Lineage::of(&first), first.succeed([me]));
        let root = Root::new(&first, 0, Lineage::NONE).cut(&next, 40, before);
        assert!(root.admits(20, before) && root.admits(40, before), "on the way there");
        assert!(!root.admits(57, before));
        assert!(root.admits(41, Lineage::of(&next)));
        assert!(root.may_admit(40, &first) && !root.may_admit(57, &first) && root.may_admit(57, &next));
        // Killed again, further on: what was lost the first time stays lost.
        let third = next.succeed([me]);
        let again = root.cut(&third, 60, Lineage::of(&next));
        assert!(again.admits(57, Lineage::of(&next)) && !again.admits(61, Lineage::of(&next)));
        assert!(!again.admits(57, before) && again.admits(40, before) && again.admits(61, Lineage::of(&third)));
        let back = again.cut(&third.succeed([me]), 30, before);
        assert!(back.admits(30, before) && !back.admits(40, before) && !back.admits(57, Lineage::of(&next)));
        let many = (100..120).fold(root, |root, step| root.cut(&third, step, before));
        assert_eq!(many.cuts.iter().flatten().count(), MAX_CUTS);
        // It came in later than where all go on.
        let behind = Root::new(&next, 50, before).cut(&third, 30, before);
        assert!(behind.admits(30, before) && behind.admits(31, Lineage::of(&third)));
        assert!(!behind.admits(50, before) && !behind.admits(51, Lineage::of(&next)));
    }
}
