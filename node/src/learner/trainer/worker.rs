//! What the trainer thread does.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use starling_engine::leaf::leaf_engine::LeafTask;
use starling_engine::{ActiveView, DIGEST_EVERY, SaveSchedule, is_last_straw, is_out_of_data};
use starling_run::audit::AuditView;
use starling_run::panics::said;
use starling_run::training::contribution;
use starling_run::{Gradient, Learner, ReducedSize, ResultRecord, StepReport};
use starling_topology::Digest;
use starling_topology::ledger::STARVED;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    AuditLog, Census, Duty, Gathering, LearnerOptions, Mishaps, ProgressMeter, SlotWatch, Speed, Stalls, StarvedEnd,
    Totals, TrainerEvent, Turn, Turns, WorkClock,
};
use crate::error::NodeError;
use crate::learner::contribution::{Brought, Contribution};
use crate::learner::trainer::starvation::{self, Starvation};
use crate::member::shared_steps::{CarrierInput, LeafInput, LearnerTask, Part, PartTask, SharedSteps, Task};
use crate::observe::report::{Observer, Report};
use crate::store::checkpoint_writer::CheckpointWriter;
use crate::store::private_file::for_others;

/// Who leaves before the end begins no batch of its evaluation after so long.
const LEAVING_EVALUATION: Duration = Duration::from_secs(5);
/// How often it is told how far the last evaluation is.
const EVALUATION_TOLD: Duration = Duration::from_secs(2);

/// The thread's own data.
pub(super) struct Worker {
    pub(super) turns: Turns,
    pub(super) work_clock: WorkClock,
    pub(super) speed: Speed,
    pub(super) duty: Duty,
    pub(super) word: SlotWatch,
    pub(super) stalls: Stalls,
    pub(super) learner: Box<dyn Learner>,
    /// Whether nothing is computed here any more.
    pub(super) is_unable: bool,
    /// Whether data is missing for the pending step.
    pub(super) starvation: Starvation,
    pub(super) observer: Arc<dyn Observer>,
    /// Whether this machine's user asks it to end.
    pub(super) stop: CancellationToken,
    pub(super) learner_options: LearnerOptions,
    pub(super) saving: SaveSchedule,
    /// The local gradient, kept until its step is applied.
    pub(super) gradient: Arc<Gradient>,
    /// What it is put together of, where leaves compute parts of the share.
    pub(super) gathering: Gathering,
    /// From where on it is there.
    pub(super) progress: watch::Sender<usize>,
    /// What this member brings to a step.
    pub(super) reduced: ReducedSize,
    /// When the present step began.
    pub(super) began: Option<Instant>,
    /// When a reducer first had all of the gradient.
    pub(super) contributed: Option<Instant>,
    /// The number of the newest active view that this member contributed in.
    pub(super) view: u64,
    /// The number of the one whose operation the staged update is of.
    pub(super) drafted: Option<u64>,
    /// Whether the state after the last step is on disk, once that was tried.
    pub(super) kept: Option<bool>,
    pub(super) mishaps: Mishaps,
    pub(super) audit_log: AuditLog,
    pub(super) totals: Totals,
    pub(super) pace: ProgressMeter,
    pub(super) census: Census,
}

impl Worker {
    pub(super) fn run(mut self, mut checkpoint_writer: CheckpointWriter) -> Totals {
        self.look_whether_it_is_over();
        let evaluate = match self.work(&mut checkpoint_writer) {
            Ok(evaluate) => evaluate,
            Err(error) => {
                self.turns.tell(TrainerEvent::Failed(error));
                self.turns.shared_steps.wait_for_stop();
                false
            }
        };
        self.conclude(evaluate, checkpoint_writer)
    }

    /// Does what comes next until told to stop; says whether to evaluate then.
    fn work(&mut self, checkpoint_writer: &mut CheckpointWriter) -> Result<bool, NodeError> {
        loop {
            let Turns { shared_steps, at, .. } = &mut self.turns;
            let next = shared_steps.next(at, self.learner.ledger());
            self.work_clock.start();
            match next {
                LearnerTask::Carried(task) => self.compute_carried(&task),
                LearnerTask::WorkAhead(part) => self.stage(part),
                LearnerTask::Task(Task::Stop { evaluate }) => return Ok(evaluate),
                LearnerTask::Task(task) => self.execute(task, checkpoint_writer)?,
            }
            self.work_clock.stop();
        }
    }

    fn execute(&mut self, task: Task, checkpoint_writer: &mut CheckpointWriter) -> Result<(), NodeError> {
        match self.turns.take(task, self.learner.as_mut())? {
            Turn::Done => Ok(()),
            Turn::Loaded => {
                (self.began, self.contributed, self.kept) = (None, None, None);
                (self.totals.skips, self.totals.starved) = (None, None);
                self.look_whether_it_is_over();
                self.audit_log.adopt(self.learner.step() + 1, self.turns.shared_steps.view());
                Ok(())
            }
            Turn::Own(task) => self.execute_own(task, checkpoint_writer),
        }
    }

    fn execute_own(&mut self, task: Task, checkpoint_writer: &mut CheckpointWriter) -> Result<(), NodeError> {
        match task {
            Task::Apply { result, reduced_in } => return self.apply(&result, reduced_in, checkpoint_writer),
            Task::Compute => self.compute(),
            Task::Contribute(active) => self.contribute(&active),
            Task::LoadAhead { members } => self.learner.load_ahead(&members, self.turns.me),
            Task::Finished => self.tell_finished(checkpoint_writer),
            Task::Synced => {
                // Nobody else may have it much longer.
                if self.saving.is_on() {
                    checkpoint_writer.save(self.learner.state());
                }
                let digest = is_due(self.learner.step(), DIGEST_EVERY).then(|| self.learner.digest());
                self.turns.shared_steps.follow(LeafInput::Loaded { digest });
            }
            Task::Stop { .. } | Task::Load(_) | Task::Begin { .. } | Task::Snapshot => {}
        }
        Ok(())
    }

    fn compute(&mut self) {
        let looked = Instant::now();
        // Whoever lacks data does not evaluate either, and brings nothing.
        if !self.is_unable && self.is_starved() {
            self.began.get_or_insert(looked);
            self.clear();
            self.gradient.set_nothing();
            self.progress.send_replace(0);
            self.turns.at.prepared = true;
            return;
        }
        let waited = looked.elapsed();
        if !self.is_unable && !self.judge() {
            return;
        }
        self.work_clock.start();
        // To wait for data is a part of the step, to evaluate is not.
        self.began.get_or_insert_with(|| Instant::now().checked_sub(waited).unwrap_or(looked));
        if self.is_unable {
            self.clear();
            self.gradient.give_up();
            self.turns.at.prepared = true;
            return;
        }
        let (ledger, me, step) = (self.learner.ledger(), self.turns.me, self.turns.at.step + 1);
        let (epoch, micro_batch, share) = (ledger.epoch(), ledger.micro_batch(), ledger.share_of(me).to_vec());
        let shared_steps = self.turns.shared_steps.clone();
        shared_steps.carry(CarrierInput::Computes { step, epoch, share, micro_batch });
        loop {
            // While it waits for leaves, it is others that are at work.
            self.work_clock.stop();
            let Some(part) = shared_steps.next_part() else { return };
            self.work_clock.start();
            match part {
                PartTask::Clear => {
                    self.clear();
                    self.gathering.clear();
                }
                PartTask::Compute { number, positions } => {
                    if let Err(error) = self.compute_own(number, &positions) {
                        self.give_up(error);
                        self.turns.at.prepared = true;
                        return;
                    }
                    shared_steps.carry(CarrierInput::Computed(number));
                }
                PartTask::Count(number) => {
                    self.gathering.count(number);
                }
                PartTask::Add { weight, part } => self.gathering.add(weight, part.numbers()),
                PartTask::Whole => return self.complete(),
                PartTask::Over => return,
            }
        }
    }

    /// Evaluates what falls to this member, if members evaluate the present state. False if this member is to end, be it before all of that is done: then
    /// nothing more is brought.
    fn judge(&mut self) -> bool {
        let (work_clock, shared_steps) = (&self.work_clock, &self.turns.shared_steps);
        // Each batch is work of its own: none may end for having much to evaluate.
        let goes_on = || {
            work_clock.start();
            !shared_steps.act(|steps| steps.is_stopped())
        };
        match self.learner.judge_while(self.turns.me, &goes_on) {
            Ok(figures) => self.gathering.tell_of_held_out(figures),
            Err(error) => self.tell_unable(error.into()),
        }
        !self.turns.shared_steps.act(|steps| steps.is_stopped())
    }

    /// Whether data is missing for what this member computes, or will. Where nobody computes anything, it waits for that a while; alone, until it is
    /// not alone any more, or gives up.
    fn is_starved(&mut self) -> bool {
        let (me, step) = (self.turns.me, self.turns.at.step + 1);
        let mut looks = self.starvation.looks();
        while self.learner.is_starved(me) {
            let is_alone = self.turns.shared_steps.act(|steps| steps.active().is_some_and(ActiveView::is_alone));
            if self.starvation.begin(Instant::now(), is_alone) {
                self.tell_starved(step, is_alone);
            }
            if self.turns.shared_steps.act(|steps| steps.is_stopped()) {
                return true;
            }
            match (is_alone, self.starvation.waits_alone(is_alone)) {
                (false, _) if looks == 0 => return true,
                (false, _) => looks -= 1,
                // Its steps would have nothing in them.
                (true, None) => {}
                (true, Some(waited)) => {
                    self.tell_unable(NodeError::StarvedAlone { step, waited });
                    return true;
                }
            }
            self.work_clock.stop();
            self.turns.shared_steps.rest(starvation::LOOK);
            self.work_clock.start();
        }
        self.starvation.end();
        false
    }

    fn tell_starved(&self, step: u64, is_alone: bool) {
        let then = match is_alone {
            true => "nobody else is here to compute it, so no step is taken until it is there",
            false => "other members compute this machine's part until it is there",
        };
        let message = format!("step {step}: the data that comes next is still on its way here; {then}");
        self.observer.report(&Report::Warning { message });
    }

    /// Begins a gradient in which there is nothing.
    fn clear(&mut self) {
        match Arc::get_mut(&mut self.gradient) {
            Some(gradient) => gradient.clear(),
            // A reducer may still read that of an earlier step.
            None => self.gradient = Arc::new(Gradient::new(self.reduced)),
        }
        // Nothing is there, the slots behind the gradient neither.
        self.progress = watch::Sender::new(usize::MAX);
    }

    /// Computes the whole share, which may leave while it is computed, or a part of it.
    fn compute_own(&mut self, number: u64, positions: &[Range<u32>]) -> Result<(), NodeError> {
        let began = Instant::now();
        let is_all = positions == self.learner.ledger().share_of(self.turns.me);
        let computed = if is_all { self.share() } else { self.part(positions) };
        if let Some(beyond) = self.learner.take_beyond() {
            self.mishaps.tell_own(&beyond, self.observer.as_ref());
        }
        let (part, weight) = computed?;
        self.rest(began);
        self.speed.measure(weight, began, Instant::now(), self.stalls.part());
        part.into_iter().for_each(|part| self.gathering.keep(number, part));
        Ok(())
    }

    /// Leaves the machine to its user for a while. Nobody suspects that it hangs.
    fn rest(&self, began: Instant) {
        self.work_clock.stop();
        self.duty.rest(began, &self.turns.shared_steps);
        self.work_clock.start();
    }

    /// All of the contribution is there.
    fn complete(&mut self) {
        // What was computed in one piece is there already.
        if self.gradient.ready_from() > 0 {
            self.gathering.finish(&self.gradient);
            self.progress.send_replace(0);
        }
        self.turns.at.prepared = true;
    }

    /// The gradient of this member's share, and how many samples that has.
    fn share(&mut self) -> Result<(Option<Gradient>, u64), NodeError> {
        let Turns { shared_steps, at, .. } = &mut self.turns;
        let opening = self.learner.has_blocks().then(|| shared_steps.contribute_early(at)).flatten();
        if let Some(active) = &opening {
            self.contribute(active);
        }
        let (me, progress) = (self.turns.me, &self.progress);
        let (learner, gradient) = (&mut self.learner, &self.gradient);
        let computed = guarded(learner.as_mut(), |learner| {
            learner.compute(me, gradient, &mut |from| _ = progress.send_replace(from))
        });
        let samples = u64::from(self.learner.ledger().share_len(me));
        let weight = self.checked(&self.gradient, computed?, samples)?;
        if opening.is_some() {
            self.contributed.get_or_insert_with(Instant::now);
        }
        Ok((None, weight))
    }

    /// The gradient over a part of a share, and how many samples that has.
    fn part(&mut self, positions: &[Range<u32>]) -> Result<(Option<Gradient>, u64), NodeError> {
        let (me, part) = (self.turns.me, Gradient::new(self.reduced));
        let computed = guarded(self.learner.as_mut(), |learner| learner.compute_part(me, positions, &part));
        let samples = positions.iter().map(|range| u64::from(range.end - range.start)).sum();
        let weight = self.checked(&part, computed?, samples)?;
        Ok((Some(part), weight))
    }

    /// A program's own learner has computed all of this, and of no more samples than there are.
    fn checked(&self, gradient: &Gradient, weight: u64, samples: u64) -> Result<u64, NodeError> {
        let ready_from = gradient.ready_from();
        if ready_from != 0 || weight > samples {
            let (step, parameters) = (self.learner.step() + 1, self.reduced.trained);
            return Err(NodeError::WrongLength { step, missing: ready_from, parameters, weight, samples });
        }
        Ok(weight)
    }

    /// Computes what the carrier of this leaf has handed on.
    fn compute_carried(&mut self, task: &LeafTask) {
        let began = Instant::now();
        self.began.get_or_insert(began);
        let computed = if self.is_unable { None } else { Some(self.part(&task.ranges)) };
        self.rest(began);
        let beyond = self.learner.take_beyond();
        beyond.iter().for_each(|beyond| self.mishaps.tell_own(beyond, self.observer.as_ref()));
        let numbers = match computed {
            None => None,
            Some(Ok((part, weight))) => {
                let samples = task.ranges.iter().map(|range| u64::from(range.end - range.start)).sum::<u64>();
                self.totals.brought += weight;
                part.filter(|part| beyond.is_none() && !part.has_given_up() && weight == samples)
                    .map(|part| part.values())
            }
            Some(Err(error)) => {
                self.tell_unable(error);
                None
            }
        };
        self.turns.shared_steps.bring(task.number, numbers);
    }

    /// What could not be computed is zeros, so that nobody waits for it; others compute those samples. This member leaves.
    fn give_up(&mut self, error: NodeError) {
        self.gradient.give_up();
        self.progress.send_replace(0);
        self.tell_unable(error);
    }

    /// Brings zeros from now on, until it has left.
    fn tell_unable(&mut self, error: NodeError) {
        self.is_unable = true;
        self.turns.tell(TrainerEvent::Unable(error));
    }

    /// Hands the gradient to the reducer of the view, as far as it is computed; the rest follows by itself.
    fn contribute(&mut self, active: &ActiveView) {
        if self.starvation.lasts() && active.is_alone() {
            // It was starved beside others, and is alone now: it has to wait.
            self.compute();
            if self.starvation.lasts() {
                return;
            }
        }
        // Alone, nobody waits for it: it takes no step with nothing in it until it has left.
        if self.is_unable && active.is_alone() {
            return;
        }
        if active.number != std::mem::replace(&mut self.view, active.number) {
            self.audit_log.settle();
        }
        let speed = match self.starvation.lasts() {
            true => STARVED,
            false => self.turns.shared_steps.told_speed(self.speed.told()),
        };
        let step = self.turns.at.step + 1;
        let mut slots: Vec<f32> = contribution::slots(&active.members, self.turns.me, speed).collect();
        self.word.say(step, active, speed, &mut slots);
        if self.turns.at.prepared {
            self.contributed.get_or_insert_with(Instant::now);
        }
        // Who is starved brings zeros and nothing else: that all did is to be seen.
        let residual = self.turns.residual().filter(|_| speed != STARVED);
        let ready = self.progress.subscribe();
        if speed == STARVED {
            self.turns.shared_steps.act(|steps| steps.starve(step));
        }
        if !self.turns.contribute(active, Contribution::new(self.gradient.clone(), slots, residual, ready)) {
            // While it loaded the state, zeros have taken part in its place, with a word of their own.
            self.word.forget();
        }
    }

    fn stage(&mut self, part: Part) {
        let Part { view, members, start, numbers } = part;
        if self.drafted.replace(view) != Some(view) {
            self.learner.forget_staged();
        }
        self.learner.stage(&members, start, &numbers);
        self.turns.shared_steps.recycle_part(numbers);
    }

    /// Takes the step whose result this is, which was reduced here in the active view of this number, or not here.
    fn apply(
        &mut self,
        record: &Arc<ResultRecord>,
        reduced_in: Option<u64>,
        checkpoint_writer: &mut CheckpointWriter,
    ) -> Result<(), NodeError> {
        let contributed = self.contributed.take().map(|since| since.elapsed());
        // Alone, there is nobody to wait for.
        let waited = contributed.filter(|_| record.members.len() > 1).unwrap_or_default();
        let (began, loading) = (self.began.take(), self.learner.take_loading());
        let loading = if self.starvation.lasts() { Duration::MAX } else { loading };
        checkpoint_writer.wait_for_vectors();
        let starved_before = self.learner.ledger().starved();
        let is_drafted = self.drafted.take().is_some_and(|view| reduced_in == Some(view));
        let report = if is_drafted { self.learner.apply_staged(record) } else { self.learner.apply(record) }?;
        let is_passed = self.starvation.lasts() || (report.samples == 0 && report.skipped.is_none());
        match is_passed {
            true => self.turns.pass(report.step),
            false => self.turns.settle(report.step, report.skipped.is_none()),
        }
        self.mishaps.tell(&report, self.learner.as_ref(), self.observer.as_ref());
        let (me, gave_up) = (self.turns.me, self.gradient.has_given_up());
        if let Some(rewritten) = self.word.compare(record, &report.speeds, me, gave_up) {
            self.mishaps.tell_rewritten(report.step, rewritten, self.observer.as_ref());
        }
        let skips = self.learner.ledger().skips();
        if report.skipped.is_some() && is_last_straw(skips) {
            self.totals.skips = Some(skips.in_row);
            self.turns.shared_steps.act(|steps| steps.end_after(report.step));
        }
        let starved = self.learner.ledger().starved();
        // A step that has others to blame changes nothing of the number.
        if starved > starved_before && is_out_of_data(starved) {
            self.totals.starved = Some(StarvedEnd { in_row: starved, is_last: self.learner.is_over() });
            self.turns.shared_steps.act(|steps| steps.end_after(report.step));
        }
        if let Some(evaluated) = report.evaluated.clone() {
            self.observer.report(&Report::from(evaluated));
        }
        if let Some(unevaluated) = report.unevaluated.clone() {
            self.observer.report(&Report::from(unevaluated));
        }
        if let Some(judged) = report.judged {
            self.observer.report(&Report::from(judged));
        }
        self.starvation.step(report.samples);
        self.look_whether_it_is_over();
        // Of no samples there is none.
        self.totals.loss = Some(report.loss).filter(|_| report.samples > 0).or(self.totals.loss);
        let view = self.turns.shared_steps.view().unwrap_or(AuditView::NONE);
        self.pace.enter(view.generation);
        // A step that others took while the state was on its way says nothing about speed.
        if let Some(began) = began {
            let took = began.elapsed();
            self.totals.stepping += took;
            self.totals.waiting += waited;
            let loading = loading.min(took);
            self.totals.loading += loading;
            self.totals.samples += report.samples;
            self.pace.count(report.samples, took, waited, loading);
            if let Some(members) = self.census.count(&record.members, &report, took) {
                self.observer.report(&members);
            }
        }
        let digest = is_due(report.step, DIGEST_EVERY).then(|| self.learner.digest());
        let shared_steps = &self.turns.shared_steps;
        digest
            .into_iter()
            .for_each(|digest| _ = shared_steps.carry(CarrierInput::Applied { step: report.step, digest }));
        shared_steps.follow(LeafInput::Applied { step: report.step, digest });
        self.audit_log.note(&report, view, digest);
        if self.saving.is_due(report.step) {
            // The run may begin anew from there, when all processes are gone. Should it do so from before, that is told then.
            self.audit_log.settle();
        }
        self.turns.reach(record);
        self.commit(&report, digest, record.members.len(), checkpoint_writer)
    }

    fn commit(
        &mut self,
        report: &StepReport,
        digest: Option<Digest>,
        members: usize,
        checkpoint_writer: &mut CheckpointWriter,
    ) -> Result<(), NodeError> {
        let last = self.is_over();
        if last || self.pace.is_due() {
            let skipped = self.learner.ledger().skips().total;
            let loss = self.totals.loss.unwrap_or(report.loss);
            let progress = self.pace.take(report, loss, self.learner.manifest().steps, (members, skipped));
            self.observer.report(&progress);
        }
        if last {
            return Ok(());
        }
        if self.saving.takes(report.step, checkpoint_writer.is_busy()) {
            checkpoint_writer.save(self.learner.state());
        }
        if let Some(digest) = digest {
            self.turns.shared_steps.act(|steps| steps.compare(report.step, digest));
        }
        Ok(())
    }

    /// Whether no step follows.
    fn is_over(&self) -> bool {
        self.learner.is_over() || self.totals.skips.is_some() || self.totals.starved.is_some()
    }

    /// No step follows a state with which the run has ended, be it the one that this member begins with.
    fn look_whether_it_is_over(&mut self) {
        if self.learner.is_over() {
            let (step, in_row) = (self.learner.step(), self.learner.ledger().starved());
            // What ended so has not learned what it was to learn.
            self.totals.starved = (in_row > 0).then_some(StarvedEnd { in_row, is_last: true });
            self.turns.shared_steps.act(|steps| steps.conclude_after(step));
        }
    }

    /// Evaluates the model that is exported, all held-out samples by itself; gives it up after `limit`, or without one as soon as its user asks this
    /// machine to end.
    fn evaluate(&mut self, limit: Option<Duration>) -> Result<(), NodeError> {
        if !self.learner.has_all_data() {
            // To wait for it here would hold up everybody's steps.
            let message = "the held-out samples lie all over the data, which is not all here yet: they are not evaluated; `starling eval` does it \
                           with an export"
                .to_owned();
            self.observer.report(&Report::Warning { message });
            self.totals.evaluation = None;
            return Ok(());
        }
        let begun = Instant::now();
        // Each batch is work of its own: all members evaluate after the same step, and none may end for having much to evaluate.
        let (step, told) = (self.learner.step(), Cell::new(None::<Instant>));
        let goes_on = |samples: u64, of: u64| {
            self.work_clock.start();
            if told.get().is_none_or(|told| told.elapsed() >= EVALUATION_TOLD) {
                told.set(Some(Instant::now()));
                self.observer.report(&Report::Evaluating { step, samples, of });
            }
            limit.map_or_else(|| !self.stop.is_cancelled(), |limit| begun.elapsed() < limit)
        };
        let evaluation = self.learner.evaluate_outcome_while(&goes_on);
        self.work_clock.stop();
        let Some(evaluation) = evaluation? else {
            let seconds = begun.elapsed().as_secs();
            let message = format!(
                "the held-out samples were not all evaluated in {seconds} s; `starling eval` does it with an export"
            );
            self.observer.report(&Report::Warning { message });
            // What an earlier step came to is not this one's.
            self.totals.evaluation = None;
            return Ok(());
        };
        let (loss, measures) = (evaluation.loss, evaluation.measures);
        let measures: BTreeMap<_, _> = measures.into_iter().map(|(name, mean)| (name.to_owned(), mean)).collect();
        self.totals.evaluation = Some((loss, measures.clone()));
        // What an earlier model comes to is told in the summary alone: as news it would be of this step.
        if self.learner.best_step().is_none() {
            self.observer.report(&Report::Evaluated { step, loss, measures });
        }
        Ok(())
    }

    /// Says that the run is at its end here. Whoever hears it may go for good, so the state is on disk first.
    fn tell_finished(&mut self, checkpoint_writer: &mut CheckpointWriter) {
        let is_saved = self.kept.unwrap_or_else(|| {
            if !self.learner_options.keeps_state {
                return true;
            }
            self.work_clock.stop(); // A slow disk is no hanging step.
            self.audit_log.settle();
            checkpoint_writer.keep(self.learner.state())
        });
        self.kept = Some(is_saved);
        let (step, digest) = (self.learner.step(), self.learner.digest());
        self.turns.shared_steps.act(|steps| steps.finish(step, digest, is_saved));
    }

    /// Saves before all that may fail: whatever goes wrong after it, nothing is lost.
    fn conclude(mut self, evaluate: bool, checkpoint_writer: CheckpointWriter) -> Totals {
        let evaluate = evaluate && !self.is_unable;
        self.work_clock.stop(); // What follows may take its time.
        self.totals.step = self.learner.step();
        (self.totals.digest, self.totals.values) = (Some(self.learner.digest()), Some(self.learner.values()));
        // Before the first step there is nothing to lose, and a file would only be in the way of a fresh start. A state
        // that was about to be replaced may not be the run's.
        let is_ours = self.turns.shared_steps.progress().has_state;
        self.totals.has_state = self.learner.step() > 0 && is_ours;
        let is_due = self.learner_options.keeps_state && self.totals.has_state && self.kept.is_none();
        let last = is_due.then(|| self.learner.state());
        if evaluate && self.is_over() {
            self.audit_log.confirm();
        } else if evaluate || is_ours {
            // Also who had to leave its seat comes back with the state that is saved now.
            self.audit_log.leave();
        }
        // Who is killed before it has saved that has written too much, which others know; after it, they may not know what led there.
        self.audit_log.flush();
        let mut outcomes = vec![checkpoint_writer.finish(last)];
        if matches!(outcomes[..], [Err(NodeError::Unsaved { .. })]) {
            // To close a file would take as long.
            std::mem::forget(self.audit_log);
        } else if evaluate {
            // Each is tried, also when the one before it failed.
            // Who is about to leave does not wait for long.
            let is_leaving = !self.is_over() || self.stop.is_cancelled();
            outcomes.push(self.evaluate(is_leaving.then_some(LEAVING_EVALUATION)));
            outcomes.push(self.export());
        }
        self.totals.trouble = outcomes.into_iter().find_map(Result::err);
        self.totals
    }

    fn export(&self) -> Result<(), NodeError> {
        let Some(path) = &self.learner_options.export else { return Ok(()) };
        for_others(path, || self.learner.export(path))?;
        Ok(())
    }
}

/// A program's own code must not take this member's place along.
fn guarded(
    learner: &mut dyn Learner,
    compute: impl FnOnce(&mut dyn Learner) -> Result<u64, starling_run::Error>,
) -> Result<u64, NodeError> {
    let step = learner.step() + 1;
    let computed = catch_unwind(AssertUnwindSafe(|| compute(learner)));
    Ok(computed.map_err(|payload| {
        let reason = said(&*payload).unwrap_or("it does not say why").to_owned();
        NodeError::Panicked { step, reason }
    })??)
}

/// Whether what happens after every so many steps happens after `step`; 0 is never.
fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

/// Contributes zeros to each step while the state of sync `number` is on its way, so that nobody waits for it.
pub(crate) fn contribute_nothing(shared_steps: &SharedSteps, reduced: ReducedSize, number: u64) {
    while let Some((active, step)) = shared_steps.next_without_state(number) {
        let mut buffer = shared_steps.spare();
        buffer.clear();
        buffer.resize(reduced.buffer(active.members.len()).elements(), 0.0);
        shared_steps.submit(&active, step, Brought::Nothing(buffer), None);
    }
}
