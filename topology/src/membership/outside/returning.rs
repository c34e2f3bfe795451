//! Coming back to a seat: from the own record, or, where that is older than what the others know of us, from theirs.
//!
//! A process whose record is of a view before theirs has no vote in theirs. If they can't decide without it, nobody ever could:
//! they pause, and what it asks for takes a decree. So they hand it their view, and it takes its seat there as one that comes
//! back from a record of it. It can't have voted there before, as whoever votes stores that first, unless its disk was set
//! back. Then it may vote twice, but all meet, and nothing that the others hold is lost.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::id::{PeerId, RunId, ViewId};
use crate::membership::decree::installing::Decided;
use crate::membership::interface::Timer;
use crate::membership::seat::{Recovering, Seat};
use crate::membership::{LocalIdentity, Membership, Steps};
use crate::message::Contact;
use crate::time::Time;
use crate::view::mark::MarkStatus;
use crate::vote::certificate::{Certificate, Chain, SuccessionProof};
use crate::vote::proposal::{JoinRequest, Progress, Proposal};
use crate::vote::record::Record;

impl Membership {
    /// A member whose process is gone and that starts again from its record. Its steps are held, at a checkpoint's.
    ///
    /// `noted` is what it had saved: if that is newer than what it holds now, and of its branch, it says that it has lost it; if it does
    /// not know it any more, it says that.
    ///
    /// If it meets a member that lives, it is an outsider and joins; if all have died, they go on together from the
    /// highest step that one of them holds.
    pub fn recover(
        config: Config,
        run: RunId,
        me: LocalIdentity,
        (record, noted): (Record, MarkStatus),
        contacts: Vec<Contact>,
        progress: Progress,
        now: Time,
    ) -> Self {
        let mut member = Self::new(config, run, me, progress, now);
        for contact in contacts {
            member.learn(contact);
        }
        member.look_for_branches(now, &record);
        (member.came_back, member.noted) = (true, noted);
        member.take_back(now, record);
        member.advance(now);
        member
    }

    /// We came back from a record: some may have done the same, and some may have gone on.
    pub(in crate::membership) fn look_for_others(&mut self, now: Time) {
        let Some(seat) = &self.seat else { return };
        for peer in seat.others(self.me.peer) {
            self.say_hello(peer);
        }
        self.set_timer(Timer::Takeover, now + self.config.max_stall);
    }

    /// Takes the seat that `record` is of, and looks for others that come back.
    pub(in crate::membership) fn take_back(&mut self, now: Time, record: Record) {
        self.chain = Chain::told(record.chain, record.view.parent);
        let (origin, lacks) = self.as_decided(record.origin, record.certificate.as_ref());
        let mut seat = Seat::new(record.view, origin, &self.config, now);
        (seat.root, seat.certificate, seat.lacks) = (record.root, record.certificate, lacks);
        let attempts = [record.promised, record.accepted.as_ref().map(|(ballot, _)| *ballot)];
        seat.attempt = attempts.into_iter().flatten().map(|ballot| ballot.attempt).max().unwrap_or(0);
        (seat.acceptor.promised, seat.acceptor.accepted) = (record.promised, record.accepted);
        seat.acceptor.echoed = record.echoed;
        if let (Some(origin), Some(parent)) = (&seat.origin, seat.view.parent) {
            let certificate = seat.certificate.clone();
            self.chain.go_on(parent, certificate.map(|certificate| SuccessionProof::to(origin, certificate)));
        }
        seat.recovering = Some(Recovering { returned: BTreeSet::new(), until: now + self.config.max_stall });
        seat.told_row = seat.link_matrix.row(self.me.peer);
        self.measured.extend(seat.told_row.iter().copied());
        let others = seat.others(self.me.peer);
        seat.detector.watch(now, others.iter().copied());
        self.seat = Some(seat);
        self.look_for_parted(now);
        self.since = Some(now);
        // One copy of it may have been lost since, and a disk that takes no more must not come back as a voter.
        self.persist(now);
        self.look_for_others(now);
    }

    /// Whether we can't decide anything without `joiner`, which is a member of our view and remembers an earlier one.
    pub(in crate::membership) fn needs_back(&self, joiner: &JoinRequest) -> bool {
        let Some(seat) = &self.seat else { return false };
        let JoinRequest { branch, generation, .. } = *joiner;
        let is_behind = branch == seat.view.branch && generation.0 > 0 && generation < seat.view.generation;
        seat.paused.is_some() && is_behind && !seat.view.forked
    }

    /// Whether the view of `proposal`, which others are in, has our seat though we remember only an earlier one.
    pub(in crate::membership) fn remembers_less(&self, proposal: &Proposal) -> bool {
        let (me, view) = (self.me.peer, &proposal.view);
        let remembers = |seat: &Seat| {
            !seat.view.forked && seat.view.branch == view.branch && self.counts_from(seat) < view.generation
        };
        let is_outside = self.is_outside() && self.steps == Steps::Held;
        is_outside && self.seat.as_ref().is_some_and(remembers) && view.contains(me) && !view.forked
    }

    /// Whether a quorum of our view has us stay in the next one, though we have promised nothing: nobody stays who has not promised. Our
    /// record is from before that, or another process of ours has; what it went on from, we need not hold.
    pub(in crate::membership) fn has_forgotten_to_stay(&self, decided: &Decided) -> bool {
        let Decided { proposal, certificate, .. } = decided;
        let is_ours =
            |joiner: &JoinRequest| joiner.contact.peer == self.me.peer && joiner.incarnation == self.config.incarnation;
        let has_promised = self.seat.as_ref().is_none_or(|seat| seat.acceptor.promised.is_some());
        certificate.is_some() && !has_promised && !proposal.joiners.iter().any(is_ours)
    }

    /// Whether more of those that we sat with and that vote than may be hostile say that we have a seat in the view called so, `by` the last of
    /// them.
    pub(in crate::membership) fn is_told_by_ours(&mut self, by: PeerId, view: ViewId) -> bool {
        let (Some(seat), Some(join_attempt)) = (&self.seat, &mut self.join_attempt) else { return false };
        seat.view.votes(by) && join_attempt.note_seated(by, view) > seat.view.most_hostile()
    }

    /// The proposal that a record is of, as it was decided; and this member, if its disk says of it, and nobody else did, that it lacks
    /// the state which that goes on from. The seals tell. Others take whoever shows them a changed one for a liar.
    fn as_decided(
        &self,
        origin: Option<Proposal>,
        certificate: Option<&Certificate>,
    ) -> (Option<Proposal>, Option<PeerId>) {
        let me = self.me.peer;
        let is_sealed = |proposal: &Proposal| {
            let link = certificate.map(|certificate| SuccessionProof::to(proposal, certificate.clone()));
            let signer = certificate.and_then(|certificate| certificate.seals.first()).map(|(signer, _)| *signer);
            link.zip(signer).is_some_and(|(link, signer)| link.is_sealed_by(&*self.notary, signer))
        };
        let Some(told) = origin else { return (None, None) };
        let mut decided = told.clone();
        decided.resume.syncing.retain(|peer| *peer != me);
        let is_changed = decided != told && !is_sealed(&told) && is_sealed(&decided);
        if is_changed { (Some(decided), Some(me)) } else { (Some(told), None) }
    }

    /// Takes our seat in the view of `proposal`.
    pub(in crate::membership) fn catch_up_with(&mut self, now: Time, decided: Decided, contacts: Vec<Contact>) {
        let Decided { mut proposal, certificate, chain, fork: _ } = decided;
        contacts.into_iter().for_each(|contact| self.learn(contact));
        let me = self.me.peer;
        let mut root = self.seat.as_ref().map(|seat| seat.root).unwrap_or_default();
        if self.progress.step > proposal.resume.step {
            // We went on beside it, and what we have saved there is of no branch that others know.
            root = root.cut(&proposal.view, proposal.resume.step, proposal.resume.lineage);
        }
        if self.progress.step != proposal.resume.step {
            // What we hold is from before that view, or beside it. Alone we must not go on from it, now or after another restart.
            (self.synced, self.progress.has_state, self.whole_since) = (false, false, None);
            if !proposal.resume.syncing.contains(&me) {
                proposal.resume.syncing.push(me);
                proposal.resume.syncing.sort_unstable();
            }
        }
        self.join_attempt = None;
        let view = proposal.view.clone();
        let follows = self.seat.as_ref().is_some_and(|seat| view.parent == Some(seat.id));
        let chain = match follows {
            true => self.chain.until(None),
            false => self.chain.led_on(None, chain, view.parent).until(None),
        };
        let origin = Some(proposal);
        let record = Record { certificate, chain, root, ..Record::of(view, origin) };
        self.take_back(now, record);
    }
}
