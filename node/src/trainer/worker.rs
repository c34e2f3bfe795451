//! What the trainer thread does.

use std::sync::Arc;
use std::time::Instant;

use starling_collective::Feedback;
use starling_engine::{ActiveView, Cursor, DIGEST_EVERY, Saving, is_last_straw};
use starling_run::audit::AuditView;
use starling_run::{Gradient, ResultRecord};
use starling_topology::Digest;
use starling_train::{StepReport, Trainer};
use tokio::sync::{mpsc, watch};

use super::{Busy, Census, Company, Duties, Journal, Mishaps, Pace, Speed, Stalls, Totals, TrainerEvent, Word};
use crate::contribution::{Brought, Contribution};
use crate::error::NodeError;
use crate::exchange::{Exchange, Next, Part, Task};
use crate::private_file::for_others;
use crate::report::Report;
use crate::saver::Saver;

/// The thread's own data.
pub(super) struct Worker {
    pub(super) at: Cursor,
    pub(super) busy: Busy,
    pub(super) speed: Speed,
    pub(super) word: Word,
    pub(super) stalls: Stalls,
    pub(super) trainer: Trainer,
    pub(super) company: Company,
    pub(super) events: mpsc::Sender<TrainerEvent>,
    pub(super) duties: Duties,
    pub(super) saving: Saving,
    /// The local gradient, kept until its step is applied.
    pub(super) gradient: Arc<Gradient>,
    /// From where on it is there.
    pub(super) progress: watch::Sender<usize>,
    /// What a lossy codec left to make up for; `None` if the run's loses nothing. It moves only when a step is applied.
    pub(super) feedback: Option<Feedback>,
    /// Memory for what the next operation drops.
    pub(super) spare: Vec<f32>,
    /// When the present step began.
    pub(super) began: Option<Instant>,
    /// When a reducer first had all of the gradient.
    pub(super) contributed: Option<Instant>,
    /// The number of the newest active view that this member contributed in.
    pub(super) view: u64,
    /// The number of the one whose operation the draft is of.
    pub(super) drafted: Option<u64>,
    /// Whether the state after the last step is on disk, once that was tried.
    pub(super) kept: Option<bool>,
    pub(super) mishaps: Mishaps,
    pub(super) journal: Journal,
    pub(super) totals: Totals,
    pub(super) pace: Pace,
    pub(super) census: Census,
}

impl Worker {
    pub(super) fn run(mut self, mut saver: Saver) -> Totals {
        let evaluate = match self.work(&mut saver) {
            Ok(evaluate) => evaluate,
            Err(error) => {
                // The event loop outlives this thread except when it panics; then nobody needs the news.
                let _ = self.events.blocking_send(TrainerEvent::Failed(error));
                self.company.exchange.wait_for_stop();
                false
            }
        };
        self.conclude(evaluate, saver)
    }

    /// Does what comes next until told to stop; says whether to evaluate then.
    fn work(&mut self, saver: &mut Saver) -> Result<bool, NodeError> {
        loop {
            let next = self.company.exchange.next(&mut self.at);
            self.busy.start();
            match next {
                Next::Draft(part) => self.draft(part),
                Next::Task(Task::Stop { evaluate }) => return Ok(evaluate),
                Next::Task(task) => self.execute(task, saver)?,
            }
            self.busy.stop();
        }
    }

    fn execute(&mut self, task: Task, saver: &mut Saver) -> Result<(), NodeError> {
        match task {
            Task::Stop { .. } => {}
            Task::Load(state) => {
                self.trainer.load(*state)?;
                // The steps that it made up for are not those of this state.
                self.feedback.iter_mut().for_each(Feedback::forget);
                (self.began, self.contributed, self.kept) = (None, None, None);
                self.journal.adopt(self.trainer.step() + 1, self.company.exchange.view());
            }
            Task::Synced => {
                let _ = self.events.blocking_send(TrainerEvent::Synced);
                // Nobody else may have it much longer.
                if self.saving.is_on() {
                    saver.save(self.trainer.state());
                }
            }
            Task::Finished => self.tell_finished(saver),
            Task::Snapshot => self.company.snapshots.take(self.trainer.state()),
            Task::Apply { result, reduced_in } => self.apply(&result, reduced_in, saver)?,
            Task::Begin { members } => {
                if self.trainer.begin(&members) {
                    self.at.prepared = false;
                }
            }
            Task::Compute => self.compute()?,
            Task::Contribute(active) => self.contribute(&active),
            Task::LoadAhead { members } => self.trainer.load_ahead(&members, self.company.me),
        }
        Ok(())
    }

    fn compute(&mut self) -> Result<(), NodeError> {
        let began = Instant::now();
        self.began.get_or_insert(began);
        match Arc::get_mut(&mut self.gradient) {
            Some(gradient) => gradient.clear(),
            // A reducer may still read that of an earlier step.
            None => self.gradient = Arc::new(Gradient::new(self.trainer.parameters())),
        }
        // Nothing is there, the slots behind the gradient neither.
        self.progress = watch::Sender::new(usize::MAX);
        let opening = self.trainer.has_blocks().then(|| self.company.exchange.contribute_early(&mut self.at)).flatten();
        if let Some(active) = &opening {
            self.contribute(active);
        }
        let (me, progress) = (self.company.me, &self.progress);
        let weight = self.trainer.compute(me, &self.gradient, |from| _ = progress.send_replace(from))?;
        self.speed.measure(weight, began, Instant::now(), self.stalls.part());
        if let Some(beyond) = self.trainer.take_beyond() {
            self.mishaps.tell_own(&beyond, self.company.observer.as_ref());
        }
        self.at.prepared = true;
        if opening.is_some() {
            self.contributed.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Hands the gradient to the reducer of the view, as far as it is computed; the rest follows by itself.
    fn contribute(&mut self, active: &ActiveView) {
        if active.number != std::mem::replace(&mut self.view, active.number) {
            self.journal.settle();
        }
        let (step, speed) = (self.at.step + 1, self.speed.told());
        let mut slots = Trainer::slots(&active.members, self.company.me, speed);
        self.word.say(step, active, speed, &mut slots);
        let residual = self.feedback.as_ref().map(|feedback| feedback.residual().clone());
        let dropped = self.feedback.as_ref().map(|feedback| feedback.dropped(std::mem::take(&mut self.spare)));
        let contribution = Contribution::new(self.gradient.clone(), slots, residual, self.progress.subscribe());
        let contribution = contribution.within(self.trainer.manifest().most());
        if self.at.prepared {
            self.contributed.get_or_insert_with(Instant::now);
        }
        self.company.exchange.submit(active, step, Brought::Coming(contribution), dropped);
    }

    fn draft(&mut self, part: Part) {
        let Part { view, members, start, numbers } = part;
        if self.drafted.replace(view) != Some(view) {
            self.trainer.forget_draft();
        }
        self.trainer.draft(&members, start, &numbers);
        self.company.exchange.recycle_part(numbers);
    }

    /// Takes the step whose result this is, which was reduced here in the active view of this number, or not here.
    fn apply(
        &mut self,
        record: &Arc<ResultRecord>,
        reduced_in: Option<u64>,
        saver: &mut Saver,
    ) -> Result<(), NodeError> {
        let contributed = self.contributed.take().map(|since| since.elapsed());
        // Alone, there is nobody to wait for.
        let waited = contributed.filter(|_| record.members.len() > 1).unwrap_or_default();
        let began = self.began.take();
        let is_drafted = self.drafted.take().is_some_and(|view| reduced_in == Some(view));
        let report = if is_drafted { self.trainer.apply_drafted(record) } else { self.trainer.apply(record) }?;
        if let Some(feedback) = &mut self.feedback {
            // A sum that nobody uses leaves nothing to make up for.
            let dropped = self.company.exchange.dropped(report.step);
            self.spare = feedback.settle(dropped.filter(|_| report.skipped.is_none()));
        }
        self.mishaps.tell(&report, &self.trainer, self.company.observer.as_ref());
        let (me, gave_up) = (self.company.me, self.gradient.has_given_up());
        if let Some(rewritten) = self.word.compare(record, &report.speeds, me, gave_up) {
            self.mishaps.tell_rewritten(report.step, rewritten, self.company.observer.as_ref());
        }
        let skips = self.trainer.ledger().skips();
        if report.skipped.is_some() && is_last_straw(skips) {
            self.totals.skips = Some(skips.in_row);
            self.company.exchange.act(|steps| steps.end_after(report.step));
        }
        self.totals.loss = Some(report.loss);
        let view = self.company.exchange.view().unwrap_or(AuditView::NONE);
        self.pace.enter(view.generation);
        // A step that others took while the state was on its way says nothing about speed.
        if let Some(began) = began {
            let took = began.elapsed();
            self.totals.stepping += took;
            self.totals.waiting += waited;
            self.totals.samples += report.samples;
            self.pace.count(report.samples, took, waited);
            if let Some(members) = self.census.count(&record.members, &report, took) {
                self.company.observer.report(&members);
            }
        }
        let digest = is_due(report.step, DIGEST_EVERY).then(|| self.trainer.digest());
        self.journal.note(&report, view, digest);
        if self.saving.is_due(report.step) {
            // The run may begin anew from there, when all processes are gone. Should it do so from before, that is told then.
            self.journal.settle();
        }
        self.company.snapshots.reach(record.step);
        if is_everybody_ready(record) {
            self.company.snapshots.clear_before(record.step);
        }
        self.commit(&report, digest, record.members.len(), saver)
    }

    fn commit(
        &mut self,
        report: &StepReport,
        digest: Option<Digest>,
        members: usize,
        saver: &mut Saver,
    ) -> Result<(), NodeError> {
        let last = self.is_over();
        if last || self.pace.is_due() {
            let skipped = self.trainer.ledger().skips().total;
            let progress = self.pace.take(report, self.trainer.steps(), members, skipped);
            self.company.observer.report(&progress);
        }
        if last {
            return Ok(());
        }
        if self.saving.takes(report.step, saver.is_busy()) {
            saver.save(self.trainer.state());
        }
        if is_due(report.step, self.duties.evaluate_every) {
            self.evaluate()?;
        }
        if let Some(digest) = digest {
            let step = report.step;
            let _ = self.events.blocking_send(TrainerEvent::Digest { step, digest });
        }
        Ok(())
    }

    /// Whether no step follows.
    fn is_over(&self) -> bool {
        self.trainer.step() >= self.trainer.steps() || self.totals.skips.is_some()
    }

    fn evaluate(&mut self) -> Result<(), NodeError> {
        // Each batch is work of its own: all members evaluate after the same step, and none may end for having much to evaluate.
        let evaluation = self.trainer.evaluate(|| self.busy.start());
        self.busy.stop();
        let evaluation = evaluation?;
        self.totals.evaluation = Some((evaluation.loss, evaluation.accuracy));
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        self.company.observer.report(&Report::Evaluated { step: self.trainer.step(), loss, accuracy });
        Ok(())
    }

    /// Says that the run is at its end here. Whoever hears it may go for good, so the state is on disk first.
    fn tell_finished(&mut self, saver: &mut Saver) {
        let is_saved = self.kept.unwrap_or_else(|| {
            self.busy.stop(); // A slow disk is no hanging step.
            saver.keep(self.trainer.state())
        });
        self.kept = Some(is_saved);
        let (step, digest) = (self.trainer.step(), self.trainer.digest());
        let _ = self.events.blocking_send(TrainerEvent::Finished { step, digest, is_saved });
    }

    /// Saves first: whatever goes wrong after it, nothing is lost.
    fn conclude(mut self, evaluate: bool, saver: Saver) -> Totals {
        self.busy.stop(); // What follows may take its time.
        self.totals.step = self.trainer.step();
        self.totals.digest = Some(self.trainer.digest());
        // Before the first step there is nothing to lose, and a file would only be in the way of a fresh start. A state
        // that was about to be replaced may not be the run's.
        let is_ours = self.company.exchange.progress().has_state;
        let last = (self.trainer.step() > 0 && is_ours && self.kept.is_none()).then(|| self.trainer.state());
        let mut outcomes = vec![saver.finish(last)];
        if matches!(outcomes[..], [Err(NodeError::Unsaved { .. })]) {
            // To write more, or to close a file that has something to write, would take as long.
            std::mem::forget(self.journal);
        } else {
            match (evaluate, self.is_over()) {
                (true, true) => self.journal.confirm(),
                // Also who had to leave its seat comes back with the state that it has just saved.
                _ if is_ours => self.journal.leave(),
                _ => {}
            }
            if evaluate {
                // Each is tried, also when the one before it failed.
                outcomes.push(self.evaluate());
                outcomes.push(self.export());
            }
            self.journal.finish();
        }
        self.totals.trouble = outcomes.into_iter().find_map(Result::err);
        self.totals
    }

    fn export(&self) -> Result<(), NodeError> {
        let Some(path) = &self.duties.export else { return Ok(()) };
        let (schema, manifest) = (self.trainer.schema(), self.trainer.manifest());
        let preprocessing = self.trainer.dataset().preprocessing();
        let state = self.trainer.state();
        for_others(path, || starling_train::write_safetensors(path, &state, schema, manifest, Some(preprocessing)))?;
        Ok(())
    }
}

/// Whether what happens after every so many steps happens after `step`; 0 is never.
fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

/// Whether no member of the view that reduced this was still downloading the state.
fn is_everybody_ready(record: &ResultRecord) -> bool {
    let slots = record.mean.len() - record.members.len();
    record.mean[slots..].iter().all(|speed| *speed > 0.0)
}

/// Contributes zeros to each step while the state of sync `number` is on its way, so that nobody waits for it.
pub(crate) fn contribute_nothing(exchange: &Exchange, parameters: usize, number: u64) {
    while let Some((active, step)) = exchange.next_without_state(number) {
        let mut buffer = exchange.spare();
        buffer.clear();
        buffer.resize(parameters + 1 + active.members.len(), 0.0);
        exchange.submit(&active, step, Brought::Whole(buffer), None);
    }
}
