//! A cold device: what it computes for the first time it compiles, tunes and allocates for, which may take minutes.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use starling_run::Gradient;

use crate::error::Error;
use crate::task::{DrawSeed, SampleSummary, Task};

use super::Replica;

/// For tests, in the environment: by how many milliseconds the first computations on the device take longer, the warm-up's
/// among them, with commas between them; the last number with a plus behind it is that of all that follow.
const DELAYS: &str = "STARLING_TEST_DEVICE_DELAYS_MS";
/// How often the share is halved.
const HALVINGS: u32 = 3;

impl<T: Task> Replica<T> {
    /// Computes what a step computes with a share of `share` samples, writes the parameters to the device and evaluates a
    /// batch, all in vain: no step of the run is then the device's first.
    ///
    /// A device that compiles does so for shapes, and tunes for classes of them. Here it sees the share and what is left of it
    /// when the view becomes twice, four and eight times as large. What it cannot see are the other sizes that shares come to
    /// when members differ in speed: some of them may compile once more, within a step.
    ///
    /// # Errors
    /// If the device failed, or the task did.
    pub(super) fn warm_up_device(&mut self, share: u32) -> Result<(), Error> {
        let SampleSummary { training: samples, held_out, .. } = self.data;
        // A member's micro-batches are all of one size but for an epoch's last one.
        let micro_batch = self.training.manifest().micro_batch;
        let halvings = if self.compiles && micro_batch == 0 { HALVINGS } else { 0 };
        let share = if micro_batch == 0 { share } else { share.min(micro_batch) };
        let draw = DrawSeed::new(self.training.manifest().seed, 0, 0);
        let mut seen = 0;
        for halving in 0..=halvings {
            let share = (share >> halving).clamp(1, samples.max(1));
            if share == seen || samples == 0 {
                continue;
            }
            seen = share;
            let Some(indices) = self.first_here(0..share) else { continue };
            let batch = self.batch(&indices, draw)?;
            let gradient = Gradient::new(self.training.manifest().reduced());
            self.differentiate(batch, draw, u64::from(share), &gradient, &mut |_| ())?;
        }
        // Should it be so in a step, it is told there.
        self.beyond = None;
        self.write_parameters();
        let held_out: Vec<u32> = (samples..samples + held_out.min(self.task.measured_at_once().max(1))).collect();
        if !held_out.is_empty() && self.task.are_here(&held_out) {
            self.measure(&self.present(), &held_out)?;
        }
        Ok(())
    }

    /// So many samples of those that are here of the first: all of them, or some several times. What they are does not matter. `None` if none is here.
    fn first_here(&self, samples: Range<u32>) -> Option<Vec<u32>> {
        let mut here = samples.len() as u32;
        while here > 0 && !self.task.are_here(&(0..here).collect::<Vec<_>>()) {
            here /= 2;
        }
        (here > 0).then(|| samples.map(|at| at % here).collect())
    }
}

/// By how much the next computations are to take longer.
#[derive(Debug, Default)]
pub(super) struct Delays {
    next: VecDeque<Duration>,
    /// Those after them.
    then: Option<Duration>,
}

impl Delays {
    /// None, unless a test sets some.
    pub(super) fn from_environment() -> Self {
        Self::read(&std::env::var(DELAYS).unwrap_or_default())
    }

    fn read(text: &str) -> Self {
        let delay = |number: &str| number.trim().parse().ok().map(Duration::from_millis);
        let then = text.trim().strip_suffix('+').and_then(|text| delay(text.rsplit(',').next()?));
        Self { next: text.split(',').filter_map(delay).collect(), then }
    }

    /// How long this computation takes longer.
    fn take(&mut self) -> Option<Duration> {
        self.next.pop_front().or(self.then)
    }

    /// Waits as long as is due before this computation.
    pub(super) fn pass(&mut self) {
        if let Some(delay) = self.take() {
            std::thread::sleep(delay);
        }
    }
}

#[cfg(test)]
mod tests {
    use starling_run::{Learner, RunSpec, StateReplica};
    use starling_topology::PeerId;

    use super::*;
    use crate::device::DeviceSpec;
    use crate::{ClassifierReplica, found};
    use starling_data::{DataOptions, Dataset};

    const ME: PeerId = PeerId([1; 32]);

    #[test]
    fn the_last_delay_may_be_that_of_all_that_follow() {
        let take = |text| {
            let mut delays = Delays::read(text);
            [(); 4].map(|()| delays.take().map_or(0, |delay| delay.as_millis()))
        };
        assert_eq!([take(""), take("3, 5"), take("3,5+"), take("7+")], [[0; 4], [3, 5, 0, 0], [3, 5, 5, 5], [7; 4]]);
    }

    /// Of the first step, bit by bit: its gradient and loss.
    fn first_step(trainer: &mut ClassifierReplica) -> Vec<u32> {
        trainer.begin(&[ME]);
        let gradient = Gradient::new(trainer.training().parameters().len());
        trainer.compute(ME, &gradient, &mut |_| ()).expect("computed");
        gradient.values().into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn a_warm_device_computes_the_same_from_the_same_state() {
        let dataset = || Dataset::load(&DataOptions::default()).expect("the embedded digits");
        let spec = RunSpec { model: "mlp:700,700".parse().expect("a model"), ..RunSpec::default() };
        let manifest = found(&spec, &dataset()).expect("a run");
        let trainer = || ClassifierReplica::new(&manifest, dataset(), DeviceSpec::Cpu).expect("a trainer");
        let (mut cold, mut warm) = (trainer(), trainer());
        // As on a device that compiles; and as many samples as there are not.
        warm.compiles = true;
        warm.warm_up(1 << 20).expect("computed");
        assert_eq!((warm.digest(), warm.step()), (cold.digest(), 0));
        assert_eq!(first_step(&mut warm), first_step(&mut cold));
        warm.warm_up(1).expect("computed in the middle of a step");
        assert_eq!(warm.digest(), cold.digest());
    }

    #[test]
    fn delays_pass_one_by_one() {
        let mut delays = Delays::read("0,1");
        let began = std::time::Instant::now();
        (0..3).for_each(|_| delays.pass());
        assert!(delays.next.is_empty() && began.elapsed() >= Duration::from_millis(1));
    }
}
