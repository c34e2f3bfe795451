//! Data as it was read, before split and scaling.

use std::sync::Arc;

use starling_run::Kind;
use starling_run::data::DataSummary;
use starling_run::data::columns::{Column, ColumnKind};
use starling_topology::Digest;

use crate::Delimiter;
use crate::error::DataError;
use crate::samples::pixels::Pixels;
use crate::table::placed::RowTable;

/// The most numbers a data set may have that is held in memory.
pub(crate) const MAX_VALUES: u64 = 1 << 31;
/// What a gap is in a fingerprint: NaN has many forms.
const GAP: u64 = 0x7ff8_0000_0000_0000;

/// What a reader hands over. All vectors agree in length; values are finite, but for gaps in a table, which are NaN.
#[derive(Debug)]
pub(crate) struct Raw {
    /// What members compare by its name.
    pub(crate) kind: Kind,
    /// Where it comes from, for messages.
    pub(crate) origin: String,
    /// Channels, height, width.
    pub(crate) shape: [u32; 3],
    /// Sample after sample.
    pub(crate) values: Values,
    /// One index into `class_names` per sample.
    pub(crate) labels: Vec<u32>,
    pub(crate) class_names: Vec<String>,
    /// One per feature, or none.
    pub(crate) feature_names: Vec<String>,
    pub(crate) scaling: Scaling,
    /// How the table was read, if it was one.
    pub(crate) columns: Option<Columns>,
    /// Its columns but for the label's, unless each is a number without gaps.
    pub(crate) coded: Vec<Column>,
    /// Of each sample how much it counts, if they differ.
    pub(crate) weights: Option<Arc<[f32]>>,
    /// The samples that a column has held out, ascending, if one does.
    pub(crate) held_out_rows: Option<Arc<[u32]>>,
    /// Samples that the source itself holds out.
    pub(crate) held_out: Option<RawSamples>,
    /// What its user should look at, as sentences.
    pub(crate) doubts: Vec<String>,
    /// The same of labels that are learned as classes.
    pub(crate) class_doubts: Vec<String>,
}

/// What a CSV file's reader settled.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    /// The columns of labels, from 0: one at least.
    pub(crate) labels: Vec<u32>,
    /// What they are called, if they have names.
    pub(crate) label_names: Vec<String>,
    /// Whether the first row is a header.
    pub(crate) header: bool,
    /// What separates cells.
    pub(crate) delimiter: Delimiter,
    /// The columns that are left out.
    pub(crate) ignored: Vec<u32>,
    /// The columns that hold categories because their user says so.
    pub(crate) categories: Vec<u32>,
    /// The column of weights.
    pub(crate) weights: Option<u32>,
    /// The column by which rows are held out.
    pub(crate) split_by: Option<u32>,
    /// Whether its texts say the sides themselves.
    pub(crate) sides_said: bool,
    /// How many rows at the end are held out, if that is said.
    pub(crate) held_out_last: Option<u64>,
}

/// Samples that come apart from the others.
#[derive(Debug)]
pub(crate) struct RawSamples {
    pub(crate) values: Values,
    pub(crate) labels: Vec<u32>,
}

/// Numbers in the type of their source: images stay at one byte each.
#[derive(Debug)]
pub(crate) enum Values {
    Bytes(Vec<u8>),
    Numbers(Vec<f64>),
    /// Bytes in files.
    Pixels(Pixels),
    /// In a file, with the labels.
    Placed(Box<RowTable>),
}

/// How values become features.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scaling {
    /// Divide all by one number.
    Divide(f64),
    /// Per column: less the training samples' mean, divided by their standard deviation.
    Standardize,
}

impl Values {
    pub(crate) fn get(&self, at: usize) -> f64 {
        match self {
            Self::Bytes(bytes) => f64::from(bytes[at]),
            Self::Numbers(numbers) => numbers[at],
            Self::Pixels(_) | Self::Placed(_) => panic!("invariant: what stays in its files is read as samples"),
        }
    }

    fn hash(&self, hasher: &mut blake3::Hasher) -> Result<(), DataError> {
        match self {
            Self::Bytes(bytes) => {
                hasher.update(bytes);
            }
            Self::Numbers(numbers) => {
                let mut bytes = Vec::with_capacity(8 * 1024);
                for block in numbers.chunks(1024) {
                    bytes.clear();
                    bytes.extend(block.iter().flat_map(|number| bits(*number).to_le_bytes()));
                    hasher.update(&bytes);
                }
            }
            Self::Pixels(pixels) => pixels.each(|bytes| {
                hasher.update(bytes);
                Ok::<_, DataError>(())
            })?,
            Self::Placed(_) => panic!("invariant: what stays in its file is hashed as it is read"),
        }
        Ok(())
    }
}

/// A number in a fingerprint: -0 and 0 are the same value, however the file writes it, and so are all gaps.
pub(crate) fn bits(number: f64) -> u64 {
    if number.is_nan() { GAP } else { (number + 0.0).to_bits() }
}

impl Raw {
    /// blake3 of shape, values, labels, class names, and how columns are coded.
    ///
    /// # Errors
    /// If what stays in its files can't be read, or has changed.
    pub(crate) fn fingerprint(&self) -> Result<Digest, DataError> {
        let mut hasher = self.hasher(self.labels.len() as u64);
        hash_samples(&self.values, &self.labels, &mut hasher)?;
        if let Some(held_out) = &self.held_out {
            hasher.update(&(held_out.labels.len() as u64).to_le_bytes());
            hash_samples(&held_out.values, &held_out.labels, &mut hasher)?;
        }
        Ok(self.finish(hasher))
    }

    /// How many labels a sample has.
    pub(crate) fn label_count(&self) -> usize {
        self.columns.as_ref().map_or(1, |columns| columns.labels.len())
    }

    /// How many samples each class has, those held out included.
    pub(crate) fn counts(&self) -> Vec<u64> {
        if let Values::Placed(table) = &self.values {
            return table.counts.clone();
        }
        let own_held_out = self.held_out.iter().flat_map(|held_out| &held_out.labels);
        DataSummary::count(&self.class_names, self.labels.iter().chain(own_held_out))
    }

    /// Its beginning, with how many samples there are. What follows are all values, and then all labels.
    pub(crate) fn hasher(&self, samples: u64) -> blake3::Hasher {
        hasher(self.shape, samples)
    }

    /// Its end.
    pub(crate) fn finish(&self, hasher: blake3::Hasher) -> Digest {
        let said = (self.weights.as_deref(), self.held_out_rows.as_deref());
        finish(hasher, said, &self.class_names, &self.coded)
    }
}

/// The beginning of a fingerprint of so many samples of this shape.
pub(crate) fn hasher(shape: [u32; 3], samples: u64) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    for dimension in shape {
        hasher.update(&dimension.to_le_bytes());
    }
    hasher.update(&samples.to_le_bytes());
    hasher
}

/// The end of a fingerprint of samples with these classes and columns: before them how much each row counts, and which are held out, where
/// that is said.
pub(crate) fn finish(
    mut hasher: blake3::Hasher,
    (weights, held_out_rows): (Option<&[f32]>, Option<&[u32]>),
    class_names: &[String],
    coded: &[Column],
) -> Digest {
    let mut numbers = |kind: &[u8], numbers: &mut dyn Iterator<Item = u32>| {
        hasher.update(kind);
        numbers.for_each(|number| {
            hasher.update(&number.to_le_bytes());
        });
    };
    if let Some(weights) = weights {
        numbers(b"weights", &mut weights.iter().map(|weight| (*weight + 0.0).to_bits()));
    }
    if let Some(rows) = held_out_rows {
        numbers(b"held out", &mut rows.iter().copied());
    }
    for name in class_names {
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
    }
    // Which features are of which column: of plain numbers that goes without saying.
    let is_plain = |column: &Column| matches!(column.coding, ColumnKind::Number | ColumnKind::Ignored);
    for column in coded.iter().filter(|_| !coded.iter().all(is_plain)) {
        let (kind, texts) = match &column.coding {
            ColumnKind::Ignored => continue,
            ColumnKind::Number => (1, &[][..]),
            ColumnKind::Gaps => (2, &[][..]),
            ColumnKind::Category(texts) => (3, &texts[..]),
        };
        hasher.update(&[kind]).update(&(texts.len() as u64).to_le_bytes());
        for text in texts {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
    }
    Digest(*hasher.finalize().as_bytes())
}

fn hash_samples(values: &Values, labels: &[u32], hasher: &mut blake3::Hasher) -> Result<(), DataError> {
    values.hash(hasher)?;
    let mut bytes = Vec::with_capacity(4 * 1024);
    for block in labels.chunks(1024) {
        bytes.clear();
        bytes.extend(block.iter().flat_map(|label| label.to_le_bytes()));
        hasher.update(&bytes);
    }
    Ok(())
}
