//! What micro-batches come to together.

/// The gradients and losses of micro-batches, and the changes of what runs along, each times its samples: `[trained + 1 + running]`, and where samples do not count alike what one counts. Memory for one, however many they are.
#[derive(Debug, Default)]
pub(super) struct Sums {
    values: Vec<f32>,
    weight: u64,
}

impl Sums {
    /// Of nothing.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.weight = 0;
    }

    /// Adds means over `weight` samples, in pieces of ascending positions which are all that there are.
    pub(super) fn add(&mut self, weight: u64, pieces: &[&[f32]]) {
        let mut at = 0;
        for piece in pieces {
            if self.values.len() == at {
                self.values.extend(piece.iter().map(|value| value * weight as f32));
            } else {
                let sums = &mut self.values[at..at + piece.len()];
                sums.iter_mut().zip(*piece).for_each(|(sum, value)| *sum += value * weight as f32);
            }
            at += piece.len();
        }
        self.weight += weight;
    }

    /// How many samples they are of.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// The means over these samples and `weight` others, from position `start` on; theirs are the pieces. They take the place of the sums
    /// there: no other memory is taken.
    pub(super) fn mean_with(&mut self, start: usize, weight: u64, pieces: &[&[f32]]) -> &[f32] {
        let total = (self.weight + weight) as f32;
        let mut at = start;
        for piece in pieces {
            let sums = &mut self.values[at..at + piece.len()];
            sums.iter_mut().zip(*piece).for_each(|(sum, value)| *sum = (*sum + value * weight as f32) / total);
            at += piece.len();
        }
        &self.values[start..at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_weighted_by_their_samples() {
        let mut sums = Sums::default();
        sums.add(2, &[&[1.0, 2.0], &[4.0]]);
        sums.add(4, &[&[4.0], &[-1.0, 1.0]]);
        assert_eq!((sums.weight(), &sums.values), (6, &vec![18.0, 0.0, 12.0]));
        assert_eq!(sums.mean_with(1, 2, &[&[4.0], &[6.0]]), [1.0, 3.0]);
        sums.clear();
        sums.add(1, &[&[5.0]]);
        assert_eq!((sums.weight(), sums.values), (1, vec![5.0]));
    }
}
