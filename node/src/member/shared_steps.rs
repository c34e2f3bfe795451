//! Where trainer thread, reducer and event loop meet: they share one member's [`Steps`], which decide what each may do.
//!
//! Everything is behind one small mutex that nobody holds while doing work. Beside the steps there is what only threads and
//! buffers need: who waits for what, memory to be used again, and parts of results on their way.

mod carrying;
mod following;
mod parts;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use starling_collective::codec::kernel;
use starling_collective::{OperationResidual, PendingResidual};
use starling_engine::leaf::leaf_engine::LeafTask;
use starling_engine::{ActiveView, CommitGate, LearnerPosition, SnapshotStatus, StepEvent, SyncDecision};
use starling_run::audit::AuditView;
use starling_run::data::RunPosition;
use starling_run::{ReplicatedState, ResultRecord};
use starling_topology::{Ledger, Progress, Time, ViewId};
use tokio::sync::{Notify, mpsc, watch};

pub(crate) use carrying::{CarrierInput, CarrierOutput, Carrying, PartTask};
pub(crate) use following::{Following, LeafAction, LeafInput};
pub(crate) use parts::Part;
use parts::{PartOffer, Parts};

use crate::learner::contribution::{Brought, Contribution, Readiness};
use crate::reducer::{Completion, Operation, Own, ResultSink};

/// The steps of a member that holds the state after the last one, or fetches it.
pub(crate) type Steps = starling_engine::StepEngine<Arc<ResultRecord>, Box<ReplicatedState>>;
/// What the trainer thread is told.
pub(crate) type Task = starling_engine::Task<Arc<ResultRecord>, Box<ReplicatedState>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct SharedSteps {
    inner: Mutex<Inner>,
    /// For the threads.
    changed: Condvar,
    /// For the reducers.
    gate: watch::Sender<CommitGate>,
    /// For the event loop.
    noticed: Notify,
    /// For whoever speaks with leaves, or for one.
    said: Notify,
    began: Instant,
}

/// What goes on beside the steps.
#[derive(Debug)]
pub(crate) enum Side {
    /// A program's own buffers have no shares.
    Nothing,
    /// Leaves take part through this member.
    Carrier(Box<Carrying>),
    /// It takes part through a member.
    Leaf(Box<Following>),
}

/// What the trainer thread is to do.
#[derive(Debug)]
pub(crate) enum LearnerTask {
    Task(Task),
    /// Begin the update with this part of the result.
    WorkAhead(Part),
    /// Compute this for the member that carries this leaf.
    Carried(LeafTask),
}

#[derive(Debug)]
struct Inner {
    steps: Steps,
    side: Side,
    batch_size: f32,
    /// The queue of the newest view's reducer; `None` in a view of one.
    operations: Option<mpsc::Sender<Operation>>,
    /// What is reduced already of the operation under way.
    parts: Parts,
    /// Which one that is: the number of its view, and its step.
    parts_of: Option<(u64, u64)>,
    /// How much of that operation's contribution is there; `None` if it was whole from the beginning.
    coming: Option<Readiness>,
    /// What a lossy codec dropped here of the newest step that was reduced, or begun.
    booked: PendingResidual,
    /// What this member alone has of the newest step, if that left each with something else.
    own: Option<(u64, Own)>,
    /// Memory of an earlier operation, for the next one.
    spare: Vec<f32>,
    /// The newest pending step of the state that the trainer thread holds, and where in the data it is.
    dealt: Option<(u64, RunPosition)>,
}

impl Inner {
    /// Takes the memory of a result that the steps have no use for any more, if nobody else reads it. Beside a model, which is computed with until
    /// the next one, there is better use for it.
    fn reuse(&mut self, older: Option<Arc<ResultRecord>>) {
        if matches!(self.side, Side::Nothing)
            && let Some(older) = older.and_then(Arc::into_inner)
        {
            self.spare = older.mean;
        }
    }

    /// Whether all of the contribution to the operation under way is there.
    fn is_whole(&self) -> bool {
        self.coming.as_ref().is_none_or(|coming| *coming.borrow() == 0)
    }

    /// Drops the parts of an operation that is over.
    fn drop_parts(&mut self) {
        if self.parts_of != self.steps.operation() {
            self.parts_of = self.steps.operation();
            self.parts.clear();
        }
    }

    /// By the ledger of the state that the thread holds, `now`.
    fn next(&mut self, at: &mut LearnerPosition, now: Time, ledger: Option<&Ledger>) -> Option<LearnerTask> {
        if let Some(task) = self.steps.next(at) {
            return Some(LearnerTask::Task(task));
        }
        if self.steps.may_work_ahead(at) {
            return self.parts.pop().map(LearnerTask::WorkAhead);
        }
        match &mut self.side {
            Side::Leaf(following) => following.next_task(now, &mut self.steps, ledger?).map(LearnerTask::Carried),
            Side::Carrier(_) | Side::Nothing => None,
        }
    }

    /// Whether there is something to be said to leaves, or by one.
    fn has_said(&self) -> bool {
        match &self.side {
            Side::Carrier(carrying) => carrying.has_news(),
            Side::Leaf(following) => following.has_news(),
            Side::Nothing => false,
        }
    }
}

impl SharedSteps {
    pub(crate) fn new(mut steps: Steps, batch_size: u32, mut side: Side) -> Arc<Self> {
        if let Side::Leaf(following) = &mut side {
            following.begin(&mut steps);
        }
        Arc::new(Self {
            gate: watch::Sender::new(steps.gate()),
            inner: Mutex::new(Inner {
                steps,
                side,
                batch_size: batch_size as f32,
                operations: None,
                parts: Parts::default(),
                parts_of: None,
                coming: None,
                booked: PendingResidual::default(),
                own: None,
                spare: Vec::new(),
                dealt: None,
            }),
            changed: Condvar::new(),
            noticed: Notify::new(),
            said: Notify::new(),
            began: Instant::now(),
        })
    }

    // --- The event loop's side. ---

    /// Where this member stands.
    pub(crate) fn progress(&self) -> Progress {
        self.lock().steps.progress()
    }

    /// The last step committed here; and the operation under way, as [`Steps::operation`], if all of this member's contribution
    /// to it is there.
    pub(crate) fn reached(&self) -> (u64, Option<(u64, u64)>) {
        let inner = self.lock();
        (inner.steps.progress().step, inner.steps.operation().filter(|_| inner.is_whole()))
    }

    /// As [`Self::act`], for one who asks whether all of the contribution to the operation under way is there.
    pub(crate) fn hold<T>(&self, hold: impl FnOnce(&mut Steps, bool) -> T) -> T {
        let mut inner = self.lock();
        let is_whole = inner.is_whole();
        let held = hold(&mut inner.steps, is_whole);
        self.settle(&mut inner);
        held
    }

    /// As [`Self::act`], with the queue of the next view's reducer, `None` in a view of one.
    pub(crate) fn enter<T>(
        &self,
        operations: Option<mpsc::Sender<Operation>>,
        enter: impl FnOnce(&mut Steps) -> T,
    ) -> T {
        let mut inner = self.lock();
        inner.operations = operations;
        let entered = enter(&mut inner.steps);
        self.settle(&mut inner);
        entered
    }

    /// Lets the event loop's machines act on the steps.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&mut Steps) -> T) -> T {
        let mut inner = self.lock();
        let acted = act(&mut inner.steps);
        self.settle(&mut inner);
        acted
    }

    /// What has happened since the last notice; waits for it. Can be cancelled.
    pub(crate) async fn noticed(&self) -> StepEvent {
        loop {
            if let Some(notice) = self.lock().steps.take_notice() {
                return notice;
            }
            self.noticed.notified().await;
        }
    }

    /// Ends the trainer thread once it is through with what it is at.
    pub(crate) fn stop(&self, evaluate: bool) {
        self.act(|steps| steps.stop(evaluate));
    }

    /// The view in which steps run, or ran last.
    pub(crate) fn view(&self) -> Option<AuditView> {
        let inner = self.lock();
        let ActiveView { lineage, parent, .. } = *inner.steps.active()?;
        Some(AuditView { generation: lineage.generation, view: lineage.view, parent })
    }

    /// The result of `step`, for a member that lacks it.
    pub(crate) fn result_of(&self, step: u64) -> SnapshotStatus<Arc<ResultRecord>> {
        self.lock().steps.result_of(step)
    }

    // --- The threads' side. ---

    /// What the trainer thread, which holds a state with this ledger, is to do next; waits until there is something.
    pub(crate) fn next(&self, at: &mut LearnerPosition, ledger: &Ledger) -> LearnerTask {
        let first = ledger.shares().first().and_then(|(_, ranges)| ranges.first()).map(|range| range.start);
        let position = |pending| RunPosition::At { epoch: ledger.epoch(), pending, cursor: ledger.cursor() };
        self.lock().dealt = first.map(|pending| (ledger.step(), position(pending)));
        self.wait_for(|inner| inner.next(at, self.now(), Some(ledger)))
    }

    /// Where the run is in its data, as far as this member knows.
    pub(crate) fn run_position(&self) -> RunPosition {
        let inner = self.lock();
        let step = inner.steps.progress().step;
        // Another state may be on its way here.
        let dealt = inner.dealt.as_ref().filter(|(pending, _)| *pending >= step.max(1));
        dealt.map_or(RunPosition::Behind(step..=step), |(_, position)| position.clone())
    }

    /// The same for a thread that has no use for parts.
    pub(crate) fn next_task(&self, at: &mut LearnerPosition) -> Task {
        self.wait_for(|inner| inner.steps.next(at))
    }

    /// The next step that a member which is syncing has to contribute nothing to, so that the others can go on: once in
    /// each view. Waits for it; `None` once the sync of this `number` is over.
    pub(crate) fn next_without_state(&self, number: u64) -> Option<(ActiveView, u64)> {
        self.wait_for(|inner| match inner.steps.take_part(number) {
            SyncDecision::Contribute(active, step) => Some(Some((active, step))),
            SyncDecision::Over => Some(None),
            SyncDecision::Wait => None,
        })
    }

    /// Takes over the snapshot that joiners want, once it is of a step that `is_here`: for a thread beside the one that
    /// takes the steps, which may be busy for long. Waits for it; `None` at the end.
    pub(crate) fn next_snapshot(&self, is_here: impl Fn(u64) -> bool) -> Option<u64> {
        self.wait_for(|inner| match inner.steps.is_stopped() {
            true => Some(None),
            false => inner.steps.take_snapshot(&is_here).map(Some),
        })
    }

    /// Lets [`Self::next_snapshot`] look again.
    pub(crate) fn look_again(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits until the thread is to end.
    pub(crate) fn wait_for_stop(&self) {
        self.wait_for(|inner| inner.steps.is_stopped().then_some(()));
    }

    /// Keeps the thread idle for so long, or until it is to end.
    pub(crate) fn rest(&self, time: Duration) {
        let began = Instant::now();
        let mut inner = self.lock();
        while !inner.steps.is_stopped()
            && let Some(left) = time.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
        {
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// From now on, results are handed over in parts, too, while they are being reduced.
    pub(crate) fn want_parts(&self) {
        self.lock().parts.want();
    }

    /// Takes back the memory of a part.
    pub(crate) fn recycle_part(&self, memory: Vec<f32>) {
        self.lock().parts.recycle(memory);
    }

    /// Memory for a later operation, if none is there.
    pub(crate) fn recycle(&self, memory: Vec<f32>) {
        let mut inner = self.lock();
        if inner.spare.capacity() == 0 {
            inner.spare = memory;
        }
    }

    /// Memory for a contribution.
    pub(crate) fn spare(&self) -> Vec<f32> {
        std::mem::take(&mut self.lock().spare)
    }

    /// What a lossy codec dropped here of a step that is committed; `None` if nothing was, or nobody knows: the task that
    /// reduced it may have ended before it could tell.
    pub(crate) fn dropped(&self, step: u64) -> Option<OperationResidual> {
        let mut inner = self.lock();
        let committed = inner.steps.progress().step;
        if step <= committed { inner.booked.take(step) } else { None }
    }

    /// What this member alone has of `step`, once; `None` if it has nothing, or has the step from others.
    pub(crate) fn take_own(&self, step: u64) -> Option<Own> {
        self.lock().own.take().filter(|(of, _)| *of == step).map(|(_, own)| own)
    }

    /// As [`Steps::contribute_early`].
    pub(crate) fn contribute_early(&self, at: &mut LearnerPosition) -> Option<ActiveView> {
        self.lock().steps.contribute_early(at)
    }

    /// Hands a contribution to the reducer of the view, which books in `dropped` what its codec drops. Does nothing, and says
    /// so, if the view is over, or has this member's contribution.
    pub(crate) fn submit(
        &self,
        active: &ActiveView,
        step: u64,
        brought: Brought,
        dropped: Option<OperationResidual>,
    ) -> bool {
        let mut inner = self.lock();
        if !inner.steps.submit(active.number, step) {
            if let Brought::Whole(buffer) | Brought::Nothing(buffer) = brought {
                inner.spare = buffer;
            }
            return false;
        }
        inner.booked.begin(active.lineage.view, step);
        let (mut buffer, contribution, is_agreed) = match brought {
            Brought::Whole(buffer) => (buffer, None, false),
            Brought::Nothing(buffer) => (buffer, None, true),
            Brought::Coming(contribution) => {
                let is_agreed = contribution.is_agreed;
                (std::mem::take(&mut inner.spare), Some(contribution), is_agreed)
            }
        };
        inner.coming = contribution.as_ref().map(Contribution::readiness);
        inner.drop_parts();
        let (divisor, operations) = (inner.batch_size, inner.operations.clone());
        drop(inner);
        match operations {
            // A reducer whose links have broken takes nothing; their loss changes the view.
            Some(operations) => {
                drop(operations.try_send(Operation { step, buffer, contribution, is_agreed, divisor, dropped }));
            }
            None => {
                let mut own = None;
                if let Some(contribution) = contribution {
                    buffer = contribution.room(buffer);
                    contribution.fill(0..buffer.len(), &mut buffer);
                    // Alone, it has all parts.
                    own = is_agreed.then(|| Own::whole(&buffer[..contribution.elements()]));
                }
                kernel::divide(&mut buffer, divisor);
                self.complete(
                    active.lineage.view,
                    step,
                    Completion { mean: buffer, is_finite: false, dropped: None, own },
                );
            }
        }
        true
    }

    fn wait_for<T>(&self, mut look: impl FnMut(&mut Inner) -> Option<T>) -> T {
        let mut inner = self.lock();
        loop {
            if let Some(found) = look(&mut inner) {
                // What the thread is told may be news to the event loop, and to leaves.
                if inner.steps.has_notice() {
                    self.noticed.notify_one();
                }
                self.look(&mut inner);
                return found;
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The present time, as machines beside the steps count it.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// When that is.
    pub(crate) fn instant(&self, at: Time) -> Instant {
        self.began + (at - Time::ZERO)
    }

    /// Has the machine of leaves look where the steps stand.
    fn look(&self, inner: &mut Inner) {
        if let Side::Carrier(carrying) = &mut inner.side {
            carrying.look(self.now(), &mut inner.steps);
        }
        if inner.has_said() {
            self.said.notify_one();
        }
    }

    /// Tells everybody that something was asked beside the steps.
    fn tell(&self, inner: &Inner) {
        if inner.has_said() {
            self.said.notify_one();
        }
        self.changed.notify_all();
    }

    /// Tells everybody that the steps have changed.
    fn settle(&self, inner: &mut Inner) {
        self.look(inner);
        inner.drop_parts();
        self.gate.send_if_modified(|gate| std::mem::replace(gate, inner.steps.gate()) != inner.steps.gate());
        if inner.steps.has_notice() {
            self.noticed.notify_one();
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResultSink for SharedSteps {
    fn gate(&self) -> watch::Receiver<CommitGate> {
        self.gate.subscribe()
    }

    /// Commits the step, if the gate still admits it.
    fn complete(&self, view: ViewId, step: u64, completion: Completion) -> bool {
        let Completion { mean, is_finite, dropped, own } = completion;
        let mut inner = self.lock();
        inner.booked.end(view, step, dropped);
        let admitted = inner.steps.admits(view, step).map(|active| (active.lineage, active.members.to_vec()));
        let Some((lineage, members)) = admitted else {
            inner.spare = mean;
            return false;
        };
        let after = inner.steps.progress().lineage;
        let result = ResultRecord { step, lineage, after, members, mean };
        let older = inner.steps.complete(view, Arc::new(result), is_finite);
        inner.own = own.map(|own| (step, own));
        // Leaves are told first: what is kept for them is the newest one then, and the older is nobody's.
        self.settle(&mut inner);
        inner.reuse(older);
        true
    }

    /// Copies the part, without the lock, if the trainer thread will have use for it.
    fn offer(&self, view: ViewId, step: u64, start: usize, numbers: &[f32]) -> bool {
        let mut memory = {
            let mut inner = self.lock();
            match inner.steps.under_way(view, step).is_some().then(|| inner.parts.offer()) {
                None | Some(PartOffer::Declined) => return true,
                Some(PartOffer::Later) => return false,
                Some(PartOffer::Welcome(memory)) => memory,
            }
        };
        memory.clear();
        memory.extend_from_slice(numbers);
        let mut inner = self.lock();
        if let Some(active) = inner.steps.under_way(view, step) {
            let part = Part { view: active.number, members: active.members.clone(), start, numbers: memory };
            inner.parts.push(part);
            self.changed.notify_all();
        }
        true
    }

    fn interrupted(&self, view: ViewId, step: u64, buffer: Vec<f32>, dropped: Option<OperationResidual>) {
        let mut inner = self.lock();
        inner.booked.end(view, step, dropped);
        inner.spare = buffer;
    }
}
