//! How far that has come which a node is at.

use serde::{Deserialize, Serialize};

/// So many of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseProgress {
    /// What is counted.
    pub unit: UnitKind,
    /// How many there are so far.
    pub done: u64,
    /// How many it takes.
    pub of: u64,
}

/// What is counted in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// Members that are here, or answer.
    Members,
    /// Bytes that are downloaded.
    Bytes,
    /// Held-out samples that are evaluated.
    Samples,
}

impl PhaseProgress {
    pub(super) fn members(present: usize, needed: usize) -> Self {
        Self { unit: UnitKind::Members, done: present as u64, of: needed as u64 }
    }

    pub(super) fn bytes(done: u64, of: u64) -> Self {
        Self { unit: UnitKind::Bytes, done, of }
    }

    pub(super) fn samples(done: u64, of: u64) -> Self {
        Self { unit: UnitKind::Samples, done, of }
    }
}
