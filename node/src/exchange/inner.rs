//! What is behind the exchange's lock, and what it says comes next.

use std::sync::Arc;

use starling_collective::Dropped;
use starling_run::ResultRecord;
use starling_topology::{Progress, ViewId};

use super::parts::{Offer, Parts};
use super::{At, Gate, Next, Notice, Syncing, Turn};
use crate::contribution::Readiness;

#[derive(Debug)]
pub(super) struct Inner {
    /// The run's last step.
    pub(super) last_step: u64,
    pub(super) batch_size: f32,
    /// The last step committed.
    pub(super) step: u64,
    /// The result of `step`; `None` if the step came with a state.
    pub(super) record: Option<Arc<ResultRecord>>,
    /// The number of the turn in which it was reduced here, and found finite; `None` if it came from others, or nobody looked.
    pub(super) reduced_in: Option<u64>,
    pub(super) gate: Gate,
    /// A hold that is answered once this step is committed.
    pub(super) awaited: Option<u64>,
    pub(super) turn: Option<Turn>,
    pub(super) turns: u64,
    /// The step whose operation is under way in this turn.
    pub(super) submitted: Option<u64>,
    /// What is reduced of it already.
    pub(super) parts: Parts,
    /// How much of that operation's contribution is there; `None` if it was whole from the beginning.
    pub(super) coming: Option<Readiness>,
    /// What a lossy codec dropped here of the newest step that was reduced, or begun, and of which step that is.
    pub(super) dropped: Option<(u64, Dropped)>,
    /// While the state is being downloaded.
    pub(super) syncing: Option<Syncing>,
    /// How many states were asked for.
    pub(super) syncs: u64,
    /// Joiners want the state after this step.
    pub(super) snapshot: Option<u64>,
    /// Memory of an earlier operation, for the next one.
    pub(super) spare: Vec<f32>,
    pub(super) notice: Option<Notice>,
    pub(super) stop: Option<bool>,
}

impl Inner {
    pub(super) fn new(step: u64, last_step: u64, batch_size: u32) -> Self {
        let gate = Gate { view: None, last: Some(step) };
        Self {
            last_step,
            batch_size: batch_size as f32,
            step,
            record: None,
            reduced_in: None,
            gate,
            awaited: None,
            turn: None,
            turns: 0,
            submitted: None,
            parts: Parts::default(),
            coming: None,
            dropped: None,
            syncing: None,
            syncs: 0,
            snapshot: None,
            spare: Vec::new(),
            notice: None,
            stop: None,
        }
    }

    /// Keeps what an operation of `view` leaves that is not complete here. Others may have completed it; then all that
    /// this member would ever drop of it has been dropped.
    pub(super) fn keep(&mut self, view: ViewId, step: u64, buffer: Vec<f32>, dropped: Option<Dropped>) {
        self.spare = buffer;
        if self.turn.as_ref().is_some_and(|turn| turn.view == view) {
            self.dropped = dropped.map(|dropped| (step, dropped));
        }
    }

    /// The turn in whose view the operation of `step` is under way; `None` if it is not.
    pub(super) fn under_way(&self, view: ViewId, step: u64) -> Option<&Turn> {
        self.turn.as_ref().filter(|turn| turn.view == view && self.submitted == Some(step))
    }

    pub(super) fn offer(&mut self, view: ViewId, step: u64) -> Offer {
        if self.under_way(view, step).is_some() { self.parts.offer() } else { Offer::Declined }
    }

    pub(super) fn progress(&self) -> Progress {
        let has_result = self.record.as_ref().is_some_and(|record| record.step == self.step);
        Progress { step: self.step, has_state: self.syncing.is_none(), has_result }
    }

    pub(super) fn next(&mut self, at: &mut At) -> Option<Next> {
        if let Some(evaluate) = self.stop {
            return Some(Next::Stop { evaluate });
        }
        if let Some(syncing) = &mut self.syncing {
            if let Some(next) = syncing.next() {
                return Some(next);
            }
            if !syncing.is_through() {
                return None;
            }
            self.syncing = None;
            return Some(Next::Synced);
        }
        // Until the first step is committed, it belongs to the members of the newest view.
        if at.step == 0
            && self.step == 0
            && let Some(turn) = self.turn.as_ref().filter(|turn| turn.number != at.begun)
        {
            at.begun = turn.number;
            return Some(Next::Begin { members: turn.members.clone() });
        }
        if self.snapshot.take_if(|step| *step == at.step).is_some() {
            return Some(Next::Snapshot);
        }
        if let Some(record) = self.record.as_ref().filter(|record| record.step == at.step + 1) {
            return Some(Next::Apply { record: record.clone(), reduced_in: self.reduced_in });
        }
        let turn = self.turn.as_ref()?;
        let pending = at.step + 1;
        if at.step != self.step {
            return None;
        }
        if pending > self.last_step {
            let is_news = at.finished != turn.number;
            at.finished = turn.number;
            return is_news.then_some(Next::Finished);
        }
        if !at.prepared {
            return Some(Next::Compute);
        }
        if at.contributed == turn.number {
            if !std::mem::replace(&mut at.loaded, true) && pending < self.last_step {
                return Some(Next::LoadAhead { members: turn.members.clone() });
            }
            return self.parts.pop().map(Next::Draft);
        }
        if !self.gate.admits(pending) {
            return None;
        }
        at.contributed = turn.number;
        Some(Next::Contribute(turn.clone()))
    }
}
