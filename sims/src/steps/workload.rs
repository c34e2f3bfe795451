//! What the simulated peers train.

use std::time::Duration;

use starling_collective::{Codec, FeedbackState, Layout, LayoutConfig};
use starling_topology::WorldSize;
use starling_topology::ledger::{Ledger, ShufflePolicy};
use starling_topology::plan::{Bucket, PlanDecision, PlanPolicy};

use crate::hardware::network::rng::Rng;
use crate::scenario::Plan;
use crate::sweep::fault::{FILES, FileSet};

/// What a plan is chosen for: a bucket that gives it time to be better than another.
pub const PLANNED: Bucket = Bucket { bytes: 4 << 20, segment_bytes: 64 << 10 };

/// The largest number that a simulated peer brings.
pub const MOST: f32 = 1e6;

/// Plans that large worlds take too: others would need links from each to each.
const SPARSE: [PlanPolicy; 2] = [PlanPolicy::Ring, PlanPolicy::Tree];

/// Sizes and times of one run, the same for all its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The last step.
    pub steps: u64,
    /// Elements of the flat gradient.
    pub elements: usize,
    /// How they are cut.
    pub layout: LayoutConfig,
    /// How many buckets are in flight together.
    pub in_flight: u32,
    /// By which plan they are reduced.
    pub plan: PlanPolicy,
    /// How segments are encoded.
    pub codec: Codec,
    /// Training samples.
    pub samples: u32,
    /// Samples of a step.
    pub batch_size: u32,
    /// Those that are dealt together; 0: each by itself.
    pub micro_batch: u32,
    /// Whether data may be on its way to members: samples of one file of it come near each other then.
    pub arrives: bool,
    /// The seed of their order.
    pub seed: u64,
    /// The shortest time that a peer computes before it reduces.
    pub compute_least: Duration,
    /// The longest.
    pub compute_most: Duration,
    /// Chunks of the replicated state that a joiner loads.
    pub chunks: u32,
    /// Bytes of each.
    pub chunk_bytes: u64,
    /// A checkpoint is written each so many steps.
    pub checkpoint_every: u64,
    /// Digests are compared each so many steps.
    pub digest_every: u64,
}

impl Workload {
    /// Draws a workload of `steps` steps for the peers of a plan: from less than one element per rank to dozens of
    /// segments, from a part of an epoch to many.
    pub fn draw(rng: &mut Rng, steps: u64, plan: &Plan) -> Self {
        let large = plan.peers > 32;
        let elements = if large || rng.one_in(6) { rng.between(1, 6) } else { rng.between(4, 64) };
        let segment = rng.between(1, 16);
        let bucket = rng.between(segment, 64);
        let compute = rng.between(100, 20_000);
        let size = |number: u64| usize::try_from(number).expect("invariant: drawn small");
        let count = |number: u64| u32::try_from(number).expect("invariant: drawn small");
        let batch_size = rng.between(1, 64);
        let drawn = Self {
            steps,
            elements: size(elements),
            layout: LayoutConfig { bucket_elements: size(bucket), segment_elements: size(segment) },
            in_flight: if rng.one_in(2) { 1 } else { 4 },
            plan: PlanPolicy::Ring,
            codec: Codec::F32,
            samples: count(batch_size * rng.between(1, 12) + rng.between(0, 7)),
            batch_size: count(batch_size),
            micro_batch: 0,
            arrives: plan.arrives,
            seed: rng.bits(),
            compute_least: Duration::from_micros(compute),
            compute_most: Duration::from_micros(compute * rng.between(1, 4)),
            chunks: count(rng.between(1, 12)),
            chunk_bytes: rng.between(100, 1_000_000),
            checkpoint_every: rng.between(1, 9),
            digest_every: rng.between(1, 8),
        };
        // Apart, so that nothing else depends on it.
        let mut rng = Rng::new(drawn.seed ^ 0x91a2);
        let plans: &[PlanPolicy] = if large { &SPARSE } else { &PlanPolicy::ALL };
        let policy = rng.pick(plans).unwrap_or_default();
        let drawn = Self { plan: policy, codec: rng.pick(&Codec::ALL).unwrap_or_default(), ..drawn };
        drawn.in_micro_batches(plan.micro_batches)
    }

    /// The same with so many micro-batches in a batch, which may have more samples then; 0: as it is.
    fn in_micro_batches(self, micro_batches: u32) -> Self {
        match micro_batches {
            0 => self,
            micro_batches => {
                let micro_batch = self.batch_size.div_ceil(micro_batches);
                Self { micro_batch, batch_size: micro_batch * micro_batches, ..self }
            }
        }
    }

    /// The ledger before the first assignment.
    pub fn ledger(&self) -> Ledger {
        let ledger = Ledger::new(self.seed, self.samples, self.batch_size).with_micro_batch(self.micro_batch);
        if self.arrives { ledger.with_shuffle(ShufflePolicy::Blocks { rows: self.rows(), blocks: 1 }) } else { ledger }
    }

    /// Samples of a file.
    fn rows(&self) -> u32 {
        self.samples.div_ceil(FILES)
    }

    /// The file that has this sample.
    pub fn file_of(&self, sample: u32) -> FileSet {
        1 << (sample / self.rows())
    }

    /// How many samples beyond the pending ones a member that has none of them looks for.
    pub fn ahead(&self) -> u32 {
        self.batch_size * (1 + u32::try_from(self.seed % 4).unwrap_or(0))
    }

    /// What sums are divided by.
    pub fn divisor(&self) -> f32 {
        self.batch_size as f32
    }

    /// What codecs drop, if they do.
    pub fn feedback(&self) -> Option<FeedbackState> {
        self.codec.is_lossy().then(|| FeedbackState::new(self.elements))
    }

    /// The layout among `world` ranks that have `agreed`.
    pub fn layout(&self, world: WorldSize, agreed: &PlanDecision) -> Layout {
        Layout::by_plan(self.elements, &agreed.plan, world, self.layout, &agreed.weights)
    }

    /// How many segments a peer may have to keep for a step that it has not begun, in worlds of up to `most` ranks: those of
    /// one operation's reduce-scatter, in the view that it is in and in the newest that it has heard of. The all-gather can't
    /// come to a peer that has not contributed.
    pub fn early_limit(&self, most: WorldSize) -> usize {
        let LayoutConfig { bucket_elements, segment_elements } = self.layout;
        let ranks = most.get() as usize;
        // At most from each of the others, as in a star, which any run may take. A chunk's last segment may be short, and a star's
        // buckets have one whole segment at least.
        let (senders, whole) = (ranks, self.elements.div_ceil(segment_elements));
        let short = whole.max(ranks * self.elements.div_ceil(bucket_elements)) + ranks;
        2 * senders * (whole + short)
    }

    /// Bytes of one averaged result.
    pub fn result_bytes(&self) -> u64 {
        u64::try_from(self.elements * size_of::<f32>()).unwrap_or(u64::MAX)
    }

    /// Whether the digest of this step is compared. That of the last one is told with the end.
    pub fn compares(&self, step: u64) -> bool {
        step.is_multiple_of(self.digest_every) && step < self.steps
    }
}
