//! A member's part in a decree that another proposes: promise, stand still, accept.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::error::Violation;
use crate::id::{PeerId, ViewId};
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{HoldPosition, Timer};
use crate::membership::seat::Seat;
use crate::membership::{Membership, Steps};
use crate::message::stall_report::StallReport;
use crate::message::{Body, Evidence};
use crate::time::Time;
use crate::view::mark::LostState;
use crate::vote::certificate::{Acceptance, Signer, WireSignature};
use crate::vote::echo::{are_a_quorums, echo};
use crate::vote::promise::{JustifiedProposal, Promise, SignedPromise, most_named};
use crate::vote::proposal::{Ballot, Progress};

impl Membership {
    pub(in crate::membership) fn receive_prepare(
        &mut self,
        now: Time,
        from: PeerId,
        ballot: Ballot,
        boundary: Option<u64>,
        unreachable: &[PeerId],
    ) -> Result<(), Violation> {
        let (is_unbounded, is_outside) = (self.is_flawed(FlawKind::CountsWithoutBound), self.is_outside());
        let Some(seat) = &mut self.seat else { return Ok(()) };
        if ballot.proposer != from {
            return Err(Violation::ForeignBallot);
        }
        let has_left = matches!(seat.suspects.get(&from), Some(Evidence::Restarted | Evidence::Elsewhere));
        if has_left && !is_outside {
            if seat.paused.is_none() {
                seat.raise_by_word(now, ballot); // If it has not left, it has promised this one, and none of ours that is lower.
                self.show_out(from, ViewId::NONE); // Of our own view, which it has left.
                return Ok(());
            }
            seat.suspects.remove(&from); // It is back, and without a quorum it may be the one who can go on.
        }
        let known = seat.acceptor.promised == Some(ballot);
        // Where no step is taken anyway it costs others less; who has no quorum tries again and again, though not as often.
        let has_none = seat.paused.is_some() || seat.recovering.is_some() || seat.waiting || is_outside;
        // So it does where its last ballot holds us up already; yet others must have time between two of them.
        let costs_less = has_none || seat.acceptor.promised.is_some_and(|promised| promised.proposer == from);
        let longest = if costs_less { self.config.takeover_delay() * 2 } else { self.config.call_limit() };
        // Whom the view severs from a quorum calls in vain, and is to be heard once it is back.
        let is_apart = |peer: &PeerId| unreachable.contains(peer) && seat.view.is_severed(from, *peer);
        let rest: BTreeSet<PeerId> = seat.view.voters().filter(|peer| !is_apart(peer)).collect();
        let is_free = known || !seat.view.has_quorum(&rest);
        if !is_free && !self.ballots[usize::from(costs_less)].take(now, from, longest) {
            return Ok(()); // It has called for changes that nobody else saw a reason for.
        }
        if !seat.raise(now, ballot) && !is_unbounded {
            return Ok(()); // Who counts that far is not one of us.
        }
        let me = self.me.peer;
        let view = &seat.view;
        let news = |peer: &&PeerId| **peer != me && view.contains(**peer) && !view.is_severed(from, **peer);
        seat.suspicion_reports.retract(from, unreachable);
        for peer in unreachable.iter().filter(news) {
            seat.suspicion_reports.report(from, *peer, Evidence::Unanswered);
        }
        // Alone in a star, each of those that reach nobody else would outbid the hub by ballots that decide nothing.
        let reaches = |without: &[PeerId]| {
            let rest: BTreeSet<PeerId> = seat.view.voters().filter(|peer| !without.contains(peer)).collect();
            seat.view.has_quorum(&rest)
        };
        let is_lonely = !reaches(unreachable) && reaches(&seat.unreachable(me));
        // Nor is there a ballot for whoever is to go itself: it would leave out whose promise it lacks.
        let may_be_hostile = view.most_hostile() > 0 || !view.votes(from);
        let is_guilty = may_be_hostile && seat.accused.contains(&from);
        if !known && (is_lonely || is_guilty) {
            self.since.get_or_insert(now);
            if seat.takeover_at.is_none() {
                self.give_time(now, Duration::ZERO);
            }
            return Ok(());
        }
        if let Err(promised) = seat.acceptor.prepare(ballot) {
            self.send(from, Body::Nack { ballot, promised });
            return Ok(());
        }
        seat.owed = true;
        // Each has its time in a view once: else who proposes in vain keeps all others from it.
        let gives_time = seat.timed.insert(from) || seat.takeover_at.is_none();
        if !known {
            seat.decree = None;
            self.since.get_or_insert(now);
            self.persist(now);
        }
        self.held_since.get_or_insert(now);
        self.hold(boundary.map_or(HoldPosition::Now, HoldPosition::After));
        if gives_time {
            let patience = boundary.map_or(Duration::ZERO, |_| self.config.boundary_limit());
            self.give_time(now, patience);
        }
        self.answer_when_held(now);
        Ok(())
    }

    /// Answers for the ballot that we promised, once our steps are held.
    pub(in crate::membership) fn answer_when_held(&mut self, now: Time) {
        if self.steps != Steps::Held && !self.is_flawed(FlawKind::PromisesRunning) {
            return;
        }
        let (me, leaving) = (self.me.peer, self.leaving.is_wanted() || self.is_outside());
        let Some(seat) = &mut self.seat else { return };
        if std::mem::take(&mut seat.owed)
            && let Some(ballot) = seat.acceptor.promised
            && let Some(promise) = self.own_promise(now, leaving)
            && let Some(seat) = &self.seat
        {
            let accepted = seat.acceptor.accepted.clone().map(|(_, justified)| Box::new(justified));
            let promise = SignedPromise::new(&*self.notary, seat.id, ballot, me, promise);
            self.send(ballot.proposer, Body::Promise { ballot, promise, accepted });
        }
        self.propose_when_held(now);
    }

    /// What we promise as of now.
    pub(in crate::membership) fn own_promise(&mut self, now: Time, leaving: bool) -> Option<Promise> {
        let (me, progress, lost) = (self.me.peer, self.progress, self.loss());
        let seat = self.seat.as_mut()?;
        let promise = seat.promise(me, &*self.notary, progress, lost, self.waits.as_ref(), leaving);
        let mut failed = seat.failed_of_late(&self.config, now, progress.step);
        failed.truncate(most_named(seat.view.members().len()) - promise.named());
        Some(Promise { failed, ..promise })
    }

    pub(in crate::membership) fn receive_propose(
        &mut self,
        now: Time,
        from: PeerId,
        ballot: Ballot,
        (mut justified, seal): (JustifiedProposal, WireSignature),
        promises: &[SignedPromise],
    ) -> Result<(), Violation> {
        let Some(seat) = &self.seat else { return Ok(()) };
        if ballot.proposer != from {
            return Err(Violation::ForeignBallot);
        }
        if !seat.may_be_followed_by(&justified.proposal, self.config.last_step) {
            return Err(Violation::NotSuccessor);
        }
        self.check_proposal(seat, ballot, (&justified, &seal), promises)?;
        justified.last = seal;
        self.look_for_promises(from, ballot, &justified, promises);
        if self.ended {
            return Ok(());
        }
        let Some(seat) = &self.seat else { return Ok(()) };
        let objects = justified.ballot == ballot && self.objects(now, seat, &justified);
        let Some(seat) = &mut self.seat else { return Ok(()) };
        if !seat.raise(now, ballot) {
            return Ok(());
        }
        if objects {
            self.send(from, Body::Nack { ballot, promised: ballot });
            return Ok(());
        }
        if !seat.view.votes(self.me.peer) {
            // It stands still like all others, and has no say in it.
            if seat.timed_value.replace(ballot) != Some(ballot) {
                self.give_time(now, Duration::ZERO);
            }
            return Ok(());
        }
        let before = seat.acceptor.accepted.as_ref().filter(|(accepted, _)| *accepted == ballot);
        let accepted_other = before.is_some_and(|(_, kept)| kept.proposal != justified.proposal);
        let hash = justified.hash();
        if accepted_other || seat.acceptor.echoed.is_some_and(|(echoed, kept)| echoed == ballot && kept != hash) {
            return Err(Violation::TwoProposals);
        }
        if !seat.view.quorum.echoes() {
            self.accept(now, from, ballot, justified);
            return Ok(());
        }
        let again = seat.acceptor.echoed == Some((ballot, hash));
        match seat.acceptor.echo(ballot, hash) {
            Ok(()) => {
                let id = seat.id;
                seat.shown = Some((ballot, justified));
                if !again {
                    self.persist(now);
                    self.give_time(now, Duration::ZERO);
                }
                let seal = self.notary.sign(&echo(id, ballot, &hash)).into();
                self.send(from, Body::Echo { ballot, seal });
            }
            Err(promised) => self.send(from, Body::Nack { ballot, promised }),
        }
        Ok(())
    }

    /// A quorum was shown what we were shown in this ballot: now it can be accepted.
    pub(in crate::membership) fn receive_confirm(
        &mut self,
        now: Time,
        from: PeerId,
        ballot: Ballot,
        echoes: Vec<(PeerId, WireSignature)>,
    ) -> Result<(), Violation> {
        let Some(seat) = &self.seat else { return Ok(()) };
        if ballot.proposer != from {
            return Err(Violation::ForeignBallot);
        }
        let shown = seat.shown.as_ref().filter(|(of, _)| *of == ballot);
        let Some((_, shown)) = shown else { return Ok(()) }; // We objected, or have come back since.
        if !are_a_quorums(&*self.notary, &seat.view, ballot, &shown.hash(), &echoes) {
            return Err(Violation::Uncertified);
        }
        let justified = JustifiedProposal { echoes, ..shown.clone() };
        self.accept(now, from, ballot, justified);
        Ok(())
    }

    /// Accepts it, and gives its proposer the time to have it decided: once, however often it asks.
    fn accept(&mut self, now: Time, from: PeerId, ballot: Ballot, justified: JustifiedProposal) {
        let Some(seat) = &mut self.seat else { return };
        let accepted = Acceptance::of(seat.id, ballot, &justified.proposal);
        let before = seat.acceptor.accepted.as_ref().filter(|(of, _)| *of == ballot);
        let again = before.is_some_and(|(_, kept)| kept.proposal == justified.proposal);
        match seat.acceptor.accept(ballot, justified) {
            Ok(()) => {
                if !again {
                    self.persist(now);
                    self.give_time(now, Duration::ZERO);
                }
                let seal = accepted.sign(&*self.notary);
                self.send(from, Body::Accept { ballot, seal });
            }
            Err(promised) => self.send(from, Body::Nack { ballot, promised }),
        }
    }

    /// Gives the proposer time before we take over.
    pub(in crate::membership) fn give_time(&mut self, now: Time, patience: Duration) {
        let Some(seat) = &self.seat else { return };
        let at = now + patience + self.config.takeover_delay() * (1 + seat.stagger(self.me.peer));
        self.take_over_at(at);
    }

    /// Proposes at that time, if nobody else has by then.
    pub(in crate::membership) fn take_over_at(&mut self, at: Time) {
        if let Some(seat) = &mut self.seat {
            seat.takeover_at = Some(at);
            self.set_timer(Timer::Takeover, at);
        }
    }
}

impl Seat {
    /// What we promise, who stand at `progress` and have `lost` what we had saved after that step: all but which links have failed.
    fn promise(
        &mut self,
        me: PeerId,
        notary: &dyn Signer,
        progress: Progress,
        lost: LostState,
        awaited: Option<&StallReport>,
        leaving: bool,
    ) -> Promise {
        self.pledged = Some(progress);
        let most = most_named(self.view.members().len());
        let revoked =
            self.suspects.iter().filter(|(_, evidence)| **evidence == Evidence::Revoked).map(|(peer, _)| *peer);
        let accused: BTreeSet<PeerId> = self.accused.iter().copied().chain(revoked).collect();
        let accused: Vec<PeerId> = accused.into_iter().take(most).collect();
        let accepted = self.acceptor.accepted.as_ref().map(|(ballot, justified)| (*ballot, justified.hash()));
        let mut missing = awaited.cloned();
        missing.iter_mut().for_each(|awaited| awaited.from.truncate(most - accused.len()));
        let named = accused.len() + missing.as_ref().map_or(0, |awaited| awaited.from.len());
        let mut unreachable = self.unreachable(me);
        unreachable.truncate(most - named);
        let left = most - named - unreachable.len();
        let due = if self.view.votes(me) { self.due_by(progress.step) } else { Vec::new() };
        let mut contributing = self.named(notary, due);
        contributing.truncate(left);
        let recovering = self.recovering.is_some();
        let failed = Vec::new();
        Promise { progress, unreachable, failed, accused, contributing, missing, leaving, recovering, lost, accepted }
    }
}
