//! What one member computes in one step: the gradient over its share, from the last parameters to the first.

use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use starling_collective::codec::kernel;

use crate::training::buffer::ReducedSize;

/// The mean gradient over a member's share and the [figures](ReducedSize) behind it, `[trained + figures]`, and how many samples they are the
/// mean of.
///
/// It comes about from the end: the figures first, then block by block as backward reaches them. One thread computes it while
/// another may read what is there already.
#[derive(Debug)]
pub struct Gradient(RwLock<Inner>);

#[derive(Debug)]
struct Inner {
    weight: u64,
    /// Whether all of it is zeros, because it came to numbers that no contribution may have.
    given_up: bool,
    /// What is behind this position is there.
    ready: usize,
    /// Before it: the sums of what was [added](Gradient::add), each times its samples, as many numbers and samples as these.
    summed: usize,
    samples: u64,
    values: Vec<f32>,
}

impl Gradient {
    /// Nothing yet, of what a member brings; of so many parameters, and the loss.
    pub fn new(reduced: impl Into<ReducedSize>) -> Self {
        let values = vec![0.0; reduced.into().elements()];
        Self(RwLock::new(Inner { weight: 0, given_up: false, ready: values.len(), summed: 0, samples: 0, values }))
    }

    /// Forgets what was computed.
    pub fn clear(&mut self) {
        let inner = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        (inner.weight, inner.given_up, inner.ready) = (0, false, inner.values.len());
        (inner.summed, inner.samples) = (0, 0);
    }

    /// How many samples it is the mean of; 0 as long as nothing is there.
    pub fn weight(&self) -> u64 {
        self.read(|inner| inner.weight)
    }

    /// How many numbers there will be: the parameters, and the figures.
    pub fn elements(&self) -> usize {
        self.read(|inner| inner.values.len())
    }

    /// The position from which on the numbers are there: [`Self::elements`] if none are, 0 if all are.
    pub fn ready_from(&self) -> usize {
        self.read(|inner| inner.ready)
    }

    /// Writes this member's part of a reduction for some positions: the numbers times the weight.
    ///
    /// # Panics
    /// If they are not there yet, or `into` is not as long.
    pub fn contribute(&self, range: Range<usize>, into: &mut [f32]) {
        self.read(|inner| {
            assert!(range.start >= inner.ready, "only what is there can be contributed");
            // Exact: a batch has at most 2^20 samples.
            kernel::scale(into, &inner.values[range], inner.weight as f32);
        });
    }

    /// All numbers, once they are there.
    pub fn values(&self) -> Vec<f32> {
        self.read(|inner| inner.values.clone())
    }

    /// There is no share: all zeros, of weight 0.
    pub fn set_nothing(&self) {
        self.write(|inner| {
            inner.values.fill(0.0);
            (inner.weight, inner.ready) = (0, 0);
        });
    }

    /// The numbers that come next are none that may be contributed: they and all before them become zeros. If none are there
    /// yet, that is all of it, of weight 0, and it [has been given up](Self::has_given_up). Others may have those that are.
    pub fn give_up(&self) {
        self.write(|inner| {
            let ready = std::mem::take(&mut inner.ready);
            inner.values[..ready].fill(0.0);
            if ready == inner.values.len() {
                (inner.weight, inner.given_up) = (0, true);
            }
        });
    }

    /// Whether it was given up before any of it was there.
    pub fn has_given_up(&self) -> bool {
        self.read(|inner| inner.given_up)
    }

    /// Adds means over `weight` samples, in pieces of ascending positions from the first one on, to what is there in the end: nothing is there of
    /// it yet. However often, no memory is taken. All have as many numbers; behind them, there may be more.
    ///
    /// # Panics
    /// If they are more than are missing.
    pub fn add(&self, weight: u64, pieces: &[&[f32]]) {
        self.write(|inner| {
            let (mut at, is_first) = (0, inner.summed == 0);
            for piece in pieces {
                let sums = inner.values[..inner.ready][at..at + piece.len()].iter_mut().zip(*piece);
                match is_first {
                    true => sums.for_each(|(sum, value)| *sum = value * weight as f32),
                    false => sums.for_each(|(sum, value)| *sum += value * weight as f32),
                }
                at += piece.len();
            }
            (inner.summed, inner.samples) = (at, inner.samples + weight);
        });
    }

    /// Takes in the numbers before those that are there, in pieces of ascending positions: means over `weight` samples, which become means over these
    /// and all that were [added](Self::add).
    ///
    /// # Panics
    /// If there are more than are missing.
    pub fn prepend<'a>(&self, weight: u64, pieces: impl DoubleEndedIterator<Item = &'a [f32]>) {
        self.write(|inner| {
            inner.weight = inner.samples + weight;
            let total = inner.weight as f32;
            for piece in pieces.rev() {
                let start =
                    inner.ready.checked_sub(piece.len()).expect("invariant: a gradient is as long as its model");
                let values = &mut inner.values[start..inner.ready];
                match start < inner.summed {
                    // The numbers as they are.
                    false => values.copy_from_slice(piece),
                    true => {
                        values
                            .iter_mut()
                            .zip(piece)
                            .for_each(|(sum, value)| *sum = (*sum + value * weight as f32) / total);
                    }
                }
                inner.ready = start;
            }
        });
    }

    fn read<T>(&self, read: impl FnOnce(&Inner) -> T) -> T {
        // A lock poisoned by a panic elsewhere still guards sound data.
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, write: impl FnOnce(&mut Inner)) {
        write(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_about_from_the_end() {
        let mut gradient = Gradient::new(4);
        assert_eq!((gradient.elements(), gradient.ready_from(), gradient.weight()), (5, 5, 0));
        gradient.prepend(2, [&[3.0][..], &[4.0], &[0.5]].into_iter());
        assert_eq!((gradient.ready_from(), gradient.weight()), (2, 2));
        let mut part = [9.0; 2];
        gradient.contribute(3..5, &mut part);
        assert_eq!(part, [8.0, 1.0]);
        gradient.prepend(2, [&[1.0, 2.0][..]].into_iter());
        assert_eq!((gradient.ready_from(), gradient.values()), (0, vec![1.0, 2.0, 3.0, 4.0, 0.5]));
        gradient.clear();
        assert_eq!((gradient.ready_from(), gradient.weight()), (5, 0));
        gradient.set_nothing();
        assert_eq!((gradient.ready_from(), gradient.weight(), gradient.values()), (0, 0, vec![0.0; 5]));
    }

    #[test]
    fn means_are_weighted_by_their_samples() {
        let mut gradient = Gradient::new(3);
        let of_two = |gradient: &Gradient| {
            gradient.add(2, &[&[1.0, 2.0], &[4.0]]);
            assert_eq!((gradient.ready_from(), gradient.weight()), (4, 0), "nothing of it is there");
            gradient.add(4, &[&[4.0], &[-1.0, 1.0]]);
        };
        of_two(&gradient);
        // The last number is none of those that are added.
        gradient.prepend(2, [&[6.0][..], &[0.5]].into_iter());
        gradient.prepend(2, [&[3.0, 4.0][..]].into_iter());
        assert_eq!((gradient.weight(), gradient.values()), (8, vec![3.0, 1.0, 3.0, 0.5]));
        gradient.clear();
        gradient.prepend(3, [&[1.0, -0.0, 3.0, 4.0][..]].into_iter());
        assert_eq!((gradient.weight(), gradient.values()), (3, vec![1.0, -0.0, 3.0, 4.0]));
        gradient.clear();
        of_two(&gradient);
        gradient.give_up();
        assert_eq!((gradient.weight(), gradient.values()), (0, vec![0.0; 4]));
    }

    #[test]
    fn what_is_given_up_is_zeros() {
        let mut gradient = Gradient::new(2);
        gradient.give_up();
        assert_eq!((gradient.ready_from(), gradient.weight(), gradient.values()), (0, 0, vec![0.0; 3]));
        assert!(gradient.has_given_up());
        gradient.clear();
        assert!(!gradient.has_given_up());
        gradient.prepend(3, [&[5.0, 7.0][..]].into_iter());
        gradient.give_up();
        assert_eq!((gradient.ready_from(), gradient.weight(), gradient.values()), (0, 3, vec![0.0, 5.0, 7.0]));
        assert!(!gradient.has_given_up(), "a part of it has left");
    }

    #[test]
    #[should_panic(expected = "only what is there")]
    fn what_is_not_there_can_not_be_contributed() {
        Gradient::new(4).contribute(3..5, &mut [0.0; 2]);
    }
}
