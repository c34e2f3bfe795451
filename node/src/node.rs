//! A node's life: prepare, join the swarm, train, report.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::DialOpts;
use libp2p::swarm::{self, DialError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm};
use starling_collective::LayoutConfig;
use starling_topology::{Config as MembershipConfig, Contact, Event, Membership};
use starling_train::{CheckpointStore, DataOptions, Dataset, LayoutSpec, Manifest, Trainer, WIRE_VERSION};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::behaviour::WELCOME;
use crate::error::NodeError;
use crate::event_loop::{End, Ended, EventLoop, LoopConfig};
use crate::identity::{Identity, from_libp2p, to_libp2p};
use crate::network::{Network, is_quic};
use crate::report::{Observer, Outcome, Report, Summary};
use crate::saver::Saver;
use crate::secret::{self, Secret};
use crate::settings::{Founding, Joining, Resume, Settings, Target};
use crate::ticket::Ticket;
use crate::trainer::{self, Duties, Totals};
use crate::{manifest_file, streams, transport, welcome};

/// How long the member that we join through may take to answer.
const ASK_LIMIT: Duration = Duration::from_secs(15);
/// The folder of the data directory that holds checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";

/// Founds a run and takes part in it until it is complete or `stop` is cancelled.
///
/// Cancelling leaves in order: the other members are told, the state is saved, and the summary says
/// [`Outcome::Left`].
///
/// # Errors
/// Any [`NodeError`]; each is one clear line.
pub async fn found(
    settings: Settings,
    founding: Founding,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary, NodeError> {
    let identity = Identity::load_or_create(&settings.data_dir)?;
    let prepared = {
        let (settings, founding) = (settings.clone(), founding.clone());
        blocking(move || prepare_founder(&settings, &founding)).await?
    };
    let run = prepared.manifest.run_id();
    let secret = if founding.public { None } else { Some(own_secret(&settings.data_dir, run)?) };
    let membership = MembershipConfig {
        max_stall: settings.max_stall,
        min_members: founding.min_peers,
        max_members: settings.max_peers,
    };
    let entry = |me: Contact| move |now| Membership::found(membership, run, me, now);
    take_part(identity, settings, prepared, secret, true, entry, Vec::new(), observer, stop).await
}

/// Joins a run and takes part in it until it is complete or `stop` is cancelled. The manifest comes from the swarm.
///
/// # Errors
/// Any [`NodeError`]; each is one clear line.
pub async fn join(
    settings: Settings,
    joining: Joining,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary, NodeError> {
    let identity = Identity::load_or_create(&settings.data_dir)?;
    let member = Member::of(&joining)?;
    let bytes = member.secret;
    let secret = Secret::new(bytes);
    let manifest = ask(&identity, &member, secret, None).await?;
    if let Some(ours) = member.run
        && ours != manifest.run_id()
    {
        let (ours, theirs) = (ours.to_string(), manifest.run_id().to_string());
        return Err(NodeError::OtherRun { peer: member.peer.to_string(), ours, theirs });
    }
    let dataset = {
        let options = data_options(&settings, 0.0, 0).for_run(&manifest);
        blocking(move || Ok(Dataset::load(&options).map_err(starling_train::Error::from)?)).await?
    };
    let ours = as_we_see_it(&manifest, &joining, &dataset);
    if ours != manifest {
        // The member is shown ours, so that its user learns what differs as well.
        let theirs = ask(&identity, &member, secret, Some(&ours)).await?;
        let differences = welcome::describe(&ours.differences(&theirs));
        return Err(NodeError::Manifest { peer: member.peer.to_string(), differences });
    }
    let prepared = {
        let settings = settings.clone();
        blocking(move || {
            let trainer = Trainer::new(&manifest, dataset, settings.device)?;
            let store = open_store(&settings)?;
            Ok(Prepared { manifest, trainer, store })
        })
        .await?
    };
    if let Some(secret) = &bytes {
        // Kept, so that `starling invite` here can print a whole ticket.
        secret::store(&settings.data_dir, prepared.manifest.run_id(), secret)?;
    }
    let run = prepared.manifest.run_id();
    let membership =
        MembershipConfig { max_stall: settings.max_stall, min_members: 1, max_members: settings.max_peers };
    let through = from_libp2p(&member.peer).ok_or_else(|| NodeError::NoPeer(member.peer.to_string()))?;
    let entry = |me: Contact| move |now| Membership::join(membership, run, me, through, now);
    let known = vec![Contact { peer: through, addresses: member.addresses.iter().map(ToString::to_string).collect() }];
    take_part(identity, settings, prepared, bytes, false, entry, known, observer, stop).await
}

/// What is ready before the network is touched.
struct Prepared {
    manifest: Manifest,
    trainer: Trainer,
    store: CheckpointStore,
}

fn prepare_founder(settings: &Settings, founding: &Founding) -> Result<Prepared, NodeError> {
    let options = data_options(settings, founding.run.held_out, founding.run.seed);
    let dataset = Dataset::load(&options).map_err(starling_train::Error::from)?;
    let manifest = Manifest::found(&founding.run, &dataset)?;
    let store = open_store(settings)?;
    let mut trainer = Trainer::new(&manifest, dataset, settings.device)?;
    let newest = store.list().map_err(starling_train::Error::from)?.last().map(|info| info.step);
    let wanted = match (founding.resume, newest) {
        (Resume::Fresh, Some(step)) => {
            return Err(NodeError::CheckpointThere { dir: settings.data_dir.clone(), step });
        }
        (Resume::Fresh | Resume::Newest, None) => None,
        (Resume::Newest, newest) => newest,
        (Resume::Step(step), _) => Some(step),
    };
    if wanted.is_some() {
        let state = store.load(wanted).map_err(starling_train::Error::from)?;
        if state.run != manifest.run_id() {
            let dir = settings.data_dir.clone();
            let theirs = manifest_file::load(&dir, state.run)?;
            let differences = welcome::describe(&manifest.differences(&theirs));
            return Err(NodeError::OtherCheckpoint { dir, differences });
        }
        trainer.load(state)?;
    }
    Ok(Prepared { manifest, trainer, store })
}

fn open_store(settings: &Settings) -> Result<CheckpointStore, NodeError> {
    let dir = settings.data_dir.join(CHECKPOINTS);
    Ok(CheckpointStore::open(&dir, settings.checkpoint_keep).map_err(starling_train::Error::from)?)
}

fn data_options(settings: &Settings, held_out: f32, seed: u64) -> DataOptions {
    DataOptions {
        source: settings.data.clone(),
        label: settings.label.clone(),
        header: settings.header,
        held_out,
        seed,
    }
}

/// The secret of a run that we founded: from the data directory, or fresh.
fn own_secret(data_dir: &Path, run: starling_topology::RunId) -> Result<[u8; 32], NodeError> {
    if let Some(secret) = secret::load(data_dir, run)? {
        return Ok(secret);
    }
    let secret: [u8; 32] = rand::random();
    secret::store(data_dir, run, &secret)?;
    Ok(secret)
}

/// The member that we join through.
struct Member {
    peer: PeerId,
    addresses: Vec<Multiaddr>,
    run: Option<starling_topology::RunId>,
    secret: Option<[u8; 32]>,
}

impl Member {
    fn of(joining: &Joining) -> Result<Self, NodeError> {
        match &joining.target {
            Target::Ticket(Ticket { peer, addresses, run, secret }) => Ok(Self {
                peer: *peer,
                addresses: addresses.clone(),
                run: Some(*run),
                secret: secret.or(joining.secret),
            }),
            Target::Address(address) => {
                let Some(Protocol::P2p(peer)) = address.iter().last() else {
                    return Err(NodeError::NoPeer(address.to_string()));
                };
                Ok(Self { peer, addresses: vec![address.clone()], run: None, secret: joining.secret })
            }
        }
    }
}

/// The manifest with what this machine knows for itself in place: its data, its release, what its user insists on.
fn as_we_see_it(manifest: &Manifest, joining: &Joining, dataset: &Dataset) -> Manifest {
    let mut ours = manifest.clone();
    let expected = &joining.expected;
    ours.wire_version = WIRE_VERSION;
    ours.data = dataset.description();
    if let Some(model) = &expected.model {
        ours.model = model.clone();
    }
    if let Some(optimizer) = &expected.optimizer {
        ours.optimizer = *optimizer;
    }
    ours.batch_size = expected.batch_size.unwrap_or(ours.batch_size);
    ours.steps = expected.steps.unwrap_or(ours.steps);
    ours.seed = expected.seed.unwrap_or(ours.seed);
    ours
}

/// Asks a member for its manifest over a connection made for that alone.
async fn ask(
    identity: &Identity,
    member: &Member,
    secret: Secret,
    ours: Option<&Manifest>,
) -> Result<Manifest, NodeError> {
    let peer = member.peer;
    let unreachable = |reason: String| NodeError::Unreachable { peer: peer.to_string(), reason };
    let (turned_in, mut turned) = mpsc::channel(8);
    let admission = Admission { me: identity.peer_id(), secret, wire_version: WIRE_VERSION, turned: turned_in };
    let transport = transport::build(identity, admission).map_err(NodeError::Network)?;
    let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(ASK_LIMIT);
    let mut swarm = Swarm::new(transport, libp2p_stream::Behaviour::new(), identity.peer_id(), config);
    let mut control = swarm.behaviour().new_control();

    let mut addresses = member.addresses.clone();
    addresses.sort_by_key(is_quic);
    let dialed = swarm.dial(DialOpts::peer_id(peer).addresses(addresses).build());
    dialed.map_err(|error| unreachable(reason(&error)))?;
    let exchange = async {
        let stream = streams::open(&mut control, peer, &WELCOME, ASK_LIMIT).await?;
        welcome::ask(stream, ours).await
    };
    tokio::pin!(exchange);
    let deadline = tokio::time::sleep(ASK_LIMIT);
    tokio::pin!(deadline);
    let mut connected = false;
    loop {
        tokio::select! {
            manifest = &mut exchange, if connected => {
                return manifest.map_err(|error| unreachable(format!("it did not hand out its manifest ({error})")));
            }
            event = swarm.select_next_some() => match event {
                SwarmEvent::ConnectionEstablished { .. } => connected = true,
                SwarmEvent::OutgoingConnectionError { error, .. } if !connected => {
                    // A handshake that failed says more than the dial that failed with it.
                    return Err(match turned.try_recv() {
                        Ok(turned) => NodeError::NotAdmitted { peer: peer.to_string(), error: turned.error },
                        Err(_) => unreachable(reason(&error)),
                    });
                }
                _ => {}
            },
            () = &mut deadline => {
                return Err(unreachable(format!("no answer within {} s", ASK_LIMIT.as_secs())));
            }
        }
    }
}

/// A dial error as one line, without libp2p's nesting.
fn reason(error: &DialError) -> String {
    match error {
        DialError::Transport(attempts) => attempts
            .iter()
            .map(|(address, error)| {
                let mut cause: &dyn std::error::Error = error;
                while let Some(source) = cause.source() {
                    cause = source;
                }
                format!("{address}: {cause}")
            })
            .collect::<Vec<_>>()
            .join("; "),
        other => other.to_string(),
    }
}

/// Everything after the manifest is known: network, trainer, event loop, summary.
#[expect(clippy::too_many_arguments, reason = "founding and joining differ in just these")]
async fn take_part<Entry, Machine>(
    identity: Identity,
    settings: Settings,
    prepared: Prepared,
    secret: Option<[u8; 32]>,
    founder: bool,
    entry: Entry,
    known: Vec<Contact>,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary, NodeError>
where
    Entry: FnOnce(Contact) -> Machine,
    Machine: FnOnce(starling_topology::Time) -> Membership,
{
    let Prepared { manifest, trainer, store } = prepared;
    let run = manifest.run_id();
    manifest_file::store(&settings.data_dir, &manifest)?;
    observer.report(&Report::Started {
        peer: identity.peer_id().to_string(),
        run: run.to_string(),
        model: manifest.model.to_string(),
        parameters: trainer.parameters(),
        samples: trainer.dataset().training().len() as u64,
        device: trainer.device_name().to_owned(),
        steps: manifest.steps,
        step: trainer.step(),
        private: secret.is_some(),
    });
    let config = LoopConfig {
        max_stall: settings.max_stall,
        elements: trainer.buffer_len(),
        max_state_bytes: trainer.state().encoded_len(),
        layout: layout_config(manifest.layout),
        in_flight: settings.buckets_in_flight,
    };
    let mut network = Network::start(&identity, Secret::new(secret), &manifest, &settings).await?;
    let addresses = network.addresses();
    let ticket = Ticket { peer: identity.peer_id(), addresses: addresses.clone(), run, secret };
    observer.report(&Report::Listening {
        addresses: addresses.iter().map(|address| format!("{address}/p2p/{}", identity.peer_id())).collect(),
        ticket: ticket.to_string(),
    });
    for contact in &known {
        network.learn(contact);
    }
    let duties = Duties {
        checkpoint_every: settings.checkpoint_every,
        evaluate_every: settings.evaluate_every,
        export: settings.export.clone(),
    };
    let saver = Saver::start(store, observer.clone())?;
    let trainer = trainer::start(trainer, founder, duties, saver, observer.clone())?;
    let machine = entry(network.contact());
    let event_loop = EventLoop::new(network, machine, trainer, config, observer.clone());
    let Ended { end, trainer, traffic, world_size } = event_loop.run(stop).await;
    let totals = blocking(move || trainer.join()).await;

    let outcome = match end {
        End::Event(Event::Complete { .. }) => Outcome::Complete,
        End::Event(Event::Left) | End::LeftAlone => Outcome::Left,
        other => return Err(failure(other, totals)),
    };
    let totals = totals?;
    let stepping_s = totals.stepping.as_secs_f64();
    let per_stepping_s = |amount: f64| if stepping_s > 0.0 { amount / stepping_s } else { 0.0 };
    let (held_out_loss, accuracy) = totals.evaluation.unwrap_or_default();
    let summary = Summary {
        peer: identity.peer_id().to_string(),
        run: run.to_string(),
        outcome,
        steps: totals.step,
        world_size,
        loss: totals.loss,
        held_out_loss,
        accuracy,
        digest: totals.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        samples_per_s: per_stepping_s(totals.samples as f64),
        waiting_share: per_stepping_s(totals.waiting.as_secs_f64()),
        bytes_sent: traffic.sent.load(std::sync::atomic::Ordering::Relaxed),
        bytes_received: traffic.received.load(std::sync::atomic::Ordering::Relaxed),
        stepping_s,
    };
    observer.report(&Report::Finished(summary.clone()));
    Ok(summary)
}

/// Turns an end that is no success into its error.
fn failure(end: End, totals: Result<Totals, NodeError>) -> NodeError {
    let name = |peer| to_libp2p(peer).to_string();
    match end {
        End::Failed(error) => error,
        End::Event(Event::Refused(refusal)) => NodeError::Refused { peer: "the run".into(), refusal },
        End::Event(Event::Diverged { peer, step, ours, theirs }) => {
            NodeError::Diverged { peer: name(peer), step, ours: ours.to_string(), theirs: theirs.to_string() }
        }
        End::Event(Event::Lost { peer, evidence, reporter }) => NodeError::PeerLost {
            peer: name(peer),
            evidence: evidence.to_string(),
            seen_by: reporter.map_or_else(|| "this peer".into(), name),
            step: totals.as_ref().map_or(0, |totals| totals.step),
            saved: match &totals {
                Ok(totals) if totals.step > 0 => "is saved",
                Ok(_) => "needs no saving",
                Err(_) => "could not be saved",
            },
        },
        End::Event(_) | End::LeftAlone => NodeError::Stopped("event loop"),
    }
}

fn layout_config(spec: LayoutSpec) -> LayoutConfig {
    let elements = |bytes: u32| bytes as usize / size_of::<f32>();
    LayoutConfig { bucket_elements: elements(spec.bucket_bytes), segment_elements: elements(spec.segment_bytes) }
}

/// Runs what blocks, outside the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NodeError> + Send + 'static,
) -> Result<T, NodeError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| NodeError::Stopped("preparation"))?
}
