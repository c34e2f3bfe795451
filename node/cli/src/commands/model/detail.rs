//! How good a model is at each of what it predicts, as tables and as JSON.

use serde_json::{Value, json};
use starling::export::{ClassSummary, DetailReport, NumberSummary};

use super::confusion::Confusion;
use crate::output::{self, Gauge, format};

/// What is known of a model's classes, or of its labels, which are called so.
pub(super) struct Detail<'a> {
    pub(super) classes: &'a [String],
    pub(super) labels: &'a [String],
    /// On how many samples.
    pub(super) samples: u64,
    pub(super) detail: &'a DetailReport,
}

impl Detail<'_> {
    /// What the JSON says of it.
    pub(super) fn add_to(&self, told: &mut Value) {
        match self.detail {
            DetailReport::Classes(table) => Confusion { names: self.classes, table }.add_to(told),
            DetailReport::Labels(labels) => {
                let label = |(name, label): (&String, &ClassSummary)| {
                    json!({
                        "label": name, "samples": label.samples, "predicted": label.predicted, "hits": label.hits,
                        "accuracy": self.accuracy(label), "precision": label.precision(), "recall": label.recall(), "f1": label.f1(),
                    })
                };
                told["labels"] = self.labels.iter().zip(labels).map(label).collect();
            }
            DetailReport::Numbers(labels) => {
                let label = |(name, label): (&String, &NumberSummary)| {
                    let (absolute, squares) = (label.absolute_error(), label.root_mean_square());
                    json!({ "label": name, "absolute_error": absolute, "rmse": squares, "r2": label.r2() })
                };
                told["labels"] = self.labels.iter().zip(labels).map(label).collect();
            }
            _ => {}
        }
    }

    /// Tables of it.
    pub(super) fn text(&self) -> String {
        let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), format::percent);
        let name = |name: &String| starling_run::data::shorten(name);
        match self.detail {
            DetailReport::Classes(table) => Confusion { names: self.classes, table }.text(),
            DetailReport::Labels(labels) => {
                let head = ["label", "samples", "predicted", "accuracy", "precision", "recall", "F1"];
                let row = |(label, it): (&String, &ClassSummary)| {
                    let [samples, predicted] = [it.samples, it.predicted].map(format::thousands);
                    let [precision, recall, f1] = [it.precision(), it.recall(), it.f1()].map(share);
                    [name(label), samples, predicted, share(self.accuracy(it)), precision, recall, f1]
                };
                let rows = self.labels.iter().zip(labels).map(row).collect();
                output::table(head, rows, &[0], Gauge::is_ascii()) + "\n"
            }
            DetailReport::Numbers(labels) => {
                let row = |(label, it): (&String, &NumberSummary)| {
                    let [absolute, squares, r2] =
                        [it.absolute_error(), it.root_mean_square(), it.r2()].map(format::loss);
                    [name(label), absolute, squares, r2]
                };
                let rows = self.labels.iter().zip(labels).map(row).collect();
                output::table(["label", "absolute_error", "rmse", "r2"], rows, &[0], Gauge::is_ascii()) + "\n"
            }
            _ => String::new(),
        }
    }

    /// Of how many samples it was said as it is whether they have a label; `None` if there are none.
    fn accuracy(&self, label: &ClassSummary) -> Option<f64> {
        let right = self.samples + 2 * label.hits - label.samples - label.predicted;
        (self.samples > 0).then(|| right as f64 / self.samples as f64)
    }
}
