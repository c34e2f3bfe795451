//! Where trainer thread, reducer and event loop meet, and where a step is **committed**.
//!
//! ```text
//!   trainer thread -- next: compute, contribute, apply, ... --+      hold, open, deliver -- event loop
//!                                                             v      v
//!                                                           Exchange
//!                                                               ^
//!                                     complete: the mean is here | gate: stop what is not admitted
//!                                                            reducer
//! ```
//!
//! A step is committed on this member in the instant in which its operation completes here while the gate admits it. So
//! the question "where do you stand?" is answered at once, however long the trainer thread computes; it applies committed
//! results in order, when it comes to them. Everything is behind one small mutex that nobody holds while doing work.

mod inner;
mod parts;
mod syncing;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use starling_collective::{Dropped, kernel};
use starling_run::{ReplicatedState, ResultRecord};
use starling_topology::{Generation, Hold, PeerId, Progress, View, ViewId};
use tokio::sync::{Notify, watch};

use inner::Inner;
use parts::Offer;
pub(crate) use parts::Part;
pub(crate) use syncing::{MIN_KEPT, Syncing};
pub(crate) use turn::{At, Gate, Next, Turn};

use crate::contribution::{Brought, Contribution};
use crate::reducer::{Completion, Operation, Results};

/// What the event loop is to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The steps stand, as the hold asked.
    Held(Progress),
    /// More results wait for the state than fit in memory.
    TooFarBehind,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Exchange {
    inner: Mutex<Inner>,
    /// For the threads.
    changed: Condvar,
    /// For the reducers.
    gate: watch::Sender<Gate>,
    /// For the event loop.
    noticed: Notify,
}

impl Exchange {
    /// Of a member that stands after `step`, or of a joiner (`has_state` is false then).
    pub(crate) fn new(step: u64, last_step: u64, batch_size: u32) -> Arc<Self> {
        let inner = Inner::new(step, last_step, batch_size);
        Arc::new(Self {
            gate: watch::Sender::new(inner.gate),
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            noticed: Notify::new(),
        })
    }

    // --- The event loop's side. ---

    /// Where this member stands.
    pub(crate) fn progress(&self) -> Progress {
        self.lock().progress()
    }

    /// Holds the steps. `Some` if they stand already; else [`Notice::Held`] follows, unless a newer hold replaces this one.
    pub(crate) fn hold(&self, hold: Hold) -> Option<Progress> {
        let mut inner = self.lock();
        // Others have to wait for a gradient that is still being computed, which the next view can use as well.
        let is_whole = inner.coming.as_ref().is_none_or(|coming| *coming.borrow() == 0);
        let is_next = |step: &u64| is_whole && *step == inner.step + 1 && inner.gate.admits(*step);
        let under_way = inner.submitted.filter(is_next);
        let last = match hold {
            Hold::Now => inner.step,
            Hold::Boundary => under_way.unwrap_or(inner.step),
            Hold::After(step) => step.max(inner.step),
        };
        inner.gate.last = Some(last);
        inner.awaited = (last > inner.step).then_some(last);
        // An answer to an older hold would be taken for one to this.
        inner.notice.take_if(|notice| matches!(notice, Notice::Held(_)));
        self.tell_gate(&inner);
        inner.awaited.is_none().then(|| inner.progress())
    }

    /// What has happened since the last notice; waits for it. Can be cancelled.
    pub(crate) async fn noticed(&self) -> Notice {
        loop {
            if let Some(notice) = self.lock().notice.take() {
                return notice;
            }
            self.noticed.notified().await;
        }
    }

    /// Takes in the result of the next step, which another member has committed. False if it is not the next one's.
    pub(crate) fn deliver(&self, record: ResultRecord) -> bool {
        let mut inner = self.lock();
        if record.step != inner.step + 1 {
            return false;
        }
        self.commit(&mut inner, record, None);
        true
    }

    /// The state will be replaced by the one after `step`, which is yet to come: results are kept until then. Returns
    /// the number to hand it over with.
    pub(crate) fn sync(&self, step: u64) -> u64 {
        let mut inner = self.lock();
        inner.syncs += 1;
        inner.step = step;
        inner.record = None;
        inner.submitted = None;
        inner.snapshot = None;
        inner.gate.last = Some(step);
        inner.syncing = Some(Syncing::new(inner.syncs));
        self.tell_gate(&inner);
        self.changed.notify_all();
        inner.syncs
    }

    /// Whether this member stands before the first step, with the initial state.
    pub(crate) fn is_initial(&self) -> bool {
        let inner = self.lock();
        inner.step == 0 && inner.syncing.is_none()
    }

    /// Hands over the state asked for as `number`.
    pub(crate) fn arrive(&self, number: u64, state: Box<ReplicatedState>) {
        let mut inner = self.lock();
        if let Some(syncing) = inner.syncing.as_mut().filter(|syncing| syncing.number == number) {
            syncing.arrive(state);
            self.changed.notify_all();
        }
    }

    /// Lets steps run in `view`. `operations` is its reducer's queue, `None` in a view of one. With `snapshot`, the trainer
    /// hands out its state before it changes.
    pub(crate) fn open(&self, view: &View, operations: Option<tokio::sync::mpsc::Sender<Operation>>, snapshot: bool) {
        let mut inner = self.lock();
        inner.turns += 1;
        let (number, members) = (inner.turns, Arc::from(view.members()));
        inner.turn = Some(Turn { number, generation: view.generation, view: view.id(), members, operations });
        inner.gate = Gate { view: Some(view.id()), last: None };
        (inner.awaited, inner.submitted) = (None, None);
        inner.parts.clear();
        if snapshot && inner.syncing.is_none() {
            inner.snapshot = Some(inner.step);
        }
        self.tell_gate(&inner);
        self.changed.notify_all();
    }

    /// No step runs until the next [`Self::open`]: this peer is in no view.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.gate = Gate { view: None, last: Some(inner.step) };
        (inner.turn, inner.submitted, inner.awaited, inner.snapshot) = (None, None, None, None);
        inner.parts.clear();
        self.tell_gate(&inner);
    }

    /// Ends the trainer thread once it is through with what it is at.
    pub(crate) fn stop(&self, evaluate: bool) {
        let mut inner = self.lock();
        inner.gate.last = Some(inner.step);
        inner.stop = Some(evaluate);
        self.tell_gate(&inner);
        self.changed.notify_all();
    }

    /// The view in which steps run, or ran last.
    pub(crate) fn view(&self) -> Option<(Generation, ViewId)> {
        self.lock().turn.as_ref().map(|turn| (turn.generation, turn.view))
    }

    /// The newest result, for a member that lacks it.
    pub(crate) fn record(&self) -> Option<Arc<ResultRecord>> {
        self.lock().record.clone()
    }

    fn commit(&self, inner: &mut Inner, record: ResultRecord, reduced_in: Option<u64>) {
        inner.step = record.step;
        inner.reduced_in = reduced_in;
        inner.submitted = None;
        inner.parts.clear();
        let record = Arc::new(record);
        let too_far = inner.syncing.as_mut().is_some_and(|syncing| !syncing.keep(record.clone()));
        let older = inner.record.replace(record);
        // With nobody reading the older one, its memory is free for the next operation.
        if let Some(older) = older.and_then(Arc::into_inner) {
            inner.spare = older.mean;
        }
        if too_far {
            inner.notice = Some(Notice::TooFarBehind);
            self.noticed.notify_one();
        } else if inner.awaited.take_if(|awaited| *awaited <= inner.step).is_some() {
            inner.notice = Some(Notice::Held(inner.progress()));
            self.noticed.notify_one();
        }
        self.changed.notify_all();
    }

    // --- The threads' side. ---

    /// What the trainer thread is to do next; waits until there is something.
    pub(crate) fn next(&self, at: &mut At) -> Next {
        let mut inner = self.lock();
        loop {
            if let Some(next) = inner.next(at) {
                return next;
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next step that a member which is syncing has to contribute nothing to, so that the others can go on: once in
    /// each turn. Waits for it; `None` once the sync of this `number` is over.
    pub(crate) fn next_without_state(&self, number: u64) -> Option<(Turn, u64)> {
        let mut inner = self.lock();
        loop {
            if inner.stop.is_some() || inner.syncing.as_ref().is_none_or(|syncing| syncing.number != number) {
                return None;
            }
            let step = inner.step + 1;
            if let Some(turn) = &inner.turn
                && inner.submitted.is_none()
                && inner.gate.admits(step)
                && step <= inner.last_step
            {
                return Some((turn.clone(), step));
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes over the snapshot that joiners want, once it is of a step that `is_here`: for a thread beside the one that
    /// takes the steps, which may be busy for long. Waits for it; `None` at the end.
    pub(crate) fn next_snapshot(&self, is_here: impl Fn(u64) -> bool) -> Option<u64> {
        let mut inner = self.lock();
        loop {
            if inner.stop.is_some() {
                return None;
            }
            if let Some(step) = inner.snapshot.take_if(|step| is_here(*step)) {
                return Some(step);
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets [`Self::next_snapshot`] look again.
    pub(crate) fn look_again(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits until the thread is to end.
    pub(crate) fn wait_for_stop(&self) {
        let inner = self.changed.wait_while(self.lock(), |inner| inner.stop.is_none());
        drop(inner);
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
    pub(crate) fn dropped(&self, step: u64) -> Option<Dropped> {
        let mut inner = self.lock();
        let committed = inner.step;
        inner.dropped.take_if(|(of, _)| *of == step && step <= committed).map(|(_, dropped)| dropped)
    }

    /// The turn in which the step that is about to be computed can be contributed to at once, while it is computed: once in
    /// each turn, and never in a view of one.
    pub(crate) fn opening(&self, at: &mut At) -> Option<Turn> {
        let inner = self.lock();
        let turn = inner.turn.as_ref().filter(|turn| turn.operations.is_some() && turn.number != at.contributed)?;
        let step = at.step + 1;
        let is_assigned = at.step > 0 || at.begun == turn.number;
        if inner.stop.is_some() || inner.syncing.is_some() || at.step != inner.step || !is_assigned {
            return None;
        }
        if step > inner.last_step || !inner.gate.admits(step) {
            return None;
        }
        at.contributed = turn.number;
        Some(turn.clone())
    }

    /// Hands a contribution to the reducer of `turn`, which books in `dropped` what its codec drops. Does nothing if the
    /// turn is over, or has this member's contribution.
    pub(crate) fn submit(&self, turn: &Turn, step: u64, brought: Brought, dropped: Option<Dropped>) {
        let mut inner = self.lock();
        let is_current = inner.turn.as_ref().is_some_and(|current| current.number == turn.number);
        if !is_current || inner.submitted.is_some() || step != inner.step + 1 || !inner.gate.admits(step) {
            if let Brought::Whole(buffer) = brought {
                inner.spare = buffer;
            }
            return;
        }
        inner.submitted = Some(step);
        // What an earlier try of this step dropped is of no interest any more.
        inner.dropped = None;
        let (mut buffer, contribution) = match brought {
            Brought::Whole(buffer) => (buffer, None),
            Brought::Coming(contribution) => (std::mem::take(&mut inner.spare), Some(contribution)),
        };
        inner.coming = contribution.as_ref().map(Contribution::readiness);
        let divisor = inner.batch_size;
        drop(inner);
        match &turn.operations {
            // A reducer whose links have broken takes nothing; their loss changes the view.
            Some(operations) => drop(operations.try_send(Operation { step, buffer, contribution, divisor, dropped })),
            None => {
                if let Some(contribution) = contribution {
                    buffer.resize(contribution.len(), 0.0);
                    contribution.fill(0..buffer.len(), &mut buffer);
                }
                kernel::divide(&mut buffer, divisor);
                self.complete(turn.view, step, Completion { mean: buffer, is_finite: false, dropped: None });
            }
        }
    }

    fn tell_gate(&self, inner: &Inner) {
        self.gate.send_if_modified(|gate| std::mem::replace(gate, inner.gate) != inner.gate);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Results for Exchange {
    fn gate(&self) -> watch::Receiver<Gate> {
        self.gate.subscribe()
    }

    /// Commits the step, if the gate still admits it.
    fn complete(&self, view: ViewId, step: u64, completion: Completion) -> bool {
        let Completion { mean, is_finite, dropped } = completion;
        let mut inner = self.lock();
        let turn = inner.turn.as_ref().filter(|turn| turn.view == view);
        let turn = turn.map(|turn| (turn.number, turn.members.to_vec()));
        let admitted = inner.gate.view == Some(view) && step == inner.step + 1 && inner.gate.admits(step);
        match turn.filter(|_| admitted) {
            Some((number, members)) => {
                inner.dropped = dropped.map(|dropped| (step, dropped));
                let reduced_in = Some(number).filter(|_| is_finite);
                self.commit(&mut inner, ResultRecord { step, members, mean }, reduced_in);
                true
            }
            None => {
                inner.keep(view, step, mean, dropped);
                false
            }
        }
    }

    /// Copies the part, without the lock, if the trainer thread will have use for it.
    fn offer(&self, view: ViewId, step: u64, start: usize, numbers: &[f32]) -> bool {
        let mut memory = match self.lock().offer(view, step) {
            Offer::Declined => return true,
            Offer::Later => return false,
            Offer::Welcome(memory) => memory,
        };
        memory.clear();
        memory.extend_from_slice(numbers);
        let mut inner = self.lock();
        if let Some(turn) = inner.under_way(view, step) {
            let part = Part { turn: turn.number, members: turn.members.clone(), start, numbers: memory };
            inner.parts.push(part);
            self.changed.notify_all();
        }
        true
    }

    fn interrupted(&self, view: ViewId, step: u64, buffer: Vec<f32>, dropped: Option<Dropped>) {
        self.lock().keep(view, step, buffer, dropped);
    }
}

/// The peers of a view, in the order of their slots.
pub(crate) type Members = Arc<[PeerId]>;
