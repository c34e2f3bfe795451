//! The trainer thread: owns the device and runs the steps.
//!
//! It is a plain thread, because a step blocks: on the device, then on the ring. Between steps it looks for commands;
//! while its steps are held it waits for one. With one member it never leaves this thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use starling_collective::kernel;
use starling_topology::{Digest, Gate, Rank, WorldSize};
use starling_train::{ReplicatedState, Trainer};
use tokio::sync::{mpsc, oneshot};

use crate::error::NodeError;
use crate::report::{Observer, Report};
use crate::ring::Operation;
use crate::saver::Saver;

/// Commands that wait for the end of a step.
const MAX_COMMANDS: usize = 16;
/// How often progress is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// What the event loop asks of the trainer.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run steps as this rank; with more than one member, reduce through this ring.
    Step { world: WorldSize, rank: Rank, ring: Option<mpsc::Sender<Operation>> },
    /// Hold the steps at a boundary.
    Hold { after: Option<u64> },
    /// Replace the state.
    Load { bytes: Vec<u8> },
    /// Hand out the state, with [`TrainerEvent::Snapshot`]. Answered between steps.
    Snapshot,
    /// Save, evaluate if asked to, and end.
    Stop { evaluate: bool },
}

/// What the trainer tells the event loop.
#[derive(Debug)]
pub(crate) enum TrainerEvent {
    /// The steps are held after this one.
    Held { step: u64, digest: Digest },
    /// The last step is committed.
    Finished { step: u64, digest: Digest },
    /// The state's canonical bytes.
    Snapshot(Arc<Vec<u8>>),
    /// Training can't go on.
    Failed(NodeError),
}

/// How it went.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) step: u64,
    pub(crate) digest: Option<Digest>,
    pub(crate) loss: Option<f32>,
    pub(crate) evaluation: Option<(f64, f64)>,
    pub(crate) samples: u64,
    pub(crate) stepping: Duration,
    pub(crate) waiting: Duration,
    /// What went wrong after the last step: in saving, evaluating or exporting.
    pub(crate) trouble: Option<NodeError>,
}

/// What the trainer is to do besides stepping.
#[derive(Debug)]
pub(crate) struct Duties {
    pub(crate) checkpoint_every: u64,
    pub(crate) evaluate_every: u64,
    pub(crate) export: Option<PathBuf>,
}

/// The event loop's end of the trainer thread.
pub(crate) struct TrainerHandle {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) events: mpsc::Receiver<TrainerEvent>,
    /// What the trainer is at, for whoever suspects that it hangs.
    pub(crate) busy: Busy,
    thread: JoinHandle<Totals>,
}

impl TrainerHandle {
    /// Waits for the end of the thread. Blocks; [`Command::Stop`] must have been sent.
    pub(crate) fn join(self) -> Result<Totals, NodeError> {
        drop(self.commands);
        self.thread.join().map_err(|_| NodeError::Stopped("trainer thread"))
    }
}

/// Starts the thread. With `held`, it reports at once that its steps are held; a joiner first loads a state.
pub(crate) fn start(
    trainer: Trainer,
    held: bool,
    duties: Duties,
    saver: Saver,
    observer: Arc<dyn Observer>,
) -> Result<TrainerHandle, NodeError> {
    let (commands, command_queue) = mpsc::channel(MAX_COMMANDS);
    let (event_queue, events) = mpsc::channel(MAX_COMMANDS);
    let busy = Busy::new();
    let worker = Worker {
        busy: busy.clone(),
        trainer,
        commands: command_queue,
        events: event_queue,
        duties,
        observer,
        gate: Gate::open(),
        place: None,
        gradient: Vec::new(),
        work: Vec::new(),
        totals: Totals::default(),
        pace: Pace::new(),
    };
    let thread = std::thread::Builder::new()
        .name("trainer".into())
        .spawn(move || worker.run(held, saver))
        .map_err(NodeError::Thread)?;
    Ok(TrainerHandle { commands, events, busy, thread })
}

/// Where this member stands in the current view.
struct Place {
    world: WorldSize,
    rank: Rank,
    ring: Option<mpsc::Sender<Operation>>,
}

/// How long the trainer has been at something that only this machine can end: computing, not waiting for others.
#[derive(Debug, Clone)]
pub(crate) struct Busy {
    began: Instant,
    /// Nanoseconds from `began` to the start of the work, plus one; 0 while there is none.
    since: Arc<AtomicU64>,
}

impl Busy {
    fn new() -> Self {
        Self { began: Instant::now(), since: Arc::default() }
    }

    fn start(&self) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX - 1);
        self.since.store(nanos + 1, Ordering::Relaxed);
    }

    fn stop(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// How long; zero while there is no work.
    pub(crate) fn duration(&self) -> Duration {
        match self.since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.began.elapsed().saturating_sub(Duration::from_nanos(since - 1)),
        }
    }
}

struct Worker {
    busy: Busy,
    trainer: Trainer,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<TrainerEvent>,
    duties: Duties,
    observer: Arc<dyn Observer>,
    gate: Gate,
    /// `None` while the steps are held.
    place: Option<Place>,
    /// The local gradient, kept until its step is committed.
    gradient: Vec<f32>,
    /// What the ring reduces.
    work: Vec<f32>,
    totals: Totals,
    pace: Pace,
}

enum Next {
    GoOn,
    End { evaluate: bool },
}

impl Worker {
    fn run(mut self, held: bool, saver: Saver) -> Totals {
        if held {
            self.tell_held();
        }
        let evaluate = match self.work(&saver) {
            Ok(evaluate) => evaluate,
            Err(error) => {
                let _ = self.events.blocking_send(TrainerEvent::Failed(error));
                self.wait_for_stop();
                false
            }
        };
        self.conclude(evaluate, saver)
    }

    /// Steps and obeys until told to stop; says whether to evaluate then.
    fn work(&mut self, saver: &Saver) -> Result<bool, NodeError> {
        loop {
            let command = if self.place.is_some() {
                self.commands.try_recv().ok()
            } else {
                // A closed queue means that the event loop is gone.
                Some(self.commands.blocking_recv().unwrap_or(Command::Stop { evaluate: false }))
            };
            self.busy.start();
            match command {
                Some(command) => match self.obey(command)? {
                    Next::GoOn => {}
                    Next::End { evaluate } => return Ok(evaluate),
                },
                None => self.step(saver)?,
            }
            self.busy.stop();
        }
    }

    fn wait_for_stop(&mut self) {
        while let Some(command) = self.commands.blocking_recv() {
            if matches!(command, Command::Stop { .. }) {
                return;
            }
        }
    }

    fn obey(&mut self, command: Command) -> Result<Next, NodeError> {
        match command {
            Command::Step { world, rank, ring } => {
                self.gate = Gate::open();
                self.place = Some(Place { world, rank, ring });
                self.pace = Pace::new();
                if self.trainer.step() >= self.trainer.steps() {
                    self.tell_finished();
                }
            }
            Command::Hold { after } => {
                self.gate = Gate::closed_after(after.unwrap_or_else(|| self.trainer.step()));
                if !self.gate.admits(self.trainer.step() + 1) {
                    self.tell_held();
                }
            }
            Command::Load { bytes } => {
                let state = ReplicatedState::decode(&bytes).map_err(starling_train::Error::from)?;
                self.trainer.load(state)?;
                self.tell_held();
            }
            Command::Snapshot => {
                let bytes = Arc::new(self.trainer.state().encode());
                let _ = self.events.blocking_send(TrainerEvent::Snapshot(bytes));
            }
            Command::Stop { evaluate } => return Ok(Next::End { evaluate }),
        }
        Ok(Next::GoOn)
    }

    fn step(&mut self, saver: &Saver) -> Result<(), NodeError> {
        let Some(place) = &self.place else { return Ok(()) };
        let step = self.trainer.step() + 1;
        let began = Instant::now();
        let weight = self.trainer.compute(place.world, place.rank, &mut self.gradient)?;
        let report = match &place.ring {
            None => self.trainer.apply(&self.gradient)?,
            Some(ring) => {
                let mut buffer = std::mem::take(&mut self.work);
                buffer.resize(self.gradient.len(), 0.0);
                kernel::scale(&mut buffer, &self.gradient, weight as f32);
                let (reply, reduced) = oneshot::channel();
                let divisor = self.trainer.weights(place.world) as f32;
                let computed = Instant::now();
                self.busy.stop();
                let sent = ring.blocking_send(Operation { step, buffer, divisor, reply });
                let reduced = sent.ok().and_then(|()| reduced.blocking_recv().ok());
                self.busy.start();
                let Some(mean) = reduced else {
                    // Interrupted: the view changes, or the run ends. A command will say which.
                    self.place = None;
                    return Ok(());
                };
                self.totals.waiting += computed.elapsed();
                self.pace.waiting += computed.elapsed();
                let report = self.trainer.apply(&mean)?;
                self.work = mean;
                report
            }
        };
        self.totals.stepping += began.elapsed();
        self.totals.samples += report.samples;
        self.totals.loss = Some(report.loss);
        self.pace.samples += report.samples;
        self.commit(&report, saver)
    }

    fn commit(&mut self, report: &starling_train::StepReport, saver: &Saver) -> Result<(), NodeError> {
        let due = |every: u64| every > 0 && report.step.is_multiple_of(every);
        let last = report.step >= self.trainer.steps();
        if last || self.pace.due() {
            self.observer.report(&self.pace.progress(report, self.trainer.steps()));
        }
        if due(self.duties.checkpoint_every) && !last {
            saver.offer(|| self.trainer.state());
        }
        if due(self.duties.evaluate_every) && !last {
            self.evaluate()?;
        }
        if last {
            self.tell_finished();
        } else if !self.gate.admits(report.step + 1) {
            self.tell_held();
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<(), NodeError> {
        let evaluation = self.trainer.evaluate()?;
        self.totals.evaluation = Some((evaluation.loss, evaluation.accuracy));
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        self.observer.report(&Report::Evaluated { step: self.trainer.step(), loss, accuracy });
        Ok(())
    }

    fn tell_held(&mut self) {
        self.place = None;
        let (step, digest) = (self.trainer.step(), self.trainer.digest());
        // The event loop outlives this thread except when it panics; then nobody needs the news.
        let _ = self.events.blocking_send(TrainerEvent::Held { step, digest });
    }

    fn tell_finished(&mut self) {
        self.place = None;
        let (step, digest) = (self.trainer.step(), self.trainer.digest());
        let _ = self.events.blocking_send(TrainerEvent::Finished { step, digest });
    }

    /// Saves first: whatever goes wrong after it, nothing is lost.
    fn conclude(mut self, evaluate: bool, saver: Saver) -> Totals {
        self.totals.step = self.trainer.step();
        self.totals.digest = Some(self.trainer.digest());
        // Before the first step there is nothing to lose, and a file would only be in the way of a fresh start.
        let last = (self.trainer.step() > 0).then(|| self.trainer.state());
        let mut outcomes = vec![saver.finish(last)];
        if evaluate {
            // Each is tried, also when the one before it failed.
            outcomes.push(self.evaluate());
            outcomes.push(self.export());
        }
        self.totals.trouble = outcomes.into_iter().find_map(Result::err);
        self.totals
    }

    fn export(&self) -> Result<(), NodeError> {
        let Some(path) = &self.duties.export else { return Ok(()) };
        let (schema, manifest) = (self.trainer.schema(), self.trainer.manifest());
        Ok(starling_train::write_safetensors(path, &self.trainer.state(), schema, manifest)?)
    }
}

/// Turns committed steps into figures for people.
struct Pace {
    since: Instant,
    samples: u64,
    waiting: Duration,
}

impl Pace {
    fn new() -> Self {
        Self { since: Instant::now(), samples: 0, waiting: Duration::ZERO }
    }

    fn due(&self) -> bool {
        self.since.elapsed() >= REPORT_INTERVAL
    }

    fn progress(&mut self, report: &starling_train::StepReport, steps: u64) -> Report {
        let seconds = self.since.elapsed().as_secs_f64().max(f64::EPSILON);
        let progress = Report::Progress {
            step: report.step,
            steps,
            epoch: report.epoch,
            loss: report.loss,
            samples_per_s: self.samples as f64 / seconds,
            waiting_share: (self.waiting.as_secs_f64() / seconds).min(1.0),
        };
        *self = Self::new();
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_work_counts_as_busy() {
        let busy = Busy::new();
        assert_eq!(busy.duration(), Duration::ZERO);
        busy.start();
        let (first, second) = (busy.duration(), busy.duration());
        assert!(first <= second);
        // As the event loop sees it after a long while.
        busy.since.store(1, Ordering::Relaxed);
        assert!(busy.duration() >= second);
        busy.stop();
        assert_eq!(busy.duration(), Duration::ZERO);
    }
}
