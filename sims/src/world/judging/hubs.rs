//! Nobody is put out whom a hub reaches: where one of those who stay reaches all others, and has for a while, no view leaves a member
//! out for a link that is down.

use std::collections::BTreeSet;

use starling_topology::{Ballot, Evidence, JustifiedProposal, PeerId, Proposal, Reason, Record, ViewId};

use super::super::World;
use crate::hardware::machine::host::Host;
use crate::hardware::network::Seat;
use crate::peer::Peer;
use crate::verdict::invariants::Broken;

const NAME: &str = "hub_keeps_all";

/// What was so when something was proposed first.
#[derive(Debug, Clone)]
pub(in crate::world) struct JudgedProposal {
    /// Whether it leaves out nobody whom a hub reached.
    pub(in crate::world) held: Result<(), Broken>,
    /// Who was long in storing its vote.
    pub(in crate::world) late: BTreeSet<Seat>,
}

impl World {
    /// Somebody is about to store what `record` says. If that is what it proposes itself, it is judged by what is so now: how long it takes
    /// to store that says nothing of those whom it leaves out.
    pub(in crate::world) fn judge_choice(&mut self, seat: Seat, record: &Record) {
        let accepted = record.accepted.as_ref().filter(|(ballot, _)| ballot.proposer == self.hosts[seat].name());
        if let Some((ballot, justified)) = accepted.filter(|_| !self.hosts[seat].is_hostile()) {
            self.judge_proposal(record.view.id(), *ballot, justified);
        }
    }

    /// Somebody proposes this in a `ballot` of the view called `parent`. What is proposed for the first time is judged by what is so now.
    /// It may be decided from now on, so whoever proposes next can't choose, also if those whom it leaves out have stored their
    /// votes by then.
    pub(in crate::world) fn judge_proposal(&mut self, parent: ViewId, ballot: Ballot, justified: &JustifiedProposal) {
        if self.proposed.contains_key(&(parent, ballot)) {
            return;
        }
        let before = self.proposed.get(&(parent, justified.ballot)).cloned();
        let judged = before.unwrap_or_else(|| {
            let late = (0..self.hosts.len()).filter(|seat| !self.is_quick(&self.hosts[*seat])).collect();
            JudgedProposal { held: self.leaves_out_nobody_reached(&justified.proposal), late }
        });
        self.proposed.insert((parent, ballot), judged);
    }

    /// Whether this machine has been quick enough in storing its votes of late: who was not has answered when others had asked once more.
    fn is_quick(&self, host: &Host) -> bool {
        self.now >= host.late_until + self.config.promise_limit() * 2
    }

    /// Somebody writes `record` down, the first one to do so.
    ///
    /// # Errors
    /// If its view leaves out a member for its links, though that and all who stay could talk to one of these when it was proposed.
    pub(in crate::world) fn keeps_whom_a_hub_reaches(&self, record: &Record) -> Result<(), Broken> {
        let view = &record.view;
        let Some(origin) = record.origin.as_ref().filter(|_| !self.known.contains_key(&view.id())) else {
            return Ok(());
        };
        let ballot = view.parent.zip(record.certificate.as_ref().map(|certificate| certificate.ballot));
        let judged = ballot.and_then(|ballot| self.proposed.get(&ballot));
        // Who decides alone asks nobody.
        judged.map(|judged| judged.held.clone()).unwrap_or_else(|| self.leaves_out_nobody_reached(origin))
    }

    fn leaves_out_nobody_reached(&self, proposal: &Proposal) -> Result<(), Broken> {
        let view = &proposal.view;
        // So long after the last fault what members say of links is what these are like.
        let noticed = self.config.silence_limit() + self.config.heartbeat_interval() * 2;
        let calm = self.now - self.invariants.progress.calm_since();
        if view.forked
            || calm < noticed
            || self.damaged
            || self.twins.len() > 0
            || !self.plan.hostility.seats.is_empty()
        {
            return Ok(());
        }
        let is_link = |evidence: &Evidence| {
            matches!(evidence, Evidence::LinkFailed | Evidence::Closed | Evidence::Silent(_) | Evidence::Unanswered)
        };
        let gone = proposal.reasons.iter().filter_map(|reason| match reason {
            Reason::Lost { peer, evidence } if is_link(evidence) => Some((*peer, *evidence)),
            _ => None,
        });
        let stay: BTreeSet<PeerId> = view.members().iter().copied().collect();
        for (peer, evidence) in gone.filter(|(peer, _)| !stay.contains(peer)) {
            // A newcomer that is bound by another ballot can be done without, so it is not asked once more.
            let voted = view.parent.and_then(|parent| self.known.get(&parent)).is_some_and(|parent| parent.votes(peer));
            let Some(seat) = self.well(peer, view.parent).filter(|_| voted) else { continue };
            let all = || stay.iter().chain([&peer]);
            let seats: Option<Vec<Seat>> = all().map(|peer| self.seats.get(peer).copied()).collect();
            let Some(seats) = seats else { continue };
            let talk = |one: Seat, other: Seat| {
                one == other || !(self.network.is_blocked(one, other) || self.network.is_blocked(other, one))
            };
            // So a death looks: whose connections close at two others is not waited for. They close long after links are back, too.
            let deaf = seats.iter().filter(|other| !talk(seat, **other)).count();
            if evidence == Evidence::Closed && (deaf > 1 || calm < noticed + self.network.patience()) {
                continue;
            }
            let is_hub = |hub: &PeerId| {
                let hub = self.well(*hub, view.parent);
                hub.is_some_and(|hub| seats.iter().all(|other| talk(hub, *other)))
            };
            if let Some(hub) = stay.iter().find(|hub| is_hub(hub)) {
                let hub = self.seats[hub];
                return Err(Broken::new(NAME, format!("{:?} leaves {seat} out, whom {hub} reaches", view.id())));
            }
        }
        Ok(())
    }

    /// The machine of a member of that view, if nothing is wrong with it but its links: it holds the state and steps.
    fn well(&self, peer: PeerId, view: Option<ViewId>) -> Option<Seat> {
        let seat = *self.seats.get(&peer)?;
        let host = &self.hosts[seat];
        let runs = host.peer.as_ref().filter(|peer| peer.view_id() == view && peer.is_full() && peer.has_state());
        let is_free = self.is_quick(host)
            && host.stopped.is_none()
            && host.slower == 1
            && host.disk.takes_votes()
            && host.full.is_empty();
        let is_one = host.twin.is_none() && !host.leaving && host.completed.is_none();
        runs.filter(|_| is_free && is_one).map(|_: &Peer| seat)
    }
}
