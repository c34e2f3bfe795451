//! Which classes a model takes for which, as tables and as JSON: of many classes, those that it is worst at.

use serde_json::{Value, json};
use starling::export::{ClassSummary, ConfusionTable};

use crate::output::{self, COLUMNS, Gauge, format};

/// Classes, and mistakes, that are shown where people read, and where programs do.
const MAX_SHOWN: usize = 20;
const MAX_TOLD: usize = 1_000;
/// Of so many classes, programs get each count.
const MAX_MATRIX: usize = 100;
/// Letters of a name in a table.
const MAX_NAME: usize = 32;

/// What is known of the classes called so.
pub(super) struct Confusion<'a> {
    pub(super) names: &'a [String],
    pub(super) table: &'a ConfusionTable,
}

impl Confusion<'_> {
    /// The places of the classes, at most so many: those with the lowest F1 if there are more, in their order.
    fn worst(&self, most: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.names.len()).collect();
        // What no sample is of, and none was said to be, is behind all others.
        let f1 = |place: &usize| self.table.classes()[*place].f1().unwrap_or(f64::INFINITY);
        if places.len() > most {
            places.sort_by(|a, b| f1(a).total_cmp(&f1(b)));
            places.truncate(most);
            places.sort_unstable();
        }
        places
    }

    /// `classes`, `mistakes` and `confusion` of the JSON.
    pub(super) fn add_to(&self, told: &mut Value) {
        let class = |place: usize| {
            let class @ ClassSummary { samples, predicted, hits, .. } = self.table.classes()[place];
            let name = &self.names[place];
            json!({
                "class": name, "samples": samples, "predicted": predicted, "hits": hits,
                "precision": class.precision(), "recall": class.recall(), "f1": class.f1(),
            })
        };
        told["classes"] = self.worst(MAX_TOLD).into_iter().map(class).collect();
        if let Some(mistakes) = self.table.mistakes(MAX_TOLD) {
            let mistake = |(actual, predicted, samples): (usize, usize, u64)| json!({ "class": self.names[actual], "predicted": self.names[predicted], "samples": samples });
            told["mistakes"] = mistakes.into_iter().map(mistake).collect();
        }
        if self.names.len() <= MAX_MATRIX {
            let row = |actual| self.row(actual).collect::<Vec<_>>();
            told["confusion"] = (0..self.names.len()).map(row).map(Value::from).collect();
        }
    }

    /// How many samples of a class were said to be of each.
    fn row(&self, actual: usize) -> impl Iterator<Item = u64> {
        (0..self.names.len()).map(move |predicted| self.table.count(actual, predicted).unwrap_or(0))
    }

    /// Tables of the classes, and of what they are taken for.
    pub(super) fn text(&self) -> String {
        let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), format::percent);
        let row = |place: &usize| {
            let class = self.table.classes()[*place];
            let counts = [class.samples, class.predicted].map(format::thousands);
            let [samples, predicted] = counts;
            let shares = [class.precision(), class.recall(), class.f1()].map(share);
            let [precision, recall, f1] = shares;
            [self.name(*place), samples, predicted, precision, recall, f1]
        };
        let places = self.worst(MAX_SHOWN);
        let head = ["class", "samples", "predicted", "precision", "recall", "F1"];
        let mut text = output::table(head, places.iter().map(row).collect(), &[0], Gauge::is_ascii()) + "\n";
        if places.len() < self.names.len() {
            text.push_str(&format!("the {} of {} classes with the lowest F1\n", places.len(), self.names.len()));
        }
        text + &self.matrix().unwrap_or_else(|| self.mistakes())
    }

    /// All counts, if a terminal has room for them: a row for what samples are, a column for what they were said to be.
    fn matrix(&self) -> Option<String> {
        if self.names.len() > MAX_SHOWN {
            return None;
        }
        let names: Vec<String> = (0..self.names.len()).map(|place| self.name(place)).collect();
        let width = |text: &str| text.chars().count();
        let cells: Vec<Vec<String>> =
            (0..names.len()).map(|actual| self.row(actual).map(format::thousands).collect()).collect();
        let widest = |at: usize| cells.iter().map(|row| width(&row[at])).chain([width(&names[at])]).max().unwrap_or(0);
        let widths: Vec<usize> = (0..names.len()).map(|at| widest(at) + 2).collect();
        let first = names.iter().map(|name| width(name)).max().unwrap_or(0).max(width(ACTUAL));
        if first + widths.iter().sum::<usize>() > usize::from(COLUMNS) {
            return None;
        }
        let line = |head: &str, cells: &[String]| {
            let cells: String = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
            format!("{head:<first$}{cells}\n")
        };
        let rows: String = names.iter().zip(&cells).map(|(name, cells)| line(name, cells)).collect();
        Some(format!("\n{}{rows}", line(ACTUAL, &names)))
    }

    /// The most frequent mistakes.
    fn mistakes(&self) -> String {
        let Some(mistakes) = self.table.mistakes(MAX_SHOWN) else { return String::new() };
        let row = |(actual, predicted, count): (usize, usize, u64)| {
            [self.name(actual), self.name(predicted), format::thousands(count)]
        };
        let rows: Vec<_> = mistakes.into_iter().map(row).collect();
        match rows.is_empty() {
            true => String::new(),
            false => format!("\n{}\n", output::table(MISTAKES, rows, &[0, 1], Gauge::is_ascii())),
        }
    }

    /// As a table shows it.
    fn name(&self, place: usize) -> String {
        starling_run::data::shorten(&self.names[place]).escape_debug().take(MAX_NAME).collect()
    }
}

/// What stands above the rows of the matrix, and beside its columns.
const ACTUAL: &str = "is \\ said to be";
const MISTAKES: [&str; 3] = ["is", "was said to be", "samples"];

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each class one sample, and of some also one that was said to be of the next.
    fn told(classes: usize, is_mistaken: impl Fn(usize) -> bool) -> (Vec<String>, ConfusionTable) {
        let mut table = ConfusionTable::new(classes);
        for class in 0..classes {
            table.add(class, class);
            if is_mistaken(class) {
                table.add(class, (class + 1) % classes);
            }
        }
        ((0..classes).map(|class| format!("class {class}")).collect(), table)
    }

    #[test]
    fn few_classes_are_all_shown() {
        let (names, table) = told(3, |class| class == 0);
        let confusion = Confusion { names: &names, table: &table };
        let text = confusion.text();
        let matrix = "is \\ said to be  class 0  class 1  class 2\nclass 0                1        1        0\n";
        assert!(text.contains(matrix) && !text.contains("lowest"), "{text}");
        let mut json = json!({});
        confusion.add_to(&mut json);
        assert_eq!(json["confusion"], json!([[1, 1, 0], [0, 1, 0], [0, 0, 1]]));
        assert_eq!(json["mistakes"], json!([{ "class": "class 0", "predicted": "class 1", "samples": 1 }]));
        assert_eq!((&json["classes"][1]["precision"], &json["classes"][0]["recall"]), (&json!(0.5), &json!(0.5)));
    }

    #[test]
    fn of_many_classes_the_worst_are_shown() {
        let (names, table) = told(2_000, |class| class % 100 == 50);
        let confusion = Confusion { names: &names, table: &table };
        let text = confusion.text();
        assert!(text.contains("the 20 of 2000 classes with the lowest F1") && text.lines().count() < 60, "{text}");
        assert!(
            text.contains("class 1950 ") && text.contains("was said to be") && !text.contains("class 2 "),
            "{text}"
        );
        let mut json = json!({});
        confusion.add_to(&mut json);
        assert_eq!(json["classes"].as_array().map(Vec::len), Some(1_000));
        assert_eq!((json["mistakes"].as_array().map(Vec::len), &json["confusion"]), (Some(20), &Value::Null));
    }

    #[test]
    fn a_name_can_not_change_what_is_shown() {
        let (mut names, table) = told(2, |_| false);
        names[0] = "\u{1b}[2J".to_owned();
        let text = Confusion { names: &names, table: &table }.text();
        assert!(text.contains("[2J") && !text.contains('\u{1b}'), "{text}");
    }
}
