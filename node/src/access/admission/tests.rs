//! Real connections over loopback, TCP and QUIC.

use std::sync::Arc;

use futures::StreamExt;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{self, NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, Swarm, identify, ping};

use starling_topology::message::MAX_ADDRESSES;

use super::*;
use crate::access::Credentials;
use crate::credentials::identity::Identity;
use crate::net::behaviour::{Behaviour, Protocols};
use crate::net::transport;

const TCP: &str = "/ip4/127.0.0.1/tcp/0";
const QUIC: &str = "/ip4/127.0.0.1/udp/0/quic-v1";
/// Longer than the handshake's deadline.
const PATIENCE: Duration = Duration::from_secs(20);

struct Peer {
    swarm: Swarm<Behaviour>,
    turned: mpsc::Receiver<Turned>,
}

fn peer(secret: u8, wire_version: u32) -> Peer {
    let identity = Identity::generate();
    let (turned_in, turned) = mpsc::channel(8);
    let credentials = Credentials { secret: Some([secret; 32]), ..Credentials::default() };
    let access = Access::visiting(identity.peer_id(), None, &credentials);
    let admission =
        Admission { me: identity.peer_id(), access, wire_version, turned: turned_in, pending: Pending::default() };
    let transport = transport::build(&identity, admission, None).expect("a transport");
    let protocols = Protocols::new(starling_topology::RunId([7; 32]));
    let behaviour = Behaviour::new(&identity, &protocols, None, (8, Arc::default()), false).expect("a behaviour");
    let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(PATIENCE);
    Peer { swarm: Swarm::new(transport, behaviour, identity.peer_id(), config), turned }
}

async fn listen(peer: &mut Peer, address: &str) -> Multiaddr {
    peer.swarm.listen_on(address.parse().expect("an address")).expect("a transport for it");
    loop {
        if let SwarmEvent::NewListenAddr { address, .. } = peer.swarm.select_next_some().await {
            return address.with_p2p(*peer.swarm.local_peer_id()).expect("no other peer id in it");
        }
    }
}

/// Dials, and returns what each side was told: `None` where the connection was admitted.
async fn meet(mut dialer: Peer, mut listener: Peer, address: &str) -> (Option<AdmissionError>, Option<AdmissionError>) {
    let address = listen(&mut listener, address).await;
    dialer.swarm.dial(address).expect("dialed");
    let (mut dialer_saw, mut listener_saw) = (None, None);
    let both_saw = async {
        while dialer_saw.is_none() || listener_saw.is_none() {
            tokio::select! {
                event = dialer.swarm.select_next_some() => {
                    if let SwarmEvent::ConnectionEstablished { .. } = event { dialer_saw = Some(None); }
                }
                event = listener.swarm.select_next_some() => {
                    if let SwarmEvent::ConnectionEstablished { .. } = event { listener_saw = Some(None); }
                }
                Some(turned) = dialer.turned.recv() => dialer_saw = Some(Some(turned.error)),
                Some(turned) = listener.turned.recv() => listener_saw = Some(Some(turned.error)),
            }
        }
    };
    tokio::time::timeout(PATIENCE, both_saw).await.expect("both sides see an outcome");
    (dialer_saw.flatten(), listener_saw.flatten())
}

#[tokio::test]
async fn holders_of_one_secret_are_admitted() {
    for address in [TCP, QUIC] {
        assert_eq!(meet(peer(1, 1), peer(1, 1), address).await, (None, None), "{address}");
    }
}

/// A peer dials all addresses at once and keeps the connection that is ready first, which the other may see last.
#[tokio::test]
async fn as_many_connections_are_admitted_as_a_peer_has_addresses() {
    let (mut dialer, mut listener) = (peer(1, 1), peer(1, 1));
    let address = listen(&mut listener, TCP).await;
    for _ in 0..MAX_ADDRESSES {
        let peer = DialOpts::peer_id(*listener.swarm.local_peer_id()).condition(PeerCondition::Always);
        dialer.swarm.dial(peer.addresses(vec![address.clone()]).build()).expect("dialed");
    }
    let mut established = 0;
    let all_are = async {
        while established < 2 * MAX_ADDRESSES {
            let event = tokio::select! {
                event = dialer.swarm.select_next_some() => event,
                event = listener.swarm.select_next_some() => event,
            };
            match event {
                SwarmEvent::ConnectionEstablished { .. } => established += 1,
                SwarmEvent::ConnectionClosed { cause, .. } => panic!("one of {established} was closed: {cause:?}"),
                SwarmEvent::IncomingConnectionError { error, .. } => panic!("after {established}: {error}"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, all_are).await.expect("both sides see all of them");
}

#[tokio::test]
async fn a_wrong_secret_is_refused_and_both_sides_know_why() {
    for address in [TCP, QUIC] {
        let outcome = meet(peer(2, 1), peer(1, 1), address).await;
        assert_eq!(outcome, (Some(AdmissionError::Refused), Some(AdmissionError::Unproven)), "{address}");
    }
}

#[tokio::test]
async fn another_wire_version_is_refused_with_both_versions() {
    for address in [TCP, QUIC] {
        let (dialer, listener) = meet(peer(1, 3), peer(1, 4), address).await;
        assert_eq!(dialer, Some(AdmissionError::WireVersion { ours: 3, theirs: 4 }), "{address}");
        assert_eq!(listener, Some(AdmissionError::WireVersion { ours: 4, theirs: 3 }), "{address}");
    }
}

/// A libp2p peer as anyone can build one, which knows the protocol names but not the handshake.
#[derive(NetworkBehaviour)]
struct Stranger {
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

/// The stranger reaches encryption, so its own swarm believes in a connection. Nothing may answer on it.
#[tokio::test]
async fn a_stranger_is_dropped_before_anything_answers() {
    for address in [TCP, QUIC] {
        let mut member = peer(1, 1);
        let address = listen(&mut member, address).await;
        let mut stranger = libp2p::SwarmBuilder::with_new_identity()
            .with_tokio()
            .with_tcp(libp2p::tcp::Config::default(), libp2p::tls::Config::new, libp2p::yamux::Config::default)
            .expect("tcp")
            .with_quic()
            .with_behaviour(|key| {
                let identify = identify::Config::new("/stranger/1".into(), key.public());
                Stranger { identify: identify::Behaviour::new(identify), ping: ping::Behaviour::default() }
            })
            .expect("a behaviour")
            .build();
        stranger.dial(address.clone()).ok();
        let (mut turned, mut dropped) = (None, false);
        let refused = async {
            while turned.is_none() || !dropped {
                tokio::select! {
                    event = member.swarm.select_next_some() => {
                        let established = matches!(event, SwarmEvent::ConnectionEstablished { .. });
                        assert!(!established, "{address}: the member's swarm saw the stranger");
                    }
                    event = stranger.select_next_some() => match event {
                        SwarmEvent::Behaviour(StrangerEvent::Identify(identify::Event::Received { info, .. })) => {
                            panic!("{address}: identify answered {info:?}")
                        }
                        SwarmEvent::Behaviour(StrangerEvent::Ping(ping::Event { result: Ok(rtt), .. })) => {
                            panic!("{address}: ping answered after {rtt:?}")
                        }
                        SwarmEvent::ConnectionClosed { .. } | SwarmEvent::OutgoingConnectionError { .. } => {
                            dropped = true;
                        }
                        _ => {}
                    },
                    Some(refusal) = member.turned.recv() => turned = Some(refusal.error),
                }
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("the stranger is dropped");
        let turned = turned.expect("the loop waits for it");
        assert_ne!(turned, AdmissionError::Refused, "{address}");
    }
}

#[test]
fn a_proof_is_bound_to_role_nonces_and_peers() {
    let [a, b] = [Identity::generate().peer_id(), Identity::generate().peer_id()];
    let [secret, other] = [Secret::new(Some([1; 32])), Secret::new(None)];
    let proof = proof_of(secret, b"dialer", &[1; 32], &[2; 32], a, b);
    let others = [
        proof_of(secret, b"listener", &[1; 32], &[2; 32], a, b),
        proof_of(secret, b"dialer", &[3; 32], &[2; 32], a, b),
        proof_of(secret, b"dialer", &[1; 32], &[3; 32], a, b),
        proof_of(secret, b"dialer", &[1; 32], &[2; 32], b, a),
        proof_of(other, b"dialer", &[1; 32], &[2; 32], a, b),
    ];
    assert!(others.iter().all(|other| *other != proof));
}
