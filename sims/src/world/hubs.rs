//! Nobody is put out whom a hub reaches: where one of those who stay reaches all others, and has for a while, no view leaves a member
//! out for a link that is down.

use std::collections::BTreeSet;

use starling_topology::{Evidence, PeerId, Reason, Record};

use super::World;
use crate::hardware::network::Seat;
use crate::peer::Peer;
use crate::verdict::invariants::Broken;

const NAME: &str = "hub_keeps_all";

impl World {
    /// Somebody writes `record` down, the first one to do so.
    ///
    /// # Errors
    /// If its view leaves out a member for its links, though that and all who stay can talk to one of these.
    pub(super) fn keeps_whom_a_hub_reaches(&self, record: &Record) -> Result<(), Broken> {
        let view = &record.view;
        let Some(origin) = record.origin.as_ref().filter(|_| !self.known.contains_key(&view.id())) else {
            return Ok(());
        };
        // So long after the last fault what members say of links is what these are like.
        let noticed = self.config.silence_limit() + self.config.heartbeat_interval() * 2;
        let is_calm = self.now - self.invariants.progress.calm_since() >= noticed;
        if view.forked || !is_calm || self.damaged || self.twins.len() > 0 || !self.plan.hostility.seats.is_empty() {
            return Ok(());
        }
        let is_link = |evidence: &Evidence| {
            matches!(evidence, Evidence::LinkFailed | Evidence::Closed | Evidence::Silent(_) | Evidence::Unanswered)
        };
        let gone = origin.reasons.iter().filter_map(|reason| match reason {
            Reason::Lost { peer, evidence } if is_link(evidence) => Some(*peer),
            _ => None,
        });
        let stay: BTreeSet<PeerId> = view.members().iter().copied().collect();
        for peer in gone.filter(|peer| !stay.contains(peer)) {
            let Some(seat) = self.well(peer, view.parent) else { continue };
            let all = || stay.iter().chain([&peer]);
            let seats: Option<Vec<Seat>> = all().map(|peer| self.seats.get(peer).copied()).collect();
            let Some(seats) = seats else { continue };
            let talk = |one: Seat, other: Seat| {
                one == other || !(self.network.is_blocked(one, other) || self.network.is_blocked(other, one))
            };
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
    fn well(&self, peer: PeerId, view: Option<starling_topology::ViewId>) -> Option<Seat> {
        let seat = *self.seats.get(&peer)?;
        let host = &self.hosts[seat];
        let runs = host.peer.as_ref().filter(|peer| peer.view_id() == view && peer.is_full() && peer.has_state());
        // Who has yet to store its vote, or has just done that, answers late.
        let is_quick = host.storing.is_none() && self.now - host.stored >= self.config.promise_limit() / 2;
        let is_free =
            is_quick && host.stopped.is_none() && host.slower == 1 && host.disk.takes_votes() && host.full.is_empty();
        let is_one = host.twin.is_none() && !host.leaving && host.completed.is_none();
        runs.filter(|_| is_free && is_one).map(|_: &Peer| seat)
    }
}
