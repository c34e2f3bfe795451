//! A member's leaves, beside its steps: what their machine asks goes to the trainer thread, or to their streams.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use starling_engine::CarrierEngine;
use starling_engine::leaf::carrier::{CarrierConfig, Input, Output};
use starling_engine::leaf::violation::LeafViolation;
use starling_run::ResultRecord;
use starling_topology::{LeafBody, PeerId, Time};

use super::{SharedSteps, Side, Steps};
use crate::member::leaf::numbers::PartNumbers;
use crate::member::snapshots::Snapshots;

/// What a carrier's machine is told.
pub(crate) type CarrierInput = Input<PartNumbers>;
/// What it asks.
pub(crate) type CarrierOutput = Output<PartNumbers, Arc<ResultRecord>>;

/// What the trainer thread does for a contribution that is put together.
#[derive(Debug)]
pub(crate) enum PartTask {
    /// Forget what was put together.
    Clear,
    /// Compute the gradient over these positions.
    Compute { number: u64, positions: Vec<Range<u32>> },
    /// What was computed as this number counts.
    Count(u64),
    /// So does what a leaf has brought, the mean of so many samples.
    Add { weight: u64, part: PartNumbers },
    /// All of it is there.
    Whole,
    /// The step is over.
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Carrying {
    engine: CarrierEngine<PartNumbers, Arc<ResultRecord>>,
    snapshots: Arc<Snapshots>,
    /// For the trainer thread.
    parts: VecDeque<PartTask>,
    /// For the streams.
    said: VecDeque<CarrierOutput>,
}

impl Carrying {
    /// A member without leaves, whose states are lent from these.
    pub(crate) fn new(config: CarrierConfig, snapshots: Arc<Snapshots>) -> Self {
        Self { engine: CarrierEngine::new(config), snapshots, parts: VecDeque::new(), said: VecDeque::new() }
    }

    /// Looks where the steps stand.
    pub(super) fn look(&mut self, now: Time, steps: &mut Steps) {
        let generation = steps.active().map(|active| active.lineage.generation);
        self.engine.look(now, steps, generation);
        self.sort(steps);
    }

    /// Hands what the machine asks to whoever does it.
    fn sort(&mut self, steps: &mut Steps) {
        while let Some(output) = self.engine.poll() {
            let part = match output {
                Output::Clear => PartTask::Clear,
                Output::Compute { number, ranges, is_backup: _ } => PartTask::Compute { number, positions: ranges },
                Output::Count(number) => PartTask::Count(number),
                Output::Add { weight, gradient, .. } => PartTask::Add { weight, part: gradient },
                Output::Whole(_) => PartTask::Whole,
                Output::Over(_) => PartTask::Over,
                // What the thread is at it ends all the same, and nobody counts it.
                Output::Drop(dropped) => {
                    self.parts.retain(|part| !matches!(part, PartTask::Compute { number, .. } if *number == dropped));
                    continue;
                }
                // Both at once: the state must not change in between.
                Output::Lend(step) => {
                    if steps.lend(step) {
                        self.snapshots.act(|snapshots| snapshots.lend(step));
                    }
                    continue;
                }
                Output::Release => {
                    self.snapshots.act(starling_engine::SnapshotStore::release);
                    continue;
                }
                said @ (Output::Send { .. }
                | Output::Close(_)
                | Output::SetTimer(_)
                | Output::Fault { .. }
                | Output::Event(_)) => {
                    self.said.push_back(said);
                    continue;
                }
            };
            self.parts.push_back(part);
        }
    }

    pub(super) fn has_news(&self) -> bool {
        !self.said.is_empty()
    }
}

impl SharedSteps {
    /// Tells the machine of this member's leaves what happened. False if it has none: it takes no leaves.
    pub(crate) fn carry(&self, input: CarrierInput) -> bool {
        let now = self.now();
        let mut inner = self.lock();
        let inner = &mut *inner;
        let Side::Carrier(carrying) = &mut inner.side else { return false };
        carrying.engine.handle(now, input);
        carrying.sort(&mut inner.steps);
        self.tell(inner);
        true
    }

    /// As [`CarrierEngine::admits`].
    pub(crate) fn admits_of(&self, from: PeerId, body: &LeafBody) -> Result<Option<u64>, LeafViolation> {
        match &self.lock().side {
            Side::Carrier(carrying) => carrying.engine.admits(from, body),
            Side::Leaf(_) | Side::Nothing => Ok(None),
        }
    }

    /// What this member says of its speed, if it is `own`.
    pub(crate) fn told_speed(&self, own: u32) -> u32 {
        match &mut self.lock().side {
            Side::Carrier(carrying) => carrying.engine.speed(own),
            Side::Leaf(_) | Side::Nothing => own,
        }
    }

    /// What the trainer thread does next for its contribution; waits for it. `None` once it is to end.
    pub(crate) fn next_part(&self) -> Option<PartTask> {
        self.wait_for(|inner| {
            if inner.steps.is_stopped() {
                return Some(None);
            }
            match &mut inner.side {
                Side::Carrier(carrying) => carrying.parts.pop_front().map(Some),
                Side::Leaf(_) | Side::Nothing => Some(None),
            }
        })
    }

    /// What leaves are to be told; waits for it. Can be cancelled.
    pub(crate) async fn said_to_leaves(&self) -> CarrierOutput {
        loop {
            if let Side::Carrier(carrying) = &mut self.lock().side
                && let Some(said) = carrying.said.pop_front()
            {
                return said;
            }
            self.said.notified().await;
        }
    }
}
