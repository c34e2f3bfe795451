//! One member of a benchmark: the real transport, handshakes and reducer, and no trainer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, Swarm, swarm};
use serde::{Deserialize, Serialize};
use starling_collective::{Codec, LayoutConfig};
use starling_links::{Endpoint, LinkFailure, LinkLimit, Transport, TransportPolicy, greeting};
use starling_run::WIRE_VERSION;
use starling_topology::plan::PlanPolicy;
use starling_topology::{RunId, View};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::access::admission::Admission;
use crate::access::pending::Pending;
use crate::access::{Access, Credentials};
use crate::credentials::identity::{Identity, from_libp2p};
use crate::member::event::NetworkEvent;
use crate::net::behaviour::Protocols;
use crate::net::streams;
use crate::net::transport;
use crate::reducer::{self, BenchSink, Operation, ReducerConfig, ReducerHandle};

/// How long all links of a member may take.
const LINK_LIMIT: Duration = Duration::from_secs(10);
/// Of each kind; there are few.
const QUEUE: usize = 16;

/// What members reduce, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReductionSpec {
    /// Admits to this benchmark's members and to nothing else.
    pub secret: [u8; 32],
    /// How the bytes travel.
    pub data_plane: TransportPolicy,
    /// Elements that each brings.
    pub elements: usize,
    /// How values are written.
    pub codec: Codec,
    /// How the reduction is scheduled.
    pub plan: PlanPolicy,
    /// Elements that are reduced together.
    pub bucket_elements: usize,
    /// Elements in one message.
    pub segment_elements: usize,
    /// Buckets in flight together.
    pub in_flight: u32,
}

/// Where a member can be reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberContact {
    /// Its id.
    pub peer: [u8; 32],
    /// Its multiaddr.
    pub address: String,
}

/// Why a member can't reduce.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The operating system refused.
    #[error("the benchmark can't {what}: {source}")]
    Io {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// There is no place for a member, or none to listen at.
    #[error("the benchmark and its members misunderstand each other ({0}); this is a bug in starling")]
    Place(String),
    /// A link can't be made, or broke.
    #[error("a link failed: {0}; if --data-plane asks for one kind, try --data-plane auto")]
    Link(String),
}

impl LinkError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// A member that listens. Dropping it ends it.
pub struct Member {
    reduction: ReductionSpec,
    identity: Identity,
    place: MemberContact,
    listened: Multiaddr,
    protocols: Protocols,
    control: libp2p_stream::Control,
    dials: mpsc::Sender<Multiaddr>,
    events_in: mpsc::Sender<NetworkEvent>,
    events: mpsc::Receiver<NetworkEvent>,
}

/// All members of a benchmark are in this run, to which only its secret admits.
fn run(secret: &[u8; 32]) -> RunId {
    RunId(blake3::derive_key("starling 2026 benchmark run", secret))
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Member {
    /// Listens on loopback, and lets in who knows the secret.
    ///
    /// # Errors
    /// [`LinkError`] if the system does not allow it.
    pub async fn start(reduction: ReductionSpec) -> Result<Self, LinkError> {
        let identity = Identity::generate();
        let (turned, _) = mpsc::channel(QUEUE);
        let credentials = Credentials { secret: Some(reduction.secret), ..Credentials::default() };
        let admission = Admission {
            me: identity.peer_id(),
            access: Access::visiting(identity.peer_id(), None, &credentials),
            wire_version: WIRE_VERSION,
            turned,
            pending: Pending::default(),
        };
        let transport = transport::build(&identity, admission, None).map_err(LinkError::io("set up the network"))?;
        let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(Duration::MAX);
        let mut swarm = Swarm::new(transport, libp2p_stream::Behaviour::new(), identity.peer_id(), config);
        let loopback: Multiaddr = "/ip4/127.0.0.1/tcp/0".parse().expect("invariant: it is a multiaddr");
        swarm.listen_on(loopback).map_err(|error| LinkError::Place(error.to_string()))?;
        let listened = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                break address;
            }
        };
        let protocols = Protocols::new(run(&reduction.secret));
        let control = swarm.behaviour().new_control();
        let (events_in, events) = mpsc::channel(QUEUE);
        let opened = events_in.clone();
        streams::serve(control.clone(), protocols.segments.clone(), move |peer, mut stream| {
            let opened = opened.clone();
            async move {
                if let (Some(peer), Ok(view)) = (from_libp2p(&peer), greeting::read_view(&mut stream).await) {
                    let _ = opened.send(NetworkEvent::SegmentsOpened { peer, view, stream }).await;
                }
            }
        });
        let (dials, queue) = mpsc::channel(QUEUE);
        tokio::spawn(drive(swarm, queue));
        let peer = from_libp2p(&identity.peer_id()).expect("invariant: our keys are Ed25519");
        let place = MemberContact { peer: peer.0, address: listened.to_string() };
        Ok(Self { reduction, identity, place, listened, protocols, control, dials, events_in, events })
    }

    /// Where it listens.
    pub fn place(&self) -> &MemberContact {
        &self.place
    }

    /// Links with those of `places` that the plan brings together; this member's own is one of them.
    ///
    /// # Errors
    /// [`LinkError`] if a link can't be made.
    pub async fn link(&mut self, places: &[MemberContact]) -> Result<LinkedMember, LinkError> {
        let run = run(&self.reduction.secret);
        let me = starling_topology::PeerId(self.place.peer);
        let members = places.iter().map(|place| starling_topology::PeerId(place.peer));
        let founder = members.clone().min().unwrap_or(me);
        let view = View::found(run, founder).succeed(members);
        if !view.contains(me) {
            return Err(LinkError::Place("there is no place for us".to_owned()));
        }
        let ReductionSpec { elements, codec, plan, bucket_elements, segment_elements, in_flight, data_plane, .. } =
            self.reduction;
        let endpoint = Endpoint::new(
            self.identity.keypair(),
            run,
            data_plane,
            segment_elements * size_of::<f32>(),
            codec.payload_bytes(elements),
            std::slice::from_ref(&self.listened),
        );
        let config = ReducerConfig {
            elements,
            planned: elements,
            exact: 0,
            chooses: false,
            words: Vec::new(),
            codec,
            plan,
            most: f32::MAX,
            layout: LayoutConfig { bucket_elements, segment_elements },
            in_flight,
            open_limit: LINK_LIMIT,
            limits: LinkLimit::new(LINK_LIMIT),
            protocol: self.protocols.segments.clone(),
            endpoint: Arc::new(endpoint.map_err(LinkError::io("start a thread"))?),
            traffic: Arc::default(),
        };
        let (results, reduced) = BenchSink::new();
        let mut handle = reducer::start(&view, me, config, results, self.control.clone(), self.events_in.clone());
        // Of two, the lower one dials: two that dial each other from the ports they listen on would meet half-way.
        let neighbours = handle.neighbours();
        let is_ours = |place: &&MemberContact| neighbours.contains(&starling_topology::PeerId(place.peer));
        for place in places.iter().filter(is_ours).filter(|place| me.0 < place.peer) {
            let address = place.address.parse().map_err(|_| LinkError::Place(place.address.clone()))?;
            let _ = self.dials.send(address).await;
        }
        loop {
            match self.events.recv().await {
                Some(NetworkEvent::SegmentsOpened { peer, view, stream }) => {
                    if view == handle.view {
                        handle.connect(peer, stream);
                    }
                }
                Some(NetworkEvent::Linked { plan, to, .. }) => {
                    let transport = to.first().map(|(_, transport)| *transport);
                    let transport = transport.ok_or_else(|| LinkError::Place("no links".to_owned()))?;
                    let failures = std::mem::replace(&mut self.events, mpsc::channel(1).1);
                    return Ok(LinkedMember { reducer: handle, reduced, failures, plan, transport });
                }
                Some(NetworkEvent::ReductionFailed { failure, .. }) => return Err(failed(failure)),
                Some(_) => {}
                None => return Err(LinkError::Place("the network ended".to_owned())),
            }
        }
    }
}

fn failed(failure: LinkFailure) -> LinkError {
    match failure {
        LinkFailure::Broken(reason) | LinkFailure::Misbehaved(reason) => LinkError::Link(reason),
    }
}

/// Keeps the swarm going, and dials.
async fn drive(mut swarm: Swarm<libp2p_stream::Behaviour>, mut dials: mpsc::Receiver<Multiaddr>) {
    loop {
        tokio::select! {
            Some(address) = dials.recv() => {
                if let Err(error) = swarm.dial(address) {
                    tracing::warn!(%error, "can't dial a neighbour");
                }
            }
            _ = swarm.select_next_some() => {}
        }
    }
}

/// A member with all of its links.
#[derive(Debug)]
pub struct LinkedMember {
    reducer: ReducerHandle,
    reduced: mpsc::Receiver<Vec<f32>>,
    failures: mpsc::Receiver<NetworkEvent>,
    plan: String,
    transport: Transport,
}

impl LinkedMember {
    /// What the members agreed on.
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// How bytes travel from here.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Reduces the buffers that all members bring to this round to their sum: it is exact where a mean is not.
    ///
    /// # Errors
    /// [`LinkError::Link`] if a link breaks.
    pub async fn reduce(&mut self, round: u64, buffer: Vec<f32>) -> Result<Vec<f32>, LinkError> {
        let operation =
            Operation { step: round, buffer, contribution: None, is_agreed: false, divisor: 1.0, dropped: None };
        let handed = self.reducer.operations.send(operation).await;
        let ended = || LinkError::Link("the reduction ended".to_owned());
        tokio::select! {
            biased;
            result = self.reduced.recv(), if handed.is_ok() => result.ok_or_else(ended),
            failure = self.failures.recv() => Err(match failure {
                Some(NetworkEvent::ReductionFailed { failure, .. }) => failed(failure),
                _ => ended(),
            }),
        }
    }
}
