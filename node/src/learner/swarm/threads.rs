//! What goes on beside a program's own thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use starling_run::{Averager, Replicated};

use super::locked;
use crate::error::NodeError;
use crate::member::exchange::Exchange;
use crate::member::snapshots::Snapshots;
use crate::start::host;

/// Joiners want what this member holds after a step, and its program may compute for long before it takes the next one.
pub(super) fn hand_out_snapshots(
    exchange: &Arc<Exchange>,
    snapshots: &Arc<Snapshots>,
    averager: &Arc<Mutex<Averager>>,
    applied: &Arc<AtomicU64>,
) -> Result<(), NodeError> {
    let (exchange, snapshots, averager, applied) =
        (exchange.clone(), snapshots.clone(), averager.clone(), applied.clone());
    let serve = move || {
        while exchange.next_snapshot(|step| step == applied.load(Ordering::Acquire)).is_some() {
            snapshots.take(locked(&averager).state());
        }
    };
    host::thread("snapshots", serve).map_err(NodeError::Thread)?;
    Ok(())
}

/// Nobody waits for an event loop that is gone, however it ended.
pub(super) struct StopAtEnd(pub(super) Arc<Exchange>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop(false);
    }
}
