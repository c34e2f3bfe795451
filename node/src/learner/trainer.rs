//! The trainer thread: owns the device and the replicated state.
//!
//! It is a plain thread, because a step blocks: on the device, then on the reduction. It does what the [`SharedSteps`] says comes
//! next, and is the only one that touches the state. With one member it meets nobody else.

mod audit_log;
mod census;
mod duty;
mod gathering;
mod mishaps;
mod progress_meter;
mod slot_watch;
mod speed;
mod stalls;
mod starvation;
mod turns;
mod work_clock;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use starling_engine::SaveSchedule;
use starling_run::{Gradient, Learner};
use starling_topology::{Digest, PeerId};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use census::Census;
use duty::Duty;
use gathering::Gathering;
pub(crate) use turns::{Turn, Turns};
pub(crate) use work_clock::WorkClock;
pub(crate) use worker::contribute_nothing;

use crate::error::NodeError;
use crate::member::shared_steps::SharedSteps;
use crate::member::snapshots::Snapshots;
use crate::observe::report::{Observer, Outcome, Summary};
use crate::start::host;
use crate::store::checkpoint_writer::CheckpointWriter;
use audit_log::AuditLog;
use mishaps::Mishaps;
use progress_meter::ProgressMeter;
use slot_watch::SlotWatch;
use speed::Speed;
use stalls::Stalls;
use starvation::Starvation;
use worker::Worker;

/// Events that wait for the event loop.
const MAX_EVENTS: usize = 16;

/// What the trainer tells the event loop.
#[derive(Debug)]
pub(crate) enum TrainerEvent {
    /// No share can be computed here. Whoever takes the steps brings zeros, so that nobody waits, until this member has left.
    Unable(NodeError),
    /// Training can't go on.
    Failed(NodeError),
}

/// How it went.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) step: u64,
    /// Whether there was a state of the run to save, beyond that before the first step.
    pub(crate) has_state: bool,
    pub(crate) digest: Option<Digest>,
    pub(crate) values: Option<Digest>,
    pub(crate) loss: Option<f32>,
    pub(crate) evaluation: Option<(f64, BTreeMap<String, f64>)>,
    pub(crate) samples: u64,
    /// Samples of which a leaf has brought the gradient to its carrier.
    pub(crate) brought: u64,
    pub(crate) stepping: Duration,
    pub(crate) waiting: Duration,
    pub(crate) loading: Duration,
    /// How many steps were skipped in a row, if that ended the run.
    pub(crate) skips: Option<u32>,
    /// In how many steps in a row data was missing everywhere, if that ended the run, or it ended so.
    pub(crate) starved: Option<StarvedEnd>,
    /// What went wrong after the last step: in saving, evaluating or exporting.
    pub(crate) trouble: Option<NodeError>,
}

/// An end in steps in which nobody had the data of their samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StarvedEnd {
    /// How many steps that was, in a row.
    pub(crate) in_row: u32,
    /// Whether the run has no more steps.
    pub(crate) is_last: bool,
}

impl Totals {
    /// What its user is told, but for what others did: of this peer and this run, with so many samples.
    pub(crate) fn sum_up(&self, (peer, run): (String, String), outcome: Outcome, samples: u64) -> Summary {
        let per_stepping_s = |amount: f64| match self.stepping {
            Duration::ZERO => 0.0,
            stepping => amount / stepping.as_secs_f64(),
        };
        let (held_out_loss, measures) =
            self.evaluation.clone().map_or_else(Default::default, |(loss, all)| (Some(loss), all));
        Summary {
            peer,
            run,
            outcome,
            steps: self.step,
            loss: self.loss,
            held_out_loss,
            measures,
            digest: self.digest.map(|digest| digest.to_string()).unwrap_or_default(),
            values: self.values.map(|values| values.to_string()).unwrap_or_default(),
            samples_per_s: per_stepping_s(samples as f64),
            waiting_share: per_stepping_s(self.waiting.as_secs_f64()),
            data_wait_share: per_stepping_s(self.loading.as_secs_f64()),
            stepping_s: self.stepping.as_secs_f64(),
            ..Summary::before_the_start()
        }
    }
}

/// What the trainer is to do besides stepping.
#[derive(Debug)]
pub(crate) struct LearnerOptions {
    pub(crate) checkpoint_every: u64,
    /// Whether the last state is saved here.
    pub(crate) keeps_state: bool,
    /// Which share of the time it computes.
    pub(crate) duty: f64,
    /// Memory for an update that begins before its step is committed; one that needs more begins after.
    pub(crate) update_ahead_bytes: u64,
    pub(crate) export: Option<PathBuf>,
    pub(crate) audit: Option<PathBuf>,
}

/// Whom the trainer works with.
pub(crate) struct LearnerParts {
    pub(crate) me: PeerId,
    pub(crate) shared_steps: Arc<SharedSteps>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Whether this machine's user asks it to end.
    pub(crate) stop: CancellationToken,
}

/// What the event loop hears of whoever takes the steps.
pub(crate) struct LearnerEvents {
    pub(crate) events: mpsc::Receiver<TrainerEvent>,
    /// What it is at, for whoever suspects that it hangs.
    pub(crate) work_clock: WorkClock,
}

impl LearnerEvents {
    /// And where it is told.
    pub(crate) fn new() -> (mpsc::Sender<TrainerEvent>, Self) {
        let (told, events) = mpsc::channel(MAX_EVENTS);
        (told, Self { events, work_clock: WorkClock::default() })
    }
}

/// Starts the thread. It ends when [`SharedSteps::stop`] is called.
pub(crate) fn start(
    learner: Box<dyn Learner>,
    learner_options: LearnerOptions,
    checkpoint_writer: CheckpointWriter,
    parts: LearnerParts,
) -> Result<(LearnerEvents, JoinHandle<Totals>), NodeError> {
    let (events, feed) = LearnerEvents::new();
    let LearnerParts { me, shared_steps, snapshots, observer, stop } = parts;
    let audit_log = AuditLog::open(learner_options.audit.as_deref(), learner.as_ref(), observer.clone())?;
    let (reduced, steps) = (learner.manifest().reduced(), learner.manifest().steps);
    let max_stall = Duration::from_millis(learner.manifest().max_stall_ms);
    if learner.stage_bytes().is_some_and(|bytes| bytes <= learner_options.update_ahead_bytes) {
        shared_steps.want_parts();
    }
    let worker = Worker {
        turns: Turns::new(me, learner.manifest(), learner.step(), (shared_steps, snapshots), events),
        work_clock: feed.work_clock.clone(),
        speed: Speed::new(),
        duty: Duty::new(learner_options.duty, max_stall),
        word: SlotWatch::new(),
        stalls: Stalls::watch().map_err(NodeError::Thread)?,
        learner,
        is_unable: false,
        starvation: Starvation::new(max_stall),
        observer,
        stop,
        saving: SaveSchedule::new(learner_options.checkpoint_every, steps),
        learner_options,
        gradient: Arc::new(Gradient::new(reduced)),
        gathering: Gathering::default(),
        progress: watch::Sender::new(usize::MAX),
        reduced,
        began: None,
        contributed: None,
        view: 0,
        drafted: None,
        kept: None,
        mishaps: Mishaps::default(),
        audit_log,
        totals: Totals::default(),
        pace: ProgressMeter::new(),
        census: Census::default(),
    };
    let thread = host::thread("trainer", move || worker.run(checkpoint_writer)).map_err(NodeError::Thread)?;
    Ok((feed, thread))
}
