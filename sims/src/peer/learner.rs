//! The learner: does what the steps say comes next, and takes its time.

use std::rc::Rc;

use starling_collective::FeedbackState;
use starling_engine::leaf::carrier::Input;
use starling_engine::{LAST_TRIES, LearnerPosition, SaveSchedule, StepEvent, SyncDecision, Task};
use starling_topology::{PeerId, Time, ViewId};

use super::{Commit, Effect, Peer};
use crate::steps::state::{ResultRecord, State};
use crate::steps::workload::Workload;

/// Where the learner stands.
#[derive(Debug)]
pub(super) struct Learner {
    pub(super) cursor: LearnerPosition,
    /// The replicated state; none while it is still to be loaded.
    pub(super) state: Option<Rc<State>>,
    /// What a lossy codec has dropped here.
    pub(super) feedback: Option<FeedbackState>,
    /// The number of the gradient on its way: one that was dropped is not taken for the one that replaced it.
    pub(super) computing: Option<u64>,
    computations: u64,
    saves: SaveSchedule,
    /// States that are on their way to the disk.
    writing: usize,
    /// Whether its process has yet to look what its steps have to say.
    is_noticed: bool,
    /// Whether it waits for the disk to have the last state.
    pub(super) saving: bool,
    /// How often it was tried to write that.
    tries: u32,
    /// Whether the last state is on disk, once that was tried.
    kept: Option<bool>,
}

impl Learner {
    pub(super) fn new(state: Option<Rc<State>>, workload: &Workload) -> Self {
        Self {
            cursor: LearnerPosition::after(state.as_ref().map_or(0, |state| state.step)),
            state,
            feedback: workload.feedback(),
            computing: None,
            computations: 0,
            saves: SaveSchedule::new(workload.checkpoint_every, workload.steps),
            writing: 0,
            is_noticed: false,
            saving: false,
            tries: 0,
            kept: None,
        }
    }
}

impl Peer {
    /// What its steps have to say waits until the process gets to it.
    pub(super) fn notice(&mut self) {
        if self.steps.has_notice() && !std::mem::replace(&mut self.learner.is_noticed, true) {
            self.effects.push(Effect::Notices);
        }
    }

    /// It gets to it.
    pub fn take_notices(&mut self, now: Time) {
        self.learner.is_noticed = false;
        while let Some(notice) = self.steps.take_notice() {
            self.member.notice(&mut self.steps, notice);
            match notice {
                StepEvent::Held(progress) => self.held = Some(progress),
                StepEvent::TooFarBehind => self.stand_aside(),
                StepEvent::Synced
                | StepEvent::Starved { .. }
                | StepEvent::Digest { .. }
                | StepEvent::Finished { .. } => {}
            }
            self.obey(now);
        }
    }

    /// A gradient is there.
    pub(super) fn take_gradient(&mut self, now: Time, computation: u64) {
        if self.learner.computing.take_if(|computing| *computing == computation).is_some() {
            self.take_computed(now);
            self.go_on(now);
        }
    }

    /// A state was written to the disk, or had no room there.
    pub(super) fn take_saved(&mut self, now: Time, is_kept: bool) {
        self.learner.writing = self.learner.writing.saturating_sub(1);
        // One may have been under way already.
        if self.learner.saving && self.learner.writing == 0 {
            self.learner.tries += 1;
            if !is_kept && self.learner.tries < LAST_TRIES {
                return self.save();
            }
            (self.learner.saving, self.learner.kept) = (false, Some(is_kept));
            self.finish();
        }
        self.go_on(now);
    }

    /// A state that was to be saved found no room among what waits for the disk.
    pub fn leave_out(&mut self) {
        self.learner.writing = self.learner.writing.saturating_sub(1);
    }

    /// Does what comes next, until it has to wait.
    pub(super) fn work(&mut self, now: Time) {
        self.look_after_leaves(now);
        let is_busy = |peer: &Self| peer.learner.computing.is_some() || peer.carrying.is_gathering;
        while !is_busy(self) && !self.learner.saving && !self.starvation.waits() {
            let Some(task) = self.steps.next(&mut self.learner.cursor) else { break };
            match task {
                Task::Stop { .. } => return,
                Task::Load(state) => self.load(state),
                // Nobody else may have it much longer.
                Task::Synced if self.learner.saves.is_on() => self.save(),
                Task::Synced => {}
                Task::Begin { members } => {
                    let assigned = Rc::new(State::assigned(self.workload.ledger(), &members));
                    if self.learner.state.as_ref() != Some(&assigned) {
                        self.learner.cursor.prepared = false;
                        self.tell_carrier(now, Input::Void);
                    }
                    self.hold_state(assigned);
                }
                Task::Snapshot => {
                    let state = self.learner.state.clone();
                    state.into_iter().for_each(|state| self.snapshots.put(state.step, state));
                }
                Task::Apply { result, .. } => self.apply(now, &result),
                Task::Finished => self.finish(),
                Task::Compute if self.is_withheld(self.learner.cursor.step + 1) => break,
                Task::Compute => self.compute(now),
                Task::Contribute(active) if active.is_alone() && self.brings_nothing() => self.compute_anew(),
                Task::Contribute(active) => self.reduce(now, &active, self.learner.cursor.step + 1),
                Task::LoadAhead { .. } => {}
            }
        }
        while let Some(number) = self.syncs {
            match self.steps.take_part(number) {
                SyncDecision::Contribute(_, step) if self.is_withheld(step) => break,
                SyncDecision::Contribute(active, step) => self.reduce(now, &active, step),
                SyncDecision::Wait => break,
                SyncDecision::Over => self.syncs = None,
            }
        }
    }

    /// Whether the last step must wait until all are members.
    pub(super) fn is_withheld(&self, step: u64) -> bool {
        self.gated && step == self.workload.steps
    }

    pub(super) fn begin_computing(&mut self) {
        self.learner.computations += 1;
        self.learner.computing = Some(self.learner.computations);
        self.effects.push(Effect::Compute(self.learner.computations));
    }

    fn compute(&mut self, now: Time) {
        if self.is_starved(now) {
            return;
        }
        self.gather(now);
        // Half of its gradient is there as soon as it begins to compute, and leaves at once. Every second peer is like that,
        // so that those who wait for all of theirs meet those who don't; who waits for leaves does.
        let overlaps = self.name.0[0] % 2 == 1 && self.learner.computing.is_some() && !self.has_handed_on();
        if overlaps && let Some(active) = self.steps.contribute_early(&mut self.learner.cursor) {
            self.reduce(now, &active, self.learner.cursor.step + 1);
        }
    }

    /// Those who hear of it may go for good: the last state must be on disk first.
    fn finish(&mut self) {
        let Some(state) = self.learner.state.clone() else { return };
        let Some(is_saved) = self.learner.kept else {
            (self.learner.saving, self.learner.tries) = (true, 0);
            return self.save();
        };
        self.steps.finish(state.step, state.digest, is_saved);
    }

    fn save(&mut self) {
        let state = self.learner.state.clone();
        self.learner.writing += usize::from(state.is_some());
        self.effects.extend(state.map(Effect::Save));
    }

    fn load(&mut self, state: Rc<State>) {
        self.effects.push(Effect::Loaded(Rc::clone(&state)));
        // The steps that it made up for are not those of this state.
        self.learner.feedback.iter_mut().for_each(FeedbackState::forget);
        self.learner.kept = None;
        self.hold_state(state);
    }

    fn hold_state(&mut self, state: Rc<State>) {
        self.learner.state = Some(Rc::clone(&state));
        self.reached = Some(state);
    }

    fn apply(&mut self, now: Time, record: &Rc<ResultRecord>) {
        let view = self.reduced_in.get(&record.step).copied();
        if self.reached.as_ref().is_some_and(|reached| reached.step < record.step) {
            // It was kept until the state came.
            self.reach(record, view.unwrap_or(ViewId::NONE));
        }
        let Some(before) = self.learner.state.take() else { return };
        let after = self.step_from(Rc::clone(&before), record);
        let step = after.step;
        self.settle(record);
        self.note_starved_step(&before, &after);
        self.reduced_in = self.reduced_in.split_off(&step);
        let digest = after.digest;
        self.learner.state = Some(after);
        self.snapshots.applied(record);
        if self.workload.compares(step) {
            self.steps.compare(step, digest);
            self.tell_carrier(now, Input::Applied { step, digest });
        }
        let is_busy = self.learner.writing > 0;
        if self.learner.saves.takes(step, is_busy) {
            self.save();
        }
    }

    /// What it dropped of a committed step is left to make up for, and what it brought was enough.
    fn settle(&mut self, record: &Rc<ResultRecord>) {
        let dropped = self.booked.take(record.step);
        // Who brought nothing has made up for nothing.
        if self.starvation.passes(record.step) {
            return;
        }
        let Some(feedback) = &mut self.learner.feedback else { return };
        feedback.settle(dropped);
        if let Some((step, mut settled)) = self.brought.take()
            && step == record.step
        {
            settled.left = feedback.residual().values().to_vec();
            self.effects.push(Effect::Settled(settled, Rc::clone(record)));
        }
    }

    /// This peer is about to commit a step, whenever it gets to applying it.
    pub(super) fn committed(&mut self, record: &Rc<ResultRecord>, view: ViewId) {
        self.tries = 0;
        self.reduced_in.insert(record.step, view);
        if self.steps.progress().has_state {
            self.reach(record, view);
        }
    }

    /// What a committed step comes to, for who judges it.
    fn reach(&mut self, record: &Rc<ResultRecord>, view: ViewId) {
        let Some(reached) = self.reached.take() else { return };
        let before = self.assigned(reached, &record.members);
        if before.ledger.step() != record.step {
            let (pending, step) = (before.ledger.step(), record.step);
            return self.broken("results_fit", format!("{:?} takes {step}, and {pending} is pending", self.name));
        }
        let after = self.step_from(Rc::clone(&before), record);
        let commit = Commit { view, record: Rc::clone(record), before, after: Rc::clone(&after) };
        self.effects.push(Effect::Committed(Box::new(commit)));
        self.reached = Some(after);
    }

    fn step_from(&self, before: Rc<State>, record: &Rc<ResultRecord>) -> Rc<State> {
        let before = self.assigned(before, &record.members);
        self.commits.borrow_mut().apply(&before, record, self.sabotage)
    }

    /// The first step is assigned to those who reduce it, and whoever fetches its result may not be one of them.
    fn assigned(&self, state: Rc<State>, members: &[PeerId]) -> Rc<State> {
        if state.step == 0 { Rc::new(State::assigned(self.workload.ledger(), members)) } else { state }
    }
}
