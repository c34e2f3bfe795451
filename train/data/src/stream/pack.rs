//! Images that were decoded for others, for a trained model: they are in memory as a whole.

use std::io::Read;
use std::path::Path;

use super::{Block, Blocks, InputSpec};
use crate::error::DataError;
use crate::images;
use crate::samples::raw::Raw;

/// A file of decoded images, and how many of them were given.
pub(super) struct Pack {
    raw: Raw,
    features: usize,
    given: usize,
}

impl Pack {
    pub(super) fn open(bytes: impl Read, path: &Path, inputs: &InputSpec) -> Result<Self, DataError> {
        let raw = images::parse(bytes, path)?;
        if raw.shape != inputs.shape {
            let [[channels, height, width], model] = [raw.shape, inputs.shape];
            let told = format!("{}x{}x{}", model[0], model[1], model[2]);
            let reason = format!("it has images of {channels}x{height}x{width}, but the model takes {told}");
            return Err(DataError::File { path: path.to_owned(), reason });
        }
        Ok(Self { raw, features: inputs.features, given: 0 })
    }
}

impl Blocks for Pack {
    fn next(&mut self, most: usize) -> Result<Block, DataError> {
        let (first, last) = (self.given, self.raw.labels.len().min(self.given.saturating_add(most)));
        self.given = last;
        let name = |label: &u32| self.raw.class_names[*label as usize].clone();
        Ok(Block {
            values: (first * self.features..last * self.features).map(|at| self.raw.values.get(at)).collect(),
            labels: self.raw.labels[first..last].iter().map(name).collect(),
            rows: (first as u64 + 1..=last as u64).collect(),
            ..Block::default()
        })
    }

    fn has_labels(&self) -> bool {
        true
    }
}
