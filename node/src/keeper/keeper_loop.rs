//! The loop of a keeper: gossip in, checkpoints on disk, questions answered.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, gossipsub};
use starling_run::{CheckpointStore, Manifest};
use starling_topology::heads::follower::{Input, Output};
use starling_topology::history::ViewSearch;
use starling_topology::{Contact, Follower, PeerId, ViewId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::background_tasks::{Done, TaskContext};
use super::told::Told;
use crate::access::admission::AdmissionError;
use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::credentials::ticket::Ticket;
use crate::error::NodeError;
use crate::member::event_loop::heads;
use crate::member::guide::Guide;
use crate::net::behaviour::BehaviourEvent;
use crate::net::network::Network;
use crate::observe::report::{Observer, Report, Summary};
use crate::start::welcome::Mismatch;
use crate::store::contacts_file::{Contacts, ContactsFile};
use crate::transfer::ChunkProviders;
use crate::transfer::checkpoint::FetchError;
use crate::transfer::checkpoint_provider::CheckpointProvider;
use crate::transfer::questions::Newest;

/// Known peers that are dialed, and connected ones that are asked what they hold, each time.
const MAX_LOOKED_FOR: usize = 8;
/// Questions under way, and to those who are not known as members or keepers: as many as these may take as long as they like to answer.
const MAX_QUESTIONS: usize = 16;
const MAX_TO_OTHERS: usize = 8;
/// How often, in stalls, a keeper looks for peers that are gone and tries again what failed; within these bounds.
const LOOK_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What a keeper consists of.
pub(super) struct Parts {
    pub(super) network: Network,
    pub(super) follower: Follower,
    pub(super) guide: Arc<Guide>,
    pub(super) checkpoint_provider: Arc<CheckpointProvider>,
    pub(super) chunk_providers: Arc<ChunkProviders>,
    pub(super) mismatches: mpsc::Receiver<Mismatch>,
    pub(super) store: CheckpointStore,
    pub(super) known: Contacts,
    pub(super) file: ContactsFile,
    pub(super) ticket: Ticket,
    pub(super) observer: Arc<dyn Observer>,
    /// With all that does not change.
    pub(super) summary: Summary,
}

/// A keeper at work.
pub(super) struct KeeperLoop {
    network: Network,
    follower: Follower,
    guide: Arc<Guide>,
    background_tasks: TaskContext,
    tasks: JoinSet<Done>,
    questions: usize,
    chunk_providers: Arc<ChunkProviders>,
    mismatches: mpsc::Receiver<Mismatch>,
    known: Contacts,
    told: Told,
    ticket: Ticket,
    /// Whether `known` differs from what is on disk, and whether it is being written.
    is_unwritten: bool,
    is_writing: bool,
    /// Whether it was told that the disk takes no checkpoints, and none has been kept since.
    is_warned_of_disk: bool,
    file: ContactsFile,
    /// The last peer that was dialed or asked: the next ones come after it.
    looked_at: Option<PeerId>,
    look: Duration,
    observer: Arc<dyn Observer>,
    summary: Summary,
}

impl KeeperLoop {
    pub(super) fn new(parts: Parts, manifest: &Manifest) -> Self {
        let Parts { network, follower, guide, checkpoint_provider, .. } = parts;
        let Parts { chunk_providers, mismatches, store, known, file, ticket, observer, summary, .. } = parts;
        let stall = Duration::from_millis(manifest.max_stall_ms);
        let background_tasks = TaskContext {
            control: network.control(),
            protocol: network.protocols.state.clone(),
            run: manifest.run_id(),
            steps: manifest.steps,
            max_bytes: manifest.max_state_bytes(),
            stall,
            checkpoint_provider,
            store: store.clone(),
            writing: Arc::new(Mutex::new(store)),
            fetched: Mutex::default(),
            observer: observer.clone(),
        };
        Self {
            network,
            follower,
            guide,
            background_tasks,
            tasks: JoinSet::new(),
            questions: 0,
            chunk_providers,
            mismatches,
            known,
            told: Told::default(),
            ticket,
            is_unwritten: true,
            is_writing: false,
            is_warned_of_disk: false,
            file,
            looked_at: None,
            look: stall.clamp(LOOK_BOUNDS.0, LOOK_BOUNDS.1),
            observer,
            summary,
        }
    }

    /// Keeps checkpoints until `stop` is cancelled.
    pub(super) async fn run(mut self, stop: CancellationToken) -> Result<Summary, NodeError> {
        let mut look = tokio::time::interval(self.look);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.handle(None, Input::Retry);
        let access = self.network.access.clone();
        loop {
            self.write_known();
            let announce_at = self.network.announce_at();
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.network.swarm.select_next_some() => {
                    if let Some(event) = self.network.absorb(event) {
                        self.on_swarm(event);
                    }
                    self.network.next_name().iter().for_each(|named| self.observer.report(named));
                    while let Some(contact) = self.network.next_keeper() {
                        self.learn(contact, true);
                    }
                }
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.on_done(done),
                    Err(error) => {
                        tracing::error!(%error, "a task failed");
                        return Err(NodeError::Stopped("keeper"));
                    }
                },
                Some(turned) = self.network.turned.recv() => {
                    if turned.error == AdmissionError::PutOut {
                        return Err(NodeError::Revoked);
                    }
                    if let Some(report) = self.network.turned_away(turned.news(), turned.error.to_string()) {
                        self.observer.report(&report);
                    }
                }
                () = access.news() => {
                    self.network.look_at_guests();
                    self.tell_members();
                    if let Some(message) = access.take_warning() {
                        let observer = self.observer.clone();
                        access.keep_before(move || observer.report(&Report::Warning { message }));
                    }
                    access.keep();
                }
                Some(mismatch) = self.mismatches.recv() => {
                    if let Some(report) = self.network.turned_away(Some(mismatch.peer), mismatch.differences) {
                        self.observer.report(&report);
                    }
                }
                () = tokio::time::sleep_until(announce_at) => self.network.announce(),
                _ = look.tick() => self.look_around(),
            }
        }
        // What is being written ends in order; a fetch goes on from where it is when the keeper is started again.
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        let writing = self.background_tasks.writing.clone();
        let newest = tokio::task::spawn_blocking(move || TaskContext::lock(&writing).newest_stable(None)).await;
        if let Some(info) = newest.map_err(|_| NodeError::Stopped("keeper"))?? {
            (self.summary.steps, self.summary.digest) = (info.step, info.digest.to_string());
        }
        self.observer.report(&Report::Finished(self.summary.clone()));
        Ok(self.summary)
    }

    /// Hands an input to the machine and does what it asks.
    fn handle(&mut self, from: Option<PeerId>, input: Input) {
        if let (Err(violation), Some(peer)) = (self.follower.handle(input), from) {
            self.misbehaved(peer, &violation.to_string());
        }
        while let Some(output) = self.follower.poll() {
            match output {
                Output::Fetch { head, from } => {
                    let donors = self.near_first(from);
                    tracing::info!(step = head.step, donors = donors.len(), "fetching a checkpoint");
                    self.tasks.spawn(self.background_tasks.fetch(head, donors));
                }
                Output::Ask { view, from } => {
                    let (from, view_search) =
                        (self.near_first(from), ViewSearch::new(self.follower.anchors().clone(), view));
                    self.tasks.spawn(self.background_tasks.view_search(view_search, from));
                }
                Output::Stable(proof) => {
                    self.background_tasks.checkpoint_provider.learn(&proof.view);
                    self.tasks.spawn(self.background_tasks.sign(proof));
                }
            }
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Newest { peer, newest, members } => {
                self.questions -= 1;
                // Else it would depend on this one peer for what the others sign.
                let known = self.all();
                let is_new = |member: &Contact| !known.contains(&member.peer);
                let told = members.into_iter().filter(is_new).filter(|member| self.told.hear(peer, member.clone()));
                if told.count() > 0 {
                    self.look_for_told();
                }
                match newest {
                    Ok((Newest { proofs, .. }, walks)) => {
                        walks
                            .into_iter()
                            .for_each(|view_search| self.arrive(view_search.to(), Some(Box::new(view_search))));
                        for proof in proofs {
                            self.handle(Some(peer), Input::Proven { from: peer, proof });
                        }
                    }
                    Err(error) => {
                        tracing::info!(peer = %to_libp2p(peer), %error, "a peer did not say what it holds");
                    }
                }
            }
            Done::Walked { id, view_search } => self.arrive(id, view_search),
            Done::Fetched { head, outcome } => match outcome {
                Ok(held) => {
                    self.is_warned_of_disk = false;
                    self.observer.report(&Report::Saved { step: head.step, digest: head.digest.to_string() });
                    self.handle(None, Input::Holds(held));
                }
                Err(FetchError { reason, is_disk }) => {
                    tracing::info!(step = head.step, reason, "a checkpoint could not be fetched");
                    if is_disk {
                        self.warn_of_disk(head.step, &reason);
                    }
                    self.handle(None, Input::Failed(head.manifest));
                }
            },
            Done::Broken { head, message } => {
                self.warn_of_disk(head.step, &message);
                self.handle(None, Input::Failed(head.manifest));
            }
            Done::Signed(Ok(None)) => {}
            Done::Signed(Ok(Some((head, signers)))) => {
                let (step, digest) = (head.step, head.digest.to_string());
                self.observer.report(&Report::Stable { step, digest, signers });
            }
            Done::Signed(Err(message)) => {
                let message = format!("a checkpoint's signatures can't be kept: {message}");
                self.observer.report(&Report::Warning { message });
            }
            Done::Noted(outcome) => {
                self.is_writing = false;
                if let Err(error) = outcome {
                    self.observer.report(&Report::Warning { message: error.to_string() });
                }
            }
        }
    }

    /// Once until a checkpoint is on disk again: it is tried again and again.
    fn warn_of_disk(&mut self, step: u64, reason: &str) {
        if !std::mem::replace(&mut self.is_warned_of_disk, true) {
            let message = format!(
                "no checkpoint of step {step}: {reason}; this keeper keeps no newer ones until that is mended, and tries again"
            );
            self.observer.report(&Report::Warning { message });
        }
    }

    fn on_swarm(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::ConnectionEstablished { peer_id, num_established, endpoint, .. }
                if num_established.get() == 1 =>
            {
                if self.network.greet(peer_id)
                    && let Some(peer) = from_libp2p(&peer_id)
                {
                    // It is where it answers, whatever else was said; who has come by itself announces where it is.
                    if self.told.meet(peer) && endpoint.is_dialer() {
                        let parts = endpoint.get_remote_address().iter();
                        let place: Multiaddr = parts.filter(|part| !matches!(part, Protocol::P2p(_))).collect();
                        self.learn(Contact { peer, addresses: vec![place.to_string()] }, false);
                    }
                    self.question(peer);
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

    /// It was led to a view, or nobody leads there.
    fn arrive(&mut self, id: ViewId, view_search: Option<Box<ViewSearch>>) {
        if let Some((view_search, view)) =
            view_search.as_ref().and_then(|view_search| Some((view_search, view_search.view()?)))
        {
            self.background_tasks.checkpoint_provider.learn(view);
            self.guide.take(view_search.legs().cloned());
            self.is_unwritten = true;
        }
        self.handle(None, Input::Walked { id, view_search });
    }

    /// A gossiped message came. Its author is proven, whoever passed it on; and may be nobody.
    fn on_gossip(&mut self, message: &gossipsub::Message, by: libp2p::PeerId) {
        let Some(from) = message.source.as_ref().and_then(from_libp2p) else { return };
        let protocols = &self.network.protocols;
        let [heads, contacts, keepers] =
            [&protocols.heads, &protocols.contacts, &protocols.keepers].map(|topic| message.topic == topic.hash());
        if heads && !self.network.may_bring(from, by) {
            tracing::debug!(peer = %by, "a peer passes on too much of what nobody answers for");
        } else if heads {
            match heads::read(from, &message.data) {
                Some((head, signature)) => self.handle(Some(from), Input::Received { from, head, signature }),
                None => self.misbehaved(from, "gossiped bytes that are not a head with its signature"),
            }
        } else if (contacts || keepers)
            && let Some(contact) = self.network.hear(from, &message.data)
        {
            self.learn(contact, keepers);
        }
    }

    /// Takes in where a peer is. If there are too many, one that is gone makes room.
    fn learn(&mut self, contact: Contact, keeps: bool) {
        let network = &self.network;
        let is_gone = |peer: PeerId| !network.swarm.is_connected(&to_libp2p(peer));
        if keeps {
            self.is_unwritten |= self.known.learn_keeper(contact, is_gone);
        } else {
            if self.known.members().iter().all(|known| known.peer != contact.peer) {
                self.known.drop_member(is_gone);
            }
            self.is_unwritten |= self.known.learn_member(contact);
        }
        self.tell_members();
    }

    /// Has joiners that ask learn where members and keepers are, those members who are connected first; and names some in the ticket.
    fn tell_members(&mut self) {
        let mut members = self.known.members().to_vec();
        members.retain(|contact| !self.network.access.is_revoked(&contact.peer));
        members.sort_by_key(|contact| !self.is_connected(contact.peer));
        let keepers = std::iter::once(self.network.contact()).chain(self.known.keepers().iter().cloned());
        self.chunk_providers.know(members.iter().cloned(), keepers);
        let (peers, access) = ([self.network.contact()].into_iter().chain(members), &self.network.access);
        let ticket = Ticket::new(peers, self.ticket.run, access.secret()).with_invitation(access.open_invitation());
        if ticket != self.ticket {
            self.observer.report(&Report::Invitation { ticket: ticket.to_string() });
            self.ticket = ticket;
        }
    }

    fn misbehaved(&mut self, peer: PeerId, violation: &str) {
        let name = to_libp2p(peer);
        if !self.network.is_answerable(peer) {
            return; // Keys cost nothing: who made it up is not found by its name.
        }
        if let Some(report) = self.network.misbehaved(name, violation.to_owned()) {
            tracing::warn!(peer = %name, violation, "peer misbehaved");
            self.observer.report(&report);
        }
        let _ = self.network.swarm.disconnect_peer_id(name);
    }

    /// Dials a few of those who are not connected, asks a few of the others what they hold, in turn, and tries again what
    /// failed.
    fn look_around(&mut self) {
        let after = self.looked_at;
        let (later, earlier): (Vec<PeerId>, Vec<PeerId>) =
            self.all().into_iter().partition(|peer| after.is_none_or(|after| *peer > after));
        for peer in later.into_iter().chain(earlier).take(MAX_LOOKED_FOR) {
            self.looked_at = Some(peer);
            if self.is_connected(peer) {
                self.question(peer);
            } else {
                self.network.connect(to_libp2p(peer));
            }
        }
        self.look_for_told();
        self.handle(None, Input::Retry);
    }

    fn look_for_told(&mut self) {
        for contact in self.told.next(MAX_LOOKED_FOR) {
            self.network.hear_of(&contact);
        }
    }

    /// Asks a peer what it holds: heads that were gossiped before it was connected are not told again.
    fn question(&mut self, peer: PeerId) {
        let is_known = self.known.members().iter().chain(self.known.keepers()).any(|known| known.peer == peer);
        if self.questions < if is_known { MAX_QUESTIONS } else { MAX_TO_OTHERS } {
            self.questions += 1;
            self.tasks.spawn(self.background_tasks.newest(peer, self.follower.anchors().clone()));
        }
    }

    /// Those who are connected first: only so many are asked.
    fn near_first(&mut self, mut peers: Vec<PeerId>) -> Vec<PeerId> {
        peers.sort_by_key(|peer| !self.is_connected(*peer));
        for peer in peers.iter().take(MAX_LOOKED_FOR) {
            self.network.connect(to_libp2p(*peer));
        }
        peers
    }

    /// All that are known, by their ids.
    fn all(&self) -> BTreeSet<PeerId> {
        self.known.members().iter().chain(self.known.keepers()).map(|contact| contact.peer).collect()
    }

    fn is_connected(&self, peer: PeerId) -> bool {
        self.network.swarm.is_connected(&to_libp2p(peer))
    }

    fn write_known(&mut self) {
        if self.is_unwritten && !self.is_writing {
            (self.is_unwritten, self.is_writing) = (false, true);
            let (file, known, guide) = (self.file.clone(), self.known.clone(), self.guide.clone());
            self.tasks.spawn_blocking(move || Done::Noted(file.store(&known).and_then(|()| guide.store())));
        }
    }
}
