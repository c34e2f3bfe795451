//! Reduces buffers among the members of a view: drives the machine for all plans over the links that the plan needs.
//!
//! One task owns a view's links. It takes a buffer from its queue and hands it back reduced, or interrupted because
//! the view changes ([`ResultSink`]). What can't be sent yet waits as an index, not as bytes, and sending never keeps the
//! task from receiving, so no order of delivery can block it.
//!
//! Start reading at [`task::ReduceTask`], then [`starling_collective::Execution`] (what is done to a segment) and
//! [`starling_links::IncomingLinkSet`] (waiting for several at once).

pub mod bench;
mod bench_sink;
mod operations;
mod spin_policy;
mod task;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libp2p::{Stream, StreamProtocol};
use libp2p_stream::Control;
use starling_collective::{self as collective, Codec, Layout, LayoutConfig, OperationResidual, Schedule, SlotLayout};
use starling_links::{Endpoint, LinkLimit, TrafficMetrics};
use starling_topology::plan::{Bucket, PlanPolicy};
use starling_topology::{PeerId, Rank, Ring, View, ViewId};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::learner::contribution::Contribution;
use crate::member::event::NetworkEvent;
pub(crate) use bench_sink::BenchSink;
use operations::Operations;
use spin_policy::SpinPolicy;
use starling_engine::CommitGate;
use task::ReduceTask;

/// One buffer to reduce: a step's gradient, already multiplied by this member's weight.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) step: u64,
    /// Holds the contribution, or is memory for it.
    pub(crate) buffer: Vec<f32>,
    /// What goes into the buffer, as it comes about; `None` if everything is there.
    pub(crate) contribution: Option<Contribution>,
    /// Whether what is done is what all members' slots say, where a run has more operations than one; else it is an all-reduce.
    pub(crate) is_agreed: bool,
    /// What the sum of all contributions is divided by.
    pub(crate) divisor: f32,
    /// Where to book what a lossy codec drops; `None` if nobody makes up for it.
    pub(crate) dropped: Option<OperationResidual>,
}

/// What an operation came to.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) mean: Vec<f32>,
    /// Whether all its numbers are known to be finite.
    pub(crate) is_finite: bool,
    /// What it dropped here, where that was booked.
    pub(crate) dropped: Option<OperationResidual>,
    /// What this member alone has now, if not all have the same.
    pub(crate) own: Option<Own>,
}

/// One member's part of what was reduced.
#[derive(Debug)]
pub(crate) struct Own {
    /// All elements; only those of `ranges` mean something.
    pub(crate) values: Vec<f32>,
    pub(crate) ranges: Vec<Range<usize>>,
}

impl Own {
    /// All of it.
    pub(crate) fn whole(values: &[f32]) -> Self {
        let everything = 0..values.len();
        Self { values: values.to_vec(), ranges: vec![everything] }
    }
}

/// Where what becomes of operations goes, and what says which may go on.
pub(crate) trait ResultSink: std::fmt::Debug + Send + Sync {
    /// What is admitted, as it changes.
    fn gate(&self) -> watch::Receiver<CommitGate>;

    /// The operation of `step` in `view` is complete. False if it is not admitted any more.
    fn complete(&self, view: ViewId, step: u64, completion: Completion) -> bool;

    /// Of the operation of `step` in `view`, these numbers from `start` on are reduced, and all behind them. False if they
    /// are wanted, but not yet.
    fn offer(&self, _view: ViewId, _step: u64, _start: usize, _numbers: &[f32]) -> bool {
        true
    }

    /// Takes back the memory of an operation that was interrupted, and what it dropped so far.
    fn interrupted(&self, view: ViewId, step: u64, buffer: Vec<f32>, dropped: Option<OperationResidual>);
}

/// What a reducer needs besides its view.
#[derive(Debug, Clone)]
pub(crate) struct ReducerConfig {
    pub(crate) elements: usize,
    /// How many a plan is chosen for: as many as the membership machine reckons with when it looks for a better one.
    pub(crate) planned: usize,
    /// How many of them, at the end, no codec may shorten.
    pub(crate) exact: usize,
    /// Whether members choose an operation for each step.
    pub(crate) chooses: bool,
    /// What each member may say of itself in the last elements, one for each, in their order.
    pub(crate) words: Vec<RangeInclusive<u32>>,
    pub(crate) layout: LayoutConfig,
    pub(crate) codec: Codec,
    pub(crate) plan: PlanPolicy,
    /// The largest number that a member brings, times its weight.
    pub(crate) most: f32,
    pub(crate) in_flight: u32,
    pub(crate) open_limit: Duration,
    pub(crate) limits: LinkLimit,
    pub(crate) protocol: StreamProtocol,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) traffic: Arc<TrafficMetrics>,
}

/// The event loop's end of a reducer. Dropping it interrupts the operation under way and closes the links.
#[derive(Debug)]
pub(crate) struct ReducerHandle {
    pub(crate) view: ViewId,
    /// To whom links are opened.
    pub(crate) receivers: Vec<PeerId>,
    /// The reducer's queue. It also keeps the task, and with it all links, while no step runs: a neighbour may still be
    /// in its last one.
    pub(crate) operations: mpsc::Sender<Operation>,
    /// Whose streams have yet to come.
    awaited: BTreeSet<PeerId>,
    incoming: mpsc::Sender<(PeerId, Stream)>,
    task: AbortHandle,
}

impl ReducerHandle {
    /// All with whom the plan exchanges segments; while no stream has come.
    pub(crate) fn neighbours(&self) -> BTreeSet<PeerId> {
        self.awaited.iter().chain(&self.receivers).copied().collect()
    }

    /// Hands over the stream that a neighbour opened. One that the plan does not bring, or a second one, is dropped.
    pub(crate) fn connect(&mut self, peer: PeerId, stream: Stream) {
        if self.awaited.remove(&peer) {
            // There is room for one of each; an error means that the task has ended.
            let _ = self.incoming.try_send((peer, stream));
        }
    }
}

impl Drop for ReducerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts the reducer of `view` for the member `me`.
pub(crate) fn start(
    view: &View,
    me: PeerId,
    config: ReducerConfig,
    results: Arc<dyn ResultSink>,
    control: Control,
    events: mpsc::Sender<NetworkEvent>,
) -> ReducerHandle {
    let ring = Ring::plan(view);
    let (world, rank) = (ring.world_size(), ring.rank_of(me));
    let rank = rank.expect("invariant: a member starts only its own reducer");
    let ReducerConfig { elements, planned, exact, layout, codec, .. } = config;
    let bucket = Bucket {
        bytes: codec.payload_bytes(planned) as u64,
        segment_bytes: codec.payload_bytes(layout.segment_elements) as u64,
    };
    let agreed = config.plan.agree(view, bucket);
    tracing::info!(generation = view.generation.0, reason = %agreed.reason, "plan");
    let schedule = Schedule::new(&agreed.plan, world, collective::Operation::AllReduce, rank);
    let peers = |ranks: &[Rank]| ranks.iter().map(|rank| ring.peer(*rank)).collect::<Vec<_>>();
    let (receivers, senders) = (peers(schedule.receivers()), peers(schedule.senders()));
    let (incoming, streams) = mpsc::channel(senders.len().max(1));
    let (operations, queue) = mpsc::channel(1);
    let slot = |(member, words): (&PeerId, &RangeInclusive<u32>)| {
        let of = ring.rank_of(*member).expect("invariant: a view's members are in its ring");
        collective::Slot { of, words: words.clone() }
    };
    let operations_of_view = config.chooses.then(|| Operations::new(&agreed, &ring));
    let reduce_task = ReduceTask {
        operations: operations_of_view,
        slots: SlotLayout::new(view.members().iter().zip(&config.words).map(slot)),
        layout: Layout::by_plan(elements, &agreed.plan, world, layout, &agreed.weights).with_exact(exact),
        magnitudes: collective::SumLimit::new(config.most, codec, world.get()),
        schedule,
        plan: agreed.plan.to_string(),
        reason: agreed.reason,
        receivers: receivers.clone(),
        senders: senders.clone(),
        view: view.id(),
        spare: Vec::new(),
        spin_policy: SpinPolicy::new(Instant::now()),
        config,
        gate: results.gate(),
        results,
        events,
    };
    let (view, thread) = (reduce_task.view, reduce_task.config.endpoint.thread.clone());
    let task = thread.spawn(reduce_task.run(control, streams, queue)).abort_handle();
    ReducerHandle { view, receivers, operations, awaited: senders.into_iter().collect(), incoming, task }
}
