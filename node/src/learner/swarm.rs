//! The mean of buffers of one's own, over a swarm that heals: for programs that train in their own way.
//!
//! ```no_run
//! use starling_node::{BufferSpec, Settings, Swarm};
//!
//! # fn main() -> Result<(), starling_node::SwarmError> {
//! // One process founds the run and shows its ticket; all others join by it.
//! let mut swarm = Swarm::found(&Settings::new("first".into()), &BufferSpec::new(1000))?;
//! println!("{}", swarm.ticket());
//! let mut gradient = vec![1.0; 1000];
//! let mean = swarm.all_reduce(&mut gradient)?; // the same bits on all members
//! println!("step {}: the mean of {} buffers", mean.step, mean.contributors);
//! swarm.leave()
//! # }
//! ```
//!
//! A step is what it is in a run that trains: committed by all members or by none, reduced again when one of them dies,
//! and while a member's program computes, its swarm lives on in threads of its own. What differs is who takes the step:
//! the thread that calls [`Swarm::all_reduce`], or one of the [other operations](Swarm::broadcast), and nobody between its calls.

mod error;
mod logged;
mod operations;
mod reduced;
#[cfg(test)]
mod tests;
mod threads;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use starling_collective::codec::kernel;
use starling_collective::{Codec, ValueLimit};
use starling_engine::return_engine::{WaitKind, WaitStatus};
use starling_engine::{ActiveView, DIGEST_EVERY, LearnerPosition};
use starling_run::{
    BufferLearner, BufferStepReport, CallDecision, CallHeader, Manifest, ResultRecord, RunSpec, StateReplica,
};
use starling_topology::plan::PlanPolicy;
use starling_topology::{Event, Lineage};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Span;

pub use error::SwarmError;
use logged::Logged;
pub use operations::{BroadcastResult, ScatterResult};
pub use reduced::{ReduceReport, ReduceResult};
use threads::{StopAtEnd, hand_out_snapshots};

use crate::access::Credentials;
use crate::credentials::identity::Identity;
use crate::credentials::ticket::Ticket;
use crate::error::NodeError;
use crate::learner::contribution::{Brought, Contribution, clip};
use crate::learner::trainer::{LearnerEvents, Turn, Turns};
use crate::member::event_loop::{End, EventLoop};
use crate::member::shared_steps::Task;
use crate::member::twin::TwinWatch;
use crate::observe::report::{LinkSummary, Observer};
use crate::observe::reporter::Reporter;
use crate::settings::{JoinOptions, Settings};
use crate::start::client::ask::{Member, ask_any};
use crate::start::host::runtime;
use crate::start::node::{self, Opened};
use crate::start::prepare::{self, Ready, Start};
use crate::start::way_back::Memory;
use crate::start::welcome::Terms;
use crate::store::checkpoint_writer::CheckpointWriter;
use crate::store::data_dir_lock::DataDirLock;
use crate::transfer::SharedFiles;

/// What the members of a new run reduce, and how.
#[derive(Debug, Clone)]
pub struct BufferSpec {
    /// How many numbers a buffer has.
    pub elements: usize,
    /// Members needed to take steps.
    pub min_peers: usize,
    /// Whether anyone who knows an address may join, without a secret.
    pub public: bool,
    /// How numbers are written on the wire. What a lossy codec drops comes back in this member's next buffer.
    pub codec: Codec,
    /// How reductions are scheduled.
    pub plan: PlanPolicy,
    /// The longest that the run may stand still because of one member that is lost. How long a member computes between two
    /// steps is not limited.
    pub max_stall: Duration,
}

impl BufferSpec {
    /// Buffers of `elements` numbers, reduced as a run of the command line reduces its gradients.
    pub fn new(elements: usize) -> Self {
        let RunSpec { codec, plan, max_stall_ms, .. } = RunSpec::default();
        Self { elements, min_peers: 1, public: false, codec, plan, max_stall: Duration::from_millis(max_stall_ms) }
    }
}

/// A member of a run whose members bring buffers of their own.
///
/// Its methods block; call them from a thread that may. One that is dropped without [`Self::leave`] is to the others as
/// one that was killed.
pub struct Swarm {
    ticket: Ticket,
    turns: Turns,
    buffer_learner: Arc<Mutex<BufferLearner>>,
    manifest: Manifest,
    elements: usize,
    /// The step that `buffer_learner` stands after.
    applied: Arc<AtomicU64>,
    stop: CancellationToken,
    /// The event loop's task, until its end is known.
    life: Option<JoinHandle<End>>,
    checkpoint_writer: Option<CheckpointWriter>,
    runtime: Option<Runtime>,
    logged: Arc<Logged>,
    _lock: DataDirLock,
}

impl Swarm {
    /// Founds a run, as its first member. Others join it by [`Self::ticket`].
    ///
    /// # Errors
    /// [`SwarmError`], if the buffers can't be or the network can't be set up.
    pub fn found(settings: &Settings, buffers: &BufferSpec) -> Result<Self, SwarmError> {
        Self::found_logged(settings, buffers, Logged::default())
    }

    /// The same; `observer` is told what happens, from a thread of its own: views, links, who comes and goes.
    ///
    /// # Errors
    /// As [`Self::found`], or if no thread can be started.
    pub fn found_watched(
        settings: &Settings,
        buffers: &BufferSpec,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, SwarmError> {
        Self::found_logged(settings, buffers, Logged::telling(Reporter::start(observer)?))
    }

    fn found_logged(settings: &Settings, buffers: &BufferSpec, logged: Logged) -> Result<Self, SwarmError> {
        let (lock, identity) = enter(settings)?;
        let spec = RunSpec {
            seed: rand::random(),
            codec: buffers.codec,
            plan: buffers.plan,
            max_stall_ms: u64::try_from(buffers.max_stall.as_millis()).unwrap_or(u64::MAX),
            ..RunSpec::default()
        };
        let manifest = Manifest::raw(buffers.elements as u64, &spec).map_err(NodeError::from)?;
        let credentials = if buffers.public {
            Credentials::default()
        } else {
            crate::credentials::secret::own(&settings.data_dir, &manifest)?
        };
        let ready = Part { identity, manifest, credentials, min_peers: buffers.min_peers, start: Start::Found };
        Self::start(settings, lock, runtime(&settings.data_dir)?, ready, logged)
    }

    /// Joins a run by the ticket of one of its members. Returns once this peer is a member and holds the mean of the newest
    /// step: see [`Self::newest`].
    ///
    /// # Errors
    /// [`SwarmError`], if no member can be reached, or the run trains a model.
    pub fn join(settings: &Settings, ticket: &Ticket) -> Result<Self, SwarmError> {
        Self::join_logged(settings, ticket, Logged::default())
    }

    /// The same, watched as in [`Self::found_watched`].
    ///
    /// # Errors
    /// As [`Self::join`], or if no thread can be started.
    pub fn join_watched(settings: &Settings, ticket: &Ticket, observer: Arc<dyn Observer>) -> Result<Self, SwarmError> {
        Self::join_logged(settings, ticket, Logged::telling(Reporter::start(observer)?))
    }

    fn join_logged(settings: &Settings, ticket: &Ticket, logged: Logged) -> Result<Self, SwarmError> {
        let (lock, identity) = enter(settings)?;
        let (runtime, span) = runtime(&settings.data_dir)?;
        let joining = JoinOptions::new(ticket.clone());
        let members = Member::all_of(&joining)?;
        let (member, welcome) =
            span.in_scope(|| runtime.block_on(ask_any(&identity, &members, settings.mdns, &logged)))?;
        let Terms { manifest, min_members, .. } = welcome.terms;
        let others = welcome.members.into_iter().filter(|contact| contact.peer != prepare::own_name(&identity));
        let contacts: Vec<_> = member.contact().into_iter().chain(others).collect();
        let peers = contacts.iter().map(|contact| contact.peer).collect();
        let start = Start::Join { contacts, awaited: WaitStatus { peers, why: WaitKind::Live } };
        let ready = Part { identity, manifest, credentials: member.credentials, min_peers: min_members, start };
        let mut swarm = Self::start(settings, lock, (runtime, span), ready, logged)?;
        loop {
            match swarm.next_task() {
                // It would be this member's turn: all that comes before is done.
                Task::Compute => return Ok(swarm),
                task => swarm.tend(task)?,
            }
        }
    }

    fn start(
        settings: &Settings,
        lock: DataDirLock,
        (runtime, span): (Runtime, Span),
        part: Part,
        logged: Logged,
    ) -> Result<Self, SwarmError> {
        let _entered = span.enter();
        let Part { identity, manifest, credentials, min_peers, start } = part;
        let buffer_learner = BufferLearner::new(&manifest).map_err(NodeError::from)?;
        let (run, ours) = (manifest.run_id(), manifest.clone());
        span.record("run", run.to_string());
        let logged = Arc::new(logged);
        let ready = Ready {
            twins: TwinWatch::of_new(Duration::from_millis(manifest.max_stall_ms)),
            probe: None,
            store: prepare::open_store(settings, run)?,
            membership: prepare::membership(settings, &manifest, min_peers),
            memory: Memory::none(&settings.data_dir, run, prepare::own_name(&identity)),
            shared: SharedFiles::default(),
            identity,
            manifest,
            credentials,
            start,
            rest: None,
        };
        let opened =
            runtime.block_on(node::open(settings, ready, (0, Lineage::NONE), Arc::<Logged>::clone(&logged)))?;
        let Opened { parts, config, checkpoint_writer, ticket } = opened;
        let (events, feed) = LearnerEvents::new();
        let (shared_steps, snapshots) = (parts.shared_steps.clone(), parts.snapshots.clone());
        let (buffer_learner, applied) = (Arc::new(Mutex::new(buffer_learner)), Arc::new(AtomicU64::new(0)));
        hand_out_snapshots(&shared_steps, &snapshots, &buffer_learner, &applied)?;
        let me = parts.network.contact().peer;
        let stop = CancellationToken::new();
        let (stopped, ends) = (stop.clone(), StopAtEnd(shared_steps.clone()));
        let life = runtime.spawn(async move {
            let _ends = ends;
            EventLoop::new(parts, feed, config).run(stopped).await.end
        });
        Ok(Self {
            ticket,
            turns: Turns::new(me, &ours, 0, (shared_steps, snapshots), events),
            buffer_learner,
            elements: ours.parameters(),
            applied,
            manifest: ours,
            stop,
            life: Some(life),
            checkpoint_writer: Some(checkpoint_writer),
            runtime: Some(runtime),
            logged,
            _lock: lock,
        })
    }

    /// With which others can join.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// What the run's members have agreed on; a buffer has [`Manifest::parameters`] numbers.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How buffers travel from and to this member in the newest view.
    pub fn links(&self) -> LinkSummary {
        self.logged.links()
    }

    /// For how long they have travelled so; `None` before the first view has its links.
    pub fn linked_for(&self) -> Option<Duration> {
        self.logged.linked_for()
    }

    /// The last step that this member has taken; 0 before the first one.
    pub fn step(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// What the last step that left all with something left them with, `[elements]`: the mean, or what was gathered or broadcast;
    /// zeros before the first one. What a joiner goes on from.
    pub fn newest(&self) -> Vec<f32> {
        locked(&self.buffer_learner).newest()
    }

    /// Replaces `values` by the mean of all members' values, the same bits everywhere. Waits until all members have called
    /// it, or are lost; and until there are as many as the run needs.
    ///
    /// # Errors
    /// [`SwarmError`]. After [`SwarmError::Behind`], [`SwarmError::TooLarge`], [`SwarmError::OtherLength`],
    /// [`SwarmError::OtherTag`] and what is said of other operations, `values` are as before, and the swarm can be used on; after all others it is at its end.
    pub fn all_reduce(&mut self, values: &mut [f32]) -> Result<ReduceReport, SwarmError> {
        self.all_reduce_tagged(0, values)
    }

    /// As [`Self::all_reduce`], and says what `values` mean: which tensor they are, say, or of which round. Buffers with
    /// different tags are not averaged, so that members which are out of step find out at once.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and [`SwarmError::OtherTag`] on each member whose tag is not that of all.
    pub fn all_reduce_tagged(&mut self, tag: u64, values: &mut [f32]) -> Result<ReduceReport, SwarmError> {
        self.check_length(values.len())?;
        let tag = CallHeader::new(tag);
        let (record, is_finite) = self.reduce(|swarm, active| swarm.contribute(active, values, tag))?;
        self.conclude(&record, is_finite, Some(values), tag)
    }

    /// As [`Self::all_reduce`], without its two copies: `values` stay as they are and are read while they travel, and the sums
    /// are lent where the swarm keeps them. Worth it for buffers of megabytes.
    ///
    /// `values` are filled anew through [`Arc::make_mut`], which does not copy them: nobody else holds them after this, but for
    /// an instant after members were lost.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn all_reduce_shared(&mut self, values: &Arc<Vec<f32>>) -> Result<ReduceResult, SwarmError> {
        self.all_reduce_shared_tagged(0, values)
    }

    /// As [`Self::all_reduce_shared`], with a tag as in [`Self::all_reduce_tagged`].
    ///
    /// # Errors
    /// As [`Self::all_reduce_tagged`].
    pub fn all_reduce_shared_tagged(&mut self, tag: u64, values: &Arc<Vec<f32>>) -> Result<ReduceResult, SwarmError> {
        let tag = CallHeader::new(tag);
        self.check_length(values.len())?;
        error::check_numbers(values, self.manifest.bound)?;
        let (record, is_finite) = self.reduce(|swarm, active| {
            let slots = BufferLearner::slots(&active.members, swarm.turns.me, tag);
            swarm.turns.contribute(active, Contribution::of_buffer(values.clone(), slots, swarm.turns.residual()));
            Ok(())
        })?;
        let mean = self.conclude(&record, is_finite, None, tag)?;
        Ok(ReduceResult { record, elements: self.elements, mean })
    }

    fn check_length(&self, ours: usize) -> Result<(), SwarmError> {
        if ours == self.elements { Ok(()) } else { Err(SwarmError::OtherLength { ours, theirs: self.elements as u64 }) }
    }

    /// Takes the next step, up to its result, which is to be [concluded](Self::conclude), and whether that is known to be finite.
    fn reduce(
        &mut self,
        contribute: impl Fn(&mut Self, &ActiveView) -> Result<(), SwarmError>,
    ) -> Result<(Arc<ResultRecord>, bool), SwarmError> {
        let mut is_behind = false;
        loop {
            match self.next_task() {
                Task::Compute if is_behind => return Err(SwarmError::Behind { step: self.step() }),
                Task::Compute => self.turns.at.prepared = true,
                Task::Contribute(active) => contribute(self, &active)?,
                Task::Apply { result, reduced_in } if !is_behind => return Ok((result, reduced_in.is_some())),
                task => {
                    is_behind |= matches!(task, Task::Load(_));
                    self.tend(task)?;
                }
            }
        }
    }

    /// Leaves in order: the others go on at once.
    ///
    /// # Errors
    /// [`SwarmError`], if the swarm had come to another end, or nobody answered.
    pub fn leave(mut self) -> Result<(), SwarmError> {
        self.stop.cancel();
        match self.end() {
            Some(End::Event(Event::Left { .. } | Event::Complete { .. })) => Ok(()),
            Some(End::LeftAlone) => Err(SwarmError::LeftAlone { step: self.step() }),
            Some(end) => Err(node::failure(end).into()),
            None => Err(SwarmError::Over),
        }
    }

    fn next_task(&mut self) -> Task {
        let Turns { shared_steps, at, .. } = &mut self.turns;
        shared_steps.next_task(at)
    }

    /// Does what is to be done besides contributing and taking its result.
    fn tend(&mut self, task: Task) -> Result<(), SwarmError> {
        let turn = self.turns.take(task, &mut *locked(&self.buffer_learner))?;
        match turn {
            Turn::Loaded => {
                let step = locked(&self.buffer_learner).step();
                self.stand_after(step);
            }
            Turn::Own(Task::Stop { .. }) => {
                return Err(self.end().map_or(SwarmError::Over, |end| node::failure(end).into()));
            }
            Turn::Own(Task::Apply { result, .. }) => drop(self.apply(&result, false, None)?),
            // There is nothing to load.
            Turn::Own(_) | Turn::Done => {}
        }
        Ok(())
    }

    fn contribute(&mut self, active: &ActiveView, values: &[f32], tag: CallHeader) -> Result<(), SwarmError> {
        let slots = BufferLearner::slots(&active.members, self.turns.me, tag);
        let mut buffer = self.turns.shared_steps.spare();
        buffer.resize(values.len() + slots.len(), 0.0);
        let (copy, behind) = buffer.split_at_mut(values.len());
        let residual = self.turns.residual();
        let made_up = residual.as_ref().map(|residual| residual.values());
        if kernel::copy(copy, values, made_up, ValueLimit::new(self.manifest.bound.into())).is_err() {
            self.turns.shared_steps.recycle(buffer);
            // The next call brings another buffer to this step.
            self.turns.at = LearnerPosition::after(self.turns.at.step);
            return error::check_numbers(values, self.manifest.bound);
        }
        if residual.is_some() {
            clip(copy, self.manifest.most());
        }
        behind.copy_from_slice(&slots);
        self.turns.submit(active, Brought::Whole(buffer));
        Ok(())
    }

    fn apply(
        &mut self,
        record: &Arc<ResultRecord>,
        is_finite: bool,
        values: Option<(&mut [f32], CallHeader)>,
    ) -> Result<BufferStepReport, SwarmError> {
        let applied = locked(&self.buffer_learner).apply(record, is_finite, values);
        if applied.is_err() {
            self.turns.at = LearnerPosition::after(self.step()); // It has not come any further.
        }
        let (averaged, older) = applied.map_err(NodeError::from)?;
        if let Some(older) = Arc::into_inner(older) {
            self.turns.shared_steps.recycle(older.mean);
        }
        // What else there is drops nothing that is to be made up for.
        if matches!(averaged.agreed, CallDecision::AllReduce | CallDecision::Nothing) {
            self.turns.settle(averaged.step, averaged.agreed == CallDecision::AllReduce);
        }
        self.stand_after(averaged.step);
        self.turns.reach(record);
        if averaged.step.is_multiple_of(DIGEST_EVERY) {
            let digest = locked(&self.buffer_learner).digest();
            self.turns.shared_steps.act(|steps| steps.compare(averaged.step, digest));
        }
        Ok(averaged)
    }

    fn stand_after(&mut self, step: u64) {
        self.applied.store(step, Ordering::Release);
        self.turns.shared_steps.look_again();
    }

    /// Waits for the end of the event loop; `None` if it was asked for before.
    fn end(&mut self) -> Option<End> {
        let life = self.life.take()?;
        let ended = self.runtime.as_ref().map(|runtime| runtime.block_on(life));
        if let Some(checkpoint_writer) = self.checkpoint_writer.take()
            && let Err(error) = checkpoint_writer.finish(None)
        {
            tracing::warn!(%error, "what was to be written was not");
        }
        Some(ended.and_then(Result::ok).unwrap_or(End::Failed(NodeError::Stopped("event loop"))))
    }
}

impl fmt::Debug for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swarm").field("me", &self.turns.me).field("step", &self.step()).finish_non_exhaustive()
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        self.turns.shared_steps.stop(false);
        if let Some(runtime) = self.runtime.take() {
            // To wait here would panic where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// What founder and joiner start with.
struct Part {
    identity: Identity,
    manifest: Manifest,
    credentials: Credentials,
    min_peers: usize,
    start: Start,
}

fn enter(settings: &Settings) -> Result<(DataDirLock, Identity), NodeError> {
    Ok((DataDirLock::acquire(&settings.data_dir)?, Identity::load_or_create(&settings.data_dir)?))
}

fn locked(buffer_learner: &Mutex<BufferLearner>) -> MutexGuard<'_, BufferLearner> {
    // A lock poisoned by a panic elsewhere still guards sound data.
    buffer_learner.lock().unwrap_or_else(PoisonError::into_inner)
}
