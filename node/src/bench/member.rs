//! One member of a benchmark: a process with the real transport, handshakes and reducer, and no trainer.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, Swarm, swarm};
use starling_collective::LayoutConfig;
use starling_run::WIRE_VERSION;
use starling_topology::{RunId, View};
use tokio::sync::mpsc;

use super::error::BenchError;
use super::wire::{Answer, Ask, Checked, Place, Reduced, Setup};
use super::{clock, values};
use crate::access::{Access, Credentials};
use crate::admission::Admission;
use crate::behaviour::Protocols;
use crate::data::{Door, Limits, Transport};
use crate::event::{LinkFailure, NetworkEvent};
use crate::identity::{Identity, from_libp2p};
use crate::pending::Pending;
use crate::reducer::{self, Operation, ReducerConfig, ReducerHandle, Sums};
use crate::{output, streams, transport};

/// How long all links of a member may take.
const LINK_LIMIT: Duration = Duration::from_secs(10);
/// Of each kind; there are few.
const QUEUE: usize = 16;

/// Does what the benchmark on stdin asks, until it ends or goes away.
///
/// # Errors
/// [`BenchError`] if the network fails, or a neighbour does.
pub async fn serve() -> Result<(), BenchError> {
    let mut talk = Talk::start();
    let Some(Ask::Setup(setup)) = talk.next().await? else { return Ok(()) };
    let mut member = Member::start(setup).await?;
    talk.answer(&Answer::Listening(member.place.clone()))?;
    let Some(Ask::Link(places)) = talk.next().await? else { return Ok(()) };
    let mut linked = member.link(&places).await?;
    talk.answer(&Answer::Linked { plan: linked.plan.clone(), transport: linked.transport })?;
    let mut round = 0;
    while let Some(ask) = talk.next().await? {
        match ask {
            Ask::Prepare(next) => {
                round = next;
                values::draw(&mut linked.buffer, member.setup.seed, round, member.setup.index);
                talk.answer(&Answer::Prepared)?;
            }
            Ask::Reduce => {
                let reduced = linked.reduce(round).await?;
                talk.answer(&Answer::Reduced(reduced))?;
            }
            Ask::Check { sums } => {
                let sum = &linked.buffer;
                let wrong = sums.then(|| values::first_wrong(sum, &member.setup, round)).flatten();
                talk.answer(&Answer::Checked(Checked { digest: values::digest(sum), wrong }))?;
            }
            Ask::End => break,
            Ask::Setup(_) | Ask::Link(_) => return Err(BenchError::Talk("asked for the same twice".to_owned())),
        }
    }
    Ok(())
}

/// The benchmark's end of stdin and stdout.
struct Talk {
    lines: mpsc::Receiver<io::Result<String>>,
}

impl Talk {
    /// Reads on a thread of its own, which ends with stdin or with the process.
    fn start() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || io::stdin().lines().try_for_each(|line| sender.blocking_send(line)));
        Self { lines }
    }

    /// `None` once the benchmark is gone.
    async fn next(&mut self) -> Result<Option<Ask>, BenchError> {
        let Some(line) = self.lines.recv().await else { return Ok(None) };
        let line = line.map_err(BenchError::io("read from stdin"))?;
        serde_json::from_str(&line).map(Some).map_err(|error| BenchError::Talk(error.to_string()))
    }

    fn answer(&self, answer: &Answer) -> Result<(), BenchError> {
        let line = serde_json::to_string(answer).expect("invariant: an answer is plain data");
        output::print(&format!("{line}\n")).map_err(BenchError::io("write to stdout"))
    }
}

struct Member {
    setup: Setup,
    identity: Identity,
    place: Place,
    listened: Multiaddr,
    protocols: Protocols,
    control: libp2p_stream::Control,
    dials: mpsc::Sender<Multiaddr>,
    events_in: mpsc::Sender<NetworkEvent>,
    events: mpsc::Receiver<NetworkEvent>,
}

/// All members of a benchmark are in this run, to which only its secret admits.
fn run(setup: &Setup) -> RunId {
    RunId(blake3::derive_key("starling 2026 benchmark run", &setup.secret))
}

impl Member {
    async fn start(setup: Setup) -> Result<Self, BenchError> {
        let identity = Identity::generate();
        let (turned, _) = mpsc::channel(QUEUE);
        let credentials = Credentials { secret: Some(setup.secret), ..Credentials::default() };
        let admission = Admission {
            me: identity.peer_id(),
            access: Access::visiting(identity.peer_id(), None, &credentials),
            wire_version: WIRE_VERSION,
            turned,
            pending: Pending::default(),
        };
        let transport = transport::build(&identity, admission, None).map_err(BenchError::io("set up the network"))?;
        let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(Duration::MAX);
        let mut swarm = Swarm::new(transport, libp2p_stream::Behaviour::new(), identity.peer_id(), config);
        let loopback: Multiaddr = "/ip4/127.0.0.1/tcp/0".parse().expect("invariant: it is a multiaddr");
        swarm.listen_on(loopback).map_err(|error| BenchError::Talk(error.to_string()))?;
        let listened = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                break address;
            }
        };
        let protocols = Protocols::new(run(&setup));
        let control = swarm.behaviour().new_control();
        let (events_in, events) = mpsc::channel(QUEUE);
        let opened = events_in.clone();
        streams::serve(control.clone(), protocols.segments.clone(), move |peer, mut stream| {
            let opened = opened.clone();
            async move {
                if let (Some(peer), Ok(view)) = (from_libp2p(&peer), reducer::read_view(&mut stream).await) {
                    let _ = opened.send(NetworkEvent::SegmentsOpened { peer, view, stream }).await;
                }
            }
        });
        let (dials, queue) = mpsc::channel(QUEUE);
        tokio::spawn(drive(swarm, queue));
        let peer = from_libp2p(&identity.peer_id()).expect("invariant: our keys are Ed25519");
        let place = Place { peer: peer.0, address: listened.to_string() };
        Ok(Self { setup, identity, place, listened, protocols, control, dials, events_in, events })
    }

    /// Links with those of `places` that the plan brings together.
    async fn link(&mut self, places: &[Place]) -> Result<Linked, BenchError> {
        let run = run(&self.setup);
        let me = starling_topology::PeerId(self.place.peer);
        let members = places.iter().map(|place| starling_topology::PeerId(place.peer));
        let founder = members.clone().min().unwrap_or(me);
        let view = View::found(run, founder).succeed(members);
        if !view.contains(me) {
            return Err(BenchError::Talk("there is no place for us".to_owned()));
        }
        let Setup { elements, codec, plan, bucket_elements, segment_elements, in_flight, data_plane, .. } = self.setup;
        let door = Door::new(
            &self.identity,
            run,
            data_plane,
            segment_elements * size_of::<f32>(),
            codec.payload_bytes(elements),
            std::slice::from_ref(&self.listened),
        );
        let config = ReducerConfig {
            elements,
            exact: 0,
            words: Vec::new(),
            codec,
            plan,
            most: f32::MAX,
            layout: LayoutConfig { bucket_elements, segment_elements },
            in_flight,
            open_limit: LINK_LIMIT,
            limits: Limits::new(LINK_LIMIT),
            protocol: self.protocols.segments.clone(),
            door: Arc::new(door.map_err(BenchError::io("start a thread"))?),
            traffic: Arc::default(),
        };
        let (results, reduced) = Sums::new();
        let mut handle = reducer::start(&view, me, config, results, self.control.clone(), self.events_in.clone());
        // Of two, the lower one dials: two that dial each other from the ports they listen on would meet half-way.
        let neighbours = handle.neighbours();
        let is_ours = |place: &&Place| neighbours.contains(&starling_topology::PeerId(place.peer));
        for place in places.iter().filter(is_ours).filter(|place| me.0 < place.peer) {
            let address = place.address.parse().map_err(|_| BenchError::Talk(place.address.clone()))?;
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
                    let transport = transport.ok_or_else(|| BenchError::Talk("no links".to_owned()))?;
                    let buffer = vec![0.0; elements];
                    let failures = std::mem::replace(&mut self.events, mpsc::channel(1).1);
                    return Ok(Linked { reducer: handle, reduced, failures, buffer, plan, transport });
                }
                Some(NetworkEvent::ReductionFailed { failure, .. }) => return Err(failed(failure)),
                Some(_) => {}
                None => return Err(BenchError::Talk("the network ended".to_owned())),
            }
        }
    }
}

fn failed(failure: LinkFailure) -> BenchError {
    match failure {
        LinkFailure::Broken(reason) | LinkFailure::Misbehaved(reason) => BenchError::Link(reason),
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
struct Linked {
    reducer: ReducerHandle,
    reduced: mpsc::Receiver<Vec<f32>>,
    failures: mpsc::Receiver<NetworkEvent>,
    buffer: Vec<f32>,
    plan: String,
    transport: Transport,
}

impl Linked {
    async fn reduce(&mut self, round: u64) -> Result<Reduced, BenchError> {
        let buffer = std::mem::take(&mut self.buffer);
        let (began, used) = (Instant::now(), clock::process_time());
        // The sum, not the mean: then what comes out is exact.
        let operation = Operation { step: round, buffer, contribution: None, divisor: 1.0, dropped: None };
        let handed = self.reducer.operations.send(operation).await;
        let result = tokio::select! {
            biased;
            result = self.reduced.recv(), if handed.is_ok() => result,
            failure = self.failures.recv() => {
                return Err(match failure {
                    Some(NetworkEvent::ReductionFailed { failure, .. }) => failed(failure),
                    _ => BenchError::Link("the reduction ended".to_owned()),
                });
            }
        };
        let (seconds, used) = (began.elapsed().as_secs_f64(), clock::process_time() - used);
        let Some(buffer) = result else { return Err(BenchError::Link("the reduction ended".to_owned())) };
        self.buffer = buffer;
        Ok(Reduced { seconds, cpu_seconds: used.as_secs_f64() })
    }
}
