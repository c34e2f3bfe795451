//! What goes on beside a program's own thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use starling_run::{BufferLearner, StateReplica};

use super::locked;
use crate::error::NodeError;
use crate::member::shared_steps::SharedSteps;
use crate::member::snapshots::Snapshots;
use crate::start::host;

/// Joiners want what this member holds after a step, and its program may compute for long before it takes the next one.
pub(super) fn hand_out_snapshots(
    shared_steps: &Arc<SharedSteps>,
    snapshots: &Arc<Snapshots>,
    buffer_learner: &Arc<Mutex<BufferLearner>>,
    applied: &Arc<AtomicU64>,
) -> Result<(), NodeError> {
    let (shared_steps, snapshots, buffer_learner, applied) =
        (shared_steps.clone(), snapshots.clone(), buffer_learner.clone(), applied.clone());
    let serve = move || {
        while shared_steps.next_snapshot(|step| step == applied.load(Ordering::Acquire)).is_some() {
            snapshots.take(locked(&buffer_learner).state());
        }
    };
    host::thread("snapshots", serve).map_err(NodeError::Thread)?;
    Ok(())
}

/// Nobody waits for an event loop that is gone, however it ended.
pub(super) struct StopAtEnd(pub(super) Arc<SharedSteps>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop(false);
    }
}
