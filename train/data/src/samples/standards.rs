//! By what the numbers of a table are scaled: figures of the samples to train on, value by value in the order of the rows, so that it is the
//! same bits wherever the rows come from.

use starling_run::FeatureScale;
use starling_run::data::columns::{Column, ColumnKind, measured};
use starling_run::data::{BETWEEN_LABELS, LabelScale};

/// Which features are measured, and which of these have gaps.
pub(crate) struct Measured {
    features: Vec<bool>,
    pub(crate) gaps: Vec<usize>,
}

impl Measured {
    /// Of `count` features of these columns; all are measured if there is nothing to say of columns.
    pub(crate) fn of(columns: &[Column], count: usize) -> Self {
        let mut features = measured(columns);
        features.resize(count, true);
        let mut gaps = Vec::new();
        let mut at = 0;
        for Column { coding, .. } in columns {
            gaps.extend((*coding == ColumnKind::Gaps).then_some(at));
            at += coding.width();
        }
        Self { features, gaps }
    }

    /// Those that are.
    pub(crate) fn taken(&self) -> Vec<usize> {
        (0..self.features.len()).filter(|feature| self.features[*feature]).collect()
    }
}

/// Mean and standard deviation of each feature that is measured, in f64, without gaps. All values are shown twice.
pub(crate) struct Standards {
    taken: Vec<usize>,
    /// Of how many values each feature's mean is.
    counts: Vec<f64>,
    means: Vec<f64>,
    squares: Vec<f64>,
    firsts: Vec<f64>,
    are_constant: Vec<bool>,
}

impl Standards {
    /// Of `all` rows; of features with gaps, by their order, so many values are known.
    pub(crate) fn new(measured: &Measured, all: u32, known: &[u32]) -> Self {
        let count = measured.features.len();
        let mut counts = vec![f64::from(all); count];
        for (feature, known) in measured.gaps.iter().zip(known) {
            counts[*feature] = f64::from(*known);
        }
        Self {
            taken: measured.taken(),
            counts,
            means: vec![0.0; count],
            squares: vec![0.0; count],
            // A constant is recognized by its values: its computed variance may be a rounding error above zero.
            firsts: vec![f64::NAN; count],
            are_constant: vec![true; count],
        }
    }

    /// The first showing of a row: `at` is the value of a feature.
    pub(crate) fn show(&mut self, at: impl Fn(usize) -> f64) {
        for feature in &self.taken {
            let value = at(*feature);
            // A column of gaps alone is none with gaps: its mean is 0.
            if !value.is_nan() {
                self.means[*feature] += value / self.counts[*feature];
            }
        }
    }

    /// The second one, when all were shown once.
    pub(crate) fn show_again(&mut self, at: impl Fn(usize) -> f64) {
        for feature in &self.taken {
            let value = at(*feature);
            if !value.is_nan() {
                let first = &mut self.firsts[*feature];
                *first = if first.is_nan() { value } else { *first };
                self.are_constant[*feature] &= value == *first;
                let distance = value - self.means[*feature];
                self.squares[*feature] += distance * distance / self.counts[*feature];
            }
        }
    }

    /// The scales, and the features that are no constants, but whose numbers are too large, or too near to each other, for that. What is
    /// not measured stays as it is.
    pub(crate) fn scales(self) -> (FeatureScale, Vec<usize>) {
        let (mut deviations, mut lost) = (vec![1.0; self.means.len()], Vec::new());
        for feature in self.taken {
            let deviation: f64 = self.squares[feature].sqrt();
            let is_usable = !self.are_constant[feature] && deviation.is_normal();
            deviations[feature] = if is_usable { deviation } else { 0.0 };
            lost.extend((!is_usable && !self.are_constant[feature]).then_some(feature));
        }
        (FeatureScale::Standardize { means: self.means, deviations }, lost)
    }
}

/// The numbers that labels stand for, of each that a sample has one after another; `None` if one of `names` is no finite number.
pub(crate) fn label_numbers(names: &[String], labels: usize) -> Option<Vec<f64>> {
    let parts = |name: &String| match labels {
        0 | 1 => vec![name.clone()],
        _ => name.split(BETWEEN_LABELS).map(ToOwned::to_owned).collect(),
    };
    let number = |part: String| part.parse().ok().filter(|number: &f64| number.is_finite());
    names.iter().flat_map(parts).map(number).collect()
}

/// Mean and standard deviation of the labels of each column, if all are numbers, in f64. All are shown twice.
pub(crate) struct LabelStandards(Vec<ColumnStandards>);

impl LabelStandards {
    /// Of so many samples with so many labels each; none if one of `names` is no finite number.
    pub(crate) fn new(names: &[String], labels: usize, count: usize) -> Self {
        let numbers = label_numbers(names, labels).unwrap_or_default();
        let of = |label| numbers.iter().skip(label).step_by(labels.max(1)).copied().collect();
        let columns = if numbers.is_empty() { 0 } else { labels };
        Self((0..columns).map(|label| ColumnStandards::new(of(label), count)).collect())
    }

    /// The first showing of a label.
    pub(crate) fn show(&mut self, class: u32) {
        self.0.iter_mut().for_each(|column| column.show(class));
    }

    /// The second one, when all were shown once.
    pub(crate) fn show_again(&mut self, class: u32) {
        self.0.iter_mut().for_each(|column| column.show_again(class));
    }

    /// The scale of each column; none if one can't be computed.
    pub(crate) fn scales(self) -> Vec<LabelScale> {
        self.0.into_iter().map(ColumnStandards::scale).collect::<Option<_>>().unwrap_or_default()
    }
}

/// Those of one column.
struct ColumnStandards {
    /// What each class stands for.
    numbers: Vec<f64>,
    count: f64,
    mean: f64,
    variance: f64,
    first: Option<f64>,
    are_alike: bool,
}

impl ColumnStandards {
    fn new(numbers: Vec<f64>, count: usize) -> Self {
        // What a sum begins with.
        Self { numbers, count: count as f64, mean: -0.0, variance: -0.0, first: None, are_alike: true }
    }

    fn show(&mut self, class: u32) {
        self.mean += self.numbers[class as usize] / self.count;
    }

    fn show_again(&mut self, class: u32) {
        let number = self.numbers[class as usize];
        self.variance += (number - self.mean).powi(2) / self.count;
        self.are_alike &= number == *self.first.get_or_insert(number);
    }

    /// The scale, if it can be computed.
    fn scale(self) -> Option<LabelScale> {
        let deviation = if self.are_alike { 1.0 } else { self.variance.sqrt() };
        Some(LabelScale { mean: self.mean, deviation }).filter(LabelScale::is_usable)
    }
}
