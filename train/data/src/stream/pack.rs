//! Images that were decoded for others, for a trained model.

use std::io::Read;
use std::path::Path;

use super::{Block, Blocks, InputSpec};
use crate::error::DataError;
use crate::images::{Header, Parser};

/// A file of decoded images, and how many of them were given.
pub(super) struct Pack {
    parser: Parser<Box<dyn Read>>,
    header: Header,
    features: usize,
    given: usize,
}

impl Pack {
    pub(super) fn open(bytes: Box<dyn Read>, path: &Path, inputs: &InputSpec) -> Result<Self, DataError> {
        let mut parser = Parser::new(bytes, path);
        let header = parser.header()?;
        let shape = header.shape();
        if shape != inputs.shape {
            let [[channels, height, width], model] = [shape, inputs.shape];
            let told = format!("{}x{}x{}", model[0], model[1], model[2]);
            let reason = format!("it has images of {channels}x{height}x{width}, but the model takes {told}");
            return Err(DataError::File { path: path.to_owned(), reason });
        }
        Ok(Self { parser, header, features: inputs.features, given: 0 })
    }
}

impl Blocks for Pack {
    fn next(&mut self, most: usize) -> Result<Block, DataError> {
        let (first, last) = (self.given, self.header.labels.len().min(self.given.saturating_add(most)));
        if first == last {
            self.parser.check_end()?;
            return Ok(Block::default());
        }
        self.given = last;
        let pixels = self.parser.take(((last - first) * self.features) as u64)?;
        let name = |label: &u32| self.header.names[*label as usize].clone();
        Ok(Block {
            values: pixels.into_iter().map(f64::from).collect(),
            labels: self.header.labels[first..last].iter().map(name).collect(),
            rows: (first as u64 + 1..=last as u64).collect(),
            ..Block::default()
        })
    }

    fn has_labels(&self) -> bool {
        true
    }
}
