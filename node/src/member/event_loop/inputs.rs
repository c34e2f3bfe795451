//! What happens: from the trainer, the network's tasks and the swarm.

use libp2p::gossipsub;
use libp2p::swarm::SwarmEvent;
use starling_engine::StepEvent;
use starling_links::{LinkFailure, Transport};
use starling_topology::{Body, Contact, Evidence, Input, PeerId, RefusalReason};
use tokio_util::sync::CancellationToken;

use super::{End, EventLoop, MAX_EARLY};
use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::learner::trainer::TrainerEvent;
use crate::member::event::NetworkEvent;
use crate::net::behaviour::BehaviourEvent;
use crate::observe::report::{LinkSummary, Report};

impl EventLoop {
    pub(super) fn on_trainer(&mut self, event: TrainerEvent, stop: &CancellationToken) -> Option<End> {
        match event {
            TrainerEvent::Unable(error) => {
                self.failure = Some(error);
                stop.cancel();
            }
            TrainerEvent::Failed(error) => return Some(End::Failed(error)),
        }
        None
    }

    pub(super) fn on_notice(&mut self, notice: StepEvent) {
        let member = &mut self.member;
        self.shared_steps.act(|steps| member.notice(steps, notice));
        match notice {
            StepEvent::Synced => self.observer.report(&Report::Synced { step: self.shared_steps.progress().step }),
            StepEvent::TooFarBehind => self.leave_view("the state came too slowly: no room for more results"),
            StepEvent::Starved { .. } | StepEvent::Held(_) | StepEvent::Digest { .. } | StepEvent::Finished { .. } => {}
        }
    }

    pub(super) fn on_network(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::ControlOpened { peer } => *self.readers.entry(peer).or_default() += 1,
            NetworkEvent::Received { from, envelope } => {
                // Who is in a view waits for nobody.
                if let Body::Refuse(RefusalReason::Quarantined { for_ms }) = &envelope.body
                    && self.members.is_empty()
                    && let Some(report) = self.join_wait.note_quarantine(from, *for_ms, self.config.max_stall)
                {
                    self.observer.report(&report);
                }
                let pass = if let Body::Join(joiner) = &envelope.body { Some(&joiner.pass) } else { None };
                if pass.is_none_or(|pass| self.may_join(from, pass)) {
                    self.handle(Input::Received { from, envelope: *envelope });
                }
            }
            NetworkEvent::ControlClosed { peer } => {
                if let Some(open) = self.readers.get_mut(&peer) {
                    *open -= 1;
                    if *open == 0 {
                        self.readers.remove(&peer);
                        self.suspect_if_gone(peer);
                    }
                }
            }
            NetworkEvent::LinkFailed { peer, link } => {
                // An earlier link may fail late: its peer has come back since.
                if self.links.get(&peer).is_some_and(|current| current.number == link) {
                    self.links.remove(&peer);
                    // Messages may be lost, so that a new view must bring all to one state.
                    self.suspect(peer, Evidence::Closed);
                }
            }
            NetworkEvent::Misbehaved { peer, violation } => self.misbehaved(peer, &violation),
            NetworkEvent::SegmentsOpened { peer, view, stream } => match &mut self.reducer {
                Some(reducer) if reducer.view == view => reducer.connect(peer, stream),
                _ => {
                    // One for each peer, the newest: it has to be the next view's.
                    self.early.retain(|(other, _, _)| *other != peer);
                    if self.early.len() < MAX_EARLY {
                        self.early.push((peer, view, stream));
                    }
                }
            },
            NetworkEvent::Measured { links } => self.on_measured(links),
            NetworkEvent::Linked { view, plan, reason, from, to } => {
                self.linked = Some(view);
                if self.reducer.as_ref().is_some_and(|reducer| reducer.view == view) {
                    let named = |links: Vec<(PeerId, Transport)>| {
                        links.into_iter().map(|(peer, transport)| (to_libp2p(peer).to_string(), transport)).collect()
                    };
                    self.observer.report(&Report::Linked(LinkSummary {
                        plan,
                        reason,
                        from: named(from),
                        to: named(to),
                    }));
                }
            }
            NetworkEvent::ReductionFailed { peer, view, failure } => match failure {
                LinkFailure::Broken(reason) => {
                    tracing::info!(peer = %to_libp2p(peer), reason, "a link for segments failed");
                    let now = self.now();
                    self.member.link_failed(now, peer, view);
                }
                LinkFailure::Misbehaved(violation) => self.misbehaved(peer, &violation),
            },
            NetworkEvent::Awaits { view, awaited } => self.awaited = Some((view, awaited)),
            NetworkEvent::ResultFetched { number, result } => self.on_result(number, result),
            NetworkEvent::StateFetched { number, state } => self.on_state(number, state),
            NetworkEvent::DataMissing { error } => self.on_data_missing(error),
        }
    }

    /// A peer is gone once its last connection is closed, and its last message read: the end of a control stream comes
    /// after that. Either alone is none: of two connections that were made at once, one is closed again.
    fn suspect_if_gone(&mut self, peer: PeerId) {
        if !self.readers.contains_key(&peer) && !self.network.swarm.is_connected(&to_libp2p(peer)) {
            self.suspect(peer, Evidence::Closed);
        }
    }

    pub(super) fn on_swarm(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, .. } => {
                if let Some(peer) = from_libp2p(&peer_id) {
                    if !self.members.contains(&peer) {
                        // Its stream is gone with it. If it comes back and asks to join, the answer must not be lost there.
                        self.links.remove(&peer);
                    }
                    self.suspect_if_gone(peer);
                }
            }
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, .. } => {
                self.denials.retract(peer_id);
                if self.network.greet(peer_id) {
                    self.on_connected(peer_id, endpoint.get_remote_address());
                }
            }
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(gossipsub::Event::Message {
                message,
                propagation_source,
                ..
            })) => {
                self.on_gossip(&message, propagation_source);
            }
            _ => {}
        }
    }

    /// A gossiped message came. Its author is proven, whoever passed it on; and may be nobody.
    fn on_gossip(&mut self, message: &gossipsub::Message, by: libp2p::PeerId) {
        let Some(from) = message.source.as_ref().and_then(from_libp2p) else { return };
        let protocols = &self.network.protocols;
        let [heads, contacts, keepers] =
            [&protocols.heads, &protocols.contacts, &protocols.keepers].map(|topic| message.topic == topic.hash());
        if heads {
            if self.network.may_bring(from, by) {
                self.on_head(from, &message.data);
            }
        } else if contacts && let Some(contact) = self.network.hear(from, &message.data) {
            self.handle(Input::Located(contact));
            self.tell_members();
        } else if keepers && let Some(contact) = self.network.hear(from, &message.data) {
            self.learn_keeper(contact);
        }
    }

    /// Takes in keepers that have just come.
    pub(super) fn meet_keepers(&mut self) {
        while let Some(contact) = self.network.next_keeper() {
            let is_known = self.books.contacts.keepers().iter().any(|known| known.peer == contact.peer);
            // What it announces of itself is better.
            if !is_known {
                self.learn_keeper(contact);
            }
        }
    }

    /// The machine never hears of a keeper: it is no member and wants to be none.
    fn learn_keeper(&mut self, contact: Contact) {
        let network = &self.network;
        if self.books.contacts.learn_keeper(contact, |peer| !network.swarm.is_connected(&to_libp2p(peer))) {
            self.note_contacts();
            self.tell_members();
        }
    }
}
