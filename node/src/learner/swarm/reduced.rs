//! What a step of a swarm came to.

use std::sync::Arc;

use starling_run::ResultRecord;

/// What one step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReduceReport {
    /// The step, counted from 1 in each run: the same on all members.
    pub step: u64,
    /// How many buffers the mean is of. A member that has just joined brings none yet. If nobody brought one there is no
    /// mean, and the caller's buffer is as it was.
    pub contributors: usize,
    /// Whether this member's is one of them. It is not if the others took the step while this member was lost to them, or
    /// still catching up when the step began.
    pub is_included: bool,
}

/// The sums that a step came to, which this member and those who may still ask it for them hold together.
#[derive(Debug, Clone)]
pub struct ReduceResult {
    pub(super) record: Arc<ResultRecord>,
    pub(super) elements: usize,
    pub(super) mean: ReduceReport,
}

impl ReduceResult {
    /// What the step came to.
    pub fn mean(&self) -> ReduceReport {
        self.mean
    }

    /// The sums of the contributors' buffers, `[elements]`: divided by [`ReduceReport::contributors`], they are the means. The same
    /// bits on all members.
    pub fn sums(&self) -> &[f32] {
        &self.record.mean[..self.elements]
    }
}
