//! How samples of training become a batch, in whatever thread.

use std::io;
use std::sync::Arc;

use burn::tensor::Device;

use crate::error::Error;
use crate::panics::caught;
use crate::task::draw::beside_others;
use crate::task::{DrawSeed, Task};

/// The most that a sample may count.
const MAX_WEIGHT: f64 = (1 << 20) as f64;

/// Makes samples of a task batches for training, each with what one of its samples counts in the mean.
pub(super) struct BatchReader<T> {
    pub(super) task: Arc<T>,
    /// With autodiff.
    pub(super) device: Device,
    /// Whether samples count differently.
    pub(super) is_weighted: bool,
    /// How many samples are computed together, if so many always are; else 0.
    pub(super) micro_batch: u32,
}

impl<T: Task> BatchReader<T> {
    /// # Errors
    /// If they can't be read, or the task fails.
    pub(super) fn read(&self, samples: &[u32], draw: DrawSeed) -> Result<(T::Batch, f32), BatchError> {
        let worth = self.worth(samples).map_err(BatchError::Task)?;
        let batch = || caught(self.task.name(), "batch", || self.task.read_batch(samples, &draw, &self.device));
        let read = match self.task.loads_beside() {
            None => drawing(self.micro_batch, draw, "batch", &self.device, batch),
            // It draws nothing, and need not wait for who does.
            Some(_) => batch(),
        };
        Ok((read.map_err(BatchError::Task)?.map_err(BatchError::Samples)?, worth))
    }

    /// What one of these samples counts in the mean.
    fn worth(&self, samples: &[u32]) -> Result<f32, Error> {
        if !self.is_weighted {
            return Ok(1.0);
        }
        let weight = caught(self.task.name(), "weight", || self.task.weight(samples))?.unwrap_or(f64::NAN);
        let mean = weight / samples.len().max(1) as f64;
        match (0.0..=MAX_WEIGHT).contains(&mean) {
            true => Ok(mean as f32),
            false => Err(Error::Weight { task: self.task.name().to_owned(), samples: samples.len(), weight }),
        }
    }
}

/// Why there is no batch.
pub(super) enum BatchError {
    Task(Error),
    Samples(io::Error),
}

impl BatchError {
    /// The same in the step after this one.
    pub(super) fn after(self, step: u64) -> Error {
        match self {
            Self::Task(error) => error,
            Self::Samples(source) => Error::Samples { step, source },
        }
    }
}

/// Has `compute` draw from Burn's generator as any member would, in a run with micro-batches.
pub(super) fn drawing<R>(
    micro_batch: u32,
    draw: DrawSeed,
    purpose: &str,
    device: &Device,
    compute: impl FnOnce() -> R,
) -> R {
    match micro_batch {
        0 => beside_others(compute),
        _ => draw.alone(purpose, device, compute),
    }
}
