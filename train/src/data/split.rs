//! Raw data to scaled training and held-out samples.

use super::error::DataError;
use super::raw::{Raw, Scaling, Values};
use super::samples::Samples;
use starling_topology::Generator;

/// A share in thousandths, rounded.
pub(super) fn permille(held_out: f32) -> Result<u32, DataError> {
    if !(0.0..1.0).contains(&held_out) {
        return Err(DataError::HeldOut { held_out });
    }
    // 0.9996 must not become the whole.
    Ok(((f64::from(held_out) * 1000.0).round() as u32).min(999))
}

/// Splits and scales. Samples stay in their order; which are held out is drawn from `seed`.
pub(super) fn split(raw: Raw, permille: u32, seed: u64) -> (Samples, Samples) {
    let features = raw.shape.iter().map(|dimension| *dimension as usize).product();
    let total = u32::try_from(raw.labels.len()).expect("invariant: readers bound the samples");
    let (training, held_out) = match raw.held_out {
        Some(_) => ((0..total).collect(), Vec::new()),
        None => draw(total, permille, seed),
    };
    let columns = match raw.scaling {
        Scaling::Divide(divisor) => vec![(0.0, divisor); features],
        Scaling::Standardize => standards(&raw.values, features, &training),
    };
    let select = |values: &Values, labels: &[u32], indices: &[u32]| {
        let mut scaled = Vec::with_capacity(indices.len() * features);
        for index in indices {
            let start = *index as usize * features;
            scaled.extend(columns.iter().enumerate().map(|(column, (mean, deviation))| {
                if *deviation == 0.0 { 0.0 } else { ((values.get(start + column) - mean) / deviation) as f32 }
            }));
        }
        Samples::new(features, scaled, indices.iter().map(|index| labels[*index as usize]).collect())
    };
    let training = select(&raw.values, &raw.labels, &training);
    let held_out = match &raw.held_out {
        Some(own) => {
            let all: Vec<u32> = (0..own.labels.len() as u32).collect();
            select(&own.values, &own.labels, &all)
        }
        None => select(&raw.values, &raw.labels, &held_out),
    };
    (training, held_out)
}

/// Indices to train on and indices held out, each in ascending order. If any share is held out, at least one sample is,
/// and at least one is left to train on.
fn draw(total: u32, permille: u32, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let share = (u64::from(total) * u64::from(permille) + 500) / 1000;
    let count = if permille == 0 { 0 } else { (share as u32).clamp(1, total - 1) };
    let mut order = Generator::for_purpose("starling held-out split", seed, 0).permutation(total);
    let mut training = order.split_off(count as usize);
    training.sort_unstable();
    order.sort_unstable();
    (training, order)
}

/// Mean and standard deviation of each column over `rows`, in f64, in row order.
fn standards(values: &Values, features: usize, rows: &[u32]) -> Vec<(f64, f64)> {
    let count = rows.len() as f64;
    let mut means = vec![0.0; features];
    for row in rows {
        for (column, sum) in means.iter_mut().enumerate() {
            *sum += values.get(*row as usize * features + column) / count;
        }
    }
    let mut squares = vec![0.0; features];
    for row in rows {
        for (column, sum) in squares.iter_mut().enumerate() {
            let distance = values.get(*row as usize * features + column) - means[column];
            *sum += distance * distance / count;
        }
    }
    let first = rows[0] as usize * features;
    (0..features)
        .map(|column| {
            // A constant column is recognized by its values: its computed variance may be a rounding error above zero.
            let constant =
                rows.iter().all(|row| values.get(*row as usize * features + column) == values.get(first + column));
            let deviation = squares[column].sqrt();
            (means[column], if constant || !deviation.is_normal() { 0.0 } else { deviation })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
