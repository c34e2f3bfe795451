//! Data whose files come while it is trained on.

use std::fmt;
use std::ops::RangeInclusive;

use starling_topology::ShufflePolicy;

use crate::manifest::Manifest;

/// The files of a data set of which some may still be on their way, as whoever reads samples of it sees them. They are numbered from 0, in the
/// order of their [`Kind`](super::Kind).
pub trait ArrivalTracker: Send + Sync + fmt::Debug {
    /// How many there are.
    fn files(&self) -> usize;

    /// Whether this one was taken in.
    fn is_here(&self, file: usize) -> bool;

    /// Checks a file all of which should be in its place by now, whoever it came from. If it is what it has to be, samples are read from it from now on,
    /// and nobody may write to it any more. Reads all of it, once.
    ///
    /// # Errors
    /// Why it is not what it has to be, as a sentence that names the file. Nothing of it is ever a sample then.
    fn take_in(&self, file: usize) -> Result<(), String>;

    /// How long this one has to be, in bytes; `None` of those that had to be here before anything was known.
    fn bytes(&self, file: usize) -> Option<u64>;

    /// Which files a member asks for first where the run stands so. `None` of a run in which any sample may come next: then all have to be here.
    fn order(&self, schedule: SampleSchedule, position: RunPosition) -> Option<ArrivalOrder>;
}

/// Where a run stands, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunPosition {
    /// Behind one of these steps: which samples come next follows from that but for those that were given back.
    Behind(RangeInclusive<u64>),
    /// By its ledger.
    At {
        /// The epoch of the pending step.
        epoch: u64,
        /// The first position of its batch.
        pending: u32,
        /// The first position of the epoch that was never handed out.
        cursor: u32,
    },
}

/// What says in a run which samples come when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleSchedule {
    /// The seed of the sample order.
    pub seed: u64,
    /// Samples of a step.
    pub batch_size: u32,
    /// How far they are shuffled.
    pub shuffle: ShufflePolicy,
}

impl From<&Manifest> for SampleSchedule {
    fn from(manifest: &Manifest) -> Self {
        let Manifest { seed, batch_size, shuffle, .. } = *manifest;
        Self { seed, batch_size, shuffle }
    }
}

/// In which order files are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivalOrder {
    /// All of them, those that are needed first being first.
    pub files: Vec<usize>,
    /// How many of the first it takes to begin: with these, no sample is missing soon.
    pub to_begin: usize,
}

impl dyn ArrivalTracker + '_ {
    /// How many files are here.
    pub fn here(&self) -> usize {
        (0..self.files()).filter(|file| self.is_here(*file)).count()
    }
}
