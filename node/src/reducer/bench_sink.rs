//! Takes what a reducer reduces, outside of training: nothing interrupts it.

use std::sync::Arc;

use starling_collective::OperationResidual;
use starling_topology::ViewId;
use tokio::sync::{mpsc, watch};

use super::{Completion, ResultSink};
use starling_engine::CommitGate;

/// See the module.
#[derive(Debug)]
pub(crate) struct BenchSink {
    gate: watch::Sender<CommitGate>,
    reduced: mpsc::Sender<Vec<f32>>,
}

impl BenchSink {
    /// And where what is reduced comes out; one operation is under way at a time.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<Vec<f32>>) {
        let (reduced, bench_sink) = mpsc::channel(1);
        let gate = watch::Sender::new(CommitGate { view: None, last: None });
        (Arc::new(Self { gate, reduced }), bench_sink)
    }
}

impl ResultSink for BenchSink {
    fn gate(&self) -> watch::Receiver<CommitGate> {
        self.gate.subscribe()
    }

    fn complete(&self, _: ViewId, _: u64, completion: Completion) -> bool {
        self.reduced.try_send(completion.mean).is_ok()
    }

    fn interrupted(&self, _: ViewId, _: u64, _: Vec<f32>, _: Option<OperationResidual>) {}
}
