//! What a founder chooses: model, optimizer, batch size, steps, seed.

mod constant;
mod leaf;
mod loss;
mod model;
mod options;

use serde::{Deserialize, Serialize};
use starling_collective::Codec;
use starling_topology::plan::PlanPolicy;
use starling_topology::{Quorum, ShufflePolicy};

pub use constant::{ConstantKind, ConstantSpec};
pub(crate) use constant::{MAX_CONSTANTS, check_constants};
pub(crate) use leaf::check_leaves;
pub use leaf::{LeafSpec, MAX_LEAF_BYTES};
pub use loss::LossKind;
pub use model::{MAX_MODEL_NAME, MAX_MODEL_SETTINGS, ModelSpec, ModelSpecError};
pub use options::{AugmentPolicy, ClassWeightPolicy, MAX_DROPOUT, ModelOptions};

use crate::manifest::balance::BalancePolicy;
use crate::manifest::precision::Precision;
use crate::manifest::schedule::Schedule;
use crate::training::optimizer::{ClipKind, GroupSpec, OptimizerSpec};

/// How gradients are cut for the ring. It decides the order of summation, so all members share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutSpec {
    /// Bytes of gradient that are reduced together.
    pub bucket_bytes: u32,
    /// Unit of IO within a chunk, in bytes.
    pub segment_bytes: u32,
}

impl LayoutSpec {
    /// The largest segment: what a member must be ready to hold for each neighbour.
    pub const MAX_SEGMENT_BYTES: u32 = 1 << 20;

    /// Checks that a segment holds whole numbers and fits its bucket.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let Self { bucket_bytes, segment_bytes } = *self;
        let in_words = bucket_bytes % 4 == 0 && segment_bytes % 4 == 0;
        let fits = segment_bytes > 0 && segment_bytes <= bucket_bytes && segment_bytes <= Self::MAX_SEGMENT_BYTES;
        if in_words && fits {
            return Ok(());
        }
        Err(format!(
            "buckets of {bucket_bytes} and segments of {segment_bytes} bytes are not possible: both are multiples of 4, and a segment has at most {} bytes and no more than its bucket",
            Self::MAX_SEGMENT_BYTES
        ))
    }
}

impl Default for LayoutSpec {
    fn default() -> Self {
        Self { bucket_bytes: 4 << 20, segment_bytes: 128 << 10 }
    }
}

/// What the founder of a run chooses. [`Manifest::of`](crate::Manifest::of) turns it into a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSpec {
    /// The model.
    pub model: ModelSpec,
    /// The optimizer.
    pub optimizer: OptimizerSpec,
    /// Whose learning rate and weight decay are others: of the groups that a parameter is in, the last one counts.
    pub groups: Vec<GroupSpec>,
    /// How the learning rate goes with the steps.
    pub schedule: Schedule,
    /// The largest norm of a step's mean gradient; `None`: whatever it is.
    pub clip: Option<f32>,
    /// Whether that is the norm of all of it, or of each tensor, or the size of each number.
    pub clip_by: ClipKind,
    /// After how many steps, again and again, members evaluate the held-out samples together; 0: at the end alone, or each 100 steps if
    /// `early_stop` or the schedule goes by that.
    pub evaluate_every: u64,
    /// After how many evaluations in a row without a lower held-out loss the run ends before its last step, with the best model that was
    /// evaluated; 0: it takes all steps.
    pub early_stop: u32,
    /// Paths of parameters, or of modules, that are frozen though the model would train them, as `convolutions` or `hidden.0.weight`.
    pub freeze: Vec<String>,
    /// Samples per step, over all members.
    pub batch_size: u32,
    /// How many samples are computed together, from one seed: the batch is a multiple of it. 0: a member's whole share.
    pub micro_batch: u32,
    /// In what numbers devices compute.
    pub precision: Precision,
    /// How far the samples of an epoch are shuffled.
    pub shuffle: ShufflePolicy,
    /// How a batch is divided among members.
    pub balance: BalancePolicy,
    /// How many steps the run takes.
    pub steps: u64,
    /// Seed of the initial parameters, the sample order and the held-out split.
    pub seed: u64,
    /// Share of the samples that is kept from training, 0 to below 1.
    pub held_out: f32,
    /// How gradients are cut.
    pub layout: LayoutSpec,
    /// How gradients are written on the wire.
    pub codec: Codec,
    /// How reductions are scheduled.
    pub plan: PlanPolicy,
    /// The largest number that a member's mean gradient or loss may have.
    pub bound: f32,
    /// The longest that the run may stand still because of one member, in milliseconds.
    pub max_stall_ms: u64,
    /// All members save their state each so many steps; 0: only at the end.
    pub checkpoint_every: u64,
    /// Which members of a view decide the next one.
    pub quorum: Quorum,
}

impl Default for RunSpec {
    fn default() -> Self {
        Self {
            model: ModelSpec::default(),
            optimizer: OptimizerSpec::default(),
            groups: Vec::new(),
            schedule: Schedule::default(),
            clip: None,
            clip_by: ClipKind::default(),
            evaluate_every: 0,
            early_stop: 0,
            freeze: Vec::new(),
            batch_size: 64,
            micro_batch: 0,
            precision: Precision::default(),
            shuffle: ShufflePolicy::default(),
            balance: BalancePolicy::default(),
            steps: 1_000,
            seed: 42,
            held_out: 0.2,
            layout: LayoutSpec::default(),
            codec: Codec::default(),
            plan: PlanPolicy::default(),
            bound: 1e12,
            max_stall_ms: 10_000,
            checkpoint_every: 100,
            quorum: Quorum::Majority,
        }
    }
}
