//! Nobody is put out whom a hub reaches: where one of those who stay reaches all others, and has for a while, no view leaves a member
//! out for a link that is down. Nor does one at any time, whatever links are like, that by what members have promised is reached by
//! one of those who stay, and so are all of these.

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
            let held = spares_whom_a_hub_reaches(justified);
            JudgedProposal { held: held.and_then(|()| self.leaves_out_nobody_reached(&justified.proposal)), late }
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

/// By the promises that it follows from, whatever links are like: who has promised goes for its links only if there is no hub among those who stay
/// that reaches it and has what it needs.
fn spares_whom_a_hub_reaches(justified: &JustifiedProposal) -> Result<(), Broken> {
    let JustifiedProposal { proposal, promises, excluded, .. } = justified;
    let Proposal { view, resume, reasons, joiners, .. } = proposal;
    let promise = |peer: PeerId| promises.iter().find(|signed| signed.by == peer).map(|signed| &signed.promise);
    let names = |by: PeerId, peer: PeerId| {
        promise(by).is_some_and(|promise| promise.unreachable.contains(&peer) || promise.accused.contains(&peer))
    };
    let reaches = |one: PeerId, other: PeerId| one == other || !(names(one, other) || names(other, one));
    let joins = |peer: &PeerId| joiners.iter().any(|joiner| joiner.contact.peer == *peer);
    let stay: Vec<PeerId> = view.members().iter().copied().filter(|peer| !joins(peer)).collect();
    let gone = reasons.iter().filter_map(|reason| match reason {
        Reason::Lost { peer, evidence: Evidence::LinkFailed } => Some(*peer),
        _ => None,
    });
    for peer in gone.filter(|peer| excluded.iter().all(|(out, _)| out != peer)) {
        let Some(progress) = promise(peer).map(|promise| promise.progress) else { continue };
        let serves = |hub: &PeerId| {
            let is_there = progress.step == resume.step || !progress.has_state;
            resume.donors.contains(hub) && (is_there || resume.holders.contains(hub)) && progress.step <= resume.step
        };
        let is_hub = |hub: &&PeerId| stay.iter().chain([&peer]).all(|other| reaches(**hub, *other));
        if let Some(hub) = stay.iter().filter(is_hub).find(|hub| serves(hub)) {
            let seen = format!(
                "{peer:?} is left out for its links, and has promised, and so has {hub:?}, a hub that reaches it"
            );
            return Err(Broken::new(NAME, seen));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use starling_topology::{Lineage, Progress, Promise, ResumePlan, SignedPromise, View, WireSignature};

    use super::*;
    use crate::world::RUN;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    /// What is said of it that of so many members these go for their links, where each names those that it can't reach.
    fn judge(gone: &[u8], named: &[&[u8]]) -> Result<(), Broken> {
        let all = (0..named.len() as u8).map(peer);
        let view = View::found(RUN, peer(0)).succeed(all.clone());
        let progress = Progress { step: 3, lineage: Lineage::NONE, has_state: true, has_result: true };
        let said = |named: &[u8]| Promise {
            progress,
            unreachable: named.iter().map(|name| peer(*name)).collect(),
            failed: Vec::new(),
            accused: Vec::new(),
            contributing: Vec::new(),
            missing: None,
            leaving: false,
            recovering: false,
            lost: starling_topology::LostState::Nothing,
            accepted: None,
        };
        let seal = WireSignature::from([0; 64]);
        let promises =
            all.clone().zip(named).map(|(by, named)| SignedPromise { by, promise: said(named), seal }).collect();
        let stay: Vec<PeerId> = all.filter(|peer| !gone.contains(&peer.0[0])).collect();
        let lost = |name: &u8| Reason::Lost { peer: peer(*name), evidence: Evidence::LinkFailed };
        let (lineage, syncing) = (Lineage::NONE, Vec::new());
        let resume = ResumePlan { step: 3, lineage, holders: stay.clone(), donors: stay.clone(), syncing };
        let proposal = Proposal {
            view: view.succeed(stay),
            resume,
            reasons: gone.iter().map(lost).collect(),
            joiners: Vec::new(),
            promised: 3,
            of: 3,
        };
        let ballot = Ballot { attempt: 1, proposer: peer(0) };
        let (excluded, echoes) = (Vec::new(), Vec::new());
        spares_whom_a_hub_reaches(&JustifiedProposal { proposal, ballot, promises, excluded, seal, last: seal, echoes })
    }

    #[test]
    fn who_goes_beside_a_hub_is_noticed() {
        let named: [&[u8]; 4] = [&[1], &[0, 2, 3], &[1, 3], &[1, 2]];
        assert_eq!(judge(&[1], &named), Ok(()), "it is in the way of the first one");
        assert!(judge(&[1, 3], &named).is_err(), "the first one reaches the last one");
        assert_eq!(judge(&[0, 3, 2], &named), Ok(()), "who stays reaches none of them");
        assert!(judge(&[2], &[&[], &[2], &[1]]).is_err());
    }
}
