//! The life of a step: computed, contributed, reduced, **committed**, applied.
//!
//! ```text
//!   learner -- next: compute, contribute, apply, ... --+        hold, open, deliver -- membership
//!                                                      v        v
//!                                                     StepEngine
//!                                                          ^
//!                                     complete: the result is here | gate: stop what is not admitted
//!                                                       reducer
//! ```
//!
//! A step is committed on this member in the instant in which its operation completes here while the gate admits it. So
//! the question "where do you stand?" is answered at once, however long the learner computes; it applies committed results
//! in order, when it comes to them.

mod result;
pub(crate) mod save_schedule;
pub(crate) mod skipping;
mod step_event;
mod syncing;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use starling_topology::{Digest, FlawKind, HoldPosition, Lineage, Progress, View, ViewId};

use crate::SnapshotStatus;
pub use result::StepResult;
use step_event::Notices;
pub use step_event::StepEvent;
pub use syncing::MIN_KEPT;
use syncing::Syncing;
pub use task::{ActiveView, CommitGate, LearnerPosition, MemberSet, Task};

/// Whether a member that is syncing takes part in the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncDecision {
    /// It contributes nothing to this step of this view, so that the others can go on: once in each step and view.
    Contribute(ActiveView, u64),
    /// Not yet.
    Wait,
    /// It is not syncing any more, or is to end.
    Over,
}

/// See the module. `R` is a result, `S` a state.
#[derive(Debug)]
pub struct StepEngine<R, S> {
    /// The run's last step.
    last_step: u64,
    /// The step that nobody takes another one after: too many were skipped by then, or the run has ended.
    over_after: Option<u64>,
    /// Whether that is the end of the run for good, as all find who hold the state after it.
    is_concluded: bool,
    /// The last step committed.
    step: u64,
    /// The view in which it was committed: [`Progress::lineage`].
    lineage: Lineage,
    /// The result of `step`; `None` if the step came with a state.
    result: Option<R>,
    /// What came of a fetch while the steps were held.
    aside: Option<R>,
    /// The number of the active view in which it was reduced here, and found finite; `None` if it came from others, or
    /// nobody looked.
    reduced_in: Option<u64>,
    gate: CommitGate,
    /// A hold that is answered once this step is committed.
    hold_after: Option<u64>,
    active: Option<ActiveView>,
    entered: u64,
    /// The step whose operation is under way in the active view.
    submitted: Option<u64>,
    /// Whether there is a state, be it one that is to be replaced.
    has_state: bool,
    /// While the state is being downloaded.
    syncing: Option<Syncing<R, S>>,
    flaw: Option<FlawKind>,
    /// How many states were asked for.
    syncs: u64,
    /// Joiners want the state after this step.
    snapshot: Option<u64>,
    /// Leaves want the state after this step.
    lent: Option<u64>,
    notices: Notices,
    stop: Option<bool>,
}

impl<R: StepResult, S> StepEngine<R, S> {
    /// Of a member that stands after `step` of this lineage, in a run of `last_step` steps. They are held.
    pub fn new(step: u64, lineage: Lineage, last_step: u64) -> Self {
        Self {
            last_step,
            over_after: None,
            is_concluded: false,
            step,
            lineage,
            result: None,
            aside: None,
            reduced_in: None,
            gate: CommitGate { view: None, last: Some(step) },
            hold_after: None,
            active: None,
            entered: 0,
            submitted: None,
            has_state: true,
            syncing: None,
            syncs: 0,
            flaw: None,
            snapshot: None,
            lent: None,
            notices: Notices::default(),
            stop: None,
        }
    }

    /// Of a member that holds no state but the initial one, and may not go on from that unless its view does.
    pub fn without_state(last_step: u64) -> Self {
        Self { has_state: false, ..Self::new(0, Lineage::NONE, last_step) }
    }

    /// Has them make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: FlawKind) {
        self.flaw = Some(flaw);
    }

    /// Where this member stands.
    pub fn progress(&self) -> Progress {
        let has_result = self.result.as_ref().is_some_and(|result| result.step() == self.step);
        let has_state = self.has_state && self.syncing.is_none();
        Progress { step: self.step, lineage: self.lineage, has_state, has_result }
    }

    /// Whether the steps stand.
    pub fn is_held(&self) -> bool {
        self.gate.last == Some(self.step)
    }

    /// Whether this member stands before the first step, so that its state is the initial one.
    pub(crate) fn is_initial(&self) -> bool {
        self.step == 0 && self.syncing.is_none()
    }

    /// Whether this member needs a state that is not here yet.
    pub(crate) fn lacks_state(&self) -> bool {
        self.syncing.as_ref().is_some_and(Syncing::lacks_state)
    }

    /// The run goes on from the initial state.
    pub(crate) fn draw_initial(&mut self) {
        self.has_state = true;
    }

    /// What may be committed.
    pub fn gate(&self) -> CommitGate {
        self.gate
    }

    /// The view in which steps run, or ran last.
    pub fn active(&self) -> Option<&ActiveView> {
        self.active.as_ref()
    }

    /// The result of `step`, for a member that lacks it. Who stands just before it is fetching it too, or is about to, as its own
    /// view tells it.
    pub fn result_of(&self, step: u64) -> SnapshotStatus<R> {
        match self.result.as_ref().filter(|result| result.step() == step) {
            Some(result) => SnapshotStatus::Here(result.clone()),
            None if self.step.checked_add(1) == Some(step) => SnapshotStatus::Later,
            None => SnapshotStatus::Nothing,
        }
    }

    /// What has happened and was not told yet; drain to `None`.
    pub fn take_notice(&mut self) -> Option<StepEvent> {
        self.notices.take()
    }

    /// Whether something has.
    pub fn has_notice(&self) -> bool {
        !self.notices.is_empty()
    }

    // --- The membership's side. ---

    /// Holds the steps. `Some` if they stand already; else [`StepEvent::Held`] follows, unless a newer hold replaces this one.
    /// `is_whole` says whether all of the contribution to the operation under way is there.
    pub fn hold(&mut self, hold: HoldPosition, is_whole: bool) -> Option<Progress> {
        // Others have to wait for a gradient that is still being computed, which the next view can use as well.
        let is_next = |step: &u64| is_whole && *step == self.step + 1 && self.gate.admits(*step);
        let under_way = self.submitted.filter(is_next);
        let last = match hold {
            HoldPosition::Now => self.step,
            HoldPosition::Boundary => under_way.unwrap_or(self.step),
            HoldPosition::After(step) => step.max(self.step),
        };
        self.gate.last = Some(last + u64::from(self.flaw == Some(FlawKind::HoldsLate)));
        self.hold_after = (last > self.step).then_some(last);
        // An answer to an older hold would be taken for one to this.
        self.notices.held = None;
        self.hold_after.is_none().then(|| self.progress())
    }

    /// Lets steps run in `view`. With `snapshot`, the learner hands out its state before it changes.
    pub fn open(&mut self, view: &View, snapshot: bool) {
        self.entered += 1;
        let (number, members) = (self.entered, Arc::from(view.members()));
        self.active = Some(ActiveView { number, lineage: Lineage::of(view), parent: view.parent, members });
        self.gate = CommitGate { view: Some(view.id()), last: None };
        (self.hold_after, self.submitted) = (None, None);
        if snapshot && self.syncing.is_none() {
            self.snapshot = Some(self.step);
        }
    }

    /// Has the learner hand out its state after `step`, the last one that is committed, before it changes. False if that is another one, or
    /// the state is not here.
    pub fn lend(&mut self, step: u64) -> bool {
        let is_here = self.step == step && self.has_state && self.syncing.is_none();
        self.lent = is_here.then_some(step);
        is_here
    }

    /// No step runs until the next [`Self::open`]: this member is in no view.
    pub fn close(&mut self) {
        self.gate = CommitGate { view: None, last: Some(self.step) };
        (self.active, self.submitted, self.hold_after) = (None, None, None);
        (self.snapshot, self.lent, self.aside) = (None, None, None);
        self.notices = Notices::default();
    }

    /// The state will be replaced by the one after `step` of this lineage, which is yet to come: results are kept until
    /// then. Returns the number to hand it over with.
    pub fn sync(&mut self, step: u64, lineage: Lineage) -> u64 {
        self.syncs += 1;
        (self.step, self.lineage) = (step, lineage);
        (self.result, self.submitted, self.snapshot, self.lent) = (None, None, None, None);
        // What is over is so in another state than the one that comes.
        (self.gate.last, self.has_state) = (Some(step), true);
        (self.over_after, self.is_concluded) = (None, false);
        self.syncing = Some(Syncing::new(self.syncs, step));
        // A word about an earlier download would be taken for one about this.
        self.notices = Notices::default();
        self.syncs
    }

    /// Hands over the state asked for as `number`; false if it is not wanted any more.
    pub fn arrive(&mut self, number: u64, state: S) -> bool {
        let wanted = self.syncing.as_mut().filter(|syncing| syncing.number == number);
        wanted.map(|syncing| syncing.arrive(state)).is_some()
    }

    /// Takes in the result of the next step, which another member has committed.
    ///
    /// # Errors
    /// The result, if it is not the next step's, or is to be applied to another state.
    pub fn deliver(&mut self, result: R) -> Result<Option<R>, R> {
        let is_next = result.step() == self.step + 1 && result.after() == self.lineage;
        if is_next { Ok(self.commit(result, None)) } else { Err(result) }
    }

    /// Keeps a result that was fetched.
    pub(crate) fn put_aside(&mut self, result: R) {
        self.aside = Some(result);
    }

    pub(crate) fn take_aside(&mut self) -> Option<R> {
        self.aside.take()
    }

    /// Ends the learner once it is through with what it is at; if it is to `evaluate`, what is committed is applied first.
    pub fn stop(&mut self, evaluate: bool) {
        self.gate.last = Some(self.step);
        self.stop = Some(evaluate);
    }

    /// No step is taken after `step`, which this member has applied: nor do those who apply the same.
    pub fn end_after(&mut self, step: u64) {
        self.over_after = Some(step);
    }

    /// The run has ended with the state after `step`, which this member holds: so have those found who hold the same, and it does not
    /// go on if all are started again.
    pub fn conclude_after(&mut self, step: u64) {
        (self.over_after, self.is_concluded) = (Some(step), true);
    }

    /// The run's last step: that of its manifest, or where it has ended before.
    pub fn last_step(&self) -> u64 {
        if self.is_concluded { self.end() } else { self.last_step }
    }

    /// The step after which none is taken.
    fn end(&self) -> u64 {
        self.over_after.map_or(self.last_step, |over| over.min(self.last_step))
    }

    /// Whether the learner is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    // --- The reducer's side. ---

    /// The active view, if it is `view` and the operation of `step` is under way in it and may still complete.
    pub fn under_way(&self, view: ViewId, step: u64) -> Option<&ActiveView> {
        self.active
            .as_ref()
            .filter(|active| active.lineage.view == view && self.operation() == Some((active.number, step)))
    }

    /// The operation under way that may still complete: the number of its active view, and its step.
    pub fn operation(&self) -> Option<(u64, u64)> {
        let step = self.submitted.filter(|step| self.gate.admits(*step))?;
        Some((self.active.as_ref()?.number, step))
    }

    /// The active view, if it is `view` and the operation of `step` may complete in it.
    pub fn admits(&self, view: ViewId, step: u64) -> Option<&ActiveView> {
        let is_admitted = self.gate.view == Some(view) && step == self.step + 1 && self.gate.admits(step);
        self.active.as_ref().filter(|active| is_admitted && active.lineage.view == view)
    }

    /// Commits a step that this member's gate [`admits`](Self::admits): its operation is complete here. `is_finite` says
    /// whether somebody has looked at all of the result. Returns the result before it.
    ///
    /// # Panics
    /// If the gate does not admit it: nothing may be committed that a promise says is not.
    pub fn complete(&mut self, view: ViewId, result: R, is_finite: bool) -> Option<R> {
        let number = self.admits(view, result.step()).map(|active| active.number);
        let number = number.expect("invariant: only what is admitted is completed");
        self.commit(result, Some(number).filter(|_| is_finite))
    }

    fn commit(&mut self, result: R, reduced_in: Option<u64>) -> Option<R> {
        (self.step, self.lineage) = (result.step(), result.lineage());
        (self.reduced_in, self.submitted) = (reduced_in, None);
        let keeps = self.flaw != Some(FlawKind::DropsKept);
        let has_room = self.syncing.as_mut().filter(|_| keeps).is_none_or(|syncing| syncing.keep(result.clone()));
        let older = self.result.replace(result);
        if !has_room {
            self.notices.is_too_far_behind = true;
        } else if self.hold_after.take_if(|last| *last <= self.step).is_some() {
            self.notices.held = Some(self.progress());
        }
        older
    }

    // --- The learner's side. ---

    /// What the learner is to do next, if anything. The cursor is moved to where that leads.
    pub fn next(&mut self, cursor: &mut LearnerPosition) -> Option<Task<R, S>> {
        if let Some(evaluate) = self.stop {
            // Who leaves in order has said that this step is committed: its last state is the one after it.
            let committed = if evaluate && self.syncing.is_none() { self.apply_next(cursor) } else { None };
            return committed.or(Some(Task::Stop { evaluate }));
        }
        if let Some(syncing) = &mut self.syncing {
            if let Some(next) = syncing.next(cursor) {
                return Some(next);
            }
            if !syncing.is_through() {
                return None;
            }
            self.syncing = None;
            cursor.prepared = false;
            self.notices.is_synced = true;
            return Some(Task::Synced);
        }
        // Until the first step is committed, it belongs to the members of the newest view.
        if cursor.step == 0
            && self.step == 0
            && let Some(active) = self.active.as_ref().filter(|active| active.number != cursor.begun)
        {
            cursor.begun = active.number;
            return Some(Task::Begin { members: active.members.clone() });
        }
        let is_wanted =
            [&mut self.snapshot, &mut self.lent].map(|it| it.take_if(|step| *step == cursor.step).is_some());
        if is_wanted.contains(&true) {
            return Some(Task::Snapshot);
        }
        if let Some(apply) = self.apply_next(cursor) {
            return Some(apply);
        }
        let active = self.active.as_ref()?;
        if cursor.step != self.step {
            return None;
        }
        let pending = cursor.step + 1;
        if pending > self.end() {
            let is_news = cursor.finished != active.number;
            cursor.finished = active.number;
            return is_news.then_some(Task::Finished);
        }
        if !cursor.prepared {
            return Some(Task::Compute);
        }
        if cursor.contributed == active.number {
            let is_idle = !std::mem::replace(&mut cursor.loaded, true) && pending < self.end();
            return is_idle.then(|| Task::LoadAhead { members: active.members.clone() });
        }
        if !self.gate.admits(pending) {
            return None;
        }
        cursor.contributed = active.number;
        Some(Task::Contribute(active.clone()))
    }

    /// This member brings nothing to `step`: its data is on its way.
    pub fn starve(&mut self, step: u64) {
        self.notices.starved = Some(step);
    }

    /// The state after `step` has this digest. What is about to be replaced is not compared.
    pub fn compare(&mut self, step: u64, digest: Digest) {
        if self.syncing.as_ref().is_none_or(Syncing::is_loaded) {
            self.notices.digest = Some((step, digest));
        }
    }

    /// The learner is through with [`Task::Finished`]: this is the last state, and whether it is on disk. Of no use if that is about to be
    /// replaced.
    pub fn finish(&mut self, step: u64, digest: Digest, is_saved: bool) {
        if self.syncing.is_none() {
            self.notices.finished = Some((step, digest, is_saved));
        }
    }

    /// The committed result that is to be applied next, if it is here.
    fn apply_next(&self, cursor: &mut LearnerPosition) -> Option<Task<R, S>> {
        let result = self.result.as_ref().filter(|result| result.step() == cursor.step + 1)?;
        *cursor = LearnerPosition::after(result.step());
        Some(Task::Apply { result: result.clone(), reduced_in: self.reduced_in })
    }

    /// Whether the learner, which has nothing else to do, may work ahead with parts of the result of the step under way.
    pub fn may_work_ahead(&self, cursor: &LearnerPosition) -> bool {
        let is_next = self.submitted == Some(cursor.step + 1) && cursor.step == self.step;
        self.stop.is_none() && self.syncing.is_none() && is_next && cursor.prepared
    }

    /// The view in which the step that is about to be computed can be contributed to at once, while it is computed: once in
    /// each view, and never alone.
    pub fn contribute_early(&self, cursor: &mut LearnerPosition) -> Option<ActiveView> {
        let in_need = |active: &&ActiveView| !active.is_alone() && active.number != cursor.contributed;
        let active = self.active.as_ref().filter(in_need)?;
        let step = cursor.step + 1;
        let is_assigned = cursor.step > 0 || cursor.begun == active.number;
        if self.stop.is_some() || self.syncing.is_some() || cursor.step != self.step || !is_assigned {
            return None;
        }
        if step > self.end() || !self.gate.admits(step) {
            return None;
        }
        cursor.contributed = active.number;
        Some(active.clone())
    }

    /// Takes note that the active view of this `number` gets this member's contribution to `step`. False if that view is
    /// over, or has it: then the contribution is of no use.
    pub fn submit(&mut self, number: u64, step: u64) -> bool {
        let is_current = self.active.as_ref().is_some_and(|active| active.number == number);
        let is_due = self.submitted.is_none() && step == self.step + 1 && self.gate.admits(step);
        if is_current && is_due {
            self.submitted = Some(step);
        }
        is_current && is_due
    }

    /// What a member does for the others' next step while it syncs for the `number`th time.
    pub fn take_part(&self, number: u64) -> SyncDecision {
        if self.stop.is_some() || self.syncing.as_ref().is_none_or(|syncing| syncing.number != number) {
            return SyncDecision::Over;
        }
        let step = self.step + 1;
        let is_due = self.submitted.is_none() && self.gate.admits(step) && step <= self.end();
        match self.active.as_ref().filter(|_| is_due) {
            Some(active) => SyncDecision::Contribute(active.clone(), step),
            None => SyncDecision::Wait,
        }
    }

    /// Takes over the snapshot that joiners want, once it is of a step that `is_here`: for whoever has the state beside the
    /// learner, which may be busy for long.
    pub fn take_snapshot(&mut self, is_here: impl Fn(u64) -> bool) -> Option<u64> {
        self.snapshot.take_if(|step| is_here(*step)).or_else(|| self.lent.take_if(|step| is_here(*step)))
    }
}
