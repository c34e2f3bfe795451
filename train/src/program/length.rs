//! How many steps are usual.

use starling_data::Dataset;
use starling_run::RunSpec;
use starling_run::data::{DIGITS, steps_per_epoch};

use crate::network::models;

/// So many steps,
const STEPS: u64 = 600;
/// or so many epochs, where these are more steps,
const LEAST_EPOCHS: u64 = 50;
/// but no more than these steps, unless one epoch takes more.
const MOST_STEPS: u64 = 20_000;
/// A model with hidden layers learns a small data set by heart if it sees it more often.
const MOST_EPOCHS: u64 = 100;

/// How many steps a run takes over `dataset` of which nobody says how long it is.
pub(super) fn usual(spec: &RunSpec, dataset: &Dataset) -> u64 {
    if dataset.description().kind == DIGITS {
        // They show that all works.
        return STEPS;
    }
    if dataset.description().is_text() {
        // A large one says less new each time than it takes to read it again.
        let epoch = steps_per_epoch(dataset.training().len() as u64, spec.batch_size);
        return STEPS.min(epoch.saturating_mul(MOST_EPOCHS)).max(epoch);
    }
    let has_hidden_layers = models::choose(&spec.model).is_ok_and(|chosen| !chosen.sizes.is_empty());
    of_samples(dataset.training().len() as u64, spec.batch_size, has_hidden_layers)
}

fn of_samples(samples: u64, batch_size: u32, has_hidden_layers: bool) -> u64 {
    let epoch = steps_per_epoch(samples, batch_size);
    let least = epoch.saturating_mul(LEAST_EPOCHS).min(MOST_STEPS.max(epoch));
    let most = if has_hidden_layers { epoch.saturating_mul(MOST_EPOCHS) } else { u64::MAX };
    STEPS.min(most).max(least)
}

#[cfg(test)]
mod tests {
    use starling_data::DataOptions;

    use super::*;

    #[test]
    fn steps_follow_the_samples() {
        for (samples, steps) in [
            (2, 100),
            (64, 100),
            (65, 200),
            (320, 500),
            (321, 600),
            (768, 600),
            (769, 650),
            (25_600, 20_000),
            (1_280_000, 20_000),
            (1_280_001, 20_001),
            (6_400_000, 100_000),
        ] {
            assert_eq!(of_samples(samples, 64, true), steps, "{samples}");
            assert_eq!(of_samples(samples, 64, false), steps.max(600), "{samples}");
        }
        assert_eq!((of_samples(100, 1 << 20, true), of_samples(100, 0, true)), (100, 5000));
    }

    #[test]
    fn the_model_and_the_digits_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("table.csv");
        let rows: String = (0..100).map(|at| format!("{at},{}\n", at % 2)).collect();
        std::fs::write(&path, rows).expect("written");
        let options = DataOptions { source: path.display().to_string(), ..DataOptions::default() };
        let table = Dataset::load(&options).expect("a table");
        let digits = Dataset::load(&DataOptions::default()).expect("embedded");
        for (model, of_table) in [("mlp", 200), ("regression:8,8", 200), ("softmax", 600), ("linear", 600)] {
            let spec = RunSpec { model: model.parse().expect("a model"), ..RunSpec::default() };
            assert_eq!((usual(&spec, &table), usual(&spec, &digits)), (of_table, 600), "{model}");
        }
        let path = directory.path().join("text.txt");
        std::fs::write(&path, "on and on ".repeat(50)).expect("written");
        let source = path.display().to_string();
        let options = DataOptions { source, text: true, context: Some(2), ..DataOptions::default() };
        let text = Dataset::load(&options).expect("a text");
        let samples = text.training().len() as u64;
        for (batch_size, steps) in [(1024, 100), (64, 400), (1, 600)] {
            let spec = RunSpec { batch_size, ..RunSpec::default() };
            assert_eq!(usual(&spec, &text), steps, "{samples} windows in batches of {batch_size}");
        }
    }
}
