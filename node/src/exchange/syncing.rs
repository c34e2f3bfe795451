//! Results that wait for the state that they are applied to.

use std::collections::VecDeque;
use std::sync::Arc;

use starling_run::{ReplicatedState, ResultRecord};

use super::Next;

/// How much memory results may take while the state is on its way.
const MAX_KEPT_BYTES: usize = 1 << 30;
/// So many are kept in any case.
pub(crate) const MIN_KEPT: usize = 64;

/// The download of a state, as the trainer sees it.
#[derive(Debug)]
pub(crate) struct Syncing {
    pub(super) number: u64,
    arrived: Option<Box<ReplicatedState>>,
    /// Whether results can be applied.
    is_based: bool,
    kept: VecDeque<Arc<ResultRecord>>,
    bytes: usize,
}

impl Syncing {
    pub(super) fn new(number: u64) -> Self {
        Self { number, arrived: None, is_based: false, kept: VecDeque::new(), bytes: 0 }
    }

    /// The state is here.
    pub(super) fn arrive(&mut self, state: Box<ReplicatedState>) {
        self.arrived = Some(state);
        self.is_based = true;
    }

    /// Keeps a result for later; false if there is no room.
    pub(super) fn keep(&mut self, record: Arc<ResultRecord>) -> bool {
        self.bytes += size_of_val(record.mean.as_slice());
        self.kept.push_back(record);
        self.kept.len() <= MIN_KEPT || self.bytes <= MAX_KEPT_BYTES
    }

    /// The state, then the results after it.
    pub(super) fn next(&mut self) -> Option<Next> {
        if let Some(state) = self.arrived.take() {
            return Some(Next::Load(state));
        }
        let record = if self.is_based { self.kept.pop_front() } else { None }?;
        self.bytes -= size_of_val(record.mean.as_slice());
        Some(Next::Apply { record, reduced_in: None })
    }

    /// Whether nothing is left to apply.
    pub(super) fn is_through(&self) -> bool {
        self.is_based && self.kept.is_empty()
    }
}
