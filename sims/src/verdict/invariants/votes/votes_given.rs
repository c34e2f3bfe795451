//! Votes are earned: who is let in votes once it holds the state and has contributed to a step, soon after that, and not before. No
//! view adds so many voters that those who voted before are no quorum of it, and nobody loses a vote. Before the first step is
//! committed there is nothing to earn it with; and where nobody who votes stays, those who are left do from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use starling_topology::ledger::{GAVE_UP, STARVED, SYNCING};
use starling_topology::{Config, PeerId, Quorum, Record, Time, View, ViewId};

use crate::steps::state::ResultRecord;
use crate::verdict::invariants::Broken;

const NAME: &str = "votes_given";
/// Who has contributed to so many steps knows that it has.
const ENOUGH: usize = 4;

/// Remembers who has contributed where.
#[derive(Debug, Default)]
pub struct VotesGiven {
    views: BTreeMap<ViewId, View>,
    /// The steps to which each member has contributed in each view.
    shares: BTreeMap<(ViewId, PeerId), BTreeSet<u64>>,
    /// The views in which a step was committed.
    stepped: BTreeSet<ViewId>,
    /// The highest step when each began anew: what it has contributed before that nobody owes it anything for.
    begun: BTreeMap<PeerId, u64>,
    /// Who waits for its vote, and since when.
    waiting: BTreeMap<PeerId, Time>,
}

impl VotesGiven {
    /// How long one may wait for its vote that has earned it, where nothing keeps the others from giving it: half of the longest
    /// stall.
    pub fn limit(config: &Config) -> Duration {
        config.max_stall / 2
    }

    /// The same where some members say what they like, all the time: changes that come to nothing take their time, too.
    pub fn hostile_limit(config: &Config) -> Duration {
        config.max_stall * 3
    }

    /// `peer` is out, or its process is another one now, when `step` is the highest: it has to say anew that it contributes.
    pub fn begins_anew(&mut self, peer: PeerId, step: u64) {
        self.begun.insert(peer, step);
    }

    /// A step was committed in `view`.
    pub fn committed(&mut self, view: ViewId, record: &ResultRecord) {
        self.stepped.insert(view);
        for (peer, speed) in record.members.iter().zip(record.speeds()) {
            if !matches!(*speed, SYNCING | GAVE_UP | STARVED) {
                self.shares.entry((view, *peer)).or_default().insert(record.step);
            }
        }
    }

    /// Somebody has written down that it is in the view of `record`. Of whom not all is known, that `is_excused` for whether steps went
    /// through it.
    ///
    /// # Errors
    /// If somebody votes in it that has not earned that, or does not vote any more, or too many do at once.
    pub fn wrote(&mut self, record: &Record, is_excused: impl Fn(PeerId, bool) -> bool) -> Result<(), Broken> {
        let (view, id) = (&record.view, record.view.id());
        if self.views.contains_key(&id) {
            return Ok(());
        }
        self.views.insert(id, view.clone());
        let parent = view.parent.and_then(|parent| Some((parent, self.views.get(&parent)?)));
        let (Some(origin), Some((parent_id, parent))) = (&record.origin, parent) else { return Ok(()) };
        if let Some(peer) = view.newcomers().iter().find(|peer| parent.votes(**peer)) {
            return Err(Broken::new(NAME, format!("{peer:?} has lost its vote in {id:?}")));
        }
        let old: BTreeSet<PeerId> = view.voters().filter(|peer| parent.votes(*peer)).collect();
        let given: Vec<PeerId> = view.voters().filter(|peer| !parent.votes(*peer)).collect();
        if old.is_empty() {
            return Ok(()); // Somebody has to go on.
        }
        let resume = &origin.resume;
        let is_first = |peer: &PeerId| resume.step == 0 && !resume.syncing.contains(peer);
        let is_excused = |peer: PeerId| {
            let stepped = self.views_of(peer, parent_id).any(|id| self.stepped.contains(&id));
            is_excused(peer, stepped)
        };
        let has_earned =
            |peer: &PeerId| is_first(peer) || self.steps_of(*peer, parent_id).next().is_some() || is_excused(*peer);
        if let Some(peer) = given.iter().find(|peer| !has_earned(peer)) {
            return Err(Broken::new(NAME, format!("{peer:?} votes in {id:?} and has contributed to nothing")));
        }
        let is_one = given.len() == 1 && view.quorum == Quorum::TwoThirds;
        if !given.is_empty() && !is_one && !view.has_quorum(&old) {
            let seen = format!("{} of {} who vote in {id:?} voted before", old.len(), view.voter_count());
            return Err(Broken::new(NAME, seen));
        }
        Ok(())
    }

    /// `view` and those before, as long as `peer` was a member.
    fn views_of(&self, peer: PeerId, view: ViewId) -> impl Iterator<Item = ViewId> + '_ {
        let member = move |id: &ViewId| self.views.get(id).filter(|view| view.contains(peer));
        std::iter::successors(Some(view), move |id| member(id)?.parent).take_while(move |id| member(id).is_some())
    }

    /// The steps to which `peer` has contributed in them.
    fn steps_of(&self, peer: PeerId, view: ViewId) -> impl Iterator<Item = u64> + '_ {
        self.views_of(peer, view).filter_map(move |id| self.shares.get(&(id, peer))).flatten().copied()
    }

    /// Those who wait for their votes have a reason to wait.
    pub fn is_excused(&mut self) {
        self.waiting.clear();
    }

    /// All is well in the newest view, and has been since `calm`; these have no vote in it.
    ///
    /// # Errors
    /// If one of them has earned it and waits for longer than `limit`.
    pub fn looked(
        &mut self,
        now: Time,
        view: ViewId,
        newcomers: Vec<PeerId>,
        calm: Time,
        limit: Duration,
    ) -> Result<(), Broken> {
        let has_earned = |peer: &PeerId| {
            let begun = self.begun.get(peer).copied().unwrap_or(0);
            self.steps_of(*peer, view).filter(|step| *step > begun).collect::<BTreeSet<u64>>().len() >= ENOUGH
        };
        let due: BTreeSet<PeerId> = newcomers.into_iter().filter(has_earned).collect();
        self.waiting.retain(|peer, _| due.contains(peer));
        for peer in due {
            let since = self.waiting.entry(peer).or_insert(now);
            *since = calm.max(*since);
            if now - *since > limit {
                return Err(Broken::new(
                    NAME,
                    format!("{peer:?} has contributed for {:?} and has no vote", now - *since),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::contribution::{Cell, Contributions};
    use starling_topology::{Lineage, Proposal, Rank, ResumePlan, Root, RunId};

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    fn record(view: &View, step: u64) -> Record {
        let resume = ResumePlan {
            step,
            lineage: Lineage::NONE,
            holders: vec![],
            donors: vec![],
            syncing: view.newcomers().to_vec(),
        };
        let (reasons, joiners) = (Vec::new(), Vec::new());
        let origin = Some(Proposal { view: view.clone(), resume, reasons, joiners, promised: 1, of: 1 });
        let (certificate, chain, root) = (None, Vec::new(), Root::default());
        Record { certificate, chain, root, ..Record::of(view.clone(), origin) }
    }

    fn step(step: u64, members: &[PeerId], speeds: &[u32]) -> ResultRecord {
        let cell = Cell { bucket: 0, chunk: Rank(0), segment: 0 };
        let contributions = Contributions { speeds: speeds.to_vec(), ..Contributions::default() };
        let (lineage, members, mean) = (Lineage::NONE, members.to_vec(), Vec::new());
        ResultRecord { step, lineage, after: lineage, members, cells: vec![(cell, contributions)], mean }
    }

    #[test]
    fn a_vote_that_was_not_earned_is_noticed() {
        let first = View::found(RunId([0; 32]), peer(1));
        let all = [1, 2, 3].map(peer);
        let (with, early) = (first.succeed(all).with_newcomers([2, 3].map(peer)), first.succeed([1, 2].map(peer)));
        let mut invariant = VotesGiven::default();
        let mut wrote = |view: &View, step: u64| invariant.wrote(&record(view, step), |_, _| false).is_ok();
        assert!(wrote(&first, 0) && wrote(&with, 7));
        assert!(wrote(&early, 0), "the run has not begun");
        assert!(!wrote(&early.on_branch(9), 7));
        let next = with.succeed(all).with_newcomers([peer(3)]);
        assert!(!wrote(&next.clone().on_branch(9), 8));
        invariant.committed(with.id(), &step(8, &all, &[100, SYNCING, 100]));
        assert!(invariant.wrote(&record(&next.clone().on_branch(8), 8), |_, _| false).is_err());
        invariant.committed(with.id(), &step(9, &all, &[100, 100, 100]));
        assert_eq!(invariant.wrote(&record(&next, 9), |_, _| false), Ok(()));
        let both = with.succeed(all);
        assert!(invariant.wrote(&record(&both, 9), |_, _| false).is_err(), "one of three decides nothing any more");
        let alone = with.succeed([2, 3].map(peer));
        assert_eq!(invariant.wrote(&record(&alone, 9), |_, _| false), Ok(()), "nobody who voted is left");
        assert!(
            invariant.wrote(&record(&next.succeed(all).with_newcomers([peer(2)]), 9), |_, _| false).is_err(),
            "it had a vote"
        );
    }

    #[test]
    fn who_waits_too_long_is_noticed() {
        let view = View::found(RunId([0; 32]), peer(1)).succeed([1, 2].map(peer)).with_newcomers([peer(2)]);
        let (id, limit) = (view.id(), Duration::from_secs(5));
        let mut invariant = VotesGiven::default();
        assert_eq!(invariant.wrote(&record(&view, 7), |_, _| false), Ok(()));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let looked =
            |invariant: &mut VotesGiven, now, calm| invariant.looked(at(now), id, vec![peer(2)], at(calm), limit);
        assert!((0..30).all(|now| looked(&mut invariant, now, 0).is_ok()), "it has contributed to nothing");
        for number in 8..12 {
            invariant.committed(id, &step(number, &[1, 2].map(peer), &[100, 100]));
        }
        assert!((30..36).all(|now| looked(&mut invariant, now, 0).is_ok()));
        assert!(
            looked(&mut invariant, 36, 36).is_ok() && looked(&mut invariant, 41, 36).is_ok(),
            "something was wrong"
        );
        assert!(looked(&mut invariant, 42, 36).is_err());
        invariant.is_excused();
        assert!(looked(&mut invariant, 43, 36).is_ok());
    }
}
