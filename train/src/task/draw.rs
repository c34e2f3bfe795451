//! What is random in training: the same whoever computes it.

use std::sync::{PoisonError, RwLock};

use burn::tensor::Device;
use starling_topology::SplitMix64Generator;

/// Who sets the generator of Burn's devices is alone with it: there is one for the whole process.
static BURNS_OWN: RwLock<()> = RwLock::new(());

/// What is random about the samples that are computed together. It follows from the run's seed, the epoch and the first of
/// their positions in it, so that a micro-batch has the same whichever member computes it, and however often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawSeed {
    seed: u64,
    epoch: u64,
    first: u32,
}

impl DrawSeed {
    /// That of what begins at position `first` of `epoch`, in a run with this seed.
    pub fn new(seed: u64, epoch: u64, first: u32) -> Self {
        Self { seed, epoch, first }
    }

    /// A generator for one purpose in the micro-batch. Different purposes get unrelated streams.
    pub fn of_batch(&self, purpose: &str) -> SplitMix64Generator {
        SplitMix64Generator::new(self.number("starling micro-batch", purpose, self.first))
    }

    /// A generator for one purpose with the sample of this number, in the epoch: the same in whatever micro-batch it comes.
    pub fn of_sample(&self, purpose: &str, sample: u32) -> SplitMix64Generator {
        SplitMix64Generator::new(self.number("starling sample", purpose, sample))
    }

    /// The first eight bytes of blake3(kind, 0, purpose, 0, seed, epoch, which), little-endian.
    fn number(&self, kind: &str, purpose: &str, which: u32) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(kind.as_bytes()).update(&[0]).update(purpose.as_bytes()).update(&[0]);
        hasher.update(&self.seed.to_le_bytes()).update(&self.epoch.to_le_bytes()).update(&which.to_le_bytes());
        let mut number = [0; 8];
        number.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(number)
    }

    /// Has `compute` draw from Burn's generator, set for one purpose in the micro-batch, with nobody else drawing meanwhile.
    pub(crate) fn alone<T>(&self, purpose: &str, device: &Device, compute: impl FnOnce() -> T) -> T {
        // Nothing behind the lock can be left half done.
        let _alone = BURNS_OWN.write().unwrap_or_else(PoisonError::into_inner);
        device.seed(self.number("starling micro-batch", purpose, self.first));
        compute()
    }
}

/// Computes what may set a seed of its own, with nobody else drawing meanwhile.
pub(crate) fn by_itself<T>(compute: impl FnOnce() -> T) -> T {
    let _alone = BURNS_OWN.write().unwrap_or_else(PoisonError::into_inner);
    compute()
}

/// Computes what may draw, without a seed: who has set one draws alone. Modules draw when they are built or first read.
pub(crate) fn beside_others<T>(compute: impl FnOnce() -> T) -> T {
    let _others = BURNS_OWN.read().unwrap_or_else(PoisonError::into_inner);
    compute()
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tensor};

    use super::*;

    #[test]
    fn all_that_it_follows_from_makes_a_difference() {
        let draw = DrawSeed::new(1, 2, 3);
        let first = |draw: DrawSeed, purpose| draw.of_batch(purpose).next_u64();
        let others = [DrawSeed::new(2, 2, 3), DrawSeed::new(1, 3, 3), DrawSeed::new(1, 2, 4)];
        assert!(others.iter().all(|other| first(*other, "mask") != first(draw, "mask")));
        assert_ne!(first(draw, "mask"), first(draw, "crop"));
        let sample = |draw: DrawSeed, sample| draw.of_sample("crop", sample).next_u64();
        assert_eq!(sample(draw, 9), sample(DrawSeed::new(1, 2, 77), 9), "wherever a sample is");
        assert!(sample(draw, 9) != sample(draw, 8) && sample(draw, 9) != sample(DrawSeed::new(1, 3, 3), 9));
        // Pinned: members on different versions of Starling must agree.
        assert_eq!(draw.number("starling micro-batch", "mask", 3), PINNED);
    }

    const PINNED: u64 = 9_683_718_820_143_616_211;

    /// Burn's generator is one for all threads: without the lock, some draw another's numbers.
    #[test]
    fn threads_that_draw_at_once_draw_as_if_they_were_alone() {
        let device = Device::flex();
        let numbers = |first: u32| -> Vec<f32> {
            DrawSeed::new(7, 0, first).alone("loss", &device, || {
                let drawn = (0..4).map(|_| Tensor::<1>::random([64], Distribution::Default, &device));
                drawn.flat_map(|numbers| numbers.into_data().try_to_vec::<f32>().expect("f32")).collect()
            })
        };
        let expected: Vec<_> = (0..4).map(numbers).collect();
        assert_ne!(expected[0], expected[1]);
        std::thread::scope(|scope| {
            for (first, expected) in (0..).zip(&expected) {
                let (numbers, device) = (&numbers, &device);
                scope.spawn(move || (0..50).for_each(|_| assert_eq!(&numbers(first), expected)));
                let noise = move || Tensor::<1>::random([64], Distribution::Default, device);
                scope.spawn(move || (0..50).for_each(|_| drop(beside_others(noise))));
            }
        });
    }
}
