//! Results that wait for the state that they are applied to.

use std::collections::VecDeque;

use super::{LearnerPosition, StepResult, Task};

/// How much memory results may take while the state is on its way, in bytes.
const MAX_KEPT_BYTES: usize = 1 << 30;
/// So many are kept in any case.
pub const MIN_KEPT: usize = 64;

/// The download of a state, as the learner sees it.
#[derive(Debug)]
pub(super) struct Syncing<R, S> {
    pub(super) number: u64,
    /// The step that the state is after.
    step: u64,
    arrived: Option<S>,
    /// Whether results can be applied.
    is_based: bool,
    kept: VecDeque<R>,
    bytes: usize,
}

impl<R: StepResult, S> Syncing<R, S> {
    pub(super) fn new(number: u64, step: u64) -> Self {
        Self { number, step, arrived: None, is_based: false, kept: VecDeque::new(), bytes: 0 }
    }

    /// The state is here.
    pub(super) fn arrive(&mut self, state: S) {
        self.arrived = Some(state);
        self.is_based = true;
    }

    /// Keeps a result for later; false if there is no room.
    pub(super) fn keep(&mut self, result: R) -> bool {
        self.bytes = self.bytes.saturating_add(result.bytes());
        self.kept.push_back(result);
        self.kept.len() <= MIN_KEPT || self.bytes <= MAX_KEPT_BYTES
    }

    /// The state, then the results after it.
    pub(super) fn next(&mut self, cursor: &mut LearnerPosition) -> Option<Task<R, S>> {
        if let Some(state) = self.arrived.take() {
            *cursor = LearnerPosition::after(self.step);
            return Some(Task::Load(state));
        }
        let result = if self.is_based { self.kept.pop_front() } else { None }?;
        self.bytes -= result.bytes();
        *cursor = LearnerPosition::after(result.step());
        Some(Task::Apply { result, reduced_in: None })
    }

    /// Whether the state is still to come.
    pub(super) fn lacks_state(&self) -> bool {
        !self.is_based
    }

    /// Whether the learner has taken it.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_based && self.arrived.is_none()
    }

    /// Whether nothing is left to apply.
    pub(super) fn is_through(&self) -> bool {
        self.is_based && self.kept.is_empty()
    }
}
