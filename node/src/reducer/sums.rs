//! Takes what a reducer reduces, outside of training: nothing interrupts it.

use std::sync::Arc;

use starling_collective::Dropped;
use starling_topology::ViewId;
use tokio::sync::{mpsc, watch};

use super::{Completion, Results};
use starling_engine::Gate;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sums {
    gate: watch::Sender<Gate>,
    reduced: mpsc::Sender<Vec<f32>>,
}

impl Sums {
    /// And where what is reduced comes out; one operation is under way at a time.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<Vec<f32>>) {
        let (reduced, sums) = mpsc::channel(1);
        let gate = watch::Sender::new(Gate { view: None, last: None });
        (Arc::new(Self { gate, reduced }), sums)
    }
}

impl Results for Sums {
    fn gate(&self) -> watch::Receiver<Gate> {
        self.gate.subscribe()
    }

    fn complete(&self, _: ViewId, _: u64, completion: Completion) -> bool {
        self.reduced.try_send(completion.mean).is_ok()
    }

    fn interrupted(&self, _: ViewId, _: u64, _: Vec<f32>, _: Option<Dropped>) {}
}
