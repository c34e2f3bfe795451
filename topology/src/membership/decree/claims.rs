//! What members are believed of what they say: of the state that they hold, and of each other. All who hold the same promises
//! come to the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::PeerId;
use crate::view::View;
use crate::view::lineage::Lineage;
use crate::vote::promise::Promise;
use crate::vote::proposal::{Progress, ResumePlan};

/// What members say that they hold.
pub(in crate::membership) struct Claims<'a> {
    view: &'a View,
    /// How `view` went on.
    resumed: Option<&'a ResumePlan>,
    promises: &'a BTreeMap<PeerId, Promise>,
    /// The step that is sure to have been reached, where some who vote and did not come back tell of one: of more than may be
    /// hostile one at least speaks the truth and has taken part in all steps up to its own. Where none may be, all are believed.
    reached: Option<u64>,
}

impl<'a> Claims<'a> {
    pub(in crate::membership) fn new(
        view: &'a View,
        resumed: Option<&'a ResumePlan>,
        promises: &'a BTreeMap<PeerId, Promise>,
    ) -> Self {
        let mut claims = Self { view, resumed, promises, reached: None };
        let least = resumed.map_or(0, |resume| resume.step);
        // Those who wait for members may not have what their view goes on from: neither its state nor, if they were to load that, the
        // result which leads there.
        let counts = |by: &PeerId, promise: &Promise| {
            let is_there = match promise.progress.step {
                step if claims.was_syncing(*by) => step >= least,
                step => step.saturating_add(1) >= least,
            };
            is_steady(promise) && claims.is_possible(promise) && is_there
        };
        let steady = promises.iter().filter(|(by, promise)| view.votes(**by) && counts(by, promise));
        let mut steps: Vec<u64> = steady.map(|(_, promise)| promise.progress.step).collect();
        steps.sort_unstable();
        let hostile = view.most_hostile();
        claims.reached = if hostile > 0 { steps.get(hostile) } else { steps.last() }.copied();
        claims
    }

    /// The last step that anybody can have committed in the view, where that is known: nobody is further than by one step than a member
    /// that has taken part in all of them.
    pub(in crate::membership) fn furthest(&self) -> Option<u64> {
        Some(self.reached?.saturating_add(1))
    }

    /// The members that say they hold a state which nobody can have come to: beside what is reached there is at most the next
    /// step's result, with whoever took it. So nobody gives up a state that it holds for one that a few say they have.
    fn unfounded(&self) -> BTreeSet<PeerId> {
        let Some(reached) = self.reached else { return BTreeSet::new() };
        let is_unfounded = |by: &PeerId, promise: &Promise| {
            let is_impossible = (self.is_alone(promise) && !self.was_syncing(*by)) || promise.is_beyond(reached);
            self.may_be_hostile(*by) && is_impossible
        };
        self.promises.iter().filter(|(by, promise)| is_unfounded(by, promise)).map(|(by, _)| *by).collect()
    }

    /// The members that are put out for what voters have seen of them, and for what they say themselves. Of four or more it takes
    /// one more than may be hostile, fewer than a third, so that these alone put out nobody; below that one is enough, and the
    /// casting vote breaks ties.
    pub(in crate::membership) fn convicted(&self) -> BTreeSet<PeerId> {
        let Self { view, promises, .. } = *self;
        let needed = view.most_hostile() + 1;
        let mut convicted = self.unfounded();
        loop {
            let mut accusers: BTreeMap<PeerId, usize> = BTreeMap::new();
            let counts = |by: &PeerId| view.votes(*by) && !convicted.contains(by);
            for (by, promise) in promises.iter().filter(|(by, promise)| !promise.leaving && counts(by)) {
                let accused = promise.accused.iter().filter(|peer| *peer != by && view.contains(**peer));
                accused.for_each(|peer| *accusers.entry(*peer).or_default() += 1);
            }
            let open = accusers.into_iter().filter(|(peer, count)| *count >= needed && !convicted.contains(peer));
            match open.max_by_key(|(peer, count)| (*count, *peer != view.casting(), *peer)) {
                Some((peer, _)) => drop(convicted.insert(peer)),
                None => return convicted,
            }
        }
    }

    /// Where everybody stands, as far as it is believed: who says what need not be a lie, and does not count, passes for one that
    /// has yet to load the state. That is a state of another lineage than this view's at its step; and, as long as enough of the
    /// others stand where they were, one beyond theirs that somebody came back with, or has just loaded.
    pub(in crate::membership) fn believed(&self) -> BTreeMap<PeerId, Progress> {
        let holds = |promise: &Promise| promise.progress.has_state || promise.progress.has_result;
        // Where all came back, one of them at least has to hold what the others would give theirs up for.
        let is_sure = self.reached.is_some()
            || self.promises.values().any(|promise| promise.progress.has_state && self.is_possible(promise));
        let is_believed = |by: &PeerId, promise: &Promise| {
            let came_ahead = promise.recovering && self.reached.is_some_and(|reached| promise.progress.step > reached);
            let is_ahead = came_ahead || (self.is_alone(promise) && self.was_syncing(*by));
            !holds(promise) || !is_sure || (self.is_possible(promise) && !(self.may_be_hostile(*by) && is_ahead))
        };
        let believed = |(by, promise): (&PeerId, &Promise)| {
            (*by, if is_believed(by, promise) { promise.progress } else { Progress::default() })
        };
        self.promises.iter().map(believed).collect()
    }

    /// Whether a state can have the lineage that this promise tells: at the step from which the view went on there is one, and
    /// what came after it was committed in the view. Who came back may have heard of a later one.
    fn is_possible(&self, promise: &Promise) -> bool {
        let (Progress { step, lineage, .. }, ours) = (promise.progress, Lineage::of(self.view));
        let is_later = lineage.branch == ours.branch && lineage.generation > ours.generation;
        let Some(resumed) = self.resumed else { return true };
        match step.cmp(&resumed.step) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => lineage == resumed.lineage,
            std::cmp::Ordering::Greater => lineage == ours || (promise.recovering && is_later),
        }
    }

    /// Whether what is promised holds where this member is hostile. Of newcomers any number may be.
    fn may_be_hostile(&self, peer: PeerId) -> bool {
        self.view.most_hostile() > 0 || !self.view.votes(peer)
    }

    /// Whether it says that it holds a state beyond what is reached, and not the result that leads there.
    fn is_alone(&self, promise: &Promise) -> bool {
        let is_beyond = |reached: u64| promise.progress.step > reached;
        self.reached.is_some_and(is_beyond) && is_steady(promise) && !promise.progress.has_result
    }

    /// Whether this member was to load the state when the view began.
    fn was_syncing(&self, peer: PeerId) -> bool {
        self.resumed.is_some_and(|resumed| resumed.syncing.binary_search(&peer).is_ok())
    }
}

/// Whether it holds a state, and did so all the time.
fn is_steady(promise: &Promise) -> bool {
    promise.progress.has_state && !promise.recovering
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Generation, RunId};

    const LEAST: u64 = 20;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    /// Where one stands, with the state and the result that led there.
    fn at(step: u64, lineage: Lineage) -> Progress {
        Progress { step, lineage, has_state: true, has_result: true }
    }

    fn promise(progress: Progress, recovering: bool) -> Promise {
        Promise { recovering, ..Promise::at(progress) }
    }

    /// Who is put out, and who passes for one without a state, among members that say so in a view that went on after [`LEAST`].
    fn judged(
        syncing: &[u8],
        said: impl Fn(&View, Lineage) -> Vec<(Progress, bool)>,
    ) -> (BTreeSet<PeerId>, Vec<PeerId>) {
        let before = Lineage { branch: 0, generation: Generation(3), view: crate::id::ViewId([9; 32]) };
        let members = said(&View::found(RunId([7; 32]), peer(0)), before).len();
        let mut view = View::found(RunId([7; 32]), peer(0)).succeed((0..members).map(|name| peer(name as u8)));
        view.generation = Generation(4);
        let said = said(&view, before).into_iter().enumerate();
        let promises: BTreeMap<PeerId, Promise> =
            said.map(|(name, (progress, recovering))| (peer(name as u8), promise(progress, recovering))).collect();
        let (holders, donors) = (Vec::new(), vec![peer(0)]);
        let syncing = syncing.iter().copied().map(peer).collect();
        let resumed = ResumePlan { step: LEAST, lineage: before, holders, donors, syncing };
        let claims = Claims::new(&view, Some(&resumed), &promises);
        let believed = claims.believed();
        let passes = believed.iter().filter(|(by, progress)| **progress != promises[by].progress);
        (claims.unfounded(), passes.map(|(by, _)| *by).collect())
    }

    #[test]
    fn a_state_of_a_made_up_lineage_counts_for_nothing() {
        // At the step where all stand, before the view has committed one; and after it has.
        let first = judged(&[], |view, before| {
            let honest = (at(LEAST, before), false);
            vec![honest, honest, honest, (at(LEAST, Lineage::of(view)), false)]
        });
        assert_eq!(first, (BTreeSet::new(), vec![peer(3)]));
        let later = judged(&[], |view, before| {
            let honest = (at(LEAST + 3, Lineage::of(view)), false);
            vec![honest, honest, honest, (at(LEAST + 3, before), false)]
        });
        assert_eq!(later, (BTreeSet::new(), vec![peer(3)]));
    }

    #[test]
    fn who_comes_back_is_not_ahead_of_those_who_stayed() {
        for ahead in [1, 1_000] {
            let judged = judged(&[], |view, _| {
                let honest = (at(LEAST + 3, Lineage::of(view)), false);
                let back = Progress { has_result: false, ..at(LEAST + 3 + ahead, Lineage::of(view)) };
                vec![honest, honest, honest, (back, true)]
            });
            assert_eq!(judged, (BTreeSet::new(), vec![peer(3)]), "{ahead} ahead");
        }
        // Where all came back, one of them may well be.
        let all = judged(&[], |view, _| {
            let back = |step| (at(LEAST + step, Lineage::of(view)), true);
            vec![back(1), back(1), back(4), back(2)]
        });
        assert_eq!(all, (BTreeSet::new(), Vec::new()));
    }

    #[test]
    fn a_state_of_a_branch_that_was_left_does_not_count_for_its_later_step() {
        let judged = judged(&[], |_, before| {
            let older = Lineage { generation: Generation(1), ..before };
            vec![(at(LEAST, before), true), (at(LEAST + 7, older), true)]
        });
        assert_eq!(judged, (BTreeSet::new(), vec![peer(1)]));
    }

    #[test]
    fn those_who_wait_with_less_than_their_view_goes_on_from_convict_nobody() {
        let judged = judged(&[], |_, before| {
            let behind = (at(LEAST - 9, before), false);
            vec![(at(LEAST, before), false), behind, behind, behind]
        });
        assert_eq!(judged, (BTreeSet::new(), Vec::new()));
    }

    #[test]
    fn those_who_wait_one_step_behind_with_the_state_yet_to_load_convict_nobody() {
        let judged = judged(&[1, 2, 3], |_, before| {
            let behind = (Progress { has_result: false, ..at(LEAST - 1, before) }, false);
            vec![(Progress { has_result: false, ..at(LEAST, before) }, false), behind, behind, behind]
        });
        assert_eq!(judged, (BTreeSet::new(), Vec::new()));
    }

    #[test]
    fn who_has_just_loaded_the_state_is_no_liar() {
        let judged = judged(&[3], |_, before| {
            let behind = (at(LEAST - 1, before), false);
            vec![behind, behind, behind, (Progress { has_result: false, ..at(LEAST, before) }, false)]
        });
        assert_eq!(judged, (BTreeSet::new(), vec![peer(3)]));
    }

    #[test]
    fn what_newcomers_say_of_others_and_of_themselves_puts_out_nobody_else() {
        let before = Lineage { branch: 0, generation: Generation(3), view: crate::id::ViewId([9; 32]) };
        let mut view = View::found(RunId([7; 32]), peer(0)).succeed((0..4).map(peer)).with_newcomers((1..4).map(peer));
        view.generation = Generation(4);
        let (donors, holders, syncing) = (vec![peer(0)], Vec::new(), Vec::new());
        let resumed = ResumePlan { step: LEAST, lineage: before, holders, donors, syncing };
        let accuses = |step: u64, accused: &[u8]| {
            let accused = accused.iter().map(|name| peer(*name)).collect();
            Promise { accused, ..promise(at(step, Lineage::of(&view)), false) }
        };
        let judged = |promises: [Promise; 4]| {
            let promises: BTreeMap<PeerId, Promise> = (0..4).map(peer).zip(promises).collect();
            Claims::new(&view, Some(&resumed), &promises).convicted()
        };
        let here = LEAST + 3;
        let none = judged([accuses(here, &[]), accuses(here, &[0]), accuses(here, &[0]), accuses(here, &[0])]);
        assert_eq!(none, BTreeSet::new(), "three of four say so, and none of them votes");
        let one = judged([accuses(here, &[2]), accuses(here, &[0]), accuses(here, &[0]), accuses(here, &[0])]);
        assert_eq!(one, [peer(2)].into());
        // The step that one has taken counts, and none that is further ahead, however many say so.
        let ahead =
            judged([accuses(here, &[]), accuses(here + 1, &[]), accuses(here + 9, &[]), accuses(here + 9, &[])]);
        assert_eq!(ahead, [2, 3].map(peer).into());
    }
}
