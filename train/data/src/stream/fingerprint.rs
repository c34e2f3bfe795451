//! The fingerprint of a table that is read block by block, as it would be of all of it.

use starling_topology::Digest;

use super::{Block, InputSpec, RowSpec};
use crate::LabelTable;
use crate::samples::raw::{bits, finish, hasher};
use crate::table::csv::last_rows;

/// Follows a table by its blocks, and tells at its end whether it is a run's data.
#[derive(Debug)]
pub struct FingerprintTracker {
    inputs: InputSpec,
    classes: Vec<String>,
    known: LabelTable,
    hasher: blake3::Hasher,
    /// The class of each sample: these come behind all values.
    labels: Vec<u32>,
    /// How much each counts, and what says its side, where the run went by such columns.
    weights: Vec<f32>,
    sides: Vec<u16>,
    /// How many samples the run's data had.
    samples: u64,
    is_other: bool,
}

impl FingerprintTracker {
    /// For data of so many samples with these classes, in their order. Of more, no more is kept than of these: four bytes each, as many of its weight, and
    /// two of its side.
    pub fn new(inputs: &InputSpec, classes: &[String], samples: u64) -> Self {
        Self {
            inputs: inputs.clone(),
            classes: classes.to_vec(),
            known: LabelTable::new(classes),
            hasher: hasher(inputs.shape, samples),
            labels: Vec::new(),
            weights: Vec::new(),
            sides: Vec::new(),
            samples,
            is_other: false,
        }
    }

    /// Takes the next samples.
    pub fn add(&mut self, block: &Block) {
        let all = self.labels.len() as u64 + block.len() as u64;
        if self.is_other || all > self.samples || block.labels.len() != block.len() {
            self.is_other = true;
            return;
        }
        let bytes: Vec<u8> = block.values.iter().flat_map(|value| bits(*value).to_le_bytes()).collect();
        self.hasher.update(&bytes);
        for label in &block.labels {
            match self.known.class(label) {
                Some(class) => self.labels.push(class),
                None => self.is_other = true,
            }
        }
        let RowSpec { weights, split_by, .. } = self.inputs.rows;
        if weights.is_some() {
            self.weights.extend(block.notes.iter().filter_map(|note| note.weight));
            self.is_other |= self.weights.len() as u64 != all;
        }
        if split_by.is_some() {
            self.sides.extend(block.notes.iter().filter_map(|note| note.side));
            self.is_other |= self.sides.len() as u64 != all;
        }
    }

    /// The fingerprint of all that came; `None` if it is not as long as the run's data, or has other labels.
    pub fn finish(mut self) -> Option<Digest> {
        if self.is_other || self.labels.len() as u64 != self.samples {
            return None;
        }
        for labels in self.labels.chunks(1024) {
            let bytes: Vec<u8> = labels.iter().flat_map(|label| label.to_le_bytes()).collect();
            self.hasher.update(&bytes);
        }
        let RowSpec { weights, split_by, held_out_last } = self.inputs.rows;
        let held_out = match (split_by, held_out_last) {
            (Some(split), _) => Some(split.sides(0).held_out(&self.sides).ok()?),
            (None, Some(last)) => Some(last_rows(self.samples, last).ok()?),
            (None, None) => None,
        };
        let said = (weights.is_some().then_some(&*self.weights), held_out.as_deref());
        Some(finish(self.hasher, said, &self.classes, &self.inputs.columns))
    }
}
