//! The data a run trains on: read, checked, split, scaled.

mod csv;
mod digits;
mod error;
mod files;
mod idx;
mod labels;
mod raw;
mod samples;
mod split;

use std::path::Path;

use serde::{Deserialize, Serialize};
use starling_topology::Digest;

pub use error::DataError;
pub use files::source_in;
pub(crate) use files::{files, names};
pub use samples::Samples;

use crate::manifest::{MAX_CLASSES, MAX_FEATURES, Manifest};
use raw::Raw;

/// The `source` that names the embedded digits.
pub const DIGITS: &str = "digits";
/// The kinds of data there are.
pub const KINDS: [&str; 5] = [DIGITS, CSV, IDX, IDX_HELD_OUT, NONE];
/// The kind of a table.
const CSV: &str = "csv";
/// The kind of images with their labels.
const IDX: &str = "idx";
/// The kind of images with their labels, and others to hold out.
const IDX_HELD_OUT: &str = "idx with held-out files";
/// No data: see [`DataDescription::none`].
const NONE: &str = "none";

/// Where data comes from and how it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct DataOptions {
    /// `digits`, a CSV file, an IDX images file, or a directory with IDX files. Each file may be gzipped.
    pub source: String,
    /// The label column of a CSV file. The last column by default.
    pub label: Option<LabelColumn>,
    /// Whether a CSV file starts with a header. `None`: found out from its first row.
    pub header: Option<bool>,
    /// Share of the samples kept from training, 0 to below 1, counted in thousandths. Ignored if the source brings its
    /// own held-out samples.
    pub held_out: f32,
    /// Seed of the split. A run's members use the manifest's.
    pub seed: u64,
    /// The most bytes that a file may have, unpacked: files that come from others must not fill memory.
    pub max_file_bytes: u64,
}

/// Which column of a CSV file holds the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelColumn {
    /// What a user wrote: a column's name or, if no column has it, a 0-based index.
    Written(String),
    /// A 0-based index, even where a column has that number for its name.
    Index(u32),
}

impl Default for DataOptions {
    fn default() -> Self {
        Self { source: DIGITS.to_owned(), label: None, header: None, held_out: 0.2, seed: 42, max_file_bytes: u64::MAX }
    }
}

impl DataOptions {
    /// These options with the split that `manifest` prescribes, and with its label column and header where they have
    /// none: what a joiner uses.
    pub fn for_run(mut self, manifest: &Manifest) -> Self {
        self.held_out = manifest.data.held_out as f32 / 1000.0;
        self.seed = manifest.seed;
        self.label = self.label.or_else(|| manifest.data.label.map(LabelColumn::Index));
        self.header = self.header.or(manifest.data.header);
        self
    }
}

/// What members compare to know that they hold the same data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataDescription {
    /// One of [`KINDS`].
    pub kind: String,
    /// How many samples there are, those held out included.
    pub samples: u64,
    /// How many features a sample has.
    pub features: u32,
    /// A sample as an image: channels, height, width. Flat rows are `[1, 1, features]`.
    pub shape: [u32; 3],
    /// How many classes there are.
    pub classes: u32,
    /// CSV: the column that holds the labels, from 0.
    pub label: Option<u32>,
    /// CSV: whether the first row holds the columns' names.
    pub header: Option<bool>,
    /// Share of the samples kept from training, in thousandths.
    pub held_out: u32,
    /// blake3 of the values and labels as they were read, before scaling.
    pub fingerprint: Digest,
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
            label: None,
            header: None,
            held_out: 0,
            fingerprint: Digest([0; 32]),
        }
    }

    /// Checks that the numbers are possible and agree with each other.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let product = self.shape.iter().try_fold(1_u32, |product, dimension| product.checked_mul(*dimension));
        if !KINDS.contains(&self.kind.as_str()) {
            // Not repeated here: it may come from another machine, and end on a terminal.
            return Err(format!("its kind is none of {}", KINDS.join(", ")));
        }
        let is_table = self.kind == CSV;
        if (self.label.is_some(), self.header.is_some()) != (is_table, is_table) {
            return Err("a label column and a header belong to a CSV file, and to nothing else".to_owned());
        }
        if !(2..=u64::from(u32::MAX)).contains(&self.samples) {
            return Err(format!("it has {} samples, but 2 to {} are possible", self.samples, u32::MAX));
        }
        if !(1..=MAX_FEATURES).contains(&self.features) {
            return Err(format!("it has {} features, but 1 to {MAX_FEATURES} are possible", self.features));
        }
        if let Some(label) = self.label.filter(|label| *label > self.features) {
            return Err(format!("its label is column {label}, but columns run from 0 to {}", self.features));
        }
        if product != Some(self.features) {
            return Err(format!("its shape {:?} does not hold its {} features", self.shape, self.features));
        }
        if !(2..=MAX_CLASSES).contains(&self.classes) {
            return Err(format!("it has {} classes, but 2 to {MAX_CLASSES} are possible", self.classes));
        }
        if self.held_out >= 1000 {
            return Err(format!("it holds out {} thousandths, but 0 to 999 are possible", self.held_out));
        }
        Ok(())
    }
}

/// A data set, split into training and held-out samples, scaled for training.
#[derive(Debug, Clone)]
pub struct Dataset {
    description: DataDescription,
    seed: u64,
    class_names: Vec<String>,
    feature_names: Vec<String>,
    training: Samples,
    held_out: Samples,
}

impl Dataset {
    /// Reads, checks and splits the data that `options` name.
    ///
    /// Features of digits are divided by 16, those of IDX files by 255. Columns of a CSV file are standardized: less the
    /// mean of the training samples, divided by their standard deviation, in f64; a constant column becomes 0.
    ///
    /// # Errors
    /// If a file cannot be read or does not hold what it should. The error names the file, and the row and column or
    /// the offending header field.
    pub fn load(options: &DataOptions) -> Result<Self, DataError> {
        let permille = split::permille(options.held_out)?;
        let raw = if options.source == DIGITS {
            digits::read()?
        } else {
            let (path, max) = (Path::new(&options.source), options.max_file_bytes);
            match path.is_dir() || idx::is_idx(path)? {
                true => idx::read(path, max)?,
                false => csv::read(path, options.label.as_ref(), options.header, max)?,
            }
        };
        Self::build(raw, permille, options.seed)
    }

    /// What members compare.
    pub fn description(&self) -> DataDescription {
        self.description.clone()
    }

    /// The samples to train on.
    pub fn training(&self) -> &Samples {
        &self.training
    }

    /// The samples kept from training. May be empty.
    pub fn held_out(&self) -> &Samples {
        &self.held_out
    }

    /// The seed of the split.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What each class is called in the source; a label is an index into this list.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// What each feature is called in the source. Empty if it has no names.
    pub fn feature_names(&self) -> &[String] {
        &self.feature_names
    }

    /// Checks that the data was split as a run says.
    ///
    /// # Errors
    /// If it was split with another share or seed.
    pub fn check_split(&self, held_out: f32, seed: u64) -> Result<(), DataError> {
        let permille = split::permille(held_out)?;
        if (self.description.held_out, self.seed) == (permille, seed) {
            return Ok(());
        }
        Err(DataError::OtherSplit {
            held_out: self.description.held_out,
            seed: self.seed,
            wanted_held_out: permille,
            wanted_seed: seed,
        })
    }

    fn build(raw: Raw, permille: u32, seed: u64) -> Result<Self, DataError> {
        let fingerprint = raw.fingerprint();
        let samples = raw.labels.len() + raw.held_out.as_ref().map_or(0, |held_out| held_out.labels.len());
        let description = DataDescription {
            kind: raw.kind.to_owned(),
            samples: samples as u64,
            features: raw.shape.iter().product(),
            shape: raw.shape,
            classes: u32::try_from(raw.class_names.len()).expect("invariant: readers bound the classes"),
            label: raw.columns.map(|columns| columns.label),
            header: raw.columns.map(|columns| columns.header),
            held_out: permille,
            fingerprint,
        };
        description.check().map_err(|reason| DataError::Unusable { origin: raw.origin.clone(), reason })?;
        let (class_names, feature_names) = (raw.class_names.clone(), raw.feature_names.clone());
        let (training, held_out) = split::split(raw, permille, seed);
        Ok(Self { description, seed, class_names, feature_names, training, held_out })
    }
}

#[cfg(test)]
mod tests;
