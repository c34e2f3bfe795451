//! What the membership machine asks for: messages, timers, holds, fetches, steps.

use std::collections::BTreeSet;

use starling_topology::{Envelope, Event, Gate, Output, PeerId, Ring, View};

use super::{End, EventLoop};
use crate::control::Link;
use crate::data::Limits;
use crate::event::NetworkEvent;
use crate::identity::to_libp2p;
use crate::report::Report;
use crate::ring::{self, RingConfig};
use crate::state_transfer;
use crate::trainer::Command;

impl EventLoop {
    pub(super) async fn execute_all(&mut self) -> Option<End> {
        while let Some(output) = self.membership.poll() {
            match output {
                Output::Send { to, envelope } => self.send(to, &envelope),
                Output::Learn(contact) => self.network.learn(&contact),
                Output::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                }
                Output::Hold { after } => {
                    if let (Some(step), Some(ring)) = (after, &self.ring) {
                        ring.hold(Gate::closed_after(step));
                    }
                    let _ = self.trainer.commands.send(Command::Hold { after }).await;
                }
                Output::Fetch { from, step, .. } => self.fetch(from, step),
                Output::Step(view) => self.step(&view).await,
                Output::Event(event) => {
                    if let Some(end) = self.tell(event) {
                        return Some(end);
                    }
                }
            }
        }
        None
    }

    pub(super) fn send(&mut self, to: PeerId, envelope: &Envelope) {
        let peer = to_libp2p(to);
        self.network.connect(peer);
        let link = self.links.entry(to).or_insert_with(|| {
            Link::open(
                self.network.control(),
                self.network.protocols.control.clone(),
                to,
                self.config.max_stall / 2,
                self.network.events_in.clone(),
            )
        });
        if !link.send(envelope) {
            // The task has ended or the peer does not read: either way its event follows, or comes now.
            let events = self.network.events_in.clone();
            let _ = events.try_send(NetworkEvent::LinkFailed { peer: to });
        }
    }

    fn fetch(&mut self, from: PeerId, step: u64) {
        tracing::info!(peer = %to_libp2p(from), step, "fetching the state");
        let fetch = state_transfer::fetch(
            self.network.control(),
            to_libp2p(from),
            self.network.protocols.state.clone(),
            self.config.max_state_bytes,
            self.config.max_stall,
        );
        let events = self.network.events_in.clone();
        self.fetch_number += 1;
        let number = self.fetch_number;
        let task = tokio::spawn(async move {
            let state = fetch.await;
            let _ = events.send(NetworkEvent::StateFetched { number, from, state }).await;
        });
        // A newer proposal's state replaces the one that is on its way.
        if let Some(older) = self.fetching.replace(task) {
            older.abort();
        }
    }

    async fn step(&mut self, view: &View) {
        let id = view.id();
        let ring = Ring::plan(view);
        let me = self.network.contact().peer;
        let rank = ring.rank_of(me).expect("invariant: the machine steps only in its own views");
        let world = ring.world_size();
        self.world_size = world.get();
        self.ring = None;
        let operations = (world.get() > 1).then(|| {
            let config = RingConfig {
                elements: self.config.elements,
                layout: self.config.layout,
                in_flight: self.config.in_flight,
                open_limit: self.config.max_stall / 2,
                limits: Limits::new(self.config.max_stall),
                protocol: self.network.protocols.ring.clone(),
                door: self.network.door.clone(),
                traffic: self.traffic.clone(),
            };
            self.network.connect(to_libp2p(ring.next(rank)));
            let (handle, operations) =
                ring::start(view, me, config, self.network.control(), self.network.events_in.clone());
            for (peer, view, stream) in std::mem::take(&mut self.early) {
                if peer == handle.previous && view == id {
                    handle.connect(stream);
                }
            }
            self.ring = Some(handle);
            operations
        });
        self.keep_connected(view, me);
        self.observer.report(&Report::View {
            generation: view.generation.0,
            view: id.to_string(),
            rank: rank.0,
            members: world.ranks().map(|rank| to_libp2p(ring.peer(rank)).to_string()).collect(),
            step: self.step,
        });
        let _ = self.trainer.commands.send(Command::Step { world, rank, ring: operations }).await;
    }

    /// Each member is connected to each other one, so that a death is seen by all at once. Of two, the lower dials.
    fn keep_connected(&mut self, view: &View, me: PeerId) {
        let members: BTreeSet<PeerId> = view.members().iter().copied().collect();
        for member in members.range(me..).skip(1) {
            self.network.connect(to_libp2p(*member));
        }
    }

    /// Tells the user; `Some` if the event ends the run here.
    fn tell(&mut self, event: Event) -> Option<End> {
        let name = |peer| to_libp2p(peer).to_string();
        match event {
            Event::Waiting { present, needed } => self.observer.report(&Report::Waiting { present, needed }),
            Event::Joining(peer) => self.observer.report(&Report::Joining { peer: name(peer) }),
            Event::JoinerLost(peer) => self.observer.report(&Report::JoinerLost { peer: name(peer) }),
            Event::Stale { from } => tracing::debug!(peer = name(from), "message of an older view dropped"),
            Event::Left
            | Event::Complete { .. }
            | Event::Refused { .. }
            | Event::Lost { .. }
            | Event::Diverged { .. } => {
                return Some(End::Event(event));
            }
        }
        None
    }
}
