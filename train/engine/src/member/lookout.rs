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

use starling_topology::{Event, Membership, PeerId, Refusal, Root, Time};

use crate::search::{self, Answer};

/// What to do next.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a few exist at a time")]
pub enum Output {
    /// Call back with [`Lookout::expired`].
    SetTimer(Time),
    /// Ask all that are known, by a [`Search`](crate::Search); then [`Lookout::searched`].
    Search(search::Terms),
    /// Give that search up: what it looks for is not what counts any more.
    GiveUp,
    /// The run has gone on. This process has what it goes on from on disk: it ends what it does, and comes back by a
    /// [`Comeback`](crate::Comeback).
    ComeBack,
}

/// Looks out, as long as its member has no quorum.
#[derive(Debug)]
pub struct Lookout {
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
        apart: Apart,
    },
}

/// What keeps one from taking part, with what counts for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apart {
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
pub fn apart(membership: &Membership, outside: Option<Apart>) -> Option<Apart> {
    let paused = membership.root().filter(|_| membership.has_no_quorum());
    paused.map(Apart::Paused).or(outside)
}

/// Whether others are told that it goes on. Who waits for a quorum is nobody to join: those who come back may be its quorum; nor who
/// has completed the run, and stays for others.
pub fn goes_on(membership: &Membership, outside: Option<Apart>, is_complete: bool) -> bool {
    apart(membership, outside).is_none() && membership.view().is_some() && !is_complete
}

/// What a search came to.
#[derive(Debug, Clone, Copy)]
pub struct Searched<'a> {
    /// Whether it has brought a checkpoint.
    pub fetched: bool,
    /// The step of the newest stable checkpoint on this disk, of those that count.
    pub stable: Option<u64>,
    /// Who has said what.
    pub answers: &'a [(PeerId, Answer)],
    /// Who keeps checkpoints.
    pub keepers: &'a [PeerId],
}

/// Whether a member that ends so comes back once: it asked to be let in when the run finished, and those who said so have the last
/// state.
pub fn is_end(event: &Event) -> bool {
    matches!(event, Event::Refused { refusal: Refusal::RunFinished, .. })
}

impl Lookout {
    /// Of a run with this last step and longest stall.
    pub fn new(last_step: u64, max_stall: Duration) -> Self {
        Self { max_stall, last_step, stage: Stage::Idle, outputs: VecDeque::new() }
    }

    /// What to do next; drain to `None` after each call of the others.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Something has happened. `apart` is `None` if it takes part, or has no seat that others could wait for.
    pub fn note(&mut self, now: Time, apart: Option<Apart>) {
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
    pub fn expired(&mut self, now: Time, step: u64, apart: Apart) {
        if matches!(self.stage, Stage::Waits { until } if now >= until) {
            self.stage = Stage::Searches { apart };
            let Self { last_step, max_stall, .. } = *self;
            let (root, beyond, from_forks) = match apart {
                Apart::Paused(root) | Apart::Outside(root) => (root, step, false),
                Apart::Waits { root, forked } => (root, last_step.saturating_sub(1), forked),
            };
            let (root, beyond) = (Some(root), Some(beyond));
            let terms = search::Terms { root, even_if_live: false, from_forks, beyond, last_step, max_stall };
            self.outputs.push_back(Output::Search(terms));
        }
    }

    /// The search is over.
    pub fn searched(&mut self, now: Time, came_to: Searched<'_>) {
        let Stage::Searches { apart } = self.stage else { return };
        let Searched { fetched, stable, answers, keepers } = came_to;
        let live = answers.iter().any(|(_, answer)| answer.live);
        let knows = |(peer, answer): &(PeerId, Answer)| !search::lacks(*peer, answer, keepers, self.last_step);
        let is_over = stable >= Some(self.last_step) && !live && answers.iter().all(knows);
        if fetched || is_over || (matches!(apart, Apart::Outside(_)) && !live) {
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
    const FETCHED: Searched<'_> = Searched { fetched: true, stable: Some(50), answers: &[], keepers: &[] };
    const SILENCE: Searched<'_> = Searched { fetched: false, ..FETCHED };

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn said(name: u8, live: bool, step: u64) -> (PeerId, Answer) {
        (
            PeerId([name; 32]),
            Answer { live, looks_out: !live, stable_step: Some(step), forked: false, ours: Some(step) },
        )
    }

    fn paused() -> Lookout {
        looks(Apart::Paused(Root::default()))
    }

    fn looks(apart: Apart) -> Lookout {
        let mut lookout = Lookout::new(100, STALL);
        lookout.note(at(0), Some(apart));
        assert!(matches!(lookout.poll(), Some(Output::SetTimer(until)) if until == at(5)));
        lookout.expired(at(4), 40, apart);
        assert!(lookout.poll().is_none(), "too early");
        lookout.expired(at(5), 40, apart);
        let Some(Output::Search(terms)) = lookout.poll() else { panic!("it asks nobody") };
        let beyond = match apart {
            Apart::Paused(_) | Apart::Outside(_) => 40,
            Apart::Waits { .. } => 99,
        };
        let from_forks = matches!(apart, Apart::Waits { forked: true, .. });
        assert_eq!((terms.beyond, terms.last_step, terms.from_forks), (Some(beyond), 100, from_forks));
        lookout
    }

    #[test]
    fn whoever_finds_a_later_state_comes_back() {
        let mut lookout = paused();
        lookout.searched(at(6), FETCHED);
        assert!(matches!(lookout.poll(), Some(Output::ComeBack)));
        lookout.expired(at(20), 40, Apart::Paused(Root::default()));
        assert!(lookout.poll().is_none(), "once");
    }

    #[test]
    fn what_counts_for_another_branch_is_given_up() {
        let mut lookout = paused();
        lookout.note(at(6), Some(Apart::Paused(Root { branch: 1, ..Root::default() })));
        assert!(matches!(lookout.poll(), Some(Output::GiveUp)));
        assert!(matches!(lookout.poll(), Some(Output::SetTimer(until)) if until == at(11)));
    }

    #[test]
    fn who_finds_none_asks_again_and_who_goes_on_asks_no_more() {
        let mut lookout = paused();
        lookout.searched(at(6), SILENCE);
        lookout.note(at(7), Some(Apart::Paused(Root::default())));
        assert!(matches!(lookout.poll(), Some(Output::SetTimer(until)) if until == at(11)));
        lookout.expired(at(11), 40, Apart::Paused(Root::default()));
        assert!(matches!(lookout.poll(), Some(Output::Search(_))));
        lookout.note(at(12), None);
        assert!(matches!(lookout.poll(), Some(Output::GiveUp)), "the members bring it up to date");
        lookout.searched(at(13), FETCHED);
        assert!(lookout.poll().is_none());
    }

    #[test]
    fn who_asks_those_to_be_let_in_who_wait_for_its_seat_takes_it() {
        let outside = || looks(Apart::Outside(Root::default()));
        let mut lookout = outside();
        lookout.searched(at(6), Searched { answers: &[said(1, true, 60)], ..SILENCE });
        assert!(matches!(lookout.poll(), Some(Output::SetTimer(until)) if until == at(11)), "they go on");
        let mut lookout = outside();
        lookout.searched(at(6), SILENCE);
        assert!(matches!(lookout.poll(), Some(Output::ComeBack)));
    }

    #[test]
    fn who_holds_the_end_stays_for_those_who_lack_it() {
        let came_to = |answers: &[(PeerId, Answer)], keepers: &[PeerId]| {
            let mut lookout = looks(Apart::Waits { root: Root::default(), forked: false });
            lookout.searched(at(6), Searched { stable: Some(100), answers, keepers, ..SILENCE });
            matches!(lookout.poll(), Some(Output::ComeBack))
        };
        let (lacks, holds) = ([said(1, false, 60)], [said(1, false, 100), said(2, false, 100)]);
        assert!(came_to(&[], &[]) && came_to(&holds, &[]));
        assert!(!came_to(&lacks, &[]) && !came_to(&[said(1, true, 100)], &[]));
        assert!(came_to(&lacks, &[PeerId([1; 32])]), "a keeper waits for nobody");
        let new = lacks.map(|(peer, answer)| (peer, Answer { looks_out: false, ..answer }));
        assert!(came_to(&new, &[]), "who was never let in fetches nothing");
    }

    #[test]
    fn who_left_comes_back_for_the_end_alone() {
        let mut lookout = looks(Apart::Waits { root: Root::default(), forked: true });
        lookout.searched(at(6), Searched { answers: &[said(1, false, 60)], ..SILENCE });
        assert!(matches!(lookout.poll(), Some(Output::SetTimer(_))));
        let mut lookout = looks(Apart::Waits { root: Root::default(), forked: true });
        lookout.searched(at(6), FETCHED);
        assert!(matches!(lookout.poll(), Some(Output::ComeBack)));
    }
}
