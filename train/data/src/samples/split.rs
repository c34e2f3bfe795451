//! Raw data to scaled training and held-out samples.

use std::sync::Arc;

use starling_run::data::LabelScale;
use starling_run::{DataDescription, FeatureScale};
use starling_topology::{Digest, SplitMix64Generator};

use crate::error::DataError;
use crate::samples::SampleSet;
use crate::samples::numbers::SampleNumbers;
use crate::samples::placed;
use crate::samples::raw::{Raw, Scaling, Values};
use crate::samples::standards::{LabelStandards, Measured, Standards};
use crate::source::kinds;

/// The largest data set whose held-out rows are numbered.
const MAX_NUMBERED_SAMPLES: u64 = 1 << 22;

/// A data set ready for training.
pub(crate) struct Split {
    pub(crate) training: SampleSet,
    pub(crate) held_out: SampleSet,
    pub(crate) scales: FeatureScale,
    /// Of labels that all are numbers, those of each column.
    pub(crate) label_scales: Vec<LabelScale>,
    /// Features that are no constants, but became 0 because their deviation can't be computed.
    pub(crate) lost: Vec<usize>,
    /// What tells the data from other data.
    pub(crate) fingerprint: Digest,
    /// Which samples of the source are held out, if those come from among the others.
    pub(crate) held_out_rows: Arc<[u32]>,
}

/// A share in thousandths, rounded.
pub(crate) fn permille(held_out: f32) -> Result<u32, DataError> {
    if !(0.0..1.0).contains(&held_out) {
        return Err(DataError::HeldOut { held_out });
    }
    // 0.9996 must not become the whole.
    Ok(((f64::from(held_out) * 1000.0).round() as u32).min(999))
}

/// Splits and scales. Samples stay in their order; which are held out is drawn from `seed`.
///
/// # Errors
/// Of what stays in its files: if it can't be read, or has changed.
pub(crate) fn split(mut raw: Raw, permille: u32, seed: u64) -> Result<Split, DataError> {
    if let Values::Placed(table) = raw.values {
        raw.values = Values::Numbers(Vec::new());
        return placed::split(table, &raw, permille, seed);
    }
    let fingerprint = raw.fingerprint()?;
    let features = raw.shape.iter().map(|dimension| *dimension as usize).product();
    let total = u32::try_from(raw.labels.len()).expect("invariant: readers bound the samples");
    let (training, held_out) = match (&raw.held_out, &raw.held_out_rows) {
        (Some(_), _) => ((0..total).collect(), Vec::new()),
        (None, Some(rows)) => {
            let others = SampleNumbers::Others(total, rows.clone());
            ((0..others.len() as u32).map(|at| others.get(at)).collect(), rows.to_vec())
        }
        (None, None) => draw(total, permille, seed),
    };
    let (scales, lost) = match raw.scaling {
        Scaling::Divide(divisor) => (FeatureScale::Divide(divisor), Vec::new()),
        Scaling::Standardize => {
            let at = |row: u32, feature: usize| raw.values.get(row as usize * features + feature);
            standards(at, &Measured::of(&raw.coded, features), &training)
        }
    };
    let label_scales = match raw.scaling {
        Scaling::Standardize => label_scales(&raw, &training),
        // What is known of such data does not depend on its split.
        Scaling::Divide(_) => label_scales(&raw, &(0..total).collect::<Vec<u32>>()),
    };
    // All but the others, or none but these.
    let held_apart: Arc<[u32]> = held_out.as_slice().into();
    let select = |values: &Values, labels: &Arc<[u32]>, indices: Vec<u32>, is_rest: bool| {
        if let Values::Pixels(pixels) = values {
            let numbers = match is_rest {
                true => SampleNumbers::Others(labels.len() as u32, held_apart.clone()),
                false => SampleNumbers::Listed(indices.into()),
            };
            return placed::of_images(pixels, labels, &scales, numbers, raw.class_names.len());
        }
        let mut rows = Vec::with_capacity(indices.len() * features);
        for index in &indices {
            let start = *index as usize * features;
            rows.extend((0..features).map(|column| scales.scaled(column, values.get(start + column))));
        }
        SampleSet::new(features, rows, indices.iter().map(|index| labels[*index as usize]).collect())
    };
    let labels = raw.labels.into();
    let training = select(&raw.values, &labels, training, true);
    let held_out = match raw.held_out {
        Some(own) => {
            let all = (0..own.labels.len() as u32).collect();
            select(&own.values, &own.labels.into(), all, false)
        }
        None => select(&raw.values, &labels, held_out, false),
    };
    Ok(Split { training, held_out, scales, label_scales, lost, fingerprint, held_out_rows: held_apart })
}

/// [`LabelStandards`] of the labels of `rows`, in row order.
fn label_scales(raw: &Raw, rows: &[u32]) -> Vec<LabelScale> {
    let mut standards = LabelStandards::new(&raw.class_names, raw.label_count(), rows.len());
    rows.iter().for_each(|row| standards.show(raw.labels[*row as usize]));
    rows.iter().for_each(|row| standards.show_again(raw.labels[*row as usize]));
    standards.scales()
}

/// Indices to train on and indices held out, each in ascending order. If any share is held out, at least one sample is,
/// and at least one is left to train on.
pub(crate) fn draw(total: u32, permille: u32, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let (mut order, count) = ordered(total, permille, seed);
    let mut training = order.split_off(count);
    training.sort_unstable();
    order.sort_unstable();
    (training, order)
}

/// Those that [`draw`] holds out alone: the others are all that are left.
pub(crate) fn draw_held_out(total: u32, permille: u32, seed: u64) -> Vec<u32> {
    let (mut order, count) = ordered(total, permille, seed);
    order.truncate(count);
    order.shrink_to_fit();
    order.sort_unstable();
    order
}

/// All indices in an order that `seed` gives, and how many of the first are held out.
fn ordered(total: u32, permille: u32, seed: u64) -> (Vec<u32>, usize) {
    let share = (u64::from(total) * u64::from(permille) + 500) / 1000;
    let count = if permille == 0 { 0 } else { (share as u32).clamp(1, total - 1) };
    let order = SplitMix64Generator::for_purpose("starling held-out split", seed, 0).permutation(total);
    (order, count as usize)
}

/// The rows that are held out of the data that `description` is of, split by `seed`; they count from 0, without the header.
/// `None` if the data brings held-out samples of its own, a column says which they are, or it is so large that nobody reads a list.
pub fn held_out_rows(description: &DataDescription, seed: u64) -> Option<Vec<u32>> {
    let has_rows = kinds().any(|kind| kind.name == description.kind && !kind.holds_out);
    let samples = u32::try_from(description.samples).ok().filter(|_| description.samples <= MAX_NUMBERED_SAMPLES)?;
    let is_said = !has_rows || description.split_by.is_some();
    (!is_said).then(|| match description.held_out_last {
        Some(last) => (samples - u32::try_from(last).map_or(samples, |last| last.min(samples))..samples).collect(),
        None => draw(samples, description.held_out, seed).1,
    })
}

/// [`Standards`] of each feature over `rows`, in row order. `at` is the value of a row's feature: it is asked for twice, and once more where
/// there are gaps.
fn standards(at: impl Fn(u32, usize) -> f64, measured: &Measured, rows: &[u32]) -> (FeatureScale, Vec<usize>) {
    let all = u32::try_from(rows.len()).expect("invariant: readers bound the samples");
    let known = measured.gaps.iter().map(|feature| {
        let known = rows.iter().filter(|row| !at(**row, *feature).is_nan());
        known.count() as u32
    });
    let mut standards = Standards::new(measured, all, &known.collect::<Vec<_>>());
    rows.iter().for_each(|row| standards.show(|feature| at(*row, feature)));
    rows.iter().for_each(|row| standards.show_again(|feature| at(*row, feature)));
    standards.scales()
}

#[cfg(test)]
mod tests {
    use starling_run::data::columns::{Column, ColumnKind};

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
        assert_eq!(draw(1797, 200, 5).1, draw_held_out(1797, 200, 5));
    }

    #[test]
    fn values_are_read_twice_and_once_more_where_there_are_gaps() {
        use std::cell::Cell;

        let column = |coding| Column { name: String::new(), coding };
        let texts = ColumnKind::Category(["a", "b"].map(ToOwned::to_owned).to_vec());
        for (columns, features, reads) in [
            (vec![], 3, 3 * 2),
            (vec![column(ColumnKind::Number), column(texts.clone())], 3, 2),
            (vec![column(ColumnKind::Ignored), column(texts), column(ColumnKind::Gaps)], 4, 2 + 1),
        ] {
            let asked = Cell::new(0);
            let at = |row: u32, feature: usize| {
                asked.set(asked.get() + 1);
                if row == 7 && feature == 2 && features == 4 { f64::NAN } else { f64::from(row) }
            };
            let rows: Vec<u32> = (0..50).collect();
            let (scales, lost) = standards(at, &Measured::of(&columns, features), &rows);
            assert_eq!((asked.get(), lost), (50 * reads, vec![]), "{columns:?}");
            let FeatureScale::Standardize { means, deviations } = scales else { panic!("of a table") };
            for feature in 0..features {
                let is_measured = columns.is_empty() || feature == if features == 4 { 2 } else { 0 };
                let is_near = (means[feature] - 24.5).abs() < 0.5 && (deviations[feature] - 14.5).abs() < 0.5;
                assert!(if is_measured { is_near } else { (means[feature], deviations[feature]) == (0.0, 1.0) });
            }
        }
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
