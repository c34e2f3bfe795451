//! What a member does that has no quorum: the others may have gone on without it, and may have finished. And what one does that asks
//! to be let in: those whom it asks may wait for the seat that it has, or for the state that it holds.
//!
//! ```text
//!   paused, or outside --> after half of `max_stall`, and so on: all that are known are asked what they hold
//!                 |- a stable state is fetched that is later than what it holds: it comes back, as one that was killed.
//!                 |  Without a seat, that must be the last one
//!                 |- it holds the last state, and nobody who is there lacks it: it comes back, and the run is over
//!                 |- it has a seat and is outside, and nobody goes on any more: it comes back, too
//!                 '- no: it waits on, and others can fetch what it holds
//! ```
//!
//! Members that left it out tell it so as soon as they reach it. Where they have ended, what they have signed is with keepers, and
//! with those that came back: who goes on without having asked makes another run of it.

use std::collections::VecDeque;
use std::time::Duration;

use starling_topology::{Event, Membership, PeerId, RefusalReason, Root, Time};

use crate::search::{self, SearchReply};

/// What to do next.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a few exist at a time")]
pub enum Output {
    /// Call back with [`QuorumSearch::expired`].
    SetTimer(Time),
    /// Ask all that are known, by a [`Search`](crate::Search); then [`QuorumSearch::searched`].
    Search(search::SearchConfig),
    /// Give that search up: what it looks for is not what counts any more.
    GiveUp,
    /// The run has gone on. This process has what it goes on from on disk: it ends what it does, and comes back by a
    /// [`ReturnEngine`](crate::ReturnEngine).
    ComeBack,
}

/// Looks out, as long as its member has no quorum.
#[derive(Debug)]
pub struct QuorumSearch {
    max_stall: Duration,
    last_step: u64,
    stage: Stage,
    outputs: VecDeque<Output>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It goes on, or comes back.
    Idle,
    Waits {
        until: Time,
    },
    Searches {
        apart: AbsenceReason,
    },
}

/// What keeps one from taking part, with what counts for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceReason {
    /// It is a member, and has no quorum.
    Paused(Root),
    /// It has a seat on its disk, and asks to be let in, since others said that they go on.
    Outside(Root),
    /// It has left, or finished, and waits for others, who may have finished; or it holds the end, and waits for those who lack it.
    Waits {
        /// Which checkpoints are of the branch that it was on.
        root: Root,
        /// Whether that was a fork.
        forked: bool,
    },
}

/// What keeps a member from taking part: it has no quorum; or, without a seat, what its disk says of one that waits `outside`.
pub fn apart(membership: &Membership, outside: Option<AbsenceReason>) -> Option<AbsenceReason> {
    let paused = membership.root().filter(|_| membership.has_no_quorum());
    paused.map(AbsenceReason::Paused).or(outside)
}

/// Whether others are told that it goes on. Who waits for a quorum is nobody to join: those who come back may be its quorum; nor who
/// has completed the run, and stays for others.
pub fn goes_on(membership: &Membership, outside: Option<AbsenceReason>, is_complete: bool) -> bool {
    apart(membership, outside).is_none() && membership.view().is_some() && !is_complete
}

/// What a search came to.
#[derive(Debug, Clone, Copy)]
pub struct SearchResult<'a> {
    /// Whether it has brought a checkpoint.
    pub fetched: bool,
    /// The step of the newest stable checkpoint on this disk, of those that count.
    pub stable: Option<u64>,
    /// Who has said what.
    pub answers: &'a [(PeerId, SearchReply)],
    /// Who keeps checkpoints.
    pub keepers: &'a [PeerId],
}

/// Whether a member that ends so comes back once: it asked to be let in when the run finished, and those who said so have the last
/// state.
pub fn is_end(event: &Event) -> bool {
    matches!(event, Event::Refused { refusal: RefusalReason::RunFinished, .. })
}

impl QuorumSearch {
    /// Of a run with this last step and longest stall.
    pub fn new(last_step: u64, max_stall: Duration) -> Self {
        Self { max_stall, last_step, stage: Stage::Idle, outputs: VecDeque::new() }
    }

    /// The run's last step, which comes sooner where the run ends early.
    pub fn end_with(&mut self, last_step: u64) {
        self.last_step = last_step;
    }

    /// What to do next; drain to `None` after each call of the others.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Something has happened. `apart` is `None` if it takes part, or has no seat that others could wait for.
    pub fn note(&mut self, now: Time, apart: Option<AbsenceReason>) {
        match (self.stage, apart) {
            (Stage::Idle, Some(_)) => self.wait(now),
            (Stage::Waits { .. }, None) => self.stage = Stage::Idle,
            (Stage::Searches { apart: before }, _) if apart != Some(before) => {
                self.outputs.push_back(Output::GiveUp);
                self.stage = Stage::Idle;
                self.note(now, apart);
            }
            (Stage::Idle, None) | (Stage::Waits { .. } | Stage::Searches { .. }, _) => {}
        }
    }

    /// A time has come that was asked for. It holds the state after `step`.
    pub fn expired(&mut self, now: Time, step: u64, apart: AbsenceReason) {
        if matches!(self.stage, Stage::Waits { until } if now >= until) {
            self.stage = Stage::Searches { apart };
            let Self { last_step, max_stall, .. } = *self;
            let (root, beyond, from_forks) = match apart {
                AbsenceReason::Paused(root) | AbsenceReason::Outside(root) => (root, step, false),
                AbsenceReason::Waits { root, forked } => (root, last_step.saturating_sub(1), forked),
            };
            let (root, beyond) = (Some(root), Some(beyond));
            let terms = search::SearchConfig { root, even_if_live: false, from_forks, beyond, last_step, max_stall };
            self.outputs.push_back(Output::Search(terms));
        }
    }

    /// The search is over.
    pub fn searched(&mut self, now: Time, came_to: SearchResult<'_>) {
        let Stage::Searches { apart } = self.stage else { return };
        let SearchResult { fetched, stable, answers, keepers } = came_to;
        let live = answers.iter().any(|(_, answer)| answer.live);
        let knows = |(peer, answer): &(PeerId, SearchReply)| !search::lacks(*peer, answer, keepers, self.last_step);
        let is_over = stable >= Some(self.last_step) && !live && answers.iter().all(knows);
        if fetched || is_over || (matches!(apart, AbsenceReason::Outside(_)) && !live) {
            self.stage = Stage::Idle;
            self.outputs.push_back(Output::ComeBack);
        } else {
            self.wait(now);
        }
    }

    fn wait(&mut self, now: Time) {
        let until = now + self.max_stall / 2;
        self.stage = Stage::Waits { until };
        self.outputs.push_back(Output::SetTimer(until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(10);
    const FETCHED: SearchResult<'_> = SearchResult { fetched: true, stable: Some(50), answers: &[], keepers: &[] };
    const SILENCE: SearchResult<'_> = SearchResult { fetched: false, ..FETCHED };

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn said(name: u8, live: bool, step: u64) -> (PeerId, SearchReply) {
        (
            PeerId([name; 32]),
            SearchReply { live, looks_out: !live, stable_step: Some(step), forked: false, ours: Some(step) },
        )
    }

    fn paused() -> QuorumSearch {
        looks(AbsenceReason::Paused(Root::default()))
    }

    fn looks(apart: AbsenceReason) -> QuorumSearch {
        let mut quorum_search = QuorumSearch::new(100, STALL);
        quorum_search.note(at(0), Some(apart));
        assert!(matches!(quorum_search.poll(), Some(Output::SetTimer(until)) if until == at(5)));
        quorum_search.expired(at(4), 40, apart);
        assert!(quorum_search.poll().is_none(), "too early");
        quorum_search.expired(at(5), 40, apart);
        let Some(Output::Search(terms)) = quorum_search.poll() else { panic!("it asks nobody") };
        let beyond = match apart {
            AbsenceReason::Paused(_) | AbsenceReason::Outside(_) => 40,
            AbsenceReason::Waits { .. } => 99,
        };
        let from_forks = matches!(apart, AbsenceReason::Waits { forked: true, .. });
        assert_eq!((terms.beyond, terms.last_step, terms.from_forks), (Some(beyond), 100, from_forks));
        quorum_search
    }

    #[test]
    fn whoever_finds_a_later_state_comes_back() {
        let mut quorum_search = paused();
        quorum_search.searched(at(6), FETCHED);
        assert!(matches!(quorum_search.poll(), Some(Output::ComeBack)));
        quorum_search.expired(at(20), 40, AbsenceReason::Paused(Root::default()));
        assert!(quorum_search.poll().is_none(), "once");
    }

    #[test]
    fn what_counts_for_another_branch_is_given_up() {
        let mut quorum_search = paused();
        quorum_search.note(at(6), Some(AbsenceReason::Paused(Root { branch: 1, ..Root::default() })));
        assert!(matches!(quorum_search.poll(), Some(Output::GiveUp)));
        assert!(matches!(quorum_search.poll(), Some(Output::SetTimer(until)) if until == at(11)));
    }

    #[test]
    fn who_finds_none_asks_again_and_who_goes_on_asks_no_more() {
        let mut quorum_search = paused();
        quorum_search.searched(at(6), SILENCE);
        quorum_search.note(at(7), Some(AbsenceReason::Paused(Root::default())));
        assert!(matches!(quorum_search.poll(), Some(Output::SetTimer(until)) if until == at(11)));
        quorum_search.expired(at(11), 40, AbsenceReason::Paused(Root::default()));
        assert!(matches!(quorum_search.poll(), Some(Output::Search(_))));
        quorum_search.note(at(12), None);
        assert!(matches!(quorum_search.poll(), Some(Output::GiveUp)), "the members bring it up to date");
        quorum_search.searched(at(13), FETCHED);
        assert!(quorum_search.poll().is_none());
    }

    #[test]
    fn who_asks_those_to_be_let_in_who_wait_for_its_seat_takes_it() {
        let outside = || looks(AbsenceReason::Outside(Root::default()));
        let mut quorum_search = outside();
        quorum_search.searched(at(6), SearchResult { answers: &[said(1, true, 60)], ..SILENCE });
        assert!(matches!(quorum_search.poll(), Some(Output::SetTimer(until)) if until == at(11)), "they go on");
        let mut quorum_search = outside();
        quorum_search.searched(at(6), SILENCE);
        assert!(matches!(quorum_search.poll(), Some(Output::ComeBack)));
    }

    #[test]
    fn who_holds_the_end_stays_for_those_who_lack_it() {
        let came_to = |answers: &[(PeerId, SearchReply)], keepers: &[PeerId]| {
            let mut quorum_search = looks(AbsenceReason::Waits { root: Root::default(), forked: false });
            quorum_search.searched(at(6), SearchResult { stable: Some(100), answers, keepers, ..SILENCE });
            matches!(quorum_search.poll(), Some(Output::ComeBack))
        };
        let (lacks, holds) = ([said(1, false, 60)], [said(1, false, 100), said(2, false, 100)]);
        assert!(came_to(&[], &[]) && came_to(&holds, &[]));
        assert!(!came_to(&lacks, &[]) && !came_to(&[said(1, true, 100)], &[]));
        assert!(came_to(&lacks, &[PeerId([1; 32])]), "a keeper waits for nobody");
        let new = lacks.map(|(peer, answer)| (peer, SearchReply { looks_out: false, ..answer }));
        assert!(came_to(&new, &[]), "who was never let in fetches nothing");
    }

    #[test]
    fn who_left_comes_back_for_the_end_alone() {
        let mut quorum_search = looks(AbsenceReason::Waits { root: Root::default(), forked: true });
        quorum_search.searched(at(6), SearchResult { answers: &[said(1, false, 60)], ..SILENCE });
        assert!(matches!(quorum_search.poll(), Some(Output::SetTimer(_))));
        let mut quorum_search = looks(AbsenceReason::Waits { root: Root::default(), forked: true });
        quorum_search.searched(at(6), FETCHED);
        assert!(matches!(quorum_search.poll(), Some(Output::ComeBack)));
    }
}
