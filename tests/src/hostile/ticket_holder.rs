//! One who holds a ticket and keeps to no rule but the handshake.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::Boxed;
use libp2p::core::upgrade::OutboundConnectionUpgrade as _;
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId, Stream, StreamProtocol, Swarm, Transport as _, swarm, tcp, tls, yamux};
use libp2p_stream::IncomingStreams;
use serde::Deserialize;

/// The protocol of gossip.
pub(crate) const GOSSIP: &str = "/meshsub/1.1.0";
/// How long it tries to open a stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// What it reads out of a ticket.
#[derive(Debug, Clone)]
struct Ticket {
    run: [u8; 32],
    secret: [u8; 32],
    peer: PeerId,
    addresses: Vec<Multiaddr>,
    /// How many peers it names; that is the first.
    named: usize,
    /// The founder's, behind the seed of its own key.
    invitation: Vec<u8>,
}

#[derive(Deserialize)]
struct Listed {
    peer: Vec<u8>,
    addresses: Vec<Vec<u8>>,
}

impl Ticket {
    fn read(text: &str) -> Self {
        let encoded = text.trim().strip_prefix("starling").and_then(|rest| rest.get(1..)).expect("a ticket");
        let bytes = bs58::decode(encoded).into_vec().expect("base58");
        let (mut rest, _) = bytes.split_last_chunk::<4>().expect("a check");
        let (mut run, mut secret, mut listed, mut named, mut invitation) = ([0; 32], [0; 32], None, 0, Vec::new());
        while let Some((tag, length, after)) = rest.split_first().and_then(|(tag, rest)| {
            let (length, after) = rest.split_first_chunk()?;
            Some((*tag, usize::from(u16::from_le_bytes(*length)), after))
        }) {
            let (content, after) = after.split_at(length);
            rest = after;
            match tag {
                1 => run.copy_from_slice(content),
                2 => secret.copy_from_slice(content),
                3 => {
                    named += 1;
                    listed = listed.or_else(|| postcard::from_bytes::<Listed>(content).ok());
                }
                4 => invitation = content.to_vec(),
                _ => {}
            }
        }
        let Listed { peer, addresses } = listed.expect("a peer");
        let addresses = addresses.into_iter().map(|bytes| Multiaddr::try_from(bytes).expect("an address"));
        let (peer, addresses) = (PeerId::from_bytes(&peer).expect("an id"), addresses.collect());
        Self { run, secret, peer, addresses, named, invitation }
    }
}

/// One that is connected, and does no more by itself.
pub struct TicketHolder {
    control: libp2p_stream::Control,
    run: [u8; 32],
    /// Whom it is connected with.
    peers: Vec<PeerId>,
    shown: Arc<Mutex<Vec<u8>>>,
    task: tokio::task::JoinHandle<((), ())>,
}

impl std::fmt::Debug for TicketHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketHolder").field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl TicketHolder {
    /// A fresh one, admitted by the first peer that the ticket names.
    pub async fn admitted(ticket: &str) -> Self {
        Self::admitted_by_first(&Keypair::generate_ed25519(), ticket).await
    }

    /// One that has this key, admitted by the first peer that the ticket names.
    pub(crate) async fn admitted_by_first(key: &Keypair, ticket: &str) -> Self {
        let ticket = Ticket::read(ticket);
        let first = (ticket.peer, ticket.addresses.clone());
        Self::connected(key, &ticket, vec![first], None).await.0
    }

    /// One that has this key, admitted by the first peer that the ticket names; and the streams of a protocol of ours, `state` say, that
    /// this one opens to it.
    pub(crate) async fn serving(key: &Keypair, ticket: &str, kind: &str) -> (Self, IncomingStreams) {
        let ticket = Ticket::read(ticket);
        let first = (ticket.peer, ticket.addresses.clone());
        let (holder, streams) = Self::connected(key, &ticket, vec![first], Some(kind)).await;
        (holder, streams.expect("asked for"))
    }

    /// One that has this key, which may be another's too, admitted at each of these addresses, which end with a peer's id.
    pub async fn admitted_as(key: &Keypair, ticket: &str, addresses: &[String]) -> Self {
        let peers = addresses.iter().map(|address| {
            let address: Multiaddr = address.parse().expect("an address");
            let Some(Protocol::P2p(peer)) = address.iter().last() else { panic!("it names no peer: {address}") };
            (peer, vec![address])
        });
        Self::connected(key, &Ticket::read(ticket), peers.collect(), None).await.0
    }

    /// What one of this name shows of the ticket's invitation when it asks to be let in.
    pub(crate) fn pass(ticket: &str, key: &Keypair) -> Vec<u8> {
        presented(&Ticket::read(ticket), key)
    }

    /// How many peers a ticket names.
    pub fn named(ticket: &str) -> usize {
        Ticket::read(ticket).named
    }

    async fn connected(
        key: &Keypair,
        ticket: &Ticket,
        peers: Vec<(PeerId, Vec<Multiaddr>)>,
        served: Option<&str>,
    ) -> (Self, Option<IncomingStreams>) {
        let version = version(ticket).await;
        let pass = [&[1][..], &behind_length(&presented(ticket, key))].concat();
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let (me, transport) = (key.public().to_peer_id(), transport(key, ticket, version, (pass, shown.clone())));
        let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(Duration::MAX);
        let behaviour = libp2p_stream::Behaviour::new();
        let mut control = behaviour.new_control();
        // Who takes no gossip is not listened to.
        let gossip = control.accept(StreamProtocol::new(GOSSIP)).expect("nobody takes it yet");
        let heard = gossip.for_each_concurrent(None, |(_, stream)| async {
            let _ = futures::io::copy(stream, &mut futures::io::sink()).await;
        });
        let served = served.map(|kind| control.accept(protocol(&ticket.run, kind)).expect("nobody takes it yet"));
        let mut swarm = Swarm::new(transport, behaviour, me, config);
        let names: Vec<PeerId> = peers.iter().map(|(peer, _)| *peer).collect();
        for (peer, addresses) in peers {
            let options = swarm::dial_opts::DialOpts::peer_id(peer).addresses(addresses);
            swarm.dial(options.build()).expect("dialed");
        }
        while !names.iter().all(|peer| swarm.is_connected(peer)) {
            let event = swarm.select_next_some().await;
            assert!(!matches!(event, swarm::SwarmEvent::OutgoingConnectionError { .. }), "{event:?}");
        }
        let task = tokio::spawn(async move {
            let driven = async {
                loop {
                    swarm.select_next_some().await;
                }
            };
            futures::join!(driven, heard)
        });
        (Self { control, run: ticket.run, peers: names, task, shown }, served)
    }

    /// The pass that it was shown.
    pub fn shown(&self) -> Vec<u8> {
        self.shown.lock().expect("not poisoned").clone()
    }

    /// Whether one with a fresh key is admitted that shows this.
    pub async fn admits(ticket: &str, pass: Vec<u8>) -> bool {
        let ticket = Ticket::read(ticket);
        let version = version(&ticket).await;
        let key = Keypair::generate_ed25519();
        let mut transport = transport(&key, &ticket, version, (pass, Arc::default()));
        for address in &ticket.addresses {
            let options = libp2p::core::transport::DialOpts {
                role: libp2p::core::Endpoint::Dialer,
                port_use: libp2p::core::transport::PortUse::New,
            };
            let Ok(dial) = transport.dial(address.clone(), options) else { continue };
            if dial.await.is_ok() {
                return true;
            }
        }
        false
    }

    /// The run that it has a ticket of.
    pub fn run(&self) -> [u8; 32] {
        self.run
    }

    /// Whom it is connected with.
    pub fn peers(&self) -> &[PeerId] {
        &self.peers
    }

    /// Opens a stream of this kind, `control` say, to the first that it is connected with.
    pub async fn open(&mut self, kind: &str) -> Stream {
        self.open_to(self.peers[0], kind).await
    }

    /// Opens one to another of them.
    pub async fn open_to(&mut self, peer: PeerId, kind: &str) -> Stream {
        let protocol = protocol(&self.run, kind);
        let opened = async {
            loop {
                if let Ok(mut stream) = self.control.open_stream(peer, protocol.clone()).await
                    && stream.read_exact(&mut [0]).await.is_ok()
                {
                    return stream;
                }
            }
        };
        tokio::time::timeout(PATIENCE, opened).await.expect("a stream")
    }

    /// Opens a stream of a protocol that is none of ours.
    pub async fn open_foreign(&mut self, peer: PeerId, protocol: &'static str) -> Stream {
        let opened = self.control.open_stream(peer, StreamProtocol::new(protocol));
        tokio::time::timeout(PATIENCE, opened).await.expect("an answer").expect("a stream")
    }
}

/// The name of a protocol of a run.
fn protocol(run: &[u8; 32], kind: &str) -> StreamProtocol {
    let run: String = run.iter().map(|byte| format!("{byte:02x}")).collect();
    StreamProtocol::try_from_owned(format!("/starling/{run}/{kind}/1")).expect("a name")
}

impl Drop for TicketHolder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The wire version that a peer speaks: whoever speaks another one is told.
async fn version(ticket: &Ticket) -> u32 {
    let (told, mut versions) = tokio::sync::mpsc::channel(1);
    let tls = tls::Config::new(&Keypair::generate_ed25519()).expect("a certificate");
    let mut asking = tcp::tokio::Transport::new(tcp::Config::default()).and_then(move |stream, _| async move {
        let (_, mut stream) = tls.upgrade_outbound(stream, "").await.map_err(io::Error::other)?;
        let hello = [&b"starling"[..], &0u32.to_be_bytes(), &[0; 32]].concat();
        stream.write_all(&hello).await?;
        stream.flush().await?;
        let mut challenge = [0; 12];
        stream.read_exact(&mut challenge).await?;
        let version = challenge.last_chunk().copied().unwrap_or_default();
        let _ = told.send(u32::from_be_bytes(version)).await;
        io::Result::Ok(())
    });
    for address in &ticket.addresses {
        let options = libp2p::core::transport::DialOpts {
            role: libp2p::core::Endpoint::Dialer,
            port_use: libp2p::core::transport::PortUse::New,
        };
        let Ok(dial) = asking.dial(address.clone(), options) else { continue };
        if dial.await.is_ok() {
            break;
        }
    }
    versions.recv().await.expect("somebody answers")
}

fn behind_length(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).expect("short").to_le_bytes()[..], bytes].concat()
}

/// The invitation as whoever holds its key shows it.
fn presented(ticket: &Ticket, key: &Keypair) -> Vec<u8> {
    let (seed, invitation) = ticket.invitation.split_first_chunk::<32>().expect("an invitation");
    let own = Keypair::ed25519_from_bytes(*seed).expect("a key");
    let me = key.public().try_into_ed25519().expect("an Ed25519 key").to_bytes();
    let proof = own.sign(&[&b"starling comes by an invitation 1"[..], &me].concat()).expect("signed");
    [invitation, &[64], &proof].concat()
}

/// Shows a pass, and notes the other side's.
fn transport(
    key: &Keypair,
    ticket: &Ticket,
    version: u32,
    (pass, shown): (Vec<u8>, Arc<Mutex<Vec<u8>>>),
) -> Boxed<(PeerId, StreamMuxerBox)> {
    let (secret, pass) = (ticket.secret, behind_length(&pass));
    let (me, tls) = (key.public().to_peer_id(), tls::Config::new(key).expect("a certificate"));
    let connected = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true));
    let admitted = connected.and_then(move |stream, _| async move {
        let (peer, mut stream) = tls.upgrade_outbound(stream, "").await.map_err(io::Error::other)?;
        let ours = [7; 32];
        stream.write_all(&[&b"starling"[..], &version.to_be_bytes(), &ours].concat()).await?;
        stream.flush().await?;
        let mut challenge = [0; 44];
        stream.read_exact(&mut challenge).await?;
        let mut mac = blake3::Hasher::new_keyed(&secret);
        let parts = [&b"admission"[..], b"dialer", &ours, &challenge[12..], &me.to_bytes(), &peer.to_bytes()];
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        stream.write_all(&[&mac.finalize().as_bytes()[..], &pass].concat()).await?;
        stream.flush().await?;
        let mut verdict = [0];
        stream.read_exact(&mut verdict).await?;
        if verdict != [1] {
            return Err(io::Error::other("turned away"));
        }
        stream.read_exact(&mut [0; 32]).await?;
        let mut length = [0; 2];
        stream.read_exact(&mut length).await?;
        let mut theirs = vec![0; usize::from(u16::from_le_bytes(length))];
        stream.read_exact(&mut theirs).await?;
        *shown.lock().expect("not poisoned") = theirs;
        let muxer = yamux::Config::default().upgrade_outbound(stream, "").await?;
        io::Result::Ok((peer, StreamMuxerBox::new(muxer)))
    });
    admitted.boxed()
}
