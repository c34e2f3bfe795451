//! Links that fail again and again are damped: after a few failures within a short time the next view is unsteady, and its plan takes no
//! link over which they were. Once all is quiet, all links are tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_topology::plan::{Bucket, PlanDecision, PlanPolicy};
use starling_topology::{Config, PeerId, Rank, Reason, Record, Ring, Time, View, ViewId};

use crate::verdict::invariants::Broken;

const NAME: &str = "damped_links";
/// After so many failures at the latest a view is unsteady.
const MOST: usize = 3;
/// If they came within so many steps, or within half of the time that counts: clocks differ, and who proposes knows of each a little later.
const STEPS: u64 = 8;

/// Remembers what has failed on the way to each view.
#[derive(Debug, Default)]
pub struct DampedLinks {
    seen: BTreeMap<ViewId, Seen>,
    /// Since when the newest views are unsteady, and nothing is wrong with their members.
    waiting: Option<Time>,
}

#[derive(Debug, Clone)]
struct Seen {
    view: View,
    /// After which steps, and when that was written down.
    failures: Vec<(u64, Time)>,
}

impl DampedLinks {
    /// The longest that links are damped where none fails any more, with the change of view after it.
    pub fn limit(config: &Config) -> Duration {
        config.replan_interval() * 8 + config.max_stall * 3
    }

    /// Somebody has written down that it is in the view of `record`.
    ///
    /// # Errors
    /// If links have failed often on the way there, and it is not unsteady.
    pub fn wrote(&mut self, now: Time, record: &Record) -> Result<(), Broken> {
        let (view, id) = (&record.view, record.view.id());
        if self.seen.contains_key(&id) {
            return Ok(());
        }
        let parent = view.parent.and_then(|parent| self.seen.get(&parent));
        let mut failures = Vec::new();
        let mut is_judged = false;
        if let (Some(origin), Some(parent)) = (&record.origin, parent) {
            // Who comes, or comes back, knows nothing of what failed before, nor for which links it was let in.
            let knows = |reason: &Reason| !matches!(reason, Reason::Joined(_) | Reason::Recovered | Reason::Forked);
            let all_know = parent.view.members() == view.members() && origin.reasons.iter().all(knows);
            if all_know {
                failures.clone_from(&parent.failures);
            }
            let is_fresh =
                |(a, b): (PeerId, PeerId)| !parent.view.is_severed(a, b) && view.contains(a) && view.contains(b);
            let has_failed =
                origin.reasons.iter().any(|reason| matches!(reason, Reason::Severed(a, b) if is_fresh((*a, *b))));
            let step = origin.resume.step;
            is_judged = has_failed && origin.resume.syncing.is_empty() && !view.forked;
            if has_failed && all_know && failures.last().is_none_or(|(last, _)| *last != step) {
                failures.push((step, now));
            }
        }
        let newest = &failures[failures.len().saturating_sub(MOST)..];
        let is_often = newest.first().zip(newest.last()).is_some_and(|(first, last)| {
            newest.len() == MOST
                && (last.0.abs_diff(first.0) <= STEPS || last.1 - first.1 <= Config::default().max_stall)
        });
        // Of three members or more one is a hub, if one link is left out alone.
        let has_way = view.members().len() >= 3 && view.severed().is_empty();
        let seen = format!("links failed after steps {newest:?} on the way to {id:?}, and it is not unsteady");
        self.seen.insert(id, Seen { view: view.clone(), failures });
        if is_judged && is_often && has_way && !view.is_unsteady() {
            return Err(Broken::new(NAME, seen));
        }
        Ok(())
    }

    /// Somebody enters `view`, in which buffers like `bucket` are reduced as that `policy` says.
    ///
    /// # Errors
    /// If its plan takes a link that is severed.
    pub fn plans(view: &View, policy: PlanPolicy, bucket: Bucket) -> Result<(), Broken> {
        let ring = Ring::plan(view);
        let PlanDecision { plan, weights, .. } = policy.agree_over(&ring, view, bucket);
        let world = ring.world_size();
        // Nothing is sent of a chunk whose owner is too slow for any.
        let chunks = (0..).map(Rank).zip(weights).filter(|(_, weight)| *weight > 0);
        let mut hops = chunks.flat_map(|(chunk, _)| plan.route(world, chunk).hops().collect::<Vec<_>>());
        let severed = hops.find(|(from, to)| view.is_severed(ring.peer(*from), ring.peer(*to)));
        severed.map_or(Ok(()), |(from, to)| {
            Err(Broken::new(
                NAME,
                format!("{plan} of {:?} sends from {} to {}, which are severed", view.id(), from.0, to.0),
            ))
        })
    }

    /// Something may keep links from being tried again.
    pub fn is_excused(&mut self) {
        self.waiting = None;
    }

    /// `view` is the newest, and nothing has happened to its members since `calm`.
    ///
    /// # Errors
    /// If it is unsteady, as those before it were for longer than `limit`.
    pub fn looked(&mut self, now: Time, view: &View, calm: Time, limit: Duration) -> Result<(), Broken> {
        let since = self.waiting.unwrap_or(now).max(calm);
        self.waiting = Some(since).filter(|_| view.is_unsteady());
        if self.waiting.is_some() && now - since > limit {
            let seen = format!("no link is tried again for {:?}, up to {:?}", now - since, view.id());
            return Err(Broken::new(NAME, seen));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::{Lineage, Proposal, ResumePlan, RunId};

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// `view`, because the link between the first two has failed after `step`.
    fn record(view: &View, step: u64) -> Record {
        let (lineage, donors) = (Lineage::NONE, vec![peer(1)]);
        let resume = ResumePlan { step, lineage, holders: Vec::new(), donors, syncing: Vec::new() };
        let (reasons, joiners) = (vec![Reason::Severed(peer(1), peer(2))], Vec::new());
        Record::of(view.clone(), Some(Proposal { view: view.clone(), resume, reasons, joiners, promised: 3, of: 3 }))
    }

    #[test]
    fn a_view_that_goes_on_as_if_nothing_had_failed_is_noticed() {
        let all = [1, 2, 3].map(peer);
        let after = |failures: [(u64, u64); 3], damps: bool| {
            let mut invariant = DampedLinks::default();
            let mut view = View::found(RunId([0; 32]), peer(1)).succeed(all);
            assert_eq!(invariant.wrote(at(0), &Record::of(view.clone(), None)), Ok(()));
            let mut held = Ok(());
            for (step, seconds) in failures {
                view = view.succeed(all);
                if damps && step == failures[2].0 {
                    view = view.with_severed([(peer(1), peer(2))]).with_unsteady(true);
                }
                let wrote = invariant.wrote(at(seconds), &record(&view, step));
                held = held.and(wrote);
            }
            held.is_ok()
        };
        assert!(!after([(5, 1), (6, 100), (13, 200)], false) && after([(5, 1), (6, 100), (13, 200)], true));
        assert!(!after([(5, 1), (60, 6), (130, 11)], false));
        assert!(after([(5, 1), (60, 100), (130, 200)], false), "that is not often");
        assert!(after([(5, 1), (5, 2), (6, 3)], false), "one of them has failed once, and was tried again");
    }

    #[test]
    fn a_plan_over_a_severed_link_and_one_that_is_never_tried_again_are_noticed() {
        let view = View::found(RunId([0; 32]), peer(1)).succeed([1, 2, 3].map(peer));
        let unsteady = view.clone().with_severed([(peer(1), peer(2))]).with_unsteady(true);
        let bucket = Bucket { bytes: 1 << 20, segment_bytes: 1 << 16 };
        assert_eq!(DampedLinks::plans(&unsteady, PlanPolicy::Ring, bucket), Ok(()));
        // Of two members none has another way: no such view is ever decided.
        let apart = view.succeed([1, 2].map(peer)).with_severed([(peer(1), peer(2))]);
        assert!(DampedLinks::plans(&apart, PlanPolicy::Ring, bucket).is_err());
        let limit = Duration::from_secs(100);
        let mut invariant = DampedLinks::default();
        let mut looked = |view: &View, now, calm| invariant.looked(at(now), view, at(calm), limit).is_ok();
        assert!(looked(&unsteady, 0, 0) && looked(&unsteady, 100, 0) && !looked(&unsteady, 101, 0));
        assert!(looked(&unsteady, 102, 50), "something has happened since");
        assert!(looked(&view, 300, 50) && looked(&unsteady, 301, 50) && looked(&unsteady, 401, 50));
        invariant.is_excused();
        assert!(invariant.looked(at(500), &unsteady, at(50), limit).is_ok());
    }
}
