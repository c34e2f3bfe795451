//! What a run's manifest says of its data: enough to tell whether a machine has the same. Reading it is not done here.

mod arrivals;
pub mod columns;
mod delimiter;
mod difference;
mod image_size;
mod options;
mod preprocessing;
mod summary;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use starling_topology::Digest;

pub use arrivals::{ArrivalOrder, ArrivalTracker, RunPosition, SampleSchedule};
pub use delimiter::Delimiter;
pub use image_size::ImageSize;
pub use options::{DataOptions, HELD_BYTES, TableColumn};
pub use preprocessing::{
    FeatureScale, LabelScale, MAX_PREPROCESSING_BYTES, PreprocessingSpec, TokenizerSpec, are_coded,
};
pub use summary::{ClassSummary, DataSummary, shorten};

use crate::manifest::spec::ModelSpec;
use crate::manifest::{MAX_CLASSES, MAX_FEATURES};
use crate::sharing::numbered;

/// The kind of the embedded digits, and the `source` that names them: what a machine has whose user names no data.
pub const DIGITS: &str = "digits";
/// The kind of a text: a sample is a window of its bytes, each of which is a feature, and the byte that follows it. The classes are the
/// 256 bytes that there are.
pub const TEXT: &str = "text";
/// The kind of a text that was prepared: as [`TEXT`], of the tokens of a vocabulary, which are its features and its classes.
pub const TOKENS: &str = "tokens";
/// How many tokens a vocabulary may have.
pub const MAX_TOKENS: u32 = 1 << 20;
/// The kind of images as files in folders, one for each class.
pub const IMAGES: &str = "images";
/// How many tokens of a text, or bytes where these are its tokens, a model may see at once.
pub const CONTEXT: RangeInclusive<u32> = 2..=4096;
/// How many it sees where nobody says.
pub const USUAL_CONTEXT: u32 = 128;
/// No data: see [`DataDescription::none`].
pub const NONE: &str = "none";
/// What a program brings: see [`DataDescription::of_program`].
pub const PROGRAM: &str = "program";
/// How many columns may hold labels.
pub const MAX_LABELS: usize = 256;
/// What stands between the labels of a row that has several.
pub const BETWEEN_LABELS: char = ',';
/// How many columns a user can say something of.
pub const MAX_SAID: usize = 1024;
/// The longest name of a kind of data, in bytes.
const MAX_KIND: usize = 64;

/// How many steps a pass over so many samples takes: its last batch may be smaller. One at least.
pub fn steps_per_epoch(samples: u64, batch_size: u32) -> u64 {
    samples.div_ceil(batch_size.max(1).into()).max(1)
}

/// Whether data of this kind is a text, of which windows are the samples.
pub fn is_text(kind: &str) -> bool {
    [TEXT, TOKENS].contains(&kind)
}

/// A kind of data that a program reads. Manifests name it; what it is, its program alone knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name. Of data without files it is the `source`, too, that all machines have.
    pub name: &'static str,
    /// What its files are called where they are copied to, compressed or not: the reader looks into them. A star in the last name stands
    /// for a [number](crate::sharing::numbered): of such there are as many as the data takes.
    pub files: &'static [&'static str],
    /// Whether samples that are held out come apart from the others.
    pub holds_out: bool,
}

impl Kind {
    /// What a program brings that has one task with its own data.
    pub const PROGRAM: Self = Self { name: PROGRAM, files: &[], holds_out: false };

    /// The `source` of a data set whose files lie in `folder` under their names.
    pub fn source_in(&self, folder: &Path) -> PathBuf {
        match self.files {
            [] => self.name.into(),
            [file] => folder.join(file),
            _ => folder.to_owned(),
        }
    }

    /// What the file of this number is called where it is copied to, from 0: of those that are
    /// numbered ([`crate::sharing`]) there may be any number.
    pub fn file(&self, at: usize) -> Option<String> {
        let last = self.files.len().checked_sub(1)?;
        let name = self.files[at.min(last)];
        let numbered = numbered(name, at.saturating_sub(last));
        (at <= last || numbered != name).then_some(numbered)
    }
}

/// What members compare to know that they hold the same data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataDescription {
    /// The name of its [`Kind`].
    pub kind: String,
    /// How many samples there are, those held out included.
    pub samples: u64,
    /// How many features a sample has.
    pub features: u32,
    /// A sample as an image: channels, height, width. Flat rows are `[1, 1, features]`.
    pub shape: [u32; 3],
    /// How many classes there are. 0 of a table whose labels are more different numbers than there may be classes.
    pub classes: u32,
    /// CSV: the columns that hold labels, from 0, in the order of the model's outputs. Of several, all are numbers, and there are no classes.
    pub label: Vec<u32>,
    /// CSV: whether the first row holds the columns' names.
    pub header: Option<bool>,
    /// CSV: what separates cells.
    pub delimiter: Option<Delimiter>,
    /// CSV: the columns that are left out, ascending.
    pub ignored: Vec<u32>,
    /// CSV: the columns whose cells are categories although they could be numbers, ascending.
    pub categories: Vec<u32>,
    /// CSV: the column that says how much each row counts.
    pub weights: Option<u32>,
    /// CSV: the column by which rows are held out: those that have the same text there are on the same side.
    pub split_by: Option<u32>,
    /// CSV: whether the texts of that column are words for the sides, so that nothing was drawn.
    pub sides_said: bool,
    /// CSV: how many rows at the end are held out, if a file of its own has said which.
    pub held_out_last: Option<u64>,
    /// Share of the samples kept from training, in thousandths.
    pub held_out: u32,
    /// blake3 of the values and labels as they were read, before scaling.
    pub fingerprint: Digest,
    /// blake3 of the [`PreprocessingSpec`].
    pub preprocessing: Digest,
}

impl DataDescription {
    /// Of a run whose members bring buffers of their own. The smallest numbers that are possible.
    pub fn none() -> Self {
        Self {
            kind: NONE.to_owned(),
            samples: 2,
            features: 1,
            shape: [1, 1, 1],
            classes: 2,
            label: Vec::new(),
            header: None,
            delimiter: None,
            ignored: Vec::new(),
            categories: Vec::new(),
            weights: None,
            split_by: None,
            sides_said: false,
            held_out_last: None,
            held_out: 0,
            fingerprint: Digest([0; 32]),
            preprocessing: Digest([0; 32]),
        }
    }

    /// Of a run whose program brings its own: so many samples to train on, which the fingerprint tells from others. What they
    /// are is the program's concern.
    pub fn of_program(samples: u32, fingerprint: Digest) -> Self {
        Self { kind: PROGRAM.to_owned(), samples: samples.into(), fingerprint, ..Self::none() }
    }

    /// Whether it is a table, of which one column holds the labels.
    pub fn is_table(&self) -> bool {
        !self.label.is_empty()
    }

    /// The number of the column that is this one of those that hold no labels, from 0.
    pub fn column_of(&self, other: usize) -> usize {
        column_of(&self.label, other)
    }

    /// Whether it is a text, of which windows are the samples.
    pub fn is_text(&self) -> bool {
        is_text(&self.kind)
    }

    /// Whether a program brings it.
    pub fn is_of_program(&self) -> bool {
        self.kind == PROGRAM
    }

    /// Whether a run of `model` can have this data.
    pub fn is_for(&self, model: &ModelSpec) -> bool {
        match model {
            ModelSpec::Raw => *self == Self::none(),
            ModelSpec::Named { .. } if self.is_of_program() => {
                u32::try_from(self.samples).is_ok_and(|samples| *self == Self::of_program(samples, self.fingerprint))
            }
            ModelSpec::Named { .. } => self.kind != NONE,
        }
    }

    /// This description in the form that `other` has: what separates cells, and how the features are called, say nothing
    /// about the values.
    #[must_use]
    pub fn in_form_of(self, other: &Self) -> Self {
        let is_table = self.is_table() && other.is_table();
        let delimiter = if is_table { other.delimiter } else { self.delimiter };
        Self { delimiter, preprocessing: other.preprocessing, ..self }
    }

    /// Checks that the numbers are possible and agree with each other.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let product = self.shape.iter().try_fold(1_u32, |product, dimension| product.checked_mul(*dimension));
        let is_in_kind =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_. ".contains(letter);
        if !(1..=MAX_KIND).contains(&self.kind.len()) || !self.kind.chars().all(is_in_kind) {
            // Not repeated here: it may come from another machine, and end on a terminal.
            return Err(format!(
                "a kind has 1 to {MAX_KIND} lower-case letters, digits, blanks, `-`, `_` and `.`, and this one is none"
            ));
        }
        if [self.header.is_some(), self.delimiter.is_some()] != [self.is_table(); 2] {
            return Err("a label column, a header and a delimiter belong to a table, all of them".to_owned());
        }
        if !(2..=u64::from(u32::MAX)).contains(&self.samples) {
            return Err(format!("it has {} samples, but 2 to {} are possible", self.samples, u32::MAX));
        }
        if !(1..=MAX_FEATURES).contains(&self.features) {
            return Err(format!("it has {} features, but 1 to {MAX_FEATURES} are possible", self.features));
        }
        let said = [("ignored", &self.ignored), ("categories", &self.categories)];
        if !self.is_table() && said.iter().any(|(_, columns)| !columns.is_empty()) {
            return Err("columns that are ignored or hold categories belong to a table".to_owned());
        }
        for (what, columns) in said {
            if columns.len() > MAX_SAID || !columns.is_sorted_by(|a, b| a < b) {
                return Err(format!("its columns that are {what} are not at most {MAX_SAID}, ascending"));
            }
        }
        let apart: Vec<u32> = [self.weights, self.split_by].into_iter().flatten().collect();
        if !self.is_table() && !apart.is_empty() {
            return Err("columns of weights, or by which rows are held out, belong to a table".to_owned());
        }
        if self.sides_said && self.split_by.is_none() {
            return Err("words say which rows are held out, but no column has them".to_owned());
        }
        if let Some(last) = self.held_out_last {
            if !self.is_table() || self.split_by.is_some() {
                return Err("rows at its end are held out, which needs a table that has no column for that".to_owned());
            }
            if !(1..self.samples).contains(&last) {
                return Err(format!("of its {} rows the last {last} are held out", self.samples));
            }
        }
        let is_taken =
            |column: &u32| [&self.label, &self.ignored, &self.categories].iter().any(|said| said.contains(column));
        if apart.iter().any(is_taken) || (apart.len() == 2 && self.weights == self.split_by) {
            return Err("its columns of weights, or by which rows are held out, are something else, too".to_owned());
        }
        // Each column has a feature at least, but for those that are ignored, or say something of the rows.
        let without = self.ignored.len() + apart.len() + self.label.len().saturating_sub(1);
        let last = u64::from(self.features) + without as u64;
        if let Some(label) = self.label.iter().find(|label| u64::from(**label) > last) {
            return Err(format!("its label is column {label}, but columns run from 0 to {last}"));
        }
        check_labels(&self.label, self.classes)?;
        let mut said = self.ignored.iter().chain(&self.categories).chain(&apart);
        if let Some(said) = said.find(|column| u64::from(**column) > last) {
            return Err(format!("it says something of column {said}, but columns run from 0 to {last}"));
        }
        if product != Some(self.features) {
            return Err(format!("its shape {:?} does not hold its {} features", self.shape, self.features));
        }
        let (what, most) = if self.kind == TOKENS { ("tokens", MAX_TOKENS) } else { ("classes", MAX_CLASSES) };
        let are_measured = self.classes == 0 && self.is_table();
        if !are_measured && !(2..=most).contains(&self.classes) {
            return Err(format!("it has {} {what}, but 2 to {most} are possible", self.classes));
        }
        if self.held_out >= 1000 {
            return Err(format!("it holds out {} thousandths, but 0 to 999 are possible", self.held_out));
        }
        Ok(())
    }
}

/// Checks the columns that hold labels, of so many classes.
///
/// # Errors
/// What is wrong, as a sentence.
pub fn check_labels(columns: &[u32], classes: u32) -> Result<(), String> {
    let distinct: std::collections::BTreeSet<&u32> = columns.iter().collect();
    if columns.len() > MAX_LABELS || distinct.len() < columns.len() {
        return Err(format!("its label columns are not at most {MAX_LABELS} different ones"));
    }
    match columns.len() > 1 && classes > 0 {
        true => Err(format!(
            "it has {} label columns and {classes} classes, but only one column has classes",
            columns.len()
        )),
        false => Ok(()),
    }
}

/// The number of the column that is this one of those that hold no labels, as `labels` do; all from 0.
pub fn column_of(labels: &[u32], other: usize) -> usize {
    let mut labels: Vec<usize> = labels.iter().map(|label| *label as usize).collect();
    labels.sort_unstable();
    labels.into_iter().fold(other, |column, label| if label <= column { column + 1 } else { column })
}

/// The built-in digits, as tests take them for any data.
#[cfg(test)]
pub(crate) fn digits() -> DataDescription {
    DataDescription {
        kind: DIGITS.to_owned(),
        samples: 1_797,
        features: 64,
        shape: [1, 8, 8],
        classes: 10,
        label: Vec::new(),
        header: None,
        delimiter: None,
        ignored: Vec::new(),
        categories: Vec::new(),
        weights: None,
        split_by: None,
        sides_said: false,
        held_out_last: None,
        held_out: 200,
        fingerprint: Digest([3; 32]),
        preprocessing: Digest([4; 32]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut DataDescription);

    #[test]
    fn several_label_columns_are_written_as_one_was() {
        let one = DataDescription { label: vec![3], ..digits() };
        // What members agree on has the bytes that it had when there was at most one.
        assert_eq!(postcard::to_allocvec(&one.label), postcard::to_allocvec(&Some(3_u32)));
        assert_eq!(postcard::to_allocvec(&digits().label), postcard::to_allocvec(&None::<u32>));
        assert_eq!([0, 1, 2, 3].map(|other| column_of(&[4, 1], other)), [0, 2, 3, 5]);
    }

    #[test]
    fn a_description_that_cannot_be_is_refused() {
        let good = digits();
        assert_eq!(good.check(), Ok(()));
        let changes: [(Change, &str); 24] = [
            (|data| data.samples = 1, "1 samples"),
            (|data| data.samples = 1 << 40, "samples"),
            (|data| data.features = 0, "0 features"),
            (|data| data.shape = [1, 8, 9], "does not hold its 64 features"),
            (|data| data.shape = [u32::MAX; 3], "does not hold"),
            (|data| data.classes = 1, "1 classes"),
            (|data| data.held_out = 1000, "1000 thousandths"),
            (|data| data.kind.clear(), "and this one is none"),
            (|data| data.kind = "\u{1b}[2J".to_owned(), "a kind has 1 to 64 lower-case letters"),
            (|data| data.label = vec![3], "belong to a table"),
            (|data| data.header = Some(true), "belong to a table"),
            (|data| data.ignored = vec![1], "belong to a table"),
            (
                |data| {
                    (data.kind, data.label, data.header) = ("csv".to_owned(), vec![65], Some(true));
                    data.delimiter = Some(Delimiter::Comma);
                },
                "column 65, but columns run from 0 to 64",
            ),
            (
                |data| {
                    (data.label, data.header, data.delimiter) = (vec![65], Some(true), Some(Delimiter::Comma));
                    data.ignored = vec![66];
                },
                "column 66, but columns run from 0 to 65",
            ),
            (
                |data| {
                    (data.label, data.header, data.delimiter) = (vec![1], Some(true), Some(Delimiter::Comma));
                    data.categories = vec![3, 2];
                },
                "ascending",
            ),
            (
                |data| {
                    (data.label, data.header, data.delimiter) = (vec![1, 1], Some(true), Some(Delimiter::Comma));
                    data.classes = 0;
                },
                "not at most 256 different ones",
            ),
            (
                |data| (data.label, data.header, data.delimiter) = (vec![1, 2], Some(true), Some(Delimiter::Comma)),
                "2 label columns and 10 classes",
            ),
            (|data| data.weights = Some(3), "belong to a table"),
            (|data| data.held_out_last = Some(3), "which needs a table"),
            (|data| data.sides_said = true, "but no column has them"),
            (
                |data| {
                    (data.label, data.header, data.delimiter) = (vec![1], Some(true), Some(Delimiter::Comma));
                    data.held_out_last = Some(1_797);
                },
                "of its 1797 rows the last 1797 are held out",
            ),
            (
                |data| {
                    (data.label, data.header, data.delimiter) = (vec![1], Some(true), Some(Delimiter::Comma));
                    (data.split_by, data.held_out_last) = (Some(2), Some(3));
                },
                "which needs a table that has no column for that",
            ),
            (
                |data| {
                    (data.label, data.header, data.delimiter) = (vec![1], Some(true), Some(Delimiter::Comma));
                    (data.weights, data.split_by) = (Some(2), Some(2));
                },
                "are something else, too",
            ),
            (
                |data| {
                    (data.label, data.header, data.delimiter) = (vec![1], Some(true), Some(Delimiter::Comma));
                    (data.weights, data.split_by) = (Some(66), Some(67));
                },
                "column 67, but columns run from 0 to 66",
            ),
        ];
        for (change, reason) in changes {
            let mut data = good.clone();
            change(&mut data);
            let message = data.check().expect_err("impossible");
            assert!(message.contains(reason), "{message}");
        }
    }
}
