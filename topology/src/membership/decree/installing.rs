//! Entering a view that is decided.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::error::Violation;
use crate::id::{Generation, PeerId, ViewId};
use crate::membership::ending::finishing::Finish;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{CatchUpAction, Event, MemberResumePlan};
use crate::membership::outside::outsiders::Doubts;
use crate::membership::seat::{MAX_RISE, Recovering, Seat};
use crate::membership::{Membership, Steps};
use crate::message::{Body, Contact, Evidence, MAX_MEMBERS};
use crate::time::Time;
use crate::view::lineage::Root;
use crate::view::{View, most_hostile};
use crate::vote::certificate::{Certificate, SuccessionProof};
use crate::vote::proposal::{Ballot, JoinRequest, Progress, Proposal, Reason, ResumePlan};

/// So many views that it is bound in does a member leave by somebody's word.
const MAX_BOUND: usize = 64;

/// A proposal that is decided, and what shows that.
#[derive(Debug)]
pub(in crate::membership) struct Decided {
    pub(in crate::membership) proposal: Proposal,
    /// Who accepted it.
    pub(in crate::membership) certificate: Option<Certificate>,
    /// For a view without quorum: the ballot that its members promised.
    pub(in crate::membership) fork: Option<Ballot>,
    /// What leads to the view before, for those who were not there.
    pub(in crate::membership) chain: Vec<SuccessionProof>,
}

impl Membership {
    pub(in crate::membership) fn receive_install(
        &mut self,
        now: Time,
        from: PeerId,
        decided: Decided,
        contacts: Vec<Contact>,
    ) -> Result<(), Violation> {
        let Decided { proposal, certificate, fork, chain: _ } = &decided;
        let (me, view) = (self.me.peer, &proposal.view);
        if view.run != self.run || view.quorum != self.config.quorum {
            return Err(Violation::OtherRun);
        }
        if let Some(seat) = &self.seat {
            if view.id() == seat.id {
                // Another has told us already; who leaves by that waits for those who know.
                self.answer_leaver(now, from);
                return Ok(());
            }
            if view.parent == Some(seat.id) {
                if !seat.may_be_followed_by(proposal, self.config.last_step) {
                    return Err(Violation::NotSuccessor);
                }
                if proposal.forks() && certificate.is_none() {
                    // A fork binds those who promised it and nobody else since, and nobody who has not stood still for long.
                    let stood = self.held_for(now);
                    let lacks_quorum = seat.recovering.is_some() || seat.paused.is_some();
                    let is_due = self.config.fork_after.is_some_and(|limit| lacks_quorum || stood >= limit / 2);
                    if fork.is_none_or(|fork| fork.proposer != from)
                        || *fork != seat.acceptor.promised
                        || self.is_outside()
                        || !is_due
                    {
                        return Ok(());
                    }
                } else if !certificate.as_ref().is_some_and(|it| it.proves(&*self.notary, &seat.view, proposal))
                    && !self.is_flawed(FlawKind::DecidesAlone)
                    && !self.is_flawed(FlawKind::BelievesInstalls)
                {
                    // A newcomer passes on what let it in, and could not check that: it may have got it from a liar.
                    let came_by_it = proposal.joiners.iter().any(|joiner| joiner.contact.peer == from);
                    return if came_by_it { Ok(()) } else { Err(Violation::Uncertified) };
                }
                certificate.iter().for_each(|certificate| self.look_for_acceptance(from, certificate));
                if self.ended || self.meets_twin(from, &decided) {
                    return Ok(());
                }
                if view.contains(me) && self.steps == Steps::Held {
                    match self.has_forgotten_to_stay(&decided) {
                        true => self.catch_up_with(now, decided, contacts),
                        false => self.enter(now, from, decided, contacts),
                    }
                    self.answer_leaver(now, from);
                } else if !view.contains(me) && self.leaving.is_wanted() {
                    self.depart(now, decided);
                } else if !view.contains(me) || (certificate.is_some() && !self.is_outside()) {
                    // We are not in it; or we are, who promised to be and have forgotten that: who steps has promised nothing.
                    let members: Vec<PeerId> = view.members().to_vec();
                    self.go_outside(now, from, &members);
                    self.note_follower(Some(view.clone()));
                }
                return Ok(());
            }
        }
        if self.meets_twin(from, &decided) {
            return Ok(());
        }
        let ours = |joiner: &JoinRequest| joiner.contact.peer == me && joiner.incarnation == self.config.incarnation;
        let invited = view.contains(me) && proposal.joiners.iter().any(ours);
        let seated = self.remembers_less(proposal);
        // Who has promised in a view never enters it anew, as if it had not.
        let is_later = self.is_later(view) && !self.bound.contains(&view.id());
        if self.is_outside() && (invited || seated) && is_later {
            if !self.believes(now, from, &decided) {
                return Ok(());
            }
            if invited {
                self.enter(now, from, decided, contacts);
            } else {
                self.look_for_seat(from, &decided.proposal);
                self.catch_up_with(now, decided, contacts);
            }
        } else if let Some(signed) = self.what_we_signed(&decided).filter(|_| is_later) {
            self.follow_what_we_decided(now, from, decided.proposal.view.members(), signed);
        } else {
            self.tell(Event::Stale { from });
            self.answer_leaver(now, from);
        }
        Ok(())
    }

    /// Says to one who shows us a view, and is not in ours, where we are.
    fn answer_leaver(&mut self, now: Time, to: PeerId) {
        let is_out = self.seat.as_ref().is_some_and(|seat| !seat.view.contains(to));
        if is_out && !self.is_outside() && self.may_answer(now, to) {
            self.say_hello(to);
        }
    }

    /// Whether `view` is later than ours, and no further than a run can have come since we were in that. Of a view that we entered
    /// by somebody's word and have taken no step in we know nothing.
    fn is_later(&self, view: &View) -> bool {
        let rise = |seat: &Seat| view.generation.0.checked_sub(self.counts_from(seat).0);
        let may_be_made_up = self.bound.len() < MAX_BOUND;
        let is_later =
            |seat: &Seat| (seat.by_word && may_be_made_up) || rise(seat).is_some_and(|by| (1..=MAX_RISE).contains(&by));
        self.seat.as_ref().is_none_or(is_later)
    }

    /// After which generation a view is later than where this seat is: what we went to beside what we had decided before, and have
    /// forgotten, may have gone further than those whom we follow.
    pub(in crate::membership) fn counts_from(&self, seat: &Seat) -> Generation {
        let followed = self.join_attempt.as_ref().and_then(|join_attempt| join_attempt.followed_by.as_ref());
        followed.map_or(seat.view.generation, |it| it.generation.before().min(seat.view.generation))
    }

    /// Whether a view that does not follow ours was decided, as one says whom we have asked. Who has a seat that may still count
    /// believes that if a chain shows it, or if more of those who were there say so than may be hostile; and once it has tried its seat
    /// in vain, since not every view is led to by a chain: of forks there is none, and who was away for long finds only its end.
    fn believes(&mut self, now: Time, from: PeerId, decided: &Decided) -> bool {
        let Decided { proposal, certificate, chain, .. } = decided;
        let Some(join_attempt) = self.join_attempt.as_ref().filter(|join_attempt| !join_attempt.has_not_asked(from))
        else {
            return false;
        };
        let signed = self.what_we_signed(decided);
        let is_lost = join_attempt.is_lost(now, self.config.max_stall * 4);
        // Who leaves by what it has decided is not in that.
        let decides = || certificate.as_ref().is_some_and(|certificate| certificate.is_signed_by(from));
        let is_member = proposal.view.contains(from) || decides();
        let Some(seat) = self.seat.as_ref().filter(|seat| !seat.by_word) else { return is_member };
        let proves_after = |it: &Certificate, known: &View| it.proves_after(&*self.notary, known, chain, proposal);
        let known = [Some(&seat.view), join_attempt.followed_by.as_ref(), join_attempt.latest(), signed.as_ref()];
        let proves = |it: &Certificate| known.into_iter().flatten().any(|known| proves_after(it, known));
        let is_shown = certificate.as_ref().is_some_and(proves);
        let stood = self.is_paused_for(now, seat, Some(self.config.max_stall * 4));
        // Who has no quorum, or nothing to go on from, follows those of its view that went on without one, if they had a vote.
        let is_bereft = |stalls| join_attempt.is_bereft(now, self.config.max_stall * stalls);
        let is_alone = seat.paused.is_some() || seat.recovering.is_some() || is_bereft(1);
        let is_our_fork = proposal.view.forked && is_alone && seat.view.votes(from);
        // Who came back to a view of its own alone and lost its state has nothing to go on from there.
        let has_nothing = seat.view.members() == [self.me.peer] && !self.synced;
        let follows_any = is_lost || stood || (proposal.view.forked && is_bereft(4));
        // A fork that has a quorum ends for what those say who were with us before it, and for no stranger's word.
        let leaves_fork = seat.view.forked && (is_alone || self.has_parted(from));
        let needs_none = has_nothing || is_our_fork || follows_any || leaves_fork || self.doubts.have_grown();
        // Who knows the view before takes nobody's word for what its members would have signed: nobody signs a fork.
        let knows = |parent: ViewId| {
            known.into_iter().flatten().any(|known| known.id() == parent) || join_attempt.leads_through(parent)
        };
        let needs_proof = !proposal.forks() && proposal.view.parent.is_some_and(knows);
        let is_the_one = join_attempt.followed_by.as_ref().is_some_and(|it| it.id() == proposal.view.id());
        let is_taken = is_shown || is_the_one || self.is_flawed(FlawKind::BelievesInstalls);
        is_taken || (!needs_proof && ((is_member && needs_none) || self.is_told_by_ours(from, proposal.view.id())))
    }

    /// Takes our place in the view of `proposal`, which is decided.
    pub(in crate::membership) fn enter(&mut self, now: Time, from: PeerId, decided: Decided, contacts: Vec<Contact>) {
        let me = self.me.peer;
        if self.leaving.is_wanted() && !decided.proposal.view.contains(me) {
            return self.depart(now, decided);
        }
        let Decided { proposal, certificate, fork, chain } = decided;
        if !proposal.view.contains(me) {
            let members = proposal.view.members().to_vec();
            self.go_outside(now, from, &members);
            return self.note_follower(Some(proposal.view));
        }
        let old = self.seat.take();
        let joins = old.as_ref().is_none_or(|old| proposal.view.parent != Some(old.id));
        let recovering = old.as_ref().is_some_and(|old| old.recovering.is_some());
        let is_bound = |old: &&Seat| old.by_word && old.acceptor.promised.is_some();
        let left = old.as_ref().filter(is_bound).filter(|_| self.bound.len() < MAX_BOUND);
        self.bound.extend(left.map(|old| old.id));
        let is_over = self.finished.is_some()
            || old.as_ref().is_some_and(|old| !old.finished.is_empty())
            || proposal.resume.step >= self.config.last_step;
        if let Some(old) = &old {
            self.forgive(now, old, &proposal, certificate.as_ref().map(|certificate| certificate.ballot.proposer));
        }
        let known = self
            .join_attempt
            .iter()
            .flat_map(|join_attempt| join_attempt.followed_by.as_ref().into_iter().chain(join_attempt.latest()));
        let known: Vec<&View> = known.chain(old.as_ref().filter(|old| !old.by_word).map(|old| &old.view)).collect();
        let proves =
            |it: &Certificate| known.iter().any(|known| it.proves_after(&*self.notary, known, &chain, &proposal));
        let by_word = joins && !certificate.as_ref().is_some_and(proves);
        let unready = old.as_ref().map(|old| old.syncing.clone()).unwrap_or_default();
        let accused = old.as_ref().map(|old| old.accused.clone()).unwrap_or_default();
        let mut seat = Seat::new(proposal.view.clone(), Some(proposal.clone()), &self.config, now);
        seat.syncing = proposal.resume.syncing.iter().copied().collect();
        seat.root = old.as_ref().map_or_else(Root::default, |old| old.root);
        (seat.certificate, seat.fork, seat.by_word) = (certificate.clone(), fork, by_word);
        let is_ours = |joiner: &JoinRequest| joiner.contact.peer == me && joiner.incarnation == self.config.incarnation;
        seat.ours_since = old.as_ref().filter(|_| !joins).and_then(|old| old.ours_since);
        if proposal.joiners.iter().any(is_ours) {
            seat.ours_since = Some(seat.view.generation);
        }
        if joins {
            let left = old.as_ref().map(|old| old.id);
            self.chain = self.chain.led_on(left, chain, proposal.view.parent);
        }
        if let Some(parent) = proposal.view.parent {
            self.chain.go_on(parent, certificate.map(|certificate| SuccessionProof::to(&proposal, certificate)));
        }
        // Who was in what is left for another view, and had never been more than somebody's word, was not with us.
        let left = old.as_ref().filter(|old| !(joins && old.by_word)).map(|old| old.view.clone());
        if let Some(old) = old.filter(|_| !joins) {
            let named = old.named(&*self.notary, old.due_by(self.reached));
            seat.inherit(&self.config, now, old, me, &named);
            seat.owing.retain(|_, owing| owing.step > self.reached);
            self.waits.iter().for_each(|awaited| seat.note_owing(me, awaited, &proposal.reasons));
        }
        seat.told_row = seat.link_matrix.row(me);
        // What follows from promises that we gave before we came back from a record is not true of us any more: we stay
        // held, and so ask for another decree, as one who has come back to this view.
        let told_of_us = proposal.reasons.contains(&Reason::Recovered) && self.gives_what(&proposal.resume);
        let outdated = !joins && recovering && !told_of_us;
        if outdated {
            seat.recovering = Some(Recovering { returned: BTreeSet::new(), until: now + self.config.max_stall });
        }
        self.seat = Some(seat);
        self.note_measured();
        (self.join_attempt, self.doubts) = (None, Doubts::default());
        let catch_up = self.catch_up(&proposal.resume, joins).filter(|_| !outdated);
        self.root_in(&proposal, catch_up.as_ref(), joins, recovering);
        self.persist(now);
        self.parted.go_on(left.as_ref(), &proposal.view, by_word);
        self.note_losses(now, &proposal, &unready, &accused); // First: the contacts of the lost stay.
        if !proposal.resume.syncing.is_empty() && self.has_time(now) {
            self.part_later();
        }
        // Who was there knows where the others are, and hears of it from themselves.
        self.learn_all(now, if joins { contacts } else { Vec::new() }, &proposal);
        let took = self.since.take().map_or(std::time::Duration::ZERO, |since| now - since);
        self.tell(Event::Changed {
            generation: proposal.view.generation,
            members: proposal.view.members().len(),
            reasons: proposal.reasons.clone(),
            promised: proposal.promised as usize,
            of: proposal.of as usize,
            took,
            forked: proposal.view.forked,
        });
        self.steps = Steps::Held;
        self.suspect_revoked(now);
        self.watch(now);
        self.digests.keep_to(proposal.resume.step);
        if outdated {
            self.look_for_others(now);
        }
        if joins {
            self.digests.clear();
            // What we hold does not count here, but if the others go on from it.
            let counts = catch_up == Some(CatchUpAction::Current);
            let ResumePlan { step, lineage, .. } = proposal.resume;
            (self.synced, self.whole_since) = (counts, None);
            self.downloading = false; // Not before the driver is told to.
            self.progress = match counts {
                true => Progress { step, lineage, has_state: true, has_result: false },
                false => Progress::default(),
            };
        }
        if proposal.view.members().len() < self.config.least_members(&proposal.view) && !is_over {
            self.wait_for_members();
        } else if let Some(catch_up) = catch_up {
            self.go_on(proposal, catch_up);
        }
        if let Some(Finish { step, digest, .. }) = self.finished {
            let peer = me;
            self.tell_members(&Body::Finished { peer, step, digest });
            self.pass_goodbyes_on(None);
        }
        self.replay_early(now);
    }

    /// Those who called for this change had reason to, if it is one, or if we saw a reason ourselves. Now and then they need none.
    fn forgive(&mut self, now: Time, old: &Seat, proposal: &Proposal, proposer: Option<PeerId>) {
        let view = &proposal.view;
        self.note_made_up(now, old, view);
        let has_same = view.members() == old.view.members() && view.newcomers() == old.view.newcomers();
        let differs = !has_same || view.severed() != old.view.severed();
        let is_rare = now - old.entered >= self.config.heartbeat_interval();
        if differs || is_rare || self.waits.is_some() || old.outdated || old.recovering.is_some() {
            let proposer = proposer.unwrap_or(self.me.peer);
            self.ballots.iter_mut().for_each(|ballots| ballots.forgive(proposer));
        }
        let is_gone = |by, peer| !view.contains(peer) || view.is_severed(by, peer);
        old.suspicion_reports.were_right(is_gone).into_iter().for_each(|by| self.reports.forgive(by));
        let is_known = |peer| view.contains(peer) || old.view.contains(peer);
        self.ballots.iter_mut().for_each(|ballots| ballots.keep(is_known));
        self.reports.keep(is_known);
        self.refusals.keep(is_known);
    }

    /// Whether we hold what others are to get from us.
    fn gives_what(&self, resume: &ResumePlan) -> bool {
        let (me, Progress { step, lineage, has_state, has_result }) = (self.me.peer, self.progress);
        let is_there = (step, lineage) == (resume.step, resume.lineage);
        let has_result = has_result && is_there;
        let has_state = has_state && (is_there || step.checked_add(1) == Some(resume.step));
        (has_result || !resume.holders.contains(&me)) && (has_state || !resume.donors.contains(&me))
    }

    /// What this member has saved so far counts in its new view, unless it comes from elsewhere. Of who came back, or was there and is to
    /// load a state, what led to that counts: it may be all that is left of what is stable, until the load is done.
    fn root_in(&mut self, proposal: &Proposal, catch_up: Option<&CatchUpAction>, joins: bool, recovering: bool) {
        let ResumePlan { step, lineage, .. } = proposal.resume;
        let Some(seat) = &mut self.seat else { return };
        // It comes with what the others go on from, so what led there counts.
        let brings = step > 0 && catch_up == Some(&CatchUpAction::Current) && seat.root.branch == seat.view.branch;
        let loads = matches!(catch_up, Some(CatchUpAction::State { .. }));
        if joins && (!brings || loads) {
            seat.root = Root::new(&seat.view, step, lineage);
        } else if (joins || recovering || loads) && catch_up.is_some() {
            seat.root = seat.root.cut(&seat.view, step, lineage);
        }
        if catch_up.is_some() {
            self.limit_loss(step, lineage);
        }
    }

    fn go_on(&mut self, proposal: Proposal, catch_up: CatchUpAction) {
        let ResumePlan { step, lineage, syncing, .. } = proposal.resume;
        self.reached = step;
        if matches!(catch_up, CatchUpAction::State { .. }) {
            (self.synced, self.whole_since) = (false, None);
            self.downloading = true;
            self.digests.clear();
        }
        let announce = self.synced;
        self.resume(MemberResumePlan { view: proposal.view, step, lineage, catch_up, syncing });
        if announce {
            self.tell_synced(); // The state came while the decree was under way.
        }
    }

    pub(in crate::membership) fn wait_for_members(&mut self) {
        let Some(seat) = &mut self.seat else { return };
        seat.waiting = true;
        let (present, needed) = (seat.view.members().len(), self.config.least_members(&seat.view));
        self.tell(Event::Waiting { present, needed });
    }

    /// The run needs no more members: another has committed its last step. We may have too, and must say so.
    pub(in crate::membership) fn wait_no_more(&mut self) {
        let Some(seat) = self.seat.as_mut().filter(|seat| seat.waiting && seat.acceptor.promised.is_none()) else {
            return;
        };
        seat.waiting = false;
        if let Some(proposal) = seat.origin.clone()
            && let Some(catch_up) = self.catch_up(&proposal.resume, false)
        {
            self.go_on(proposal, catch_up);
        }
    }

    /// What we do to go on from there; `None` if we can't, because we are not what we promised to be.
    fn catch_up(&self, resume: &ResumePlan, joins: bool) -> Option<CatchUpAction> {
        let me = self.me.peer;
        let apart = |peer: PeerId| self.seat.as_ref().is_some_and(|seat| seat.view.is_severed(me, peer));
        let reached = |peers: &[PeerId]| -> Vec<PeerId> {
            peers.iter().copied().filter(|peer| *peer != me && !apart(*peer)).collect()
        };
        let Progress { step, lineage, .. } = self.progress;
        let is_there = step == resume.step && lineage == resume.lineage;
        let needs_state = resume.syncing.binary_search(&me).is_ok();
        // Whoever has joined a view that waited for members does not download yet.
        let idle = needs_state && !self.synced && !self.downloading;
        if joins && !needs_state {
            return (resume.step == 0 || (self.synced && is_there)).then_some(CatchUpAction::Current);
        }
        if !joins && !idle {
            // Who is downloading the state goes on with that, and may have it by now.
            if is_there {
                return Some(CatchUpAction::Current);
            }
            if step.checked_add(1) == Some(resume.step) && !resume.holders.is_empty() {
                // Donors hold the result too, as soon as they have caught up.
                let mut from = reached(&resume.holders);
                from.extend(reached(&resume.donors).into_iter().filter(|peer| !resume.holders.contains(peer)));
                return Some(CatchUpAction::Result { from });
            }
        }
        needs_state.then(|| CatchUpAction::State { from: reached(&resume.donors) })
    }

    /// Notes who is gone. Whoever was put out for what we saw it do, too, waits at once before we let it in again: of those whom we did not
    /// accuse a single member's word may be all that there is.
    fn note_losses(&mut self, now: Time, proposal: &Proposal, unready: &BTreeSet<PeerId>, accused: &BTreeSet<PeerId>) {
        let is_old = |at: Time| now - at >= self.config.max_stall * 2;
        self.put_out.retain(|peer, (at, _)| !proposal.view.contains(*peer) && !is_old(*at));
        for reason in &proposal.reasons {
            match reason {
                Reason::Lost { peer, .. } | Reason::Restarted(peer) => {
                    let misbehaved = matches!(reason, Reason::Lost { evidence: Evidence::Misbehaved, .. });
                    match misbehaved && most_hostile(proposal.of as usize) > 0 && accused.contains(peer) {
                        true => self.quarantine.convict(now, *peer, &self.config),
                        false => self.quarantine.lose(now, *peer, &self.config),
                    }
                    self.probe_later(now, *peer);
                    let may_come = !matches!(reason, Reason::Lost { evidence, .. } if !evidence.may_pass());
                    self.put_out.insert(*peer, (now, may_come));
                }
                // Who could not get the state, or was outside, asks to be let in anew; who left in order does not.
                Reason::Left(peer) => _ = self.put_out.insert(*peer, (now, unready.contains(peer))),
                Reason::Joined(_)
                | Reason::Votes(_)
                | Reason::Severed(..)
                | Reason::Forked
                | Reason::Recovered
                | Reason::Replanned
                | Reason::StoodStill
                | Reason::Unsteady
                | Reason::Steady => {}
            }
        }
    }

    /// Tells a member that is one view behind what was decided, or one that was in a view of that generation last.
    pub(in crate::membership) fn send_install(&mut self, to: PeerId, since: Option<Generation>) {
        let Some(seat) = &self.seat else { return };
        let Some(proposal) = seat.origin.clone() else { return };
        let (certificate, fork) = (seat.certificate.clone(), seat.fork);
        let contacts = self.contacts_for(to, &proposal);
        let chain =
            since.map_or_else(|| self.chain_for(to, &proposal), |since| self.chain.since(since, &proposal.view));
        self.send(to, Body::Install { proposal, certificate, contacts, fork, chain });
    }

    /// What leads a joiner to the view before that of `proposal`: from where it was last, if that is on the way.
    pub(in crate::membership) fn chain_for(&self, peer: PeerId, proposal: &Proposal) -> Vec<SuccessionProof> {
        let joiner = proposal.joiners.iter().find(|joiner| joiner.contact.peer == peer);
        let since = |joiner: &JoinRequest| {
            if joiner.branch == proposal.view.branch { joiner.generation } else { Generation(0) }
        };
        joiner.map_or_else(Vec::new, |joiner| self.chain.since(since(joiner), &proposal.view))
    }

    /// What a peer must know to take part: a joiner, how to reach the members, and those that were lost, which it looks
    /// for when all who saw that are gone.
    pub(in crate::membership) fn contacts_for(&self, peer: PeerId, proposal: &Proposal) -> Vec<Contact> {
        if !proposal.joiners.iter().any(|joiner| joiner.contact.peer == peer) {
            return Vec::new();
        }
        let known = proposal.view.members().iter().chain(self.lost.keys()).filter(|known| **known != peer);
        known.filter_map(|known| self.contacts.get(known)).take(MAX_MEMBERS).cloned().collect()
    }
}

impl Seat {
    /// Takes over what is still true in the next view.
    fn inherit(&mut self, config: &Config, now: Time, old: Self, me: PeerId, named: &[PeerId]) {
        self.keep_due(now, &old, named);
        for (peer, process) in old.let_in.iter().filter(|(peer, _)| self.view.contains(**peer)) {
            self.let_in.entry(*peer).or_insert(*process);
        }
        self.inherit_failures(config, now, &old);
        self.heard = self.inherit_heard(&old, me);
        let stays = |peer: &PeerId| self.view.contains(*peer);
        let severed = |peer: &PeerId| self.view.is_severed(me, *peer);
        let mut suspects = old.suspects;
        // A link is tried anew. Who came back, or was elsewhere, has promised since to be here; if not, it says so again.
        let lasts =
            |evidence: &Evidence| !matches!(evidence, Evidence::LinkFailed | Evidence::Restarted | Evidence::Elsewhere);
        suspects.retain(|peer, evidence| stays(peer) && !severed(peer) && lasts(evidence));
        let mut accused = old.accused;
        accused.retain(stays);
        let mut broken = old.broken;
        broken.retain(|peer, _| stays(peer));
        let mut owing = old.owing;
        owing.retain(|peer, _| stays(peer));
        let mut leavers = old.leavers;
        leavers.retain(stays);
        let mut gone = old.gone;
        gone.retain(stays);
        (self.suspects, self.broken, self.owing, self.leavers) = (suspects, broken, owing, leavers);
        self.accused = accused;
        self.gone = gone; // Who has finished says so again.
        if self.view.members() == old.view.members() {
            self.replans = old.replans.saturating_add(1);
        }
    }

    /// What links have failed so far, with those for which this view followed.
    fn inherit_failures(&mut self, config: &Config, now: Time, old: &Self) {
        let is_fresh = |reason: &Reason| match reason {
            Reason::Severed(a, b) => !old.view.is_severed(*a, *b) && self.view.contains(*a) && self.view.contains(*b),
            _ => false,
        };
        let origin = self.origin.as_ref().filter(|origin| origin.reasons.iter().any(is_fresh));
        let failed = origin.map(|origin| origin.resume.step);
        let unsteady = (old.view.is_unsteady(), self.view.is_unsteady());
        self.link_failures = old.link_failures.clone();
        self.link_failures.enter(config, now, unsteady, failed);
    }

    /// Whom we could hear so far of those that an unsteady view severs from us: that their links are damped does not say that they can't be
    /// reached.
    fn inherit_heard(&self, old: &Self, me: PeerId) -> BTreeSet<PeerId> {
        let missed = old.unreachable(me);
        let is_heard = |peer: &PeerId| old.heard.contains(peer) && !missed.contains(peer);
        self.severed_from(me).filter(|peer| self.view.is_unsteady() && is_heard(peer)).collect()
    }
}
