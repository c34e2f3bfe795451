//! Predictions as they are written: a table, or a JSON object per line.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use super::{Model, ModelError, Prediction};
use crate::network::forward::OutputKind;

/// How predictions are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// A table with a header, its cells separated by commas.
    #[default]
    Csv,
    /// A JSON object per line.
    JsonLines,
}

/// What is written of each prediction besides itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PredictionOptions {
    /// How it is written.
    pub format: Format,
    /// The probability of each class.
    pub probabilities: bool,
    /// The most probable classes, so many, with their probabilities.
    pub top: usize,
}

/// The table that is being written.
pub(super) struct Table<'m> {
    classes: Option<&'m [String]>,
    /// Of several labels, what they are called.
    labels: Option<Vec<String>>,
    /// Whether each prediction is of a file, which it names first.
    are_files: bool,
    shown: PredictionOptions,
}

impl<'m> Table<'m> {
    /// Writes the header, if there is one.
    ///
    /// # Errors
    /// If classes are asked for that there are none of, or it can't be written.
    pub(super) fn begin(
        model: &'m Model,
        are_files: bool,
        shown: &PredictionOptions,
        out: &mut dyn Write,
    ) -> Result<Self, ModelError> {
        model.inputs()?;
        let classes = model.classes();
        let top = shown.top.min(classes.map_or(0, <[String]>::len));
        let labels = model.labels();
        let has_marks = model.learns() == OutputKind::Labels;
        let asked = [(shown.top > 0, "--top-k"), (shown.probabilities && !has_marks, "--proba")];
        if let (None, Some((_, what))) = (classes, asked.into_iter().find(|(is_asked, _)| *is_asked)) {
            return Err(ModelError::NoClasses { model: model.name(), what });
        }
        let table = Self { classes, labels, are_files, shown: PredictionOptions { top, ..*shown } };
        if shown.format == Format::Csv {
            let mut header = match &table.labels {
                None => "prediction".to_owned(),
                Some(labels) => labels.iter().map(|label| cell(label)).collect::<Vec<_>>().join(","),
            };
            if are_files {
                header.insert_str(0, "file,");
            }
            for label in table.labels.iter().flatten().filter(|_| shown.probabilities) {
                header.push(',');
                header.push_str(&cell(&format!("p({label})")));
            }
            for class in classes.unwrap_or_default().iter().filter(|_| shown.probabilities) {
                header.push(',');
                header.push_str(&cell(&format!("p({class})")));
            }
            for place in 1..=top {
                let _ = write!(header, ",class {place},probability {place}");
            }
            writeln!(out, "{header}").map_err(ModelError::Output)?;
        }
        Ok(table)
    }

    /// Writes a prediction; `file` is where its sample is, if it is a file.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn write(&self, prediction: &Prediction, file: Option<&Path>, out: &mut dyn Write) -> io::Result<()> {
        let json = self.shown.format == Format::JsonLines;
        let file = file.filter(|_| self.are_files).map(|file| file.to_string_lossy().into_owned());
        match file {
            Some(file) if json => write!(out, "{{\"file\":{},", json!(file))?,
            None if json => write!(out, "{{")?,
            Some(file) => write!(out, "{},", cell(&file))?,
            None => {}
        }
        let (class, probabilities) = match prediction {
            // Debug has all digits of a number, and few of one that is very small.
            Prediction::Number(number) if json => return writeln!(out, "\"prediction\":{number:?}}}"),
            Prediction::Number(number) => return writeln!(out, "{number:?}"),
            Prediction::Numbers(numbers) => {
                return self.write_labels(
                    &numbers.iter().map(|number| format!("{number:?}")).collect::<Vec<_>>(),
                    None,
                    out,
                );
            }
            Prediction::Labels { marks, probabilities } => {
                let marks = marks.iter().map(|mark| u8::from(*mark).to_string());
                let probabilities = probabilities.iter().map(|probability| format!("{:?}", *probability as f32));
                let probabilities = self.shown.probabilities.then(|| probabilities.collect::<Vec<_>>());
                return self.write_labels(&marks.collect::<Vec<_>>(), probabilities.as_deref(), out);
            }
            Prediction::Class { class, probabilities } => (*class, probabilities),
        };
        let names = self.classes.unwrap_or_default();
        let name = |class: usize| names.get(class).map_or("", String::as_str);
        let ranked = ranked(probabilities, class, self.shown.top);
        if !json {
            out.write_all(cell(name(class)).as_bytes())?;
            for probability in probabilities.iter().filter(|_| self.shown.probabilities) {
                write!(out, ",{:?}", *probability as f32)?;
            }
            for class in ranked {
                write!(out, ",{},{:?}", cell(name(class)), probabilities[class] as f32)?;
            }
            return writeln!(out);
        }
        write!(out, "\"prediction\":{}", json!(name(class)))?;
        if self.shown.probabilities {
            let of = probabilities.iter().enumerate();
            let of = of.map(|(class, probability)| format!("{}:{:?}", json!(name(class)), *probability as f32));
            write!(out, ",\"probabilities\":{{{}}}", of.collect::<Vec<_>>().join(","))?;
        }
        if self.shown.top > 0 {
            let of = ranked.into_iter().map(|class| {
                format!("{{\"class\":{},\"probability\":{:?}}}", json!(name(class)), probabilities[class] as f32)
            });
            write!(out, ",\"top\":[{}]", of.collect::<Vec<_>>().join(","))?;
        }
        writeln!(out, "}}")
    }
}

impl Table<'_> {
    /// What is said of each of several labels, and how probable each is, behind what was written of the row.
    fn write_labels(&self, said: &[String], probabilities: Option<&[String]>, out: &mut dyn Write) -> io::Result<()> {
        if self.shown.format == Format::Csv {
            let cells: Vec<&str> = said.iter().chain(probabilities.unwrap_or_default()).map(String::as_str).collect();
            return writeln!(out, "{}", cells.join(","));
        }
        let names = self.labels.iter().flatten();
        let object = |values: &[String]| {
            let pairs = names.clone().zip(values).map(|(name, value)| format!("{}:{value}", json!(name)));
            pairs.collect::<Vec<_>>().join(",")
        };
        write!(out, "\"prediction\":{{{}}}", object(said))?;
        if let Some(probabilities) = probabilities {
            write!(out, ",\"probabilities\":{{{}}}", object(probabilities))?;
        }
        writeln!(out, "}}")
    }
}

/// The most probable classes, `top` of them, the predicted one first; of equal ones those that come first.
fn ranked(probabilities: &[f64], predicted: usize, top: usize) -> Vec<usize> {
    let mut ranked: Vec<usize> = (0..probabilities.len()).collect();
    let rank = |class: &usize| (*class != predicted, *class);
    if top == 0 {
        return Vec::new();
    }
    ranked.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]).then_with(|| rank(a).cmp(&rank(b))));
    ranked.truncate(top);
    ranked
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    let is_plain = !text.contains([',', '"', '\n', '\r']) && text.trim() == text;
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_classes_come_first_and_equal_ones_in_their_order() {
        assert_eq!(ranked(&[0.2, 0.3, 0.3, 0.2], 1, 3), [1, 2, 0]);
        // What is predicted is so by its output: its probability may be rounded to that of another.
        assert_eq!(ranked(&[0.5, 0.5], 1, 9), [1, 0]);
        assert_eq!(ranked(&[0.5, 0.5], 1, 0), [0; 0]);
    }

    #[test]
    fn names_that_a_table_would_take_apart_are_quoted() {
        for (text, written) in [("a b", "a b"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), (" a", "\" a\"")] {
            assert_eq!(cell(text), written);
        }
    }
}
