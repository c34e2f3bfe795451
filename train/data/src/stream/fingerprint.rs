//! The fingerprint of a table that is read block by block, as it would be of all of it.

use std::collections::BTreeMap;

use starling_topology::Digest;

use super::{Block, InputSpec};
use crate::LabelTable;
use crate::samples::raw::{bits, finish, hasher};

/// Follows a table by its blocks, and tells at its end whether it is a run's data.
#[derive(Debug)]
pub struct FingerprintTracker {
    inputs: InputSpec,
    classes: Vec<String>,
    known: LabelTable,
    /// Of classes that are numbers: of each its place.
    numbers: BTreeMap<u64, u32>,
    hasher: blake3::Hasher,
    /// The class of each sample: these come behind all values.
    labels: Vec<u32>,
    /// How many samples the run's data had.
    samples: u64,
    is_other: bool,
}

impl FingerprintTracker {
    /// For data of so many samples with these classes, in their order. Of more, no more is kept than of these: four bytes each.
    pub fn new(inputs: &InputSpec, classes: &[String], samples: u64) -> Self {
        let number = |(class, name): (u32, &String)| Some((bits(name.parse().ok()?), class));
        Self {
            inputs: inputs.clone(),
            classes: classes.to_vec(),
            known: LabelTable::new(classes),
            numbers: (0..).zip(classes).filter_map(number).collect(),
            hasher: hasher(inputs.shape, samples),
            labels: Vec::new(),
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
            let number = || self.numbers.get(&bits(label.parse().ok()?)).copied();
            match self.known.class(label).or_else(number) {
                Some(class) => self.labels.push(class),
                None => self.is_other = true,
            }
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
        Some(finish(self.hasher, &self.classes, &self.inputs.columns))
    }
}
