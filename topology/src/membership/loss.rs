//! Heartbeats, and what the loss of a peer leads to.

use std::collections::BTreeSet;

use super::{Event, Membership, Output, Phase, Timer};
use crate::id::PeerId;
use crate::message::{Body, Evidence};
use crate::ring::Ring;
use crate::time::Time;
use crate::view::View;

impl Membership {
    pub(super) fn beat(&mut self, now: Time) {
        for peer in self.correspondents() {
            self.send(peer, Body::Heartbeat);
        }
        let at = now + self.config.heartbeat_interval();
        self.outputs.push_back(Output::SetTimer { timer: Timer::Heartbeat, at });
        // All of them: one whose loss leads to nothing must not hide another one.
        for (peer, silence) in self.detector.take_silent(now) {
            self.suspect(now, peer, Evidence::Silent(silence));
        }
    }

    pub(super) fn suspect(&mut self, now: Time, peer: PeerId, evidence: Evidence) {
        if peer == self.me.peer {
            return;
        }
        let member = self.view.as_ref().is_some_and(|view| view.contains(peer));
        let offered = self.offered().is_some_and(|view| view.contains(peer));
        let staying = self.offered().is_some_and(|view| view.contains(self.me.peer));
        let joiner = self.joiners.remove(&peer).is_some();
        if joiner {
            self.tell(Event::JoinerLost(peer));
        }
        match &mut self.phase {
            Phase::Asking { member } => {
                if *member == peer {
                    self.lose(peer, evidence);
                }
            }
            Phase::Following { proposer, accepted, .. } => {
                // Before we stand at the boundary, we may need any member to get there. Then, one that is not in the next
                // view has left, and one that is not in ours is the proposer's to judge. So are all others if it is we
                // who leave: they may be further ahead, where they need nothing from us to go.
                let needed = !*accepted || (offered && staying);
                if *proposer == peer || (member && needed) {
                    self.lose(peer, evidence);
                }
            }
            Phase::Proposing(ballot) => {
                if joiner {
                    if offered {
                        self.change(now);
                    }
                    return;
                }
                ballot.missing.remove(&peer);
                // A leaver that is lost is missed by those that are not at the boundary yet.
                let behind = self.view.iter().flat_map(View::members).any(|other| ballot.missing.contains(other));
                if member && (offered || behind) {
                    self.lose(peer, evidence);
                } else {
                    self.install_when_accepted(now);
                }
            }
            Phase::Finishing { .. } => {
                if self.finished.contains_key(&peer) {
                    self.say_gone(peer);
                } else if member {
                    self.lose(peer, evidence);
                }
            }
            Phase::Stepping | Phase::Stopping | Phase::Gathering => {
                if member {
                    self.lose(peer, evidence);
                }
            }
            Phase::Ended => {}
        }
    }

    fn lose(&mut self, peer: PeerId, evidence: Evidence) {
        self.spread(peer, evidence, None);
    }

    /// Ends the run here, and tells everyone who would otherwise wait for us why. Of a joiner that is none yet, only
    /// those take it that are in the view on offer already; for the rest it speaks out of an older generation.
    pub(super) fn spread(&mut self, peer: PeerId, evidence: Evidence, reporter: Option<PeerId>) {
        let joiners: Vec<PeerId> = self.joiners.keys().copied().collect();
        for other in self.others().into_iter().chain(joiners) {
            if other != peer && Some(other) != reporter {
                self.send(other, Body::Lost { peer, evidence });
            }
        }
        self.end(Event::Lost { peer, evidence, reporter });
    }

    /// The other members of our view, and of the one on offer.
    pub(super) fn others(&self) -> BTreeSet<PeerId> {
        let current = self.view.iter().flat_map(View::members);
        let offered = self.offered().into_iter().flat_map(View::members);
        current.chain(offered).copied().filter(|peer| *peer != self.me.peer).collect()
    }

    /// Whom we tell that we live, and who tells us: the ring's neighbours and the proposer; for the proposer, all
    /// members and joiners. The relation is symmetric, so nobody is watched who does not speak.
    fn correspondents(&self) -> BTreeSet<PeerId> {
        let mut peers: BTreeSet<PeerId> = self.joiners.keys().copied().collect();
        match &self.phase {
            Phase::Asking { member } => {
                peers.insert(*member);
            }
            Phase::Following { proposer, .. } => {
                peers.insert(*proposer);
            }
            Phase::Proposing(ballot) => peers.extend(&ballot.missing),
            Phase::Stepping | Phase::Stopping | Phase::Gathering | Phase::Finishing { .. } | Phase::Ended => {}
        }
        if let Some(view) = &self.view {
            let ring = Ring::plan(view);
            if view.proposer() == self.me.peer {
                peers.extend(view.members());
            } else if let Some(rank) = ring.rank_of(self.me.peer) {
                peers.extend([ring.next(rank), ring.previous(rank), view.proposer()]);
            }
        }
        peers.remove(&self.me.peer);
        peers
    }

    pub(super) fn rewatch(&mut self, now: Time) {
        let peers = self.correspondents();
        self.detector.watch(now, peers);
    }
}
