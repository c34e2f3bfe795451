//! The proposer's part in a decree, and whose part that is.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::error::Violation;
use crate::id::{PeerId, ViewId};
use crate::membership::decree::claims::Claims;
use crate::membership::decree::installing::Decided;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{Event, HoldPosition, Timer};
use crate::membership::seat::{Decree, Paused, Seat, Stage};
use crate::membership::{Membership, Steps};
use crate::message::{Body, Evidence};
use crate::time::Time;
use crate::vote::certificate::{Acceptance, Certificate, WireSignature};
use crate::vote::echo::echo;
use crate::vote::promise::{JustifiedProposal, Promise, SignedPromise, leave_free};
use crate::vote::proposal::Ballot;

impl Membership {
    /// Drives a change of view if there is reason for one: as its proposer, or by calling on the proposer.
    pub(in crate::membership) fn seek_change(&mut self, now: Time) {
        let me = self.me.peer;
        self.seat.iter_mut().filter(|_| self.leaving.is_wanted()).for_each(|seat| _ = seat.leavers.insert(me));
        let Some(seat) = &self.seat else { return };
        if seat.recovering.as_ref().is_some_and(|recovering| {
            recovering.returned.len() + 1 < seat.view.members().len() && now < recovering.until
        }) {
            return; // More may come back.
        }
        let lost = self.misses_somebody() || seat.standstill.is_general();
        // Who stands still for no known reason has promised, and waits for what comes of it.
        let urgent = lost || (self.steps != Steps::Running && !seat.waiting && !self.is_stopping());
        if !urgent && !self.plans_change(now) {
            return;
        }
        self.since.get_or_insert(now);
        let takes_over = !self.is_flawed(FlawKind::NeverTakesOver);
        let is_owed = self.owes_votes(now) || self.is_passed_over(now);
        let Some(seat) = &mut self.seat else { return };
        let promised = seat.acceptor.promised.map(|ballot| ballot.proposer);
        let sound = |peer| seat.trusts(peer) && (seat.overruled || seat.suspicion_reports.of(peer).is_none());
        let trusted = promised.is_some_and(|peer| peer != me && sound(peer));
        let is_turn = (seat.asked || seat.proposer(me) == me) && seat.agents.is_empty();
        let due = takes_over && seat.takeover_at.is_some_and(|at| now >= at);
        if let Some(decree) = &seat.decree {
            let planned =
                decree.stage == Stage::Stopping || (decree.stage == Stage::Promising && decree.boundary.is_some());
            if planned && lost {
                self.begin(now, None); // The boundary may be out of reach, without whoever is lost, or for all.
            }
        } else if (is_turn && (!trusted || due)) || (due && (urgent || self.leaving.is_wanted() || is_owed)) {
            seat.overruled |= promised.is_some_and(|peer| peer != me);
            if urgent || self.steps == Steps::Held {
                self.begin(now, None);
            } else {
                self.stop_at_boundary();
            }
        } else {
            self.call_proposer(now, urgent, is_owed);
        }
    }

    /// Whether a member has to be left out, or may have to.
    pub(in crate::membership) fn misses_somebody(&self) -> bool {
        let Some(seat) = &self.seat else { return false };
        !seat.suspects.is_empty() || !seat.suspicion_reports.is_empty()
    }

    fn is_stopping(&self) -> bool {
        self.seat.as_ref().and_then(|seat| seat.decree.as_ref()).is_some_and(|decree| decree.stage == Stage::Stopping)
    }

    fn plans_change(&self, now: Time) -> bool {
        let Some(seat) = &self.seat else { return false };
        let leaves = |peer: &PeerId| seat.leavers.contains(peer);
        let members = seat.view.members();
        // Nobody leaves before another holds the state, if there is another.
        let heir = members.iter().any(|peer| !leaves(peer) && !seat.syncing.contains(peer));
        let all_leave = members.len() > 1 && members.iter().all(leaves);
        let outdated = seat.outdated && self.finished.is_none();
        let is_left = all_leave || (heir && members.iter().any(leaves));
        is_left || outdated || self.candidates(now).next().is_some() || self.owes_votes(now)
    }

    /// Another is to propose: it learns why, and gets time for what we do otherwise.
    fn call_proposer(&mut self, now: Time, urgent: bool, is_owed: bool) {
        let Some(seat) = &mut self.seat else { return };
        let me = self.me.peer;
        let proposer = seat.proposer(me);
        let mut news = Vec::new();
        for (peer, evidence) in &seat.suspects {
            if *peer != proposer && proposer != me && seat.told.insert(*peer, proposer) != Some(proposer) {
                news.push(Body::Suspect { peer: *peer, evidence: *evidence });
            }
        }
        if self.leaving.is_wanted() && proposer != me && seat.told.insert(me, proposer) != Some(proposer) {
            news.push(Body::Leave);
        }
        for (peer, waiting) in &self.joiners {
            if proposer != me && *peer != proposer && seat.told.insert(*peer, proposer) != Some(proposer) {
                news.push(Body::Introduce(waiting.joiner.clone()));
            }
        }
        if (urgent || self.leaving.is_wanted() || is_owed) && seat.takeover_at.is_none() {
            self.give_time(now, Duration::ZERO);
        }
        for body in news {
            if let Body::Introduce(joiner) = &body {
                self.show_out(joiner.contact.peer, ViewId::NONE); // It may have to go to the proposer by itself.
            }
            self.send(proposer, body);
        }
    }

    /// A planned change takes effect between two steps. No step after ours can commit without us.
    fn stop_at_boundary(&mut self) {
        let Some(seat) = &mut self.seat else { return };
        let ballot = Ballot { attempt: seat.attempt, proposer: self.me.peer };
        seat.decree = Some(Decree::new(ballot, None, Stage::Stopping));
        self.hold(HoldPosition::Boundary);
    }

    /// Opens a ballot. `boundary`: the step that all complete first; `None`: all freeze where they are.
    fn begin(&mut self, now: Time, boundary: Option<u64>) {
        let me = self.me.peer;
        let Some(seat) = &mut self.seat else { return };
        if !seat.may_attempt(now) {
            return self.give_time(now, Duration::ZERO); // Others have gone up as far as counts: time passes it.
        }
        seat.attempt = seat.attempt.saturating_add(1);
        let ballot = Ballot { attempt: seat.attempt, proposer: me };
        if seat.acceptor.prepare(ballot).is_err() {
            return; // Attempts have run out, after more of them than any run lasts.
        }
        seat.owed = false;
        seat.decree = Some(Decree::new(ballot, boundary, Stage::Promising));
        let again = seat.tries > 0;
        let asked: Vec<PeerId> = seat.others(me).into_iter().filter(|peer| seat.asks(*peer, again)).collect();
        let unreachable = seat.unreachable(me);
        let limit = if boundary.is_some() { self.config.boundary_limit() } else { self.config.promise_limit() };
        self.persist(now);
        self.held_since.get_or_insert(now);
        self.hold(HoldPosition::Now);
        for peer in asked {
            self.send(peer, Body::Prepare { ballot, boundary, unreachable: unreachable.clone() });
        }
        self.set_timer(Timer::Round, now + limit);
        self.propose_when_held(now);
    }

    /// Our own steps are held: that is our own promise.
    pub(in crate::membership) fn propose_when_held(&mut self, now: Time) {
        let (me, progress, leaving) = (self.me.peer, self.progress, self.leaving.is_wanted());
        if self.steps != Steps::Held {
            return;
        }
        let decree = self.seat.as_ref().and_then(|seat| seat.decree.as_ref());
        let Some(stage) = decree.map(|decree| decree.stage) else { return };
        match stage {
            Stage::Stopping => self.begin(now, Some(progress.step)),
            Stage::Promising => {
                let Some(promise) = self.own_promise(now, leaving) else { return };
                let Some(seat) = &mut self.seat else { return };
                let accepted = seat.acceptor.accepted.clone();
                if let Some(decree) = &mut seat.decree {
                    decree.round.promise(me, accepted);
                    decree.promises.insert(me, promise);
                }
                self.propose_if_promised(now);
            }
            Stage::Echoing | Stage::Accepting | Stage::Resting => {}
        }
    }

    pub(in crate::membership) fn receive_promise(
        &mut self,
        now: Time,
        from: PeerId,
        ballot: Ballot,
        signed: SignedPromise,
        accepted: Option<JustifiedProposal>,
    ) -> Result<(), Violation> {
        let Some(seat) = &self.seat else { return Ok(()) };
        if !seat.is_at(ballot, Stage::Promising) {
            return Ok(());
        }
        if signed.by != from || signed.promise.progress.step > self.config.last_step {
            return Err(Violation::MalformedProposal);
        }
        self.check_promise(seat, ballot, &signed, accepted.as_ref())?;
        accepted.iter().for_each(|accepted| self.look_for_promises(from, accepted.ballot, accepted, &[]));
        if self.ended {
            return Ok(());
        }
        let Some(seat) = &mut self.seat else { return Ok(()) };
        let SignedPromise { promise, seal, .. } = signed;
        seat.suspicion_reports.retract(from, &promise.unreachable);
        if promise.recovering && seat.recovering.is_none() {
            seat.note_restarted(from);
        }
        if !promise.leaving {
            seat.leavers.remove(&from); // It was another process that wanted to.
        }
        if let Some(decree) = &mut seat.decree {
            decree.round.promise(from, promise.accepted.map(|(ballot, _)| ballot).zip(accepted));
            decree.promises.insert(from, promise);
            decree.signatures.insert(from, seal);
        }
        self.propose_if_promised(now);
        Ok(())
    }

    /// Proposes once all that we trust have promised, or time is up, and a quorum has promised.
    pub(in crate::membership) fn propose_if_promised(&mut self, now: Time) {
        let me = self.me.peer;
        let Some(seat) = &self.seat else { return };
        let is_asking = |decree: &Decree| decree.stage == Stage::Promising && decree.promises.contains_key(&me);
        if !seat.decree.as_ref().is_some_and(is_asking) {
            return;
        }
        self.refute();
        // We may have heard somebody since, or have got the state.
        self.renew_promise(now);
        let Some(seat) = &self.seat else { return };
        let Some(decree) = &seat.decree else { return };
        let promised = decree.round.promised();
        let quorum = seat.view.has_quorum(promised);
        let others = || seat.view.members().iter().filter(|peer| !promised.contains(peer));
        // Without the state that our view goes on from, even one that was left behind may be the one who has it.
        let reached = seat.is_reached(decree);
        let settled = others().all(|peer| !seat.expects(*peer, decree) && reached);
        let lately = self.config.heartbeat_interval() * 3 / 2;
        let agent = if settled || !decree.late { None } else { seat.agent(now, lately, me, decree) };
        if let (true, Some(agent)) = (quorum, agent) {
            self.defer(now, agent);
        } else if quorum && (settled || (decree.late && decree.boundary.is_none())) {
            self.propose(now);
        } else if decree.late && decree.boundary.is_some() {
            self.begin(now, None);
        } else if decree.late {
            self.pause(now);
        }
    }

    /// We can't reach a member that another can reach: that one proposes, so that nobody is left out for a broken link.
    /// Each is asked once, as long as a quorum is here, because it may be wrong, and no more than may all be liars and one.
    fn defer(&mut self, now: Time, agent: PeerId) {
        let (peer, evidence) = (self.me.peer, Evidence::LinkFailed);
        if let Some(seat) = &mut self.seat {
            seat.agents.insert(agent);
            seat.decree = None;
        }
        self.send(agent, Body::Suspect { peer, evidence });
        self.give_time(now, self.config.promise_limit());
    }

    fn propose(&mut self, now: Time) {
        let Some(seat) = &self.seat else { return };
        let Some(decree) = &seat.decree else { return };
        let told = decree.promises.iter().map(|(by, promise)| (*by, promise));
        let is_free = leave_free(&seat.view, told) || self.is_flawed(FlawKind::IgnoresAccepted);
        let forced = decree.round.forced().filter(|_| !is_free).cloned();
        let promised = decree.round.promised();
        let is_void = |forced: &JustifiedProposal| {
            let view = &forced.proposal.view;
            !view.contains(self.me.peer) && !view.has_quorum(promised)
        };
        if seat.returned && forced.as_ref().is_some_and(is_void) {
            return self.pause(now); // The others were to go on without us, and they don't.
        }
        let (ballot, promised) = (decree.ballot, decree.round.promised().clone());
        let mut promises = self.signed_promises(seat, decree);
        let (justified, promises) = match forced {
            Some(justified) => match self.forced_without_few(seat, decree) {
                Some((other, heard)) => {
                    promises.retain(|signed| heard.contains(&signed.by));
                    (other.clone(), promises)
                }
                None => (justified, promises),
            },
            None => match self.plan(now, seat, decree, false) {
                Some((proposal, excluded)) => {
                    (JustifiedProposal::new(&*self.notary, seat.id, ballot, proposal, promises, excluded), Vec::new())
                }
                None => return self.pause(now),
            },
        };
        let Some(seat) = &mut self.seat else { return };
        let (id, hash, echoes) = (seat.id, justified.hash(), seat.view.quorum.echoes());
        let accepted = Acceptance::of(id, ballot, &justified.proposal);
        let seal = justified.sign(&*self.notary, id, ballot);
        let own = JustifiedProposal { last: seal, ..justified.clone() };
        let me = self.me.peer;
        let taken = match echoes {
            _ if !seat.view.votes(me) => Ok(()), // It proposes, and accepts nothing.
            true => seat.acceptor.echo(ballot, hash),
            false => seat.acceptor.accept(ballot, own.clone()),
        };
        if taken.is_err() {
            return;
        }
        if let Some(decree) = &mut seat.decree {
            decree.stage = if echoes { Stage::Echoing } else { Stage::Accepting };
            decree.proposal = Some(justified.proposal.clone());
            decree.shown = echoes.then_some(own);
            decree.accepted = Some(accepted);
        }
        self.persist(now);
        let justified = Box::new(justified);
        for peer in promised.into_iter().filter(|peer| *peer != me) {
            let (justified, promises) = (justified.clone(), promises.clone());
            self.send(peer, Body::Propose { ballot, justified, promises, seal });
        }
        self.set_timer(Timer::Round, now + self.config.promise_limit());
        if echoes {
            let seal = self.notary.sign(&echo(id, ballot, &hash)).into();
            self.receive_echo(now, me, ballot, seal);
        } else {
            let seal = accepted.sign(&*self.notary);
            self.receive_accept(now, me, ballot, seal);
        }
    }

    /// What we are to propose where a few have accepted what leaves out somebody who has promised us, and that by its proposer's word
    /// alone: a liar that is to go accepts so what all others refuse, and has whoever proposes next put out itself. A quorum
    /// of the others has not accepted it, so it is not decided, and never will be; which of them are heard is ours to choose.
    fn forced_without_few<'a>(
        &self,
        seat: &Seat,
        decree: &'a Decree,
    ) -> Option<(&'a JustifiedProposal, BTreeSet<PeerId>)> {
        let (me, view) = (self.me.peer, &seat.view);
        let convicted = Claims::new(view, seat.resumed(), &decree.promises).convicted();
        decree.round.forced_without(|told, tellers, heard| {
            let has_said = |peer: &PeerId| told.promises.binary_search_by_key(peer, |signed| signed.by).is_ok();
            let stays = |(peer, promise): (&PeerId, &Promise)| !promise.leaving && !convicted.contains(peer);
            let forgets =
                |peer: &PeerId| view.contains(*peer) && !told.proposal.view.contains(*peer) && !has_said(peer);
            let rest: BTreeSet<PeerId> = heard.difference(tellers).copied().collect();
            !view.quorum.echoes()
                && !tellers.contains(&me)
                && tellers.len() <= view.most_hostile()
                && view.has_quorum(&rest)
                && decree.promises.iter().filter(|it| stays(*it)).any(|(peer, _)| forgets(peer))
        })
    }

    /// Once a quorum has echoed what we propose, all are asked to accept it.
    pub(in crate::membership) fn receive_echo(&mut self, now: Time, from: PeerId, ballot: Ballot, seal: WireSignature) {
        let Some(seat) = &mut self.seat else { return };
        if !seat.is_at(ballot, Stage::Echoing) || !seat.view.votes(from) {
            return;
        }
        let Some(decree) = &mut seat.decree else { return };
        let Some(justified) = &mut decree.shown else { return };
        if !self.notary.is_signed(from, &echo(seat.id, ballot, &justified.hash()), &seal.bytes()) {
            return; // What it was shown is something else, and does not count.
        }
        decree.echoes.insert(from, seal);
        if !seat.view.has_quorum(&decree.echoes.keys().copied().collect()) {
            return;
        }
        let echoes: Vec<(PeerId, WireSignature)> =
            decree.echoes.iter().map(|(signer, seal)| (*signer, *seal)).collect();
        justified.echoes.clone_from(&echoes);
        let (Some(justified), Some(accepted)) = (decree.shown.take(), decree.accepted) else { return };
        let promised = decree.round.promised().clone();
        decree.stage = Stage::Accepting;
        let me = self.me.peer;
        if seat.view.votes(me) && seat.acceptor.accept(ballot, justified).is_err() {
            return; // We have promised a higher one meanwhile.
        }
        self.persist(now);
        for peer in promised.into_iter().filter(|peer| *peer != me) {
            self.send(peer, Body::Confirm { ballot, echoes: echoes.clone() });
        }
        self.set_timer(Timer::Round, now + self.config.promise_limit());
        let seal = accepted.sign(&*self.notary);
        self.receive_accept(now, me, ballot, seal);
    }

    pub(in crate::membership) fn receive_accept(
        &mut self,
        now: Time,
        from: PeerId,
        ballot: Ballot,
        seal: WireSignature,
    ) {
        let alone = self.is_flawed(FlawKind::DecidesAlone);
        let Some(seat) = &mut self.seat else { return };
        if !seat.is_at(ballot, Stage::Accepting) || !seat.view.votes(from) {
            return;
        }
        let Some(decree) = &mut seat.decree else { return };
        if !decree.accepted.is_some_and(|accepted| accepted.is_signed(&*self.notary, from, &seal)) {
            return; // What it has accepted is something else, and does not count.
        }
        decree.round.accept(from);
        decree.seals.insert(from, seal);
        if seat.view.has_quorum(decree.round.accepted()) || alone {
            self.decide(now, None);
        }
    }

    /// The proposal is decided, or all that is left of us go on without a quorum.
    fn decide(&mut self, now: Time, fork: Option<Ballot>) {
        let me = self.me.peer;
        let Some(seat) = &self.seat else { return };
        let Some(decree) = &seat.decree else { return };
        let (Some(proposal), promised) = (decree.proposal.clone(), decree.round.promised().clone()) else { return };
        let seals = || decree.seals.iter().map(|(signer, seal)| (*signer, *seal)).collect();
        let certificate = fork.is_none().then(|| Certificate { ballot: decree.ballot, seals: seals() });
        let members = proposal.view.members().iter().copied();
        let told: BTreeSet<PeerId> =
            if fork.is_some() { members.collect() } else { promised.into_iter().chain(members).collect() };
        for peer in told.into_iter().filter(|peer| *peer != me) {
            let (contacts, chain) = (self.contacts_for(peer, &proposal), self.chain_for(peer, &proposal));
            let (proposal, certificate) = (proposal.clone(), certificate.clone());
            self.send(peer, Body::Install { proposal, certificate, contacts, fork, chain });
        }
        self.enter(now, me, Decided { proposal, certificate, fork, chain: Vec::new() }, Vec::new());
    }

    /// Time is up for this round.
    pub(in crate::membership) fn end_round(&mut self, now: Time) {
        let Some(decree) = self.seat.as_mut().and_then(|seat| seat.decree.as_mut()) else { return };
        match decree.stage {
            Stage::Stopping => {}
            Stage::Promising => {
                decree.late = true;
                self.propose_if_promised(now);
            }
            Stage::Echoing | Stage::Accepting => self.rest(now),
            Stage::Resting => {
                if let Some(seat) = &mut self.seat {
                    seat.decree = None; // `advance` begins the next one.
                }
            }
        }
    }

    /// Another has promised a higher ballot, or knows better than what we propose. Who says so again and again ends nothing
    /// alone.
    pub(in crate::membership) fn receive_nack(&mut self, now: Time, from: PeerId, ballot: Ballot, promised: Ballot) {
        let Some(seat) = &mut self.seat else { return };
        let asks = [Stage::Promising, Stage::Echoing, Stage::Accepting];
        if !asks.into_iter().any(|stage| seat.is_at(ballot, stage)) {
            return;
        }
        let is_new = seat.decree.as_mut().is_some_and(|decree| decree.refused.insert(from));
        if is_new {
            seat.raise_by_word(now, promised);
        }
        let Some(decree) = &seat.decree else { return };
        if !seat.view.votes(from) {
            return; // It can be done without.
        }
        let rest: BTreeSet<PeerId> = seat.view.voters().filter(|peer| !decree.refused.contains(peer)).collect();
        let few = seat.view.most_hostile() == 0; // They can't tell who is wrong.
        let is_credible = is_new && !seat.accused.contains(&from);
        let counts = is_credible && (few || self.refusals.take(now, from, self.config.call_limit()));
        if seat.view.has_quorum(&rest) && !counts {
            return;
        }
        // Who has promised no other ballot knows better than what is proposed in this one.
        let proposed = decree.proposal.as_ref().filter(|_| promised == ballot);
        for joiner in proposed.into_iter().flat_map(|proposal| &proposal.joiners) {
            self.quarantine.put_off(now, joiner.contact.peer, &self.config);
            self.joiners.remove(&joiner.contact.peer); // It asks again, and hears for how long it waits.
        }
        if promised.proposer < self.me.peer && seat.trusts(promised.proposer) {
            seat.decree = None;
            self.give_time(now, Duration::ZERO);
        } else {
            self.rest(now);
        }
    }

    /// Tries again, after a time that doubles with each failure.
    fn rest(&mut self, now: Time) {
        let Some(seat) = &mut self.seat else { return };
        if let Some(decree) = &mut seat.decree {
            decree.stage = Stage::Resting;
        }
        let doubled = self.config.promise_limit() / 2 * (1 << seat.tries.min(8));
        let stagger = self.config.heartbeat_interval() * seat.stagger(self.me.peer) / 2;
        seat.tries = seat.tries.saturating_add(1);
        self.set_timer(Timer::Round, now + doubled.min(self.config.retry_limit()) + stagger);
    }

    /// There is no quorum, nobody holds the state, or what is here is less than may be stable: the run pauses, until more are back or it forks.
    fn pause(&mut self, now: Time) {
        let (me, missed) = (self.me.peer, self.misses());
        let Some(seat) = &mut self.seat else { return };
        let Some(decree) = &seat.decree else { return };
        let promised = decree.round.promised().iter().filter(|peer| seat.view.votes(**peer));
        let (present, needed) = (promised.count(), seat.view.quorum());
        let before = seat.paused;
        let since = before.map_or(now, |paused| paused.since);
        seat.paused = Some(Paused { since, present, missed, is_told: true });
        // Whoever we left it to may not have had a quorum either.
        seat.agents.clear();
        if self.begin_anew(now) {
            return self.rest(now);
        }
        let over = self.seat.as_ref().is_some_and(|seat| self.is_paused_for(now, seat, self.config.fork_after));
        if over {
            self.begin_apart(now);
        }
        let Some(seat) = &self.seat else { return };
        let Some(decree) = &seat.decree else { return };
        // A peer outside may still hold a state, and is given time to say so.
        let waited = over || self.is_paused_for(now, seat, Some(self.config.max_stall * 2));
        if self.is_bereft(now, seat, decree) && waited {
            return self.end(Event::NoState);
        }
        let fork = if over { self.plan(now, seat, decree, true) } else { None };
        let fork = fork.map(|(fork, _)| (decree.ballot, fork)).filter(|(_, fork)| fork.view.contains(me));
        let returned = seat.returned;
        if before.is_none_or(|paused| !paused.is_told || (paused.present, paused.missed) != (present, missed)) {
            self.tell(Event::Paused { present, needed, missed });
        }
        if !over {
            return self.rest(now);
        }
        match (fork, self.seat.as_mut().and_then(|seat| seat.decree.as_mut())) {
            (Some((ballot, fork)), Some(decree)) => {
                decree.proposal = Some(fork);
                self.decide(now, Some(ballot));
            }
            // Nobody here has the state: the others may have, if any of them goes on.
            (None, _) | (_, None) if returned => self.end(Event::NoState),
            (None, _) | (_, None) => self.give_up(now),
        }
    }
}
