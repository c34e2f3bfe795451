//! What members are believed of what they say: of the state that they hold, and of each other. All who hold the same promises
//! come to the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::PeerId;
use crate::lineage::Lineage;
use crate::promise::Promise;
use crate::proposal::{Progress, Resume};
use crate::view::View;

/// The members that are put out for what others have seen of them. Of four or more it takes one more than may be hostile, fewer
/// than a third, so that these alone put out nobody; below that one is enough, and the casting vote breaks ties.
pub(super) fn convicted(
    view: &View,
    resumed: Option<&Resume>,
    promises: &BTreeMap<PeerId, Promise>,
) -> BTreeSet<PeerId> {
    let needed = view.most_hostile() + 1;
    let mut convicted = Claims::new(view, resumed, promises).unfounded();
    loop {
        let mut accusers: BTreeMap<PeerId, usize> = BTreeMap::new();
        for (by, promise) in promises.iter().filter(|(by, promise)| !promise.leaving && !convicted.contains(*by)) {
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

/// What members say that they hold.
pub(super) struct Claims<'a> {
    view: &'a View,
    /// How `view` went on.
    resumed: Option<&'a Resume>,
    promises: &'a BTreeMap<PeerId, Promise>,
    /// The step that is sure to have been reached, where some who did not come back tell of one: of more than may be
    /// hostile one at least speaks the truth and has taken part in all steps up to its own. Where none may be, all are believed.
    reached: Option<u64>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(view: &'a View, resumed: Option<&'a Resume>, promises: &'a BTreeMap<PeerId, Promise>) -> Self {
        let mut claims = Self { view, resumed, promises, reached: None };
        let least = resumed.map_or(0, |resume| resume.step);
        // Those who wait for members may not have what their view goes on from.
        let counts = |promise: &Promise| {
            is_steady(promise) && claims.is_possible(promise) && promise.progress.step.saturating_add(1) >= least
        };
        let steady = promises.values().filter(|promise| counts(promise));
        let mut steps: Vec<u64> = steady.map(|promise| promise.progress.step).collect();
        steps.sort_unstable();
        let hostile = view.most_hostile();
        claims.reached = if hostile > 0 { steps.get(hostile) } else { steps.last() }.copied();
        claims
    }

    /// The members that say they hold a state which nobody can have come to: beside what is reached there is at most the next
    /// step's result, with whoever took it. So nobody gives up a state that it holds for one that a few say they have.
    pub(super) fn unfounded(&self) -> BTreeSet<PeerId> {
        let Some(reached) = self.reached.filter(|_| self.view.most_hostile() > 0) else { return BTreeSet::new() };
        let is_unfounded = |by: &PeerId, promise: &Promise| {
            (self.is_alone(promise) && !self.was_syncing(*by)) || promise.is_beyond(reached)
        };
        self.promises.iter().filter(|(by, promise)| is_unfounded(by, promise)).map(|(by, _)| *by).collect()
    }

    /// Where everybody stands, as far as it is believed: who says what need not be a lie, and does not count, passes for one that
    /// has yet to load the state. That is a state of another lineage than this view's at its step; and, as long as enough of the
    /// others stand where they were, one beyond theirs that somebody came back with, or has just loaded.
    pub(super) fn believed(&self) -> BTreeMap<PeerId, Progress> {
        let may_be_hostile = self.view.most_hostile() > 0;
        let holds = |promise: &Promise| promise.progress.has_state || promise.progress.has_result;
        // Where all came back, one of them at least has to hold what the others would give theirs up for.
        let is_sure = self.reached.is_some()
            || self.promises.values().any(|promise| promise.progress.has_state && self.is_possible(promise));
        let is_believed = |by: &PeerId, promise: &Promise| {
            let came_ahead = promise.recovering && self.reached.is_some_and(|reached| promise.progress.step > reached);
            let is_ahead = came_ahead || (self.is_alone(promise) && self.was_syncing(*by));
            !holds(promise) || !is_sure || (self.is_possible(promise) && !(may_be_hostile && is_ahead))
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
