//! Where data comes from and how it is read.

use super::{DIGITS, Delimiter};
use crate::manifest::Manifest;

/// Where data comes from and how it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct DataOptions {
    /// `digits`, a CSV file, an IDX images file, or a directory with IDX files. Each file may be gzipped.
    pub source: String,
    /// The label column of a CSV file. The last column by default.
    pub label: Option<LabelColumn>,
    /// Whether a CSV file starts with a header. `None`: found out from its first row.
    pub header: Option<bool>,
    /// What separates the cells of a CSV file. `None`: found out from its first rows.
    pub delimiter: Option<Delimiter>,
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
        Self {
            source: DIGITS.to_owned(),
            label: None,
            header: None,
            delimiter: None,
            held_out: 0.2,
            seed: 42,
            max_file_bytes: u64::MAX,
        }
    }
}

impl DataOptions {
    /// These options with the split that `manifest` prescribes, and with its label column, header and delimiter where they
    /// have none: what a joiner uses.
    #[must_use]
    pub fn for_run(mut self, manifest: &Manifest) -> Self {
        self.held_out = manifest.data.held_out as f32 / 1000.0;
        self.seed = manifest.seed;
        self.label = self.label.or_else(|| manifest.data.label.map(LabelColumn::Index));
        self.header = self.header.or(manifest.data.header);
        self.delimiter = self.delimiter.or(manifest.data.delimiter);
        self
    }
}
