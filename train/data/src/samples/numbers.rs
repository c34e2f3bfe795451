//! Which of the samples of a source are of one set.

use std::sync::Arc;

/// Which of them are, ascending. A list of all would take four bytes for each.
#[derive(Debug, Clone)]
pub(crate) enum SampleNumbers {
    /// These.
    Listed(Arc<[u32]>),
    /// Of so many all but these.
    Others(u32, Arc<[u32]>),
}

impl SampleNumbers {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Listed(numbers) => numbers.len(),
            Self::Others(total, others) => *total as usize - others.len(),
        }
    }

    /// The number of the sample at this place.
    pub(crate) fn get(&self, at: u32) -> u32 {
        match self {
            Self::Listed(numbers) => numbers[at as usize],
            Self::Others(_, others) => {
                // Before each of the others lie as many as its number is, less those of them that come before it.
                let (mut low, mut high) = (0, others.len());
                while low < high {
                    let middle = low + (high - low) / 2;
                    match others[middle] - middle as u32 <= at {
                        true => low = middle + 1,
                        false => high = middle,
                    }
                }
                at + low as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_are_not_listed_are_all_others() {
        for others in [&[][..], &[0], &[6], &[0, 1, 2, 5], &[3, 4], &[0, 2, 4, 6], &[1, 2, 3, 4, 5, 6]] {
            let numbers = SampleNumbers::Others(7, others.into());
            let left: Vec<u32> = (0..7).filter(|number| !others.contains(number)).collect();
            let found: Vec<u32> = (0..numbers.len() as u32).map(|at| numbers.get(at)).collect();
            assert_eq!(found, left, "{others:?}");
        }
    }
}
