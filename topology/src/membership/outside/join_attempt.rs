//! Being let in: the joiner's side.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::{Generation, PeerId, ViewId};
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{Event, Timer};
use crate::membership::{Membership, Steps};
use crate::message::{Body, RefusalReason};
use crate::time::Time;
use crate::view::View;
use crate::vote::certificate::{SuccessionProof, leads};
use crate::vote::proposal::{JoinRequest, Reason};

/// The most peers that a joiner asks in turn.
const MAX_ASKED: usize = 64;
/// Who has been asked this often and has said nothing is not there.
const MAX_UNANSWERED: u32 = 2;

/// A joiner's search for members.
#[derive(Debug)]
pub(in crate::membership) struct JoinAttempt {
    /// Whom to ask, in turn.
    candidates: Vec<PeerId>,
    turn: usize,
    /// Who is asked out of turn: it has answered what we asked somebody else, so it may be the one who proposes.
    called: Option<PeerId>,
    /// Whom we asked last, and whether that was out of turn. Nobody calls us twice in a row.
    last: Option<(PeerId, bool)>,
    /// How often each was asked since it last said anything, and when that was counted last: who is asked again at once can't have
    /// answered.
    asked: BTreeMap<PeerId, (u32, Time)>,
    /// Who has refused for good, and why.
    refused: BTreeMap<PeerId, RefusalReason>,
    /// When a member of a run that goes on last answered.
    pub(in crate::membership) answered_at: Time,
    /// Who has us wait, and until when: we ask the others meanwhile.
    waits: BTreeMap<PeerId, Time>,
    /// Whether we had a seat, and nothing but somebody's word says that the others went on without us.
    pub(in crate::membership) unproven: bool,
    /// A view that is proven to have followed the one that we had a seat in: what we could say there is of no use to anybody.
    pub(in crate::membership) followed_by: Option<View>,
    /// What is proven to lead on from the view that we had a seat in, as far as anybody has shown us.
    way: Vec<SuccessionProof>,
    /// Whether we have given our seat up, since nobody there had what we lack: we can't take it again and go on.
    pub(in crate::membership) bereft: bool,
    /// Whether our own signature shows that we have decided something else than what led to our seat: our vote is worth nothing there.
    pub(in crate::membership) forfeits: bool,
    since: Time,
    /// The step at which others were when we first heard of it, and the last one.
    steps: Option<(u64, u64)>,
    /// The last view that we were shown in which another process has our seat.
    replaced: Option<ViewId>,
    /// Who of those that we sat with says that we have a seat in the view called so.
    seated: BTreeMap<ViewId, BTreeSet<PeerId>>,
}

impl JoinAttempt {
    pub(in crate::membership) fn new(now: Time) -> Self {
        let (candidates, asked, refused) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (called, last) = (None, None);
        Self {
            candidates,
            turn: 0,
            called,
            last,
            asked,
            refused,
            answered_at: now,
            waits: BTreeMap::new(),
            unproven: false,
            followed_by: None,
            way: Vec::new(),
            bereft: false,
            forfeits: false,
            since: now,
            steps: None,
            replaced: None,
            seated: BTreeMap::new(),
        }
    }

    /// Whether our seat is proven to be over, and nobody has shown us for long what follows: too many views have.
    pub(in crate::membership) fn is_lost(&self, now: Time, limit: Duration) -> bool {
        self.followed_by.is_some() && now - self.since >= limit
    }

    /// The last view that is proven to have come of the one that we had a seat in.
    pub(in crate::membership) fn latest(&self) -> Option<&View> {
        self.way.last().map(|link| &link.view)
    }

    /// Whether the view called so is proven to be on the way there.
    pub(in crate::membership) fn leads_through(&self, view: ViewId) -> bool {
        self.way.iter().any(|link| link.view.id() == view)
    }

    /// Whether we gave our seat up for so long, and nothing is proven to have followed it.
    pub(in crate::membership) fn is_bereft(&self, now: Time, limit: Duration) -> bool {
        self.bereft && self.followed_by.is_none() && now - self.since >= limit
    }

    /// Somebody who goes on is at this step.
    pub(in crate::membership) fn note_step(&mut self, step: u64) {
        let (first, newest) = self.steps.unwrap_or((step, step));
        self.steps = Some((first, newest.max(step)));
    }

    /// Whether others have taken steps since.
    pub(in crate::membership) fn has_gone_on(&self) -> bool {
        self.steps.is_some_and(|(first, newest)| newest > first)
    }

    fn note_asked(&mut self, now: Time, peer: PeerId, interval: Duration) {
        let (times, at) = self.asked.entry(peer).or_insert((0, now));
        if *times == 0 || now - *at >= interval {
            (*times, *at) = (times.saturating_add(1), now);
        }
    }

    /// Whom it has asked, or would have.
    pub(in crate::membership) fn into_candidates(self) -> impl Iterator<Item = PeerId> {
        self.candidates.into_iter()
    }

    pub(in crate::membership) fn has_not_asked(&self, peer: PeerId) -> bool {
        !self.asked.contains_key(&peer)
    }

    /// `peer` has spoken to us and is the next one to be asked, if need be in the place of one that was: the proposer may be the
    /// only one who can let us in.
    pub(in crate::membership) fn turn_to(&mut self, peer: PeerId) {
        self.called = None; // Whoever has called is asked later: this one has not been asked at all.
        let at = self.candidates.iter().position(|candidate| *candidate == peer);
        self.turn = at.unwrap_or_else(|| {
            let before = (self.turn + self.candidates.len()).saturating_sub(1) % self.candidates.len().max(1);
            if let Some(place) = self.candidates.get_mut(before) {
                *place = peer;
            }
            before
        });
    }

    /// How many of those that we sat with say that we have a seat in the view called so, `by` among them.
    pub(in crate::membership) fn note_seated(&mut self, by: PeerId, view: ViewId) -> usize {
        // What it says last counts: who names many views makes nobody forget what others say.
        self.seated.retain(|_, tellers| {
            tellers.remove(&by);
            !tellers.is_empty()
        });
        let tellers = self.seated.entry(view).or_default();
        tellers.insert(by);
        tellers.len()
    }

    /// Another process has our seat in the view called so. Whether that is shown once more.
    pub(in crate::membership) fn note_replaced(&mut self, view: ViewId) -> bool {
        self.replaced.replace(view) == Some(view)
    }

    /// `peer` has spoken to us without being asked just now. It is asked next, but for every other time.
    pub(in crate::membership) fn call(&mut self, peer: PeerId) {
        if self.last.is_none_or(|(last, _)| last != peer) {
            self.called = Some(peer);
        }
    }

    /// Whom to ask now, of those who have not refused if there is one. Nobody while these have us wait.
    fn next(&mut self, now: Time) -> Option<PeerId> {
        self.waits.retain(|_, until| *until > now);
        let open = |peer: &PeerId| !self.refused.contains_key(peer) && !self.waits.contains_key(peer);
        let was_called = self.last.is_some_and(|(_, called)| called);
        if let Some(peer) = self.called.take_if(|_| !was_called).filter(open) {
            self.last = Some((peer, true));
            return Some(peer);
        }
        let count = self.candidates.len();
        let order = (0..count).map(|by| (self.turn + by) % count);
        let at = order.clone().find(|at| open(&self.candidates[*at]));
        let at = at.or_else(|| order.clone().next().filter(|_| self.waits.is_empty()))?;
        self.turn = (at + 1) % count;
        self.last = Some((self.candidates[at], false));
        Some(self.candidates[at])
    }
}

impl Membership {
    /// Asks `peer` too, in its turn.
    pub(in crate::membership) fn consider_asking(&mut self, peer: PeerId) {
        let me = self.me.peer;
        let Some(join_attempt) = &mut self.join_attempt else { return };
        if peer != me && !join_attempt.candidates.contains(&peer) && join_attempt.candidates.len() < MAX_ASKED {
            join_attempt.candidates.push(peer);
        }
    }

    /// Asks all that have not refused: those who have finished are soon gone.
    fn ask_all(&mut self, now: Time) {
        let (joiner, interval) = (self.joiner(), self.config.probe_interval());
        let Some(join_attempt) = &mut self.join_attempt else { return };
        let open = |peer: &&PeerId| !join_attempt.refused.contains_key(peer) && !join_attempt.waits.contains_key(peer);
        let others: Vec<PeerId> = join_attempt.candidates.iter().filter(open).copied().collect();
        others.iter().for_each(|peer| join_attempt.note_asked(now, *peer, interval));
        for peer in others {
            self.send(peer, Body::Join(joiner.clone()));
        }
    }

    /// What we ask for.
    fn joiner(&self) -> JoinRequest {
        // Of a view that may be made up nobody hears.
        let seat = self.seat.as_ref().filter(|seat| !seat.by_word);
        let last = seat.map(|seat| (seat.view.branch, self.counts_from(seat)));
        let (branch, generation) = last.unwrap_or((0, Generation(0)));
        let held = self.seat.is_some() && self.synced && self.steps == Steps::Held;
        let state = held.then_some((self.progress.step, self.progress.lineage));
        let pass = self.notary.pass();
        let (step, joiner) = (self.reached, JoinRequest::new(self.me.clone(), self.config.incarnation));
        JoinRequest { step, state, branch, generation, pass, ..joiner }.signed(self.run, &*self.notary)
    }

    /// What has come of the view that we had a seat in, where `chain` proves it, is not forgotten: so nobody makes up what follows that.
    pub(in crate::membership) fn note_way(&mut self, chain: Vec<SuccessionProof>) {
        let (Some(seat), Some(join_attempt)) =
            (self.seat.as_ref().filter(|seat| !seat.by_word), &mut self.join_attempt)
        else {
            return;
        };
        let Some(last) = chain.last().map(|link| &link.view) else { return };
        let is_later = join_attempt.latest().is_none_or(|known| known.generation < last.generation);
        if is_later && leads(&*self.notary, &seat.view, &chain, last.id()) {
            join_attempt.way = chain;
        }
    }

    /// Asks the next candidate.
    pub(in crate::membership) fn ask(&mut self, now: Time) {
        let interval = self.config.probe_interval();
        // Who was a member asks once its steps are held: before that it can't say what it holds.
        let stands = self.seat.is_none() || self.steps == Steps::Held;
        let Some(join_attempt) = &mut self.join_attempt else { return };
        if stands && let Some(peer) = join_attempt.next(now) {
            join_attempt.note_asked(now, peer, interval);
            let joiner = self.joiner();
            self.send(peer, Body::Join(joiner));
        }
        self.set_timer(Timer::Join, now + interval);
        self.end_if_refused();
    }

    /// One that we ask refuses. That ends nothing by itself: it is asked no more, and we end once all have refused that are
    /// there.
    pub(in crate::membership) fn receive_refusal(&mut self, now: Time, from: PeerId, refusal: RefusalReason) {
        let limit = self.config.quarantine();
        let knows_us = self.seat.as_ref().is_none_or(|seat| seat.view.contains(from));
        let Some(join_attempt) =
            self.join_attempt.as_mut().filter(|join_attempt| join_attempt.asked.contains_key(&from))
        else {
            return;
        };
        if let RefusalReason::Quarantined { for_ms } = refusal {
            // Who says so says it again when asked, so that nobody keeps us waiting longer; others may let us in.
            if knows_us && !join_attempt.waits.contains_key(&from) {
                let until = now + Duration::from_millis(for_ms).min(limit);
                join_attempt.waits.insert(from, until);
                join_attempt.answered_at =
                    join_attempt.answered_at.max(if join_attempt.unproven { Time::ZERO } else { until });
            }
            return;
        }
        let is_news = !join_attempt.refused.values().any(|before| *before == RefusalReason::RunFinished);
        join_attempt.refused.insert(from, refusal);
        join_attempt.asked.insert(from, (0, now));
        if refusal == RefusalReason::RunFinished && is_news {
            self.ask_all(now);
        }
        self.end_if_refused();
        if !self.ended {
            self.ask(now);
        }
    }

    /// Ends if all candidates that are there have refused.
    fn end_if_refused(&mut self) {
        let Some(join_attempt) = &self.join_attempt else { return };
        let is_gone = |peer: &PeerId| join_attempt.asked.get(peer).is_some_and(|(times, _)| *times > MAX_UNANSWERED);
        let is_out = |peer: &PeerId| join_attempt.refused.contains_key(peer) || is_gone(peer);
        // Where only words say that others went on, whoever was not with us ends nothing.
        let (seat, unproven) = (self.seat.as_ref(), join_attempt.unproven);
        let counts = |by: &PeerId| !unproven || seat.is_none_or(|seat| seat.view.contains(*by));
        let refused = || join_attempt.refused.iter().filter(|(by, _)| counts(by));
        // Who is not there has said nothing: then it takes more of those who were with us than may be hostile.
        let silent = join_attempt.candidates.iter().any(|peer| !join_attempt.refused.contains_key(peer));
        let enough = seat.filter(|_| silent).map_or(0, |seat| seat.view.most_hostile());
        let with_us = refused().filter(|(by, _)| seat.is_some_and(|seat| seat.view.votes(**by))).count();
        // Why, the most of them know; of as many, those who say that there is nothing left to take part in.
        let alike = |why: &RefusalReason| refused().filter(|(_, other)| *other == why).count();
        let most = refused()
            .max_by_key(|(by, why)| (alike(why), **why == RefusalReason::RunFinished, Reverse(**by)))
            .map(|(by, why)| (*by, *why));
        if let Some((from, refusal)) = most
            && ((join_attempt.candidates.iter().all(is_out) && (enough == 0 || with_us > enough))
                || self.is_flawed(FlawKind::EndsForRefusal))
        {
            self.end(Event::Refused { from, refusal });
        }
    }

    /// A peer has said something, whatever it is.
    pub(in crate::membership) fn note_answer(&mut self, from: PeerId) {
        if let Some((times, _)) = self.join_attempt.as_mut().and_then(|join_attempt| join_attempt.asked.get_mut(&from))
        {
            *times = 0;
        }
    }

    /// Whether we can leave as we are: we are no member, or the only one. Once a run has begun the only one first hands the
    /// state on to who asks for it.
    pub(in crate::membership) fn leaves_nothing_behind(&self) -> bool {
        let Some(seat) = self.member_seat() else { return true };
        let alone = seat.view.members().len() == 1;
        alone && (self.reached == 0 || self.joiners.is_empty())
    }

    /// We want to leave and are in no view that goes on with others.
    pub(in crate::membership) fn withdraw(&mut self) {
        for (peer, _) in std::mem::take(&mut self.joiners) {
            self.send(peer, Body::Refuse(RefusalReason::Withdrawn));
        }
        // Those who have left before wait until somebody says that it knows.
        let origin = self.member_seat().and_then(|seat| seat.origin.clone());
        for reason in origin.into_iter().flat_map(|origin| origin.reasons) {
            if let Reason::Left(peer) = reason {
                self.say_hello(peer);
            }
        }
        self.end(Event::Left { stayed: Vec::new() });
    }
}
