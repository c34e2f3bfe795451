//! How long a run is.

use starling_run::data::steps_per_epoch;
use starling_run::{RunSpec, Workload};

/// How long a run is, if its founder does not count steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RunLimit {
    /// As many steps as its [`RunSpec`] says.
    #[default]
    Steps,
    /// So many passes over the samples to train on.
    Epochs(u64),
    /// What is usual for the model and so many samples.
    Usual,
}

impl RunLimit {
    /// The last step of a run of `workload` that `run` describes.
    pub(crate) fn steps(self, run: &RunSpec, workload: &dyn Workload) -> u64 {
        match self {
            Self::Steps => run.steps,
            Self::Epochs(count) => of_epochs(count, workload.training(), run.batch_size),
            Self::Usual => workload.usual_steps(run),
        }
    }
}

/// It takes more steps where samples of members that are lost are computed again.
fn of_epochs(count: u64, samples: u64, batch_size: u32) -> u64 {
    steps_per_epoch(samples, batch_size).saturating_mul(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_whole_passes() {
        for (epochs, samples, steps) in
            [(1, 64, 1), (1, 65, 2), (3, 1438, 69), (5, 1, 5), (2, 1 << 30, 1 << 25), (u64::MAX, 65, u64::MAX)]
        {
            assert_eq!(of_epochs(epochs, samples, 64), steps, "{epochs} over {samples}");
        }
    }
}
