//! What a founder chooses: model, optimizer, batch size, steps, seed.

mod task;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use starling_collective::Codec;
use starling_topology::Quorum;
use starling_topology::plan::Wish;
use thiserror::Error;

pub use task::{Leaf, MAX_LEAF_BYTES, MAX_TASK_NAME, MAX_TASK_SETTINGS};

use crate::balance::Balance;
use crate::canonical::canonical;
use crate::optimizer::OptimizerSpec;
use crate::schedule::Schedule;
use crate::schema::Schema;

/// The most layers a model may have.
pub const MAX_LAYERS: usize = 16;
/// The widest hidden layer.
pub const MAX_WIDTH: u32 = 65_536;
/// The most channels of a convolution.
pub const MAX_CHANNELS: u32 = 4_096;

/// A model, apart from its input and output sizes, which come from the data.
///
/// As text: `softmax`, `mlp` (one hidden layer of 64), `mlp:128,64`, `cnn` (8 and 16 channels), `cnn:8,16,32`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSpec {
    /// Softmax regression: one linear layer.
    Softmax,
    /// Linear layers with relu between them.
    Mlp {
        /// The width of each hidden layer.
        hidden: Vec<u32>,
    },
    /// 3x3 convolutions, each followed by relu and 2x2 max pooling, then a global mean and a linear layer.
    Cnn {
        /// The number of output channels of each convolution.
        channels: Vec<u32>,
    },
    /// None: members bring buffers of their own, and take their mean. No text names it, since no verb can train it.
    Raw {
        /// How many numbers a buffer has.
        elements: u64,
    },
    /// What a program brings that its user wrote. No text names it either.
    Task {
        /// What it is called.
        name: String,
        /// What it depends on, as [canonical] JSON.
        settings: String,
        /// How many parameters its module has.
        parameters: u64,
        /// What they are, in their order; none of a module with too many of them to be listed.
        leaves: Vec<Leaf>,
    },
}

/// A text that is not a model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a model: {reason}; write softmax, mlp, mlp:64,64, cnn or cnn:8,16")]
pub struct ModelSpecError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl ModelSpec {
    /// A program's task, whose module has this schema.
    pub fn task(name: &str, settings: &Value, schema: &Schema) -> Self {
        let parameters = schema.parameters() as u64;
        Self::Task { name: name.to_owned(), settings: canonical(settings), parameters, leaves: Leaf::list(schema) }
    }

    /// Whether it is one of those that the command line names, which train on data with a description.
    pub fn is_built_in(&self) -> bool {
        !matches!(self, Self::Raw { .. } | Self::Task { .. })
    }

    /// Checks that the model is of a sane size.
    ///
    /// # Errors
    /// What is wrong, as a sentence without a subject.
    pub fn check(&self) -> Result<(), String> {
        let (sizes, limit, what) = match self {
            Self::Softmax => return Ok(()),
            Self::Raw { elements: 0 } => return Err("a buffer has 0 elements, but needs at least 1".to_owned()),
            Self::Raw { .. } => return Ok(()),
            Self::Task { name, settings, parameters, leaves } => {
                return task::check(name, settings).and_then(|()| task::check_leaves(leaves, *parameters));
            }
            Self::Mlp { hidden } => (hidden, MAX_WIDTH, "hidden layer"),
            Self::Cnn { channels } => (channels, MAX_CHANNELS, "convolution"),
        };
        if sizes.is_empty() || sizes.len() > MAX_LAYERS {
            return Err(format!("it has {} {what}s, but 1 to {MAX_LAYERS} are possible", sizes.len()));
        }
        match sizes.iter().find(|size| !(1..=limit).contains(*size)) {
            Some(size) => Err(format!("a {what} has size {size}, but 1 to {limit} are possible")),
            None => Ok(()),
        }
    }

    /// How many parameters the model has for images of `shape` (channels, height, width) and `classes` classes, or
    /// `None` if the number does not fit.
    pub fn parameters(&self, shape: [u32; 3], classes: u32) -> Option<u64> {
        let [channels, height, width] = shape.map(u64::from);
        let (mut total, mut inputs) = match self {
            Self::Raw { elements: count } | Self::Task { parameters: count, .. } => return Some(*count),
            Self::Softmax | Self::Mlp { .. } => (0_u64, channels.checked_mul(height)?.checked_mul(width)?),
            Self::Cnn { .. } => (0, channels),
        };
        let (sizes, kernel): (&[u32], u64) = match self {
            Self::Softmax | Self::Raw { .. } | Self::Task { .. } => (&[], 1),
            Self::Mlp { hidden } => (hidden, 1),
            Self::Cnn { channels } => (channels, 9),
        };
        for size in sizes {
            let outputs = u64::from(*size);
            total = total.checked_add(inputs.checked_mul(kernel)?.checked_add(1)?.checked_mul(outputs)?)?;
            inputs = outputs;
        }
        total.checked_add(inputs.checked_add(1)?.checked_mul(u64::from(classes))?)
    }

    /// Checks that the model can work on images of `shape` (channels, height, width).
    ///
    /// # Errors
    /// Why it cannot and what to do, as a sentence.
    pub fn check_shape(&self, shape: [u32; 3]) -> Result<(), String> {
        let Self::Cnn { channels } = self else { return Ok(()) };
        let [_, height, width] = shape;
        if height.min(width) == 1 {
            return Err(format!(
                "the model {self} needs images, but the data has flat rows of {width} features; use an mlp, or digits or IDX data"
            ));
        }
        if height.min(width) >> channels.len() == 0 {
            return Err(format!(
                "the model {self} halves its images {} times, but they have only {height}x{width} pixels; use fewer convolutions",
                channels.len()
            ));
        }
        Ok(())
    }
}

impl Default for ModelSpec {
    fn default() -> Self {
        Self::Mlp { hidden: vec![64] }
    }
}

impl FromStr for ModelSpec {
    type Err = ModelSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |reason: String| ModelSpecError { text: text.to_owned(), reason };
        let (name, sizes) = match text.split_once(':') {
            Some((name, sizes)) => (name, Some(sizes)),
            None => (text, None),
        };
        let sizes = sizes
            .map(|sizes| {
                sizes
                    .split(',')
                    .map(|size| {
                        size.trim().parse::<u32>().map_err(|_| fail(format!("`{size}` is not a number of units")))
                    })
                    .collect::<Result<Vec<_>, _>>()
            })
            .transpose()?;
        let spec = match (name.trim(), sizes) {
            ("softmax", None) => Self::Softmax,
            ("softmax", Some(_)) => return Err(fail("softmax has no hidden layers".to_owned())),
            ("mlp", sizes) => Self::Mlp { hidden: sizes.unwrap_or_else(|| vec![64]) },
            ("cnn", sizes) => Self::Cnn { channels: sizes.unwrap_or_else(|| vec![8, 16]) },
            (other, _) => return Err(fail(format!("there is no model named `{other}`"))),
        };
        spec.check().map_err(fail)?;
        Ok(spec)
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, sizes) = match self {
            Self::Softmax => return f.write_str("softmax"),
            Self::Raw { elements } => return write!(f, "buffers of {elements} numbers"),
            Self::Task { name, .. } => return f.write_str(name),
            Self::Mlp { hidden } => ("mlp", hidden),
            Self::Cnn { channels } => ("cnn", channels),
        };
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        write!(f, "{name}:{}", sizes.join(","))
    }
}

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
    /// How the learning rate goes with the steps.
    pub schedule: Schedule,
    /// The largest norm of a step's mean gradient; `None`: whatever it is.
    pub clip: Option<f32>,
    /// Samples per step, over all members.
    pub batch_size: u32,
    /// How a batch is divided among members.
    pub balance: Balance,
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
    pub plan: Wish,
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
            schedule: Schedule::default(),
            clip: None,
            batch_size: 64,
            balance: Balance::default(),
            steps: 1_000,
            seed: 42,
            held_out: 0.2,
            layout: LayoutSpec::default(),
            codec: Codec::default(),
            plan: Wish::default(),
            bound: 1e12,
            max_stall_ms: 10_000,
            checkpoint_every: 100,
            quorum: Quorum::Majority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_read_and_written_as_text() {
        for (text, spec) in [
            ("softmax", ModelSpec::Softmax),
            ("mlp", ModelSpec::Mlp { hidden: vec![64] }),
            ("mlp:128, 32", ModelSpec::Mlp { hidden: vec![128, 32] }),
            ("cnn", ModelSpec::Cnn { channels: vec![8, 16] }),
            ("cnn:4", ModelSpec::Cnn { channels: vec![4] }),
        ] {
            assert_eq!(text.parse(), Ok(spec.clone()));
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }

    #[test]
    fn a_text_that_is_no_model_is_refused_with_the_reason() {
        for (text, reason) in [
            ("gpt", "there is no model named `gpt`"),
            ("softmax:3", "softmax has no hidden layers"),
            ("mlp:", "`` is not a number of units"),
            ("mlp:a", "`a` is not a number of units"),
            ("mlp:0", "a hidden layer has size 0, but 1 to 65536"),
            ("mlp:70000", "a hidden layer has size 70000"),
            ("cnn:5000", "a convolution has size 5000, but 1 to 4096"),
            ("mlp:1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "it has 17 hidden layers, but 1 to 16"),
        ] {
            let error = text.parse::<ModelSpec>().expect_err("not a model").to_string();
            assert!(error.contains(reason) && error.contains(&format!("`{text}`")), "{error}");
            assert!(error.contains("write softmax"), "{error}");
        }
    }
}
