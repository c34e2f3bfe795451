//! The trainer thread: owns the device and the replicated state.
//!
//! It is a plain thread, because a step blocks: on the device, then on the reduction. It does what the [`Exchange`] says comes
//! next, and is the only one that touches the state. With one member it meets nobody else.

mod busy;
mod census;
mod journal;
mod mishaps;
mod pace;
mod speed;
mod stalls;
mod turns;
mod word;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use starling_engine::Saving;
use starling_run::{Gradient, Learner};
use starling_topology::{Digest, PeerId};
use tokio::sync::{mpsc, watch};

pub(crate) use busy::Busy;
use census::Census;
pub(crate) use turns::{Turn, Turns};
pub(crate) use worker::contribute_nothing;

use crate::error::NodeError;
use crate::member::exchange::Exchange;
use crate::member::snapshots::Snapshots;
use crate::observe::report::Observer;
use crate::start::host;
use crate::store::saver::Saver;
use journal::Journal;
use mishaps::Mishaps;
use pace::Pace;
use speed::Speed;
use stalls::Stalls;
use word::Word;
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
    pub(crate) stepping: Duration,
    pub(crate) waiting: Duration,
    /// How many steps were skipped in a row, if that ended the run.
    pub(crate) skips: Option<u32>,
    /// What went wrong after the last step: in saving, evaluating or exporting.
    pub(crate) trouble: Option<NodeError>,
}

/// What the trainer is to do besides stepping.
#[derive(Debug)]
pub(crate) struct Duties {
    pub(crate) checkpoint_every: u64,
    pub(crate) evaluate_every: u64,
    /// Memory for an update that begins before its step is committed; one that needs more begins after.
    pub(crate) update_ahead_bytes: u64,
    pub(crate) export: Option<PathBuf>,
    pub(crate) audit: Option<PathBuf>,
}

/// Whom the trainer works with.
pub(crate) struct Company {
    pub(crate) me: PeerId,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) observer: Arc<dyn Observer>,
}

/// What the event loop hears of whoever takes the steps.
pub(crate) struct Feed {
    pub(crate) events: mpsc::Receiver<TrainerEvent>,
    /// What it is at, for whoever suspects that it hangs.
    pub(crate) busy: Busy,
}

impl Feed {
    /// And where it is told.
    pub(crate) fn new() -> (mpsc::Sender<TrainerEvent>, Self) {
        let (told, events) = mpsc::channel(MAX_EVENTS);
        (told, Self { events, busy: Busy::default() })
    }
}

/// Starts the thread. It ends when [`Exchange::stop`] is called.
pub(crate) fn start(
    learner: Box<dyn Learner>,
    duties: Duties,
    saver: Saver,
    company: Company,
) -> Result<(Feed, JoinHandle<Totals>), NodeError> {
    let (events, feed) = Feed::new();
    let Company { me, exchange, snapshots, observer } = company;
    let journal = Journal::open(duties.audit.as_deref(), learner.as_ref(), observer.clone())?;
    let (parameters, steps) = (learner.manifest().parameters(), learner.manifest().steps);
    if learner.draft_bytes().is_some_and(|bytes| bytes <= duties.update_ahead_bytes) {
        exchange.want_parts();
    }
    let worker = Worker {
        turns: Turns::new(me, learner.manifest(), learner.step(), (exchange, snapshots), events),
        busy: feed.busy.clone(),
        speed: Speed::new(),
        word: Word::new(),
        stalls: Stalls::watch().map_err(NodeError::Thread)?,
        learner,
        is_unable: false,
        observer,
        saving: Saving::new(duties.checkpoint_every, steps),
        duties,
        gradient: Arc::new(Gradient::new(parameters)),
        progress: watch::Sender::new(usize::MAX),
        parameters,
        began: None,
        contributed: None,
        view: 0,
        drafted: None,
        kept: None,
        mishaps: Mishaps::default(),
        journal,
        totals: Totals::default(),
        pace: Pace::new(),
        census: Census::default(),
    };
    let thread = host::thread("trainer", move || worker.run(saver)).map_err(NodeError::Thread)?;
    Ok((feed, thread))
}
