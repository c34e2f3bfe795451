//! A hostile member: a process takes part as all do, and beside it somebody who has its key says in its name what no correct
//! peer says.

use std::fs;
use std::path::Path;
use std::time::Duration;

use futures::AsyncWriteExt as _;
use libp2p::identity::{Keypair, ed25519};
use libp2p::{PeerId as Name, Stream};
use starling_topology::message::MAX_ENVELOPE_BYTES;
use starling_topology::vote::record::Record;
use starling_topology::vote::slot::Slot;
use starling_topology::{Body, Contact, Envelope, Generation, JoinRequest, PeerId, RunId, Signer, View, ViewId};

use crate::hostile::gossip;
use crate::hostile::ticket_holder::GOSSIP;
use crate::{Peer, TicketHolder};

/// How long a message may take of which no end is to be read.
const PATIENCE: Duration = Duration::from_secs(2);

/// What it signs and checks signatures with.
#[derive(Debug, Clone)]
pub struct Pen(Keypair);

impl Signer for Pen {
    fn sign(&self, statement: &[u8]) -> [u8; 64] {
        self.0.sign(statement).expect("an Ed25519 key").try_into().expect("an Ed25519 signature")
    }

    fn is_signed(&self, signer: PeerId, statement: &[u8], signature: &[u8; 64]) -> bool {
        ed25519::PublicKey::try_from_bytes(&signer.0).is_ok_and(|key| key.verify(statement, signature))
    }
}

/// One that says what it likes to all others. Its streams stay open as long as it is there.
#[derive(Debug)]
pub struct Liar {
    holder: TicketHolder,
    pen: Pen,
    /// Its own name.
    me: PeerId,
    /// By what it may ask to be let in.
    pass: Vec<u8>,
    /// The view that it is in.
    view: Option<View>,
    streams: Vec<(PeerId, Stream)>,
    gossip: Option<Stream>,
}

impl Liar {
    /// In the name of a member that runs here.
    pub async fn beside(member: &Peer, ticket: &str, others: &[Peer]) -> Self {
        let key = fs::read(member.data_dir().join("identity.key")).expect("it is ours");
        let key = Keypair::from_protobuf_encoding(&key).expect("a key");
        let mut liar = Self::with(key, ticket, others).await;
        liar.view = Some(view(&member.data_dir()));
        liar
    }

    /// In no name but its own: admitted, and in no view.
    pub async fn outside(ticket: &str, others: &[Peer]) -> Self {
        Self::with(Keypair::generate_ed25519(), ticket, others).await
    }

    async fn with(key: Keypair, ticket: &str, others: &[Peer]) -> Self {
        let addresses: Vec<String> = others.iter().map(Peer::address).collect();
        let mut holder = TicketHolder::admitted_as(&key, ticket, &addresses).await;
        let mut streams = Vec::new();
        for peer in holder.peers().to_vec() {
            streams.push((topology_name(peer), holder.open_to(peer, "control").await));
        }
        let me = topology_name(key.public().to_peer_id());
        let pass = TicketHolder::pass(ticket, &key);
        Self { holder, pen: Pen(key), me, pass, view: None, streams, gossip: None }
    }

    /// Its own name.
    pub fn me(&self) -> PeerId {
        self.me
    }

    /// Its own name, as processes tell it.
    pub fn name(&self) -> String {
        self.pen.0.public().to_peer_id().to_string()
    }

    /// Whom it talks to.
    pub fn others(&self) -> Vec<PeerId> {
        self.streams.iter().map(|(peer, _)| *peer).collect()
    }

    /// What it signs with.
    pub fn pen(&self) -> &Pen {
        &self.pen
    }

    /// The view that it is in.
    ///
    /// # Panics
    /// If it is in none.
    pub fn view(&self) -> &View {
        self.view.as_ref().expect("a member's")
    }

    /// The run.
    pub fn run(&self) -> RunId {
        RunId(self.holder.run())
    }

    /// It asks to be let in, by what it showed when it connected.
    pub fn joiner(&self) -> JoinRequest {
        let contact = Contact { peer: self.me, addresses: Vec::new() };
        JoinRequest { pass: self.pass.clone(), ..JoinRequest::new(contact, 9) }.signed(self.run(), &self.pen)
    }

    /// Somebody who asks to be let in, and is nowhere.
    pub fn made_up(number: u16) -> JoinRequest {
        let peer = topology_name(Self::key(number).public().to_peer_id());
        let contact = Contact { peer, addresses: vec![format!("/ip4/127.0.0.1/tcp/{}", 1 + number % 1000)] };
        JoinRequest::new(contact, 9)
    }

    /// What a peer gossips of where it is.
    pub fn announcement(contact: Contact) -> Vec<u8> {
        postcard::to_allocvec(&(contact, 1u64)).expect("an announcement")
    }

    /// What it gossips of itself.
    pub fn announced(&self) -> (Keypair, Vec<u8>) {
        let contact = Contact { peer: self.me, addresses: vec!["/ip4/127.0.0.1/tcp/1".to_owned()] };
        (self.pen.0.clone(), Self::announcement(contact))
    }

    /// Its key.
    pub fn key(number: u16) -> Keypair {
        let [high, low] = number.to_be_bytes();
        let secret: [u8; 32] = std::array::from_fn(|at| if at == 0 { high } else { low ^ 0x5a });
        Keypair::ed25519_from_bytes(secret).expect("32 bytes")
    }

    /// Says it to all, as from the view that it is in.
    pub async fn say(&mut self, body: &Body) {
        self.say_each(|_| body.clone()).await;
    }

    /// Says to each what is meant for it.
    pub async fn say_each(&mut self, body: impl Fn(PeerId) -> Body) {
        let place = self.view.as_ref().map(|view| (view.generation, view.id()));
        let place = place.unwrap_or((Generation(0), ViewId::NONE));
        for at in 0..self.streams.len() {
            let body = body(self.streams[at].0);
            self.say_from(at, place, body).await;
        }
    }

    /// Says it to all, as from this view.
    pub async fn say_of(&mut self, place: (Generation, ViewId), body: &Body) {
        for at in 0..self.streams.len() {
            self.say_from(at, place, body.clone()).await;
        }
    }

    async fn say_from(&mut self, at: usize, (generation, view): (Generation, ViewId), body: Body) {
        let envelope = Envelope { run: self.run(), generation, view, body };
        self.write(at, &envelope.encode()).await;
    }

    /// Sends all of them a message that may be none.
    pub async fn send(&mut self, message: &[u8]) {
        for at in 0..self.streams.len() {
            self.write(at, message).await;
        }
    }

    async fn write(&mut self, at: usize, message: &[u8]) {
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        let stream = &mut self.streams[at].1;
        // Who has put it out does not read any more.
        if stream.write_all(&length).await.is_ok() && stream.write_all(message).await.is_ok() {
            let _ = stream.flush().await;
        }
    }

    /// Begins so many messages to each, as long as messages may be, and does not end them.
    pub async fn begin(&mut self, count: usize) {
        for peer in self.holder.peers().to_vec() {
            for _ in 0..count {
                let mut stream = self.holder.open_to(peer, "control").await;
                let length = u32::try_from(MAX_ENVELOPE_BYTES).expect("short");
                let message = [&length.to_be_bytes()[..], &vec![0; MAX_ENVELOPE_BYTES - 1]].concat();
                // As far as it is read.
                let _ = tokio::time::timeout(PATIENCE, stream.write_all(&message)).await;
                self.streams.push((topology_name(peer), stream));
            }
        }
    }

    /// Gossips to the first that it talks to, on this topic of the run, what each of these authors says.
    pub async fn gossip(&mut self, topic: &str, said: impl IntoIterator<Item = (Keypair, Vec<u8>)>) {
        let topic = format!("/starling/{}/{topic}/1", self.run());
        // A second stream would take the place of the first, read or not.
        let mut stream = match self.gossip.take() {
            Some(stream) => stream,
            None => {
                let first = self.holder.peers()[0];
                self.holder.open_foreign(first, GOSSIP).await
            }
        };
        for (number, (author, data)) in said.into_iter().enumerate() {
            stream.write_all(&gossip::frame(&author, &topic, &data, number as u64)).await.expect("it is read");
        }
        stream.flush().await.expect("it is read");
        self.gossip = Some(stream);
    }
}

/// The key in a name.
fn topology_name(peer: Name) -> PeerId {
    let bytes = peer.to_bytes();
    PeerId(*bytes.last_chunk().expect("a name of an Ed25519 key ends with it"))
}

/// The view that the process with this data directory is in.
fn view(data_dir: &Path) -> View {
    let files = fs::read_dir(data_dir).expect("it is there").map(|entry| entry.expect("it is ours").path());
    let mut records =
        files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("view-")));
    let bytes = fs::read(records.next().expect("it keeps its view")).expect("it is ours");
    let slots = [0, bytes.len() / 2].map(|at| Slot::decode(&bytes[at..]));
    let newest = slots.into_iter().flatten().max_by_key(|slot| slot.version).expect("a whole one");
    let (record, _) = postcard::take_from_bytes::<Vec<u8>>(&newest.payload).expect("a record comes first");
    Record::decode(&record).expect("a record").view
}
