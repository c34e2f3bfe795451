//! Which of its checkpoints a member goes on from, and which of them may go. Nodes and simulated peers ask the same functions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::view::lineage::{Lineage, Root};

/// What is known of a checkpoint before its state is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// The last step of its state.
    pub step: u64,
    /// The lineage of its state.
    pub lineage: Lineage,
    /// Whether a quorum has signed it: one of a fork, if it says so.
    pub stable: Option<ForkStatus>,
}

/// Whether those who have signed were in a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkStatus(pub bool);

impl CheckpointRecord {
    /// Of several that count, the highest comes first when the process starts again. By then one that is not known to be stable
    /// may be: its other signers know. In every quorum of their view is one of them, and it must not bring less than it signed.
    /// Of equal steps the stable one comes first.
    pub fn precedence(&self) -> Reverse<(u64, bool)> {
        Reverse((self.step, self.stable.is_some()))
    }

    /// Whether the run has certainly gone on without this state, given that `root` does not admit it.
    fn is_lost(&self, root: &Root) -> bool {
        self.lineage.branch != root.branch || self.step > root.step || self.stable == Some(ForkStatus(true))
    }

    /// Whether the root's state has certainly come from this one. A lower step alone does not show it: others may have gone back
    /// behind it, and have come further since.
    fn is_ancestor(&self, root: &Root) -> bool {
        self.lineage == root.lineage && self.step <= root.step
    }
}

/// Of those of `all` that are `left`, because `root` does not admit them, the ones that must stay until their user removes them:
/// of each branch the newest stable one that the run has certainly gone on without. By place.
pub fn lost(all: &[CheckpointRecord], left: &BTreeSet<usize>, root: &Root) -> BTreeSet<usize> {
    let mut newest: BTreeMap<u64, usize> = BTreeMap::new();
    for at in left.iter().copied().filter(|at| all[*at].stable.is_some() && all[*at].is_lost(root)) {
        let place = newest.entry(all[at].lineage.branch).or_insert(at);
        if all[*place].step <= all[at].step {
            *place = at;
        }
    }
    newest.into_values().collect()
}

/// A folder of checkpoints, one of which was just written and read back.
#[derive(Debug)]
pub struct RetentionInput<'a> {
    /// Its checkpoints.
    pub all: &'a [CheckpointRecord],
    /// The place of the new one.
    pub saved: usize,
    /// Those of branches that were left.
    pub left: &'a BTreeSet<usize>,
    /// Those of them that stay.
    pub kept: &'a BTreeSet<usize>,
    /// Which state the run has gone on from here, if that is known.
    pub root: Option<&'a Root>,
    /// How many stay of the branch that goes on.
    pub keep: usize,
}

impl RetentionInput<'_> {
    /// What goes, by place: all but the last few of the branch that goes on, the last stable one that `is_intact`, and what stays
    /// of branches that were left. Of its own branch also the newest stable one stays that may not have led to what goes on.
    pub fn surplus(&self, is_intact: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let (saved, is_stable) = (&self.all[self.saved], |at: usize| self.all[at].stable.is_some());
        let (left, ours): (Vec<usize>, Vec<usize>) =
            (0..self.all.len()).partition(|at| self.left.contains(at) && *at != self.saved);
        // Until the branch that goes on has a stable one, also one that did lead to it stays.
        let has_stable = ours.iter().any(|at| is_stable(*at));
        let leads = |held: &CheckpointRecord| has_stable && self.root.is_some_and(|root| held.is_ancestor(root));
        let branch = self.root.map_or(saved.lineage.branch, |root| root.branch);
        let may_be_lost = |at: &usize| {
            let held = &self.all[*at];
            is_stable(*at) && held.lineage.branch == branch && !leads(held) && !self.kept.contains(at)
        };
        let doubtful = left.iter().copied().filter(may_be_lost).max_by_key(|at| self.all[*at].step);
        let mut gone: BTreeSet<usize> = left.into_iter().filter(|at| !self.kept.contains(at)).collect();
        doubtful.iter().for_each(|at| _ = gone.remove(at));
        // A step has one checkpoint: the one saved last.
        let is_replaced = |at: &usize| self.all[*at].step == saved.step && *at != self.saved;
        let (mut old, mut last): (Vec<usize>, Vec<usize>) = ours.iter().partition(|at| is_replaced(at));
        last.sort_by_key(|at| self.all[*at].step);
        old.extend(&last[..last.len().saturating_sub(self.keep)]);
        // The one just saved stays, even where higher steps are there. So does a stable one, until a later one that is stable
        // turns out to be intact: for who takes part in no branch, one of the same branch, or
        // of the same as a fork.
        let is_superseded = |at: usize| {
            let takes_the_place = |other: &usize| {
                let (held, other) = (&self.all[at], &self.all[*other]);
                let is_same = (other.lineage.branch, other.stable) == (held.lineage.branch, held.stable);
                other.step > held.step && (self.root.is_some() || is_same)
            };
            ours.iter().copied().filter(|other| is_stable(*other) && takes_the_place(other)).any(&is_intact)
        };
        gone.extend(old.into_iter().filter(|at| *at != self.saved && (is_superseded(*at) || !is_stable(*at))));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Generation, PeerId, RunId, ViewId};
    use crate::view::View;

    const NEWER: Lineage = Lineage { branch: 7, generation: Generation(2), view: ViewId([2; 32]) };
    const OLDER: Lineage = Lineage { branch: 7, generation: Generation(1), view: ViewId([1; 32]) };

    fn held(step: u64, lineage: Lineage) -> CheckpointRecord {
        CheckpointRecord { step, lineage, stable: None }
    }

    fn stable(step: u64, lineage: Lineage) -> CheckpointRecord {
        CheckpointRecord { stable: Some(ForkStatus(false)), ..held(step, lineage) }
    }

    /// Of a member that joined after step 75, which was committed in the newer view.
    fn root() -> Root {
        let view = View::found(RunId([1; 32]), PeerId([1; 32])).on_branch(7);
        Root { generation: Generation(3), ..Root::new(&view, 75, NEWER) }
    }

    /// What stays, by step, once the last one was saved.
    fn stays(all: &[CheckpointRecord], root: &Root, keep: usize) -> Vec<u64> {
        let left: BTreeSet<usize> = (0..all.len()).filter(|at| !root.admits(all[*at].step, all[*at].lineage)).collect();
        let kept = lost(all, &left, root);
        let folder = RetentionInput { all, saved: all.len() - 1, left: &left, kept: &kept, root: Some(root), keep };
        let gone = folder.surplus(|_| true);
        let there = all.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        there.map(|(_, held)| held.step).collect()
    }

    #[test]
    fn the_highest_comes_first_and_of_equal_ones_that_of_a_quorum() {
        let mut all = [held(60, OLDER), stable(40, OLDER), stable(60, NEWER), held(70, OLDER)];
        all.sort_by_key(CheckpointRecord::precedence);
        assert_eq!(all, [held(70, OLDER), stable(60, NEWER), held(60, OLDER), stable(40, OLDER)]);
    }

    #[test]
    fn a_stable_one_from_before_stays_unless_it_led_to_what_goes_on() {
        let next = Lineage { generation: Generation(3), ..OLDER };
        let saved = [stable(80, next), held(90, next)];
        let after = |before: &[CheckpointRecord]| stays(&[before, &saved].concat(), &root(), 3);
        assert_eq!(
            after(&[stable(50, OLDER), stable(60, OLDER), held(70, OLDER)]),
            [60, 80, 90],
            "others may have left it"
        );
        assert_eq!(after(&[stable(60, NEWER), held(70, OLDER)]), [80, 90], "of the view that took the root's step");
        assert_eq!(stays(&[stable(60, NEWER), held(90, next)], &root(), 3), [60, 90], "until there is another");
        let other = Lineage { branch: 8, ..OLDER };
        let fork = CheckpointRecord { stable: Some(ForkStatus(true)), ..stable(30, OLDER) };
        assert_eq!(after(&[stable(20, other), stable(60, other), fork, stable(40, OLDER)]), [60, 30, 40, 80, 90]);
        assert_eq!(
            after(&[stable(76, OLDER), stable(60, OLDER)]),
            [76, 60, 80, 90],
            "what went on without it is known"
        );
    }

    #[test]
    fn of_the_branch_that_goes_on_the_last_few_stay_and_the_last_stable_one() {
        let next = Lineage { generation: Generation(3), ..OLDER };
        let all = [stable(76, next), stable(77, next), held(78, next), held(79, next), held(80, next)];
        assert_eq!(stays(&all, &root(), 2), [77, 79, 80]);
        assert_eq!(stays(&[held(80, next), held(78, next)], &root(), 1), [80, 78], "the one just saved stays");
        assert_eq!(stays(&[stable(80, next), held(80, OLDER), held(80, next)], &root(), 3), [80, 80]);
    }

    #[test]
    fn who_takes_part_in_no_branch_keeps_the_newest_stable_one_of_each() {
        let fork = |step| CheckpointRecord { stable: Some(ForkStatus(true)), ..stable(step, OLDER) };
        let other = Lineage { branch: 8, ..OLDER };
        let all = [stable(10, OLDER), stable(20, NEWER), fork(25), fork(30), stable(90, other), held(95, other)];
        let none = BTreeSet::new();
        let folder = RetentionInput { all: &all, saved: 5, left: &none, kept: &none, root: None, keep: 1 };
        assert_eq!(folder.surplus(|_| true), BTreeSet::from([0, 2]));
        let root = Root { branch: 7, ..Root::default() };
        let member = RetentionInput { root: Some(&root), ..folder };
        assert_eq!(member.surplus(|_| true), BTreeSet::from([0, 1, 2, 3]), "whoever takes part goes on from one");
    }
}
