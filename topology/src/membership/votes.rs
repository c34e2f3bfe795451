//! Who has a vote. A newcomer steps like everybody else, and decides nothing before it holds the state and has contributed.
//!
//! ```text
//!   newcomer                           voters                               proposer
//!      | holds the state, and has contributed to a step
//!      |-- contributes ----------------> |  each notes it                         |
//!      |-- contributes, each heartbeat   |  <------------------ prepare ----------|  the next change, or one for this alone
//!      |                                 |-- promise(contributing: newcomer) ---> |
//!      |   more than may be hostile say so: the next view gives it a vote         |
//!      |   its own view says that it votes: it owes nothing more                  |
//! ```
//!
//! It says so again until its own view gives it the vote: what is said in a view that is over is lost, and so is what a broken
//! connection swallows. No decree gives so many votes that those who had one are not a quorum of the next view. Before the run's
//! first step is committed there is nothing to contribute to: who needs no state votes at once. And where nobody who votes stays,
//! those who hold the state do from then on.

use std::collections::{BTreeMap, BTreeSet};

use super::Membership;
use super::planning::Question;
use super::seat::Seat;
use crate::flaw::Flaw;
use crate::id::PeerId;
use crate::message::Body;
use crate::proposal::{Progress, Resume};
use crate::time::Time;

/// After so many steps with the state one has contributed for sure: zeros may be under way when the state comes, and how fast it
/// computes it has to say before it gets samples.
const STEPS_TO_SHARE: u64 = 3;
/// The time that a vote which is due waits doubles this often, where change after change does not give it.
const MAX_DOUBLINGS: u32 = 6;

/// A vote that is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// Since when, in this view.
    since: Time,
    /// How many changes have given it to nobody, in this view and those before.
    times: u32,
}

/// Who has a vote in the next view.
#[derive(Debug, Default)]
pub(super) struct Votes {
    /// Who has none.
    pub(super) newcomers: Vec<PeerId>,
    /// Who has one from then on.
    pub(super) given: Vec<PeerId>,
}

impl Votes {
    /// Among those who stay or join, where all go on so.
    pub(super) fn of(question: &Question<'_>, staying: &BTreeMap<PeerId, Progress>, resume: &Resume) -> Self {
        let Question { view, candidates, .. } = question;
        let joining = candidates.iter().map(|candidate| candidate.contact.peer);
        let members: Vec<PeerId> =
            staying.keys().copied().chain(joining.filter(|peer| !staying.contains_key(peer))).collect();
        let (old, new): (Vec<PeerId>, Vec<PeerId>) = members.into_iter().partition(|peer| view.votes(*peer));
        let is_ready = |peer: &PeerId| resume.syncing.binary_search(peer).is_err();
        let given: BTreeSet<PeerId> = if old.is_empty() {
            let ready: BTreeSet<PeerId> = new.iter().copied().filter(is_ready).collect();
            if ready.is_empty() { new.iter().copied().collect() } else { ready }
        } else {
            let has_begun = resume.step > 0;
            let due = new.iter().copied().filter(|peer| is_ready(peer) && (!has_begun || question.is_shown(*peer)));
            due.take(view.quorum.most_added(old.len())).collect()
        };
        let newcomers = new.into_iter().filter(|peer| !given.contains(peer)).collect();
        Self { newcomers, given: given.into_iter().collect() }
    }
}

impl Question<'_> {
    /// Whether more voters than may be hostile have heard from this newcomer that it contributes.
    fn is_shown(&self, peer: PeerId) -> bool {
        let says_so = self.promises.iter().filter(|(by, _)| self.view.votes(**by));
        let count = says_so.filter(|(_, promise)| promise.contributing.binary_search(&peer).is_ok()).count();
        count > self.view.most_hostile()
    }
}

impl Membership {
    /// We have committed `step`. Who has no vote says so as soon as steps have its contribution.
    pub(super) fn note_contribution(&mut self, step: u64) {
        if !self.synced || self.asking.is_some() || !self.is_newcomer() {
            return;
        }
        let had = self.has_contributed();
        self.whole_since.get_or_insert(step);
        if !had && self.has_contributed() {
            self.tell_contributes();
        }
    }

    /// Says it again: others may not have heard it in the view that they are in by now.
    pub(super) fn contribute_again(&mut self) {
        if self.is_newcomer() && self.has_contributed() && !self.is_flawed(Flaw::OwesNothing) {
            self.tell_contributes();
        }
    }

    fn tell_contributes(&mut self) {
        let step = self.reached;
        self.tell_members(&Body::Contributes { step });
    }

    /// Whether we have a seat and no vote.
    fn is_newcomer(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| !seat.view.votes(self.me.peer))
    }

    fn has_contributed(&self) -> bool {
        self.synced && self.whole_since.is_some_and(|since| self.reached >= since.saturating_add(STEPS_TO_SHARE))
    }

    /// A member says that it contributes. Not before we have come to that step ourselves: it says so again.
    pub(super) fn note_contributing(&mut self, now: Time, from: PeerId, step: u64) {
        let reached = self.reached;
        let Some(seat) = self.seat.as_mut().filter(|seat| !seat.view.votes(from)) else { return };
        if (STEPS_TO_SHARE..=reached).contains(&step) {
            seat.syncing.remove(&from);
            seat.due.entry(from).or_insert(Due { since: now, times: 0 });
        }
    }

    /// Whether a vote has been due for so long that it takes a change of its own. Where we vote ourselves: others can't give one.
    pub(super) fn owes_votes(&self, now: Time) -> bool {
        let Some(seat) = self.seat.as_ref().filter(|seat| seat.view.votes(self.me.peer)) else { return false };
        let delay = self.config.vote_delay();
        let waits = |due: &Due| now - due.since < delay * (1 << due.times.min(MAX_DOUBLINGS));
        let may = |peer: &PeerId| seat.trusts(*peer) && !seat.leavers.contains(peer);
        self.finished.is_none() && seat.due.iter().any(|(peer, due)| may(peer) && !waits(due))
    }
}

impl Seat {
    /// What was due in the view before still is, to those who have no vote here and need no state. Who has us call for changes that
    /// give nobody a vote, as the others have not heard it, waits longer each time.
    pub(super) fn keep_due(&mut self, now: Time, old: &Self) {
        let is_due = |peer: &PeerId| self.view.newcomers().contains(peer) && !self.syncing.contains(peer);
        let in_vain = u32::from(self.view.voters().all(|peer| old.view.votes(peer)));
        let due = old.due.iter().filter(|(peer, _)| is_due(peer));
        let later = due.map(|(peer, due)| (*peer, Due { since: now, times: due.times.saturating_add(in_vain) }));
        self.due = later.collect();
    }
}
