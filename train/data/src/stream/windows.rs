//! The windows of a text for a trained model.

use std::io::Read;
use std::path::Path;

use super::{Block, Blocks, InputSpec};
use crate::error::DataError;
use crate::text;

/// A text that was read, and how many of its windows were given.
pub(super) struct Windows {
    bytes: Vec<u8>,
    context: usize,
    count: usize,
    given: usize,
}

impl Windows {
    pub(super) fn open(bytes: impl Read, path: &Path, inputs: &InputSpec) -> Result<Self, DataError> {
        let text = text::parse(bytes, path, u64::MAX)?;
        let context = u32::try_from(inputs.features).unwrap_or(u32::MAX);
        let count = text.windows(context, 1)? as usize;
        Ok(Self { bytes: text.bytes, context: inputs.features, count, given: 0 })
    }
}

impl Blocks for Windows {
    fn next(&mut self, most: usize) -> Result<Block, DataError> {
        let first = self.given;
        let last = self.count.min(first.saturating_add(most));
        self.given = last;
        let window = |at: usize| &self.bytes[at * self.context..=(at + 1) * self.context];
        Ok(Block {
            values: (first..last).flat_map(window).copied().map(f64::from).collect(),
            labels: Vec::new(),
            rows: (first as u64 + 1..=last as u64).collect(),
            files: Vec::new(),
            held_out: false,
        })
    }

    fn has_labels(&self) -> bool {
        true
    }
}
