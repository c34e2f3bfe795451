//! How good a model is at each class, label or number: which classes it takes for which, as counts of samples, from which all shares follow.

use std::collections::BTreeMap;

/// The most pairs of a class and another one that it was taken for: of 256 classes, all.
const MAX_PAIRS: usize = 1 << 16;

/// How many samples of each class were said to be of which. Counts of some samples and of others add up to those of all.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfusionTable {
    classes: Vec<ClassSummary>,
    /// Of a class and what it was taken for, how many; `None` once they are too many.
    mistakes: Option<BTreeMap<(usize, usize), u64>>,
}

/// One class among others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassSummary {
    /// How many samples are of it.
    pub samples: u64,
    /// How many were said to be.
    pub predicted: u64,
    /// Of how many both is so.
    pub hits: u64,
}

/// How good a model is at each of what it predicts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DetailReport {
    /// At each class, in their order, and which ones it takes for which.
    Classes(ConfusionTable),
    /// At each of several labels that a sample may have, in their order: how many samples have it, and of how many it was said.
    Labels(Vec<ClassSummary>),
    /// At each column of labels that are numbers, in their order.
    Numbers(Vec<NumberSummary>),
}

/// How far off a number is that is predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NumberSummary {
    samples: u64,
    distances: f64,
    squares: f64,
    explained: f64,
}

impl NumberSummary {
    /// One sample more, which is so far off, in deviations.
    pub(crate) fn add(&mut self, off: f64, deviation: f64) {
        self.samples += 1;
        self.distances += off.abs() * deviation;
        self.squares += (off * deviation).powi(2);
        self.explained += 1.0 - off * off;
    }

    /// The mean distance, in the label's own unit; 0 of no samples, as the others.
    pub fn absolute_error(&self) -> f64 {
        self.mean(self.distances)
    }

    /// The root of the mean square of the distance, in the label's own unit.
    pub fn root_mean_square(&self) -> f64 {
        self.mean(self.squares).sqrt()
    }

    /// 1 less the mean square by the variance of the labels to train on.
    pub fn r2(&self) -> f64 {
        self.mean(self.explained)
    }

    fn mean(&self, sum: f64) -> f64 {
        sum / self.samples.max(1) as f64
    }
}

/// The mean of F1 of those that have one, each as much as any other; `None` if none has.
pub fn macro_f1(classes: &[ClassSummary]) -> Option<f64> {
    let known: Vec<f64> = classes.iter().filter_map(ClassSummary::f1).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

impl ClassSummary {
    /// One sample more, that is of it or not, and was said to be or not.
    pub(crate) fn add(&mut self, is_of_it: bool, is_predicted: bool) {
        self.samples += u64::from(is_of_it);
        self.predicted += u64::from(is_predicted);
        self.hits += u64::from(is_of_it && is_predicted);
    }

    /// Which share of what was said to be of it is; `None` if nothing was.
    pub fn precision(&self) -> Option<f64> {
        share(self.hits, self.predicted)
    }

    /// Which share of its samples was said to be of it; `None` if it has none.
    pub fn recall(&self) -> Option<f64> {
        share(self.hits, self.samples)
    }

    /// The harmonic mean of both, which is 0 if one of them is; `None` of a class of which nothing is and nothing was said to be.
    pub fn f1(&self) -> Option<f64> {
        share(2 * self.hits, self.samples + self.predicted)
    }
}

impl ConfusionTable {
    /// Of no samples yet, of so many classes.
    pub fn new(classes: usize) -> Self {
        Self { classes: vec![ClassSummary::default(); classes], mistakes: Some(BTreeMap::new()) }
    }

    /// One sample more, that is of one class and was said to be of another, or of the same.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn add(&mut self, actual: usize, predicted: usize) {
        self.classes[actual].samples += 1;
        self.classes[predicted].predicted += 1;
        if actual == predicted {
            self.classes[actual].hits += 1;
        } else if let Some(mistakes) = &mut self.mistakes {
            *mistakes.entry((actual, predicted)).or_default() += 1;
            if mistakes.len() > MAX_PAIRS {
                self.mistakes = None;
            }
        }
    }

    /// The classes, in their order.
    pub fn classes(&self) -> &[ClassSummary] {
        &self.classes
    }

    /// How many samples of the one class were said to be of the other; `None` if there are too many different mistakes to count each.
    pub fn count(&self, actual: usize, predicted: usize) -> Option<u64> {
        match actual == predicted {
            true => Some(self.classes[actual].hits),
            false => Some(self.mistakes.as_ref()?.get(&(actual, predicted)).copied().unwrap_or(0)),
        }
    }

    /// The most frequent mistakes, at most so many: of a class, what it was taken for, and how often. `None` as of [`Self::count`].
    pub fn mistakes(&self, most: usize) -> Option<Vec<(usize, usize, u64)>> {
        let mistakes = self.mistakes.as_ref()?.iter();
        let mut found: Vec<_> = mistakes.map(|(&(actual, predicted), count)| (actual, predicted, *count)).collect();
        // Of equal ones, the first classes come first.
        found.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
        found.truncate(most);
        Some(found)
    }
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_counts() {
        let mut table = ConfusionTable::new(4);
        // By hand, and as scikit-learn's `f1_score(actual, predicted, average="macro")`: the fourth class is nowhere.
        for (actual, predicted) in [(0, 0), (0, 0), (0, 1), (1, 1), (1, 0), (2, 1), (0, 1)] {
            table.add(actual, predicted);
        }
        let f1 = |class: usize| table.classes()[class].f1();
        assert_eq!([f1(0), f1(1), f1(2), f1(3)], [Some(4.0 / 7.0), Some(2.0 / 6.0), Some(0.0), None]);
        assert_eq!(macro_f1(table.classes()), Some((4.0 / 7.0 + 1.0 / 3.0) / 3.0));
        let first = table.classes()[0];
        assert_eq!((first.precision(), first.recall()), (Some(2.0 / 3.0), Some(0.5)));
        assert_eq!((table.classes()[2].precision(), table.classes()[3].recall()), (None, None));
        assert_eq!(table.mistakes(2), Some(vec![(0, 1, 2), (1, 0, 1)]));
        assert_eq!([table.count(0, 1), table.count(0, 0), table.count(3, 0)], [Some(2), Some(2), Some(0)]);
        assert_eq!(macro_f1(ConfusionTable::new(2).classes()), None);
    }

    #[test]
    fn mistakes_take_no_more_memory_than_they_may() {
        let mut table = ConfusionTable::new(300);
        let pairs = || (0..300).flat_map(|actual| (0..300).map(move |predicted| (actual, predicted)));
        pairs().for_each(|(actual, predicted)| table.add(actual, predicted));
        assert_eq!((table.mistakes(1), table.count(1, 2), table.count(7, 7)), (None, None, Some(1)));
        assert_eq!(table.classes()[9], ClassSummary { samples: 300, predicted: 300, hits: 1 });
        let mut table = ConfusionTable::new(256);
        pairs()
            .filter(|pair| pair.0 < 256 && pair.1 < 256)
            .for_each(|(actual, predicted)| table.add(actual, predicted));
        assert_eq!(table.count(255, 0), Some(1));
    }
}
