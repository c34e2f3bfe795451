//! Raw data to scaled training and held-out samples.

use starling_run::data::LabelScale;
use starling_run::data::columns::measured;
use starling_run::{DataDescription, Scales};
use starling_topology::SplitMix64;

use super::error::DataError;
use super::raw::{Raw, Scaling, Values};
use super::samples::Samples;
use super::source::kinds;

/// The largest data set whose held-out rows are numbered.
const MAX_NUMBERED_SAMPLES: u64 = 1 << 22;

/// A data set ready for training.
pub(super) struct Split {
    pub(super) training: Samples,
    pub(super) held_out: Samples,
    pub(super) scales: Scales,
    /// Of labels that all are numbers.
    pub(super) label_scale: Option<LabelScale>,
    /// Features that are no constants, but became 0 because their deviation can't be computed.
    pub(super) lost: Vec<usize>,
}

/// A share in thousandths, rounded.
pub(super) fn permille(held_out: f32) -> Result<u32, DataError> {
    if !(0.0..1.0).contains(&held_out) {
        return Err(DataError::HeldOut { held_out });
    }
    // 0.9996 must not become the whole.
    Ok(((f64::from(held_out) * 1000.0).round() as u32).min(999))
}

/// Splits and scales. Samples stay in their order; which are held out is drawn from `seed`.
pub(super) fn split(raw: Raw, permille: u32, seed: u64) -> Split {
    let features = raw.shape.iter().map(|dimension| *dimension as usize).product();
    let total = u32::try_from(raw.labels.len()).expect("invariant: readers bound the samples");
    let (training, held_out) = match raw.held_out {
        Some(_) => ((0..total).collect(), Vec::new()),
        None => draw(total, permille, seed),
    };
    let (scales, lost) = match raw.scaling {
        Scaling::Divide(divisor) => (Scales::Divide(divisor), Vec::new()),
        Scaling::Standardize => {
            let mut measured = measured(&raw.coded);
            measured.resize(features, true);
            standards(&raw.values, &measured, &training)
        }
    };
    let label_scale = match raw.scaling {
        Scaling::Standardize => label_scale(&raw.class_names, &raw.labels, &training),
        // What is known of such data does not depend on its split.
        Scaling::Divide(_) => label_scale(&raw.class_names, &raw.labels, &(0..total).collect::<Vec<u32>>()),
    };
    let select = |values: &Values, labels: &[u32], indices: &[u32]| {
        let mut rows = Vec::with_capacity(indices.len() * features);
        for index in indices {
            let start = *index as usize * features;
            rows.extend((0..features).map(|column| scales.scaled(column, values.get(start + column))));
        }
        Samples::new(features, rows, indices.iter().map(|index| labels[*index as usize]).collect())
    };
    let training = select(&raw.values, &raw.labels, &training);
    let held_out = match &raw.held_out {
        Some(own) => {
            let all: Vec<u32> = (0..own.labels.len() as u32).collect();
            select(&own.values, &own.labels, &all)
        }
        None => select(&raw.values, &raw.labels, &held_out),
    };
    Split { training, held_out, scales, label_scale, lost }
}

/// Mean and standard deviation of the labels of `rows`, in f64, in row order; `None` if one of `names` is no finite number.
fn label_scale(names: &[String], labels: &[u32], rows: &[u32]) -> Option<LabelScale> {
    let numbers = names.iter().map(|name| name.parse().ok().filter(|number: &f64| number.is_finite()));
    let numbers = numbers.collect::<Option<Vec<f64>>>()?;
    let of = |row: &u32| numbers[labels[*row as usize] as usize];
    let count = rows.len() as f64;
    let mean = rows.iter().map(|row| of(row) / count).sum::<f64>();
    let variance = rows.iter().map(|row| (of(row) - mean).powi(2) / count).sum::<f64>();
    let are_alike = rows.iter().all(|row| of(row) == of(&rows[0]));
    let scale = LabelScale { mean, deviation: if are_alike { 1.0 } else { variance.sqrt() } };
    Some(scale).filter(LabelScale::is_usable)
}

/// Indices to train on and indices held out, each in ascending order. If any share is held out, at least one sample is,
/// and at least one is left to train on.
pub(super) fn draw(total: u32, permille: u32, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let share = (u64::from(total) * u64::from(permille) + 500) / 1000;
    let count = if permille == 0 { 0 } else { (share as u32).clamp(1, total - 1) };
    let mut order = SplitMix64::for_purpose("starling held-out split", seed, 0).permutation(total);
    let mut training = order.split_off(count as usize);
    training.sort_unstable();
    order.sort_unstable();
    (training, order)
}

/// The rows that are held out of the data that `description` is of, split by `seed`; they count from 0, without the header.
/// `None` if the data brings held-out samples of its own, or is so large that nobody reads a list.
pub fn held_out_rows(description: &DataDescription, seed: u64) -> Option<Vec<u32>> {
    let has_rows = kinds().any(|kind| kind.name == description.kind && !kind.holds_out);
    let samples = u32::try_from(description.samples).ok().filter(|_| description.samples <= MAX_NUMBERED_SAMPLES)?;
    has_rows.then(|| draw(samples, description.held_out, seed).1)
}

/// Mean and standard deviation of each feature over `rows`, in f64, in row order, without gaps; and the features that are no constants,
/// but whose numbers are too large, or too near to each other, for that. What is not `measured` stays as it is.
fn standards(values: &Values, measured: &[bool], rows: &[u32]) -> (Scales, Vec<usize>) {
    let features = measured.len();
    let at = |row: u32, feature: usize| values.get(row as usize * features + feature);
    let mut counts = vec![0_u32; features];
    for row in rows {
        (0..features).for_each(|feature| counts[feature] += u32::from(!at(*row, feature).is_nan()));
    }
    let mut means = vec![0.0; features];
    for row in rows {
        for (feature, sum) in means.iter_mut().enumerate() {
            let value = at(*row, feature);
            if measured[feature] && !value.is_nan() {
                *sum += value / f64::from(counts[feature]);
            }
        }
    }
    let mut squares = vec![0.0; features];
    for row in rows {
        for (feature, sum) in squares.iter_mut().enumerate() {
            let value = at(*row, feature);
            if measured[feature] && !value.is_nan() {
                let distance = value - means[feature];
                *sum += distance * distance / f64::from(counts[feature]);
            }
        }
    }
    let mut lost = Vec::new();
    let deviation = |feature: usize| {
        if !measured[feature] {
            return 1.0;
        }
        // A constant is recognized by its values: its computed variance may be a rounding error above zero.
        let mut known = rows.iter().map(|row| at(*row, feature)).filter(|value| !value.is_nan());
        let first = known.next();
        let is_constant = known.all(|value| Some(value) == first);
        let deviation = squares[feature].sqrt();
        if !is_constant && deviation.is_normal() {
            return deviation;
        }
        if !is_constant {
            lost.push(feature);
        }
        0.0
    };
    let deviations = (0..features).map(deviation).collect();
    (Scales::Standardize { means, deviations }, lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataOptions, Dataset};

    #[test]
    fn shares_are_counted_in_thousandths() {
        assert_eq!(permille(0.0).expect("a share"), 0);
        assert_eq!(permille(0.2).expect("a share"), 200);
        assert_eq!(permille(0.9999).expect("a share"), 999);
        // A joiner turns the manifest's thousandths into a share and back.
        assert!(
            (0..1000).all(|thousandths| permille(thousandths as f32 / 1000.0).is_ok_and(|back| back == thousandths))
        );
        for bad in [-0.1, 1.0, f32::NAN, f32::INFINITY] {
            let message = permille(bad).expect_err("not a share").to_string();
            assert!(message.contains(&format!("held_out is {bad}")), "{message}");
        }
    }

    #[test]
    fn a_split_covers_all_samples_once_and_leaves_both_parts_some() {
        for total in [2, 3, 10, 1797] {
            for permille in [0, 1, 200, 500, 999] {
                let (training, held_out) = draw(total, permille, 5);
                let mut all: Vec<u32> = training.iter().chain(&held_out).copied().collect();
                all.sort_unstable();
                assert_eq!(all, (0..total).collect::<Vec<_>>());
                assert!(!training.is_empty());
                assert_eq!(held_out.is_empty(), permille == 0);
            }
        }
        assert_eq!(draw(1797, 200, 5).1.len(), 359);
        assert_ne!(draw(100, 200, 1), draw(100, 200, 2));
    }

    #[test]
    fn held_out_rows_are_those_of_the_split() {
        let dataset = Dataset::load(&DataOptions::default()).expect("embedded");
        let mut description = dataset.description();
        let rows = held_out_rows(&description, dataset.seed()).expect("few");
        assert_eq!(rows.len(), dataset.held_out().len());
        let whole = Dataset::load(&DataOptions { held_out: 0.0, ..DataOptions::default() }).expect("embedded");
        let labels: Vec<u32> = rows.iter().map(|row| whole.training().labels()[*row as usize]).collect();
        assert_eq!(labels, dataset.held_out().labels());
        assert_eq!(held_out_rows(&whole.description(), 42), Some(Vec::new()));
        description.samples = MAX_NUMBERED_SAMPLES + 1;
        assert_eq!(held_out_rows(&description, 42), None);
        assert_eq!(held_out_rows(&DataDescription::none(), 42), None);
    }
}
