//! A node's life: prepare, join the swarm, train, report.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use starling_collective::LayoutConfig;
use starling_engine::leaf::carrier::CarrierConfig;
use starling_engine::leaf::reach_search::{PeerRole, RolePolicy};
use starling_engine::member::quorum_search::is_end;
use starling_engine::return_engine::LeaveRecord;
use starling_engine::{HangDetector, Member};
use starling_run::{LayoutSpec, Learner, Manifest, ModelSpec, Program};
use starling_topology::{Event, Lineage, LocalIdentity, Membership, RefusalReason, Time, View};
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Clerk};
use crate::credentials::founder::FounderKey;
use crate::credentials::identity::{Identity, to_libp2p};
use crate::credentials::ticket::Ticket;
use crate::error::NodeError;
use crate::learner::trainer::{self, LearnerOptions, StarvedEnd, Totals, WorkClock};
use crate::member::event_loop::{Books, End, Ended, EventLoop, EventLoopParts, JoinWait, LoopConfig, Quest};
use crate::member::guide::Guide;
use crate::member::leaf;
use crate::member::leaf::carrier_streams::CarrierStreams;
use crate::member::leaf::reach::{self, ReachProvider};
use crate::member::leaf::role::RoleHistory;
use crate::member::shared_steps::{Carrying, SharedSteps, Side, Steps};
use crate::member::snapshots::Snapshots;
use crate::net::listen::Places;
use crate::net::network::Network;
use crate::net::rate_limiter::RateLimiter;
use crate::observe::report::{Observer, Outcome, Report, Summary};
use crate::observe::reporter::{self, Lived};
use crate::settings::{FoundOptions, JoinOptions, ResumePolicy, Settings};
use crate::start::prepare::{self, Prepared, Ready, Start};
use crate::start::way_back::Memory;
use crate::start::welcome::Terms;
use crate::store::checkpoint_writer::CheckpointWriter;
use crate::store::preprocessing_file::PreprocessingFile;
use crate::store::record_file::SavedMembership;
use crate::transfer::ChunkProviders;
use crate::transfer::checkpoint_provider::CheckpointProvider;
use crate::transfer::providers::{self, IncomingStreams, Providers};
use crate::transfer::state::Shape;

/// The folder of the data directory that holds checkpoints, in one folder for each run.
pub const CHECKPOINTS: &str = "checkpoints";

/// A device that takes longer than this to get warm is waited for in words.
const WARM_UP_TOLD: Duration = Duration::from_secs(1);
/// How long a device may take for what it computes for the first time. Drivers compile for minutes, but not for so many.
const WARM_UP_LIMIT: Duration = Duration::from_secs(600);
/// A disk that does not answer for so many of the longest stalls hangs.
pub(crate) const DISK_STALLS: u32 = 3;
/// How often somebody who waits for the trainer thread's end looks.
const LOOK: Duration = Duration::from_millis(10);

/// Founds a run and takes part in it until it is complete or `stop` is cancelled.
///
/// Cancelling leaves in order: the other members are told, the state is saved, and the summary says
/// [`Outcome::Left`].
///
/// # Errors
/// Any [`NodeError`]; each is one clear line.
pub async fn found(
    settings: Settings,
    founding: FoundOptions,
    program: Arc<dyn Program>,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary, NodeError> {
    let resumed = FoundOptions { resume: ResumePolicy::Newest, ..founding.clone() };
    let prepare = |observer, comes_back| {
        let founding = if comes_back { &resumed } else { &founding };
        prepare::founder(&settings, founding, program.clone(), observer)
    };
    // Who founds is a member: there is nobody to be a leaf of.
    live(&settings, prepare, observer, (stop, &RoleHistory::of_founder())).await
}

/// Joins a run and takes part in it until it is complete or `stop` is cancelled. The manifest comes from the swarm.
///
/// # Errors
/// Any [`NodeError`]; each is one clear line.
pub async fn join(
    settings: Settings,
    joining: JoinOptions,
    program: Arc<dyn Program>,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Summary, NodeError> {
    let history = RoleHistory::default();
    let prepare =
        |observer, comes_back| prepare::joiner(&settings, &joining, program.clone(), observer, (comes_back, &history));
    live(&settings, prepare, observer, (stop, &history)).await
}

async fn live<Preparation>(
    settings: &Settings,
    prepare: impl Fn(Arc<dyn Observer>, bool) -> Preparation,
    observer: Arc<dyn Observer>,
    (stop, history): (CancellationToken, &RoleHistory),
) -> Result<Summary, NodeError>
where
    Preparation: Future<Output = Result<Prepared, NodeError>>,
{
    let is_refused = AtomicBool::new(false);
    let live = |prepared, observer| take_part(settings, prepared, observer, stop.clone(), (&is_refused, history));
    reporter::shown(observer, &stop, prepare, live).await
}

/// Everything after the preparation: network, trainer, event loop, summary. `is_refused` is set once it comes back because the run
/// has finished.
async fn take_part(
    settings: &Settings,
    prepared: Prepared,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
    (is_refused, history): (&AtomicBool, &RoleHistory),
) -> Result<Lived, NodeError> {
    let Prepared { mut ready, role, learner, damaged, searched } = prepared;
    if learner.is_over() && matches!(ready.start, Start::Found) {
        // Nobody is waited for to take steps that are not taken.
        ready.membership.last_step = learner.step();
    }
    let (peer, run) = (ready.identity.peer_id(), ready.manifest.run_id());
    tracing::Span::current().record("run", run.to_string());
    if let Some(name) = settings.own_name(ready.credentials.secret.is_some()) {
        observer.report(&Report::Named { peer: peer.to_string(), name: name.to_string() });
    }
    observer.report(&Report::Started {
        peer: peer.to_string(),
        run: run.to_string(),
        model: ready.manifest.model.to_string(),
        parameters: ready.manifest.parameters(),
        samples: learner.ledger().samples().into(),
        device: learner.device().to_owned(),
        steps: ready.manifest.steps,
        batch_size: ready.manifest.batch_size,
        step: learner.step(),
        private: ready.credentials.secret.is_some(),
        quorum: ready.manifest.quorum,
    });
    if let Some(summary) = &learner.notes().summary {
        observer.report(&Report::Data(summary.clone()));
    }
    for message in &learner.notes().warnings {
        observer.report(&Report::Warning { message: message.clone() });
    }
    for error in damaged {
        observer.report(&Report::Warning { message: format!("a checkpoint was passed over: {error}") });
    }
    if let Some(info) = searched.fetched {
        observer.report(&Report::Fetched { step: info.step, digest: info.digest.to_string() });
    }
    for failure in searched.failures {
        observer.report(&Report::Warning { message: failure.reason });
    }
    if let Some(preprocessing) = &learner.notes().preprocessing {
        PreprocessingFile::new(&settings.data_dir, &ready.manifest).store(preprocessing)?;
    }
    let samples = learner.ledger().samples();
    let Some(learner) = warm_up(learner, &ready, observer.as_ref(), &stop).await? else {
        let summary = Summary { peer: peer.to_string(), run: run.to_string(), ..Summary::before_the_start() };
        observer.report(&Report::Stopped);
        return Ok(Lived::Ended(Box::new(summary)));
    };
    if role == PeerRole::Leaf {
        return leaf::life::take_part(settings, ready, learner, (observer, history), stop).await;
    }
    let Opened { mut parts, mut config, checkpoint_writer, .. } =
        open(settings, ready, (learner.step(), learner.lineage()), observer.clone()).await?;
    config.shape.samples = Some(samples);
    if settings.role == RolePolicy::Auto && !config.chooses && history.may_change() {
        parts.member.allow_leaf();
    }
    let learner_options = LearnerOptions {
        checkpoint_every: learner.manifest().checkpoint_every,
        keeps_state: true,
        duty: settings.duty,
        update_ahead_bytes: settings.update_ahead_bytes,
        export: settings.export.clone(),
        audit: settings.audit.clone(),
    };
    let partners = trainer::LearnerParts {
        me: parts.network.contact().peer,
        shared_steps: parts.shared_steps.clone(),
        snapshots: parts.snapshots.clone(),
        observer: observer.clone(),
        stop: stop.clone(),
    };
    let (feed, thread) = trainer::start(learner, learner_options, checkpoint_writer, partners)?;
    let max_stall = config.max_stall;
    let ended = EventLoop::new(parts, feed, config).run(stop).await;
    let Ended { end, traffic, world_size, forked, took_part, work_clock, departure, failure: unable } = ended;
    if let End::Failed(error @ NodeError::Stalled { .. }) = end {
        // The trainer does not answer; the process ends under it.
        return Err(error);
    }
    let totals = finished(thread, &work_clock, max_stall).await?;
    let is_unsaved = matches!(totals.trouble, Some(NodeError::Unsaved { .. } | NodeError::NotKept { .. }));
    if let Some(departure) = departure.filter(|_| !is_unsaved) {
        departure.note(observer.as_ref()).await;
    }
    if let Some(error) = unable {
        return Err(error); // The others know: it left.
    }
    if let (Some(in_row), None) = (totals.skips, &totals.trouble) {
        return Err(NodeError::Unstable { step: totals.step, in_row });
    }
    if let (Some(StarvedEnd { in_row, is_last }), None) = (totals.starved, &totals.trouble) {
        return Err(NodeError::Starved { step: totals.step, in_row, is_last });
    }
    if matches!(end, End::NoPlace) {
        history.change(PeerRole::Leaf);
        let why = "its links to other members fail again and again, and no ring or star leads around them".to_owned();
        observer.report(&Report::Becomes { role: PeerRole::Leaf.to_string(), why });
        return Ok(Lived::ComesBack { persists: true });
    }
    let is_told_of_the_end = matches!(&end, End::Event(event) if is_end(event));
    if matches!(end, End::ComesBack) || (is_told_of_the_end && !is_refused.swap(true, Ordering::Relaxed)) {
        return Ok(Lived::ComesBack { persists: matches!(end, End::ComesBack) });
    }

    if let End::Event(Event::Refused { refusal: RefusalReason::Full { .. }, .. }) = &end
        && settings.role == RolePolicy::Auto
        && history.changes() > 0
    {
        // It was a leaf until members could dial it, and there is no place for one more.
        history.change(PeerRole::Leaf);
        let why = "the run has as many members as it may have".to_owned();
        observer.report(&Report::Becomes { role: PeerRole::Leaf.to_string(), why });
        return Ok(Lived::ComesBack { persists: true });
    }
    let outcome = match end {
        End::Event(Event::Complete { .. }) => Outcome::Complete,
        End::Event(Event::Left { .. }) => Outcome::Left,
        End::LeftAlone => {
            return Err(match totals.trouble {
                Some(unsaved @ NodeError::Unsaved { .. }) => unsaved,
                trouble => {
                    NodeError::LeftAlone { step: totals.step, saved: totals.has_state.then_some(trouble.is_none()) }
                }
            });
        }
        other => return Err(failure(other)),
    };
    let summary = Summary {
        world_size,
        forked,
        bytes_sent: traffic.sent.load(Ordering::Relaxed),
        bytes_received: traffic.received.load(Ordering::Relaxed),
        ..totals.sum_up((peer.to_string(), run.to_string()), outcome, totals.samples)
    };
    // Of a run that this peer was never let in to there is nothing to sum up.
    observer.report(&if took_part { Report::Finished(summary.clone()) } else { Report::Stopped });
    totals.trouble.map_or(Ok(Lived::Ended(Box::new(summary))), Err)
}

/// Waits for the trainer thread's end, as long as it is not at one thing for too long: to wait for a disk that hangs, say.
pub(crate) async fn finished(
    thread: JoinHandle<Totals>,
    work_clock: &WorkClock,
    max_stall: Duration,
) -> Result<Totals, NodeError> {
    let mut hang_detector = HangDetector::new(max_stall, LOOK);
    while !thread.is_finished() {
        if hang_detector.look(work_clock.work(), LOOK, true).is_some() {
            return Err(NodeError::Hangs { limit: hang_detector.limit() });
        }
        tokio::time::sleep(LOOK).await;
    }
    thread.join().map_err(|_| NodeError::Stopped("trainer thread"))
}

/// Has the device compute what steps will, before anybody waits for it. `None` if `stop` was cancelled meanwhile: nobody
/// knows of us yet.
async fn warm_up(
    mut learner: Box<dyn Learner>,
    ready: &Ready,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<Option<Box<dyn Learner>>, NodeError> {
    let device = learner.device().to_owned();
    // With fewer members there are no steps, so no share is larger, as long as all are as fast.
    let members = u32::try_from(ready.membership.min_members).unwrap_or(u32::MAX).max(1);
    let share = ready.manifest.batch_size.div_ceil(members);
    let warming = blocking(move || {
        learner.warm_up(share)?;
        Ok(learner)
    });
    tokio::pin!(warming);
    let (tell_at, limit) = (tokio::time::sleep(WARM_UP_TOLD), tokio::time::sleep(WARM_UP_LIMIT));
    tokio::pin!(tell_at, limit);
    let mut is_told = false;
    loop {
        tokio::select! {
            warm = &mut warming => return warm.map(Some),
            () = stop.cancelled() => return Ok(None),
            () = &mut limit => return Err(NodeError::Cold { device, limit: WARM_UP_LIMIT }),
            () = &mut tell_at, if !is_told => {
                is_told = true;
                observer.report(&Report::WarmingUp { device: device.clone() });
            }
        }
    }
}

/// A node whose network is open, and whose event loop has yet to run.
pub(crate) struct Opened {
    pub(crate) parts: EventLoopParts,
    pub(crate) config: LoopConfig,
    pub(crate) checkpoint_writer: CheckpointWriter,
    /// With which others can join through this peer.
    pub(crate) ticket: Ticket,
}

/// Opens the network of a peer that stands after `step` of this lineage. From here on, others can see it.
pub(crate) async fn open(
    settings: &Settings,
    ready: Ready,
    (step, lineage): (u64, Lineage),
    observer: Arc<dyn Observer>,
) -> Result<Opened, NodeError> {
    let Ready { identity, manifest, probe, shared, store, credentials, membership, start, memory, twins, rest } = ready;
    let run = manifest.run_id();
    let parties = (run, manifest.founder);
    let access = Access::open(identity.peer_id(), parties, &credentials, &settings.allow, &settings.data_dir)?;
    let access = access.signing(&identity);
    match &start {
        Start::Join { .. } => {}
        Start::Found => {
            let first = View::found(run, prepare::own_name(&identity)).with_quorum(manifest.quorum);
            access.counts_by(&first);
            drop(access.enter(first.members(), &[]));
        }
        Start::Fork { .. } => drop(access.enter(&[prepare::own_name(&identity)], &[])),
        Start::Recover { kept, .. } => {
            let came = kept.record.origin.as_ref().map_or(&[][..], |origin| &origin.joiners);
            access.counts_by(&kept.record.view);
            drop(access.enter(kept.record.view.members(), came));
        }
    }
    let config = LoopConfig {
        run,
        max_stall: membership.max_stall,
        min_members: membership.min_members,
        reduced: manifest.reduced(),
        max_state_bytes: manifest.max_state_bytes(),
        chooses: manifest.model == ModelSpec::Raw,
        layout: layout_config(manifest.layout),
        codec: manifest.codec,
        plan: manifest.plan,
        in_flight: settings.buckets_in_flight,
        probe_links: settings.probe_links,
        last_step: manifest.steps,
        can_arrive: manifest.can_arrive(),
        most: manifest.most(),
        batch_size: manifest.batch_size,
        shape: shape(&manifest, None),
    };
    let steps = match &start {
        Start::Recover { has_state: false, .. } => Steps::without_state(manifest.steps),
        Start::Found | Start::Join { .. } | Start::Recover { .. } | Start::Fork { .. } => {
            Steps::new(step, lineage, manifest.steps)
        }
    };
    let pace = RateLimiter::new(settings.state_rate);
    let snapshots = Snapshots::new(pace.clone());
    let me = prepare::own_name(&identity);
    // A program's own buffers have no shares that could be handed on.
    let side = match config.chooses {
        true => Side::Nothing,
        false => {
            let carrier = CarrierConfig {
                me,
                run,
                max_stall: config.max_stall,
                elements: manifest.reduced().elements() as u64,
                most: manifest.bound,
                places: settings.leaves,
            };
            Side::Carrier(Box::new(Carrying::new(carrier, snapshots.clone())))
        }
    };
    let shared_steps = SharedSteps::new(steps, manifest.batch_size, side);
    let checkpoint_provider = CheckpointProvider::new(membership.incarnation, &manifest, store.clone(), pace);
    checkpoint_provider.look_in(PreprocessingFile::new(&settings.data_dir, &manifest));
    let chunk_providers = ChunkProviders::new(snapshots.clone(), checkpoint_provider, shared);
    let of_run = manifest.clone();
    let terms = Terms { manifest, min_members: membership.min_members, probe };
    let providers = Providers { shared_steps: shared_steps.clone(), chunk_providers: chunk_providers.clone(), terms };
    let listened = if matches!(start, Start::Found) { Vec::new() } else { memory.listened(&start) };
    let (mut network, incoming) = listen_where_it_was(&identity, &access, settings, providers, &listened).await?;
    let leaves = (!config.chooses).then(|| {
        let with = (shared_steps.clone(), access.clone());
        CarrierStreams::serve(
            (me, network.control()),
            network.protocols.leaf.clone(),
            with,
            config.max_stall,
            observer.clone(),
        )
    });
    reach::serve(&network, &ReachProvider::new(run, credentials.clone(), config.max_stall));
    let ticket = Ticket::new([network.contact()], run, access.secret()).with_invitation(access.open_invitation());
    observer.report(&Report::Listening {
        addresses: network.addresses().iter().map(|address| format!("{address}/p2p/{}", identity.peer_id())).collect(),
        ticket: ticket.to_string(),
    });
    if let Start::Join { contacts, .. } = &start {
        contacts.iter().for_each(|contact| network.learn(contact));
    }
    if let Start::Recover { kept, .. } = &start {
        kept.contacts.iter().for_each(|contact| network.learn(contact));
    }
    let Memory { record, kept, file, noted, ended, mut contacts, .. } = memory;
    contacts.min_members = u32::try_from(membership.min_members).unwrap_or(u32::MAX);
    for contact in contacts.members().iter().chain(contacts.keepers()) {
        // It knows where this peer was, which may have changed, and it may wait for this one.
        network.learn(contact);
        network.connect(to_libp2p(contact.peer));
    }
    let patience = (config.max_stall * DISK_STALLS, config.max_state_bytes);
    let awaited = if let Start::Join { awaited, .. } = &start { Some(awaited) } else { None };
    let outside = kept.and_then(|kept| awaited?.apart(&kept.record));
    let outside = outside.or_else(|| contacts.left.as_ref().map(LeaveRecord::apart));
    let guide = Guide::open(&settings.data_dir, run, of_run.founder);
    chunk_providers.checkpoints.lead_by(guide.clone());
    let quest = Quest { manifest: of_run, credentials, store: store.clone(), guide: guide.clone(), ended };
    let (checkpoint_writer, writer_handle) =
        CheckpointWriter::start(store, (file.clone(), record.marks.clone()), observer.clone(), patience)?;
    let clerk = Clerk { identity: identity.clone(), access: access.clone() };
    let me = LocalIdentity { contact: network.contact(), notary: Box::new(clerk) };
    let (progress, now) = (shared_steps.progress(), Time::ZERO);
    let founds = matches!(start, Start::Found);
    let finished = contacts.left.clone().filter(|left| founds && left.stayed.is_empty());
    let (mut awaited, others) = (None, contacts.members().to_vec());
    let membership = match start {
        Start::Found => Membership::found(membership, run, me, progress, now),
        Start::Join { contacts, awaited: whom } => {
            awaited = Some(whom);
            Membership::join(membership, run, me, contacts, now)
        }
        Start::Fork { parent, .. } => Membership::fork(membership, run, me, parent, others, progress, now),
        Start::Recover { kept, can_begin, .. } => {
            let SavedMembership { record, mut contacts, .. } = *kept;
            guide.note(&record);
            let known: BTreeSet<_> = contacts.iter().map(|contact| contact.peer).collect();
            contacts.extend(others.into_iter().filter(|contact| !known.contains(&contact.peer)));
            let mut member = Membership::recover(membership, run, me, (record, noted), contacts, progress, now);
            if can_begin {
                member.allow_to_begin();
            }
            member
        }
    };
    // Also when it comes back to that: its history may be lost, or of before.
    if let Some(view) = membership.view().filter(|view| view.parent.is_none() && !view.forked) {
        if !guide.begin(&settings.data_dir, view) {
            observer.report(&Report::Warning { message: without_key(&settings.data_dir) });
        }
        let guide = guide.clone();
        blocking(move || guide.store()).await?;
    }
    let join_wait = JoinWait::new(ticket.clone(), awaited);
    let books = Books { contacts, file, record, guide, looking_back: None, finished, is_unwritten: false };
    let parts = EventLoopParts {
        identity,
        network,
        incoming,
        member: Member::new(membership, outside),
        shared_steps,
        snapshots,
        chunk_providers,
        leaves,
        books,
        writer_handle,
        join_wait,
        quest,
        twins,
        rest,
        observer,
    };
    Ok(Opened { parts, config, checkpoint_writer, ticket })
}

/// What all states of a run have in common; of so many samples, if that matters.
pub(crate) fn shape(manifest: &Manifest, samples: Option<u32>) -> Shape {
    Shape {
        parameters: manifest.changing(),
        frozen: manifest.frozen(),
        moments: manifest.moments(),
        scalars: manifest.scalars(),
        seed: manifest.seed,
        batch_size: manifest.batch_size,
        micro_batch: manifest.micro_batch,
        shuffle: manifest.shuffle,
        samples,
    }
}

/// What is told of a branch that is begun where the founder's key is not.
fn without_key(data_dir: &Path) -> String {
    format!(
        "the key with which the run was founded is not in {}, so keepers, and machines that know nothing else of the run, don't take what is begun \
         here for the run's; copy it there and start again before others join",
        FounderKey::file(data_dir).display()
    )
}

/// Starts the network. A member that comes back takes the ports that it had, if it may take any: the others look for it
/// there.
async fn listen_where_it_was(
    identity: &Identity,
    access: &Access,
    settings: &Settings,
    providers: Providers,
    listened: &[String],
) -> Result<(Network, IncomingStreams), NodeError> {
    let anew = Places::new(&settings.listen);
    if !listened.is_empty() {
        let before = anew.with_ports_of(listened).unless_taken(&anew);
        match providers::start(identity, access.clone(), settings, (providers.clone(), &before)).await {
            // Taken between the look and the try.
            Err(error @ NodeError::Listen { .. }) if before != anew => {
                tracing::info!(%error, "listening elsewhere than before");
            }
            outcome => return outcome,
        }
    }
    providers::start(identity, access.clone(), settings, (providers, &anew)).await
}

/// Turns an end that is no success into its error.
pub(crate) fn failure(end: End) -> NodeError {
    let name = |peer| to_libp2p(peer).to_string();
    match end {
        End::Failed(error) => error,
        End::Event(Event::Refused { from, refusal }) => NodeError::Refused { peer: name(from), refusal },
        End::Event(Event::Diverged { peer, step, ours, theirs }) => {
            NodeError::Diverged { peer: name(peer), step, ours: ours.to_string(), theirs: theirs.to_string() }
        }
        End::Event(Event::NoState) => NodeError::NoState,
        End::LeftAlone | End::ComesBack | End::NoPlace | End::Event(_) => NodeError::Stopped("event loop"),
    }
}

pub(crate) fn layout_config(spec: LayoutSpec) -> LayoutConfig {
    let elements = |bytes: u32| bytes as usize / size_of::<f32>();
    LayoutConfig { bucket_elements: elements(spec.bucket_bytes), segment_elements: elements(spec.segment_bytes) }
}

/// Runs what blocks, outside the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NodeError> + Send + 'static,
) -> Result<T, NodeError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        // What is prepared is a program's own, and so may be the panic.
        Ok(payload) => NodeError::unprepared(&*payload),
        Err(_) => NodeError::Stopped("preparation"),
    })?
}
