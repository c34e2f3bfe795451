//! A text that was prepared, of whose files some are on their way: which of them are asked for first.
//!
//! ```text
//!   epoch, by blocks:   | window: blocks 7 2 9 | window: blocks 0 4 1 | window: ...          at a step of the run
//!                               ^ now
//!   samples of these    | files 3 1 4          | files 0 2            | those that are left  in this order
//!                         to begin with these two
//! ```

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use starling_run::data::{ArrivalOrder, ArrivalTracker, RunPosition, SampleSchedule};
use starling_run::program::learner::PROBED;
use starling_topology::ledger::SampleOrder;

use super::Words;
use super::folder::{NAMED_FILES, TokenFolder};
use crate::samples::numbers::SampleNumbers;

/// Blocks that are looked at. Where they are so many, most files have some early.
const MOST_BLOCKS: usize = 1 << 20;
/// A run is so many steps behind what their number says, if samples were given back now and then.
const SLACK: u64 = 8;

/// The files of a text, and which of its windows are the samples to train on.
#[derive(Debug)]
pub(crate) struct TokenArrivals {
    text: Arc<Words>,
    /// Tokens of a sample.
    context: u32,
    training: SampleNumbers,
}

impl TokenArrivals {
    /// `None` of a text that is in memory.
    pub(crate) fn new(text: &Arc<Words>, context: u32, training: &SampleNumbers) -> Option<Self> {
        let is_in_files = matches!(**text, Words::Tokens(_));
        is_in_files.then(|| Self { text: text.clone(), context, training: training.clone() })
    }

    fn folder(&self) -> &TokenFolder {
        let Words::Tokens(folder) = &*self.text else { unreachable!("it was looked at when this was made") };
        folder
    }

    /// The files that these samples to train on are in, with the token behind each.
    fn files_of(&self, samples: &Range<u32>) -> RangeInclusive<usize> {
        let [first, last] = [samples.start, samples.end - 1].map(|sample| u64::from(self.training.get(sample)));
        let context = u64::from(self.context);
        let [first, last] = [first * context, (last + 1) * context].map(|token| self.folder().file_of(token));
        first..=last
    }
}

impl ArrivalTracker for TokenArrivals {
    fn files(&self) -> usize {
        NAMED_FILES + self.folder().told_shards()
    }

    fn is_here(&self, file: usize) -> bool {
        file < NAMED_FILES || self.folder().is_here(file - NAMED_FILES)
    }

    fn take_in(&self, file: usize) -> Result<(), String> {
        match file.checked_sub(NAMED_FILES) {
            Some(shard) => self.folder().take_in(shard).map_err(|error| error.to_string()),
            // They had to be read before this was made.
            None => Ok(()),
        }
    }

    fn bytes(&self, file: usize) -> Option<u64> {
        Some(self.folder().told_bytes(file.checked_sub(NAMED_FILES)?))
    }

    fn order(&self, schedule: SampleSchedule, position: RunPosition) -> Option<ArrivalOrder> {
        let samples = u32::try_from(self.training.len()).expect("invariant: windows are counted in 32 bits");
        let order = |epoch| SampleOrder::draw(schedule.seed, samples, epoch, schedule.shuffle);
        let mut wanted = Wanted::new(self.files());
        // What is computed before the run is entered is computed of these.
        wanted.add(self.files_of(&(0..samples.min(PROBED))));
        let place = |step: u64| {
            let steps = u64::from(samples.div_ceil(schedule.batch_size.max(1)));
            (step / steps, (step % steps * u64::from(schedule.batch_size)) as u32)
        };
        let ((first_epoch, position), (last_epoch, last)) = match position {
            RunPosition::Behind(steps) => (place(steps.start().saturating_sub(SLACK)), place(*steps.end())),
            RunPosition::At { epoch, pending, cursor } => ((epoch, pending.min(samples - 1)), (epoch, cursor)),
        };
        let (mut to_begin, mut needed, mut blocks) = (None, None, 0);
        // A whole epoch has all files.
        'epochs: for epoch in [first_epoch, first_epoch + 1] {
            let drawn = order(epoch);
            let windows = drawn.windows_from(if epoch == first_epoch { position } else { 0 })?;
            if epoch == last_epoch {
                // The one that has the last position of the pending batch, and the next.
                let last = last.saturating_add(schedule.batch_size.saturating_sub(1)).min(samples - 1);
                let left = drawn.windows_from(last).map_or(0, |left| left.len());
                needed = Some(windows.len() - left + 2);
            }
            for window in windows {
                if needed == Some(0) {
                    to_begin = to_begin.or(Some(wanted.files.len()));
                }
                needed = needed.map(|needed: usize| needed.saturating_sub(1));
                blocks += window.len();
                window.iter().for_each(|block| wanted.add(self.files_of(block)));
                if wanted.is_full() || blocks > MOST_BLOCKS {
                    break 'epochs;
                }
            }
        }
        let to_begin = to_begin.unwrap_or_else(|| self.files());
        wanted.add(NAMED_FILES..=self.files() - 1);
        Some(ArrivalOrder { files: wanted.files, to_begin })
    }
}

/// Files as they come to be wanted.
struct Wanted {
    files: Vec<usize>,
    listed: BTreeSet<usize>,
    of: usize,
}

impl Wanted {
    fn new(of: usize) -> Self {
        Self { files: (0..NAMED_FILES).collect(), listed: (0..NAMED_FILES).collect(), of }
    }

    fn add(&mut self, files: RangeInclusive<usize>) {
        let Self { files: all, listed, .. } = self;
        all.extend(files.filter(|file| listed.insert(*file)));
    }

    fn is_full(&self) -> bool {
        self.files.len() == self.of
    }
}
