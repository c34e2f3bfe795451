//! The ledger's canonical bytes.
//!
//! ```text
//!   seed: u64 | samples: u32 | batch size: u32 | epoch: u64 | cursor: u32 | step: u64
//!   | shares: u32, each: peer: 32 bytes, ranges: u32, each: start: u32, end: u32
//!   | paces: u32, each: peer: 32 bytes, smoothed: u32, planned: u32
//!   | doubtful: u32, each: start: u32, end: u32
//!   | skips: u64, in a row: u32
//!   | starved steps in a row: u32 | resting: u32, each: peer: 32 bytes, times: u32, left: u32
//!   | micro-batch: u32, of a run that has them, or shuffles by blocks
//!   | rows of a block: u32, blocks of a window: u32, of a run that shuffles by blocks    all little-endian, no padding
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use thiserror::Error;

use super::{
    AssignmentTable, Ledger, MAX_BATCH_SIZE, MAX_SHARES, MAX_SPEED, Rest, ShufflePolicy, SkipSummary, Throughput,
    assignment,
};
use crate::id::PeerId;

/// The longest encoded ledger, in bytes: each sample of the largest batch in a range of its own, all of them doubtful.
pub const MAX_LEDGER_BYTES: usize = 36
    + 4
    + MAX_SHARES * 36
    + MAX_BATCH_SIZE as usize * 8
    + 4
    + MAX_SHARES * 40
    + 4
    + MAX_BATCH_SIZE as usize * 8
    + 12
    + 4
    + 4
    + MAX_SHARES * 40
    + 12;
/// No run takes more steps.
const MAX_STEP: u64 = u64::MAX >> 1;

/// Bytes that are not a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the bytes are not a ledger: {reason}")]
pub struct LedgerError {
    /// What is wrong, as a sentence.
    pub reason: &'static str,
}

impl Ledger {
    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend(self.samples.to_le_bytes());
        bytes.extend(self.batch_size.to_le_bytes());
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.cursor.to_le_bytes());
        bytes.extend(self.step.to_le_bytes());
        bytes.extend((self.shares.len() as u32).to_le_bytes());
        for (peer, ranges) in &self.shares {
            bytes.extend(peer.0);
            bytes.extend((ranges.len() as u32).to_le_bytes());
            bytes.extend(ranges.iter().flat_map(|range| [range.start, range.end]).flat_map(u32::to_le_bytes));
        }
        bytes.extend((self.paces.len() as u32).to_le_bytes());
        for (peer, pace) in &self.paces {
            bytes.extend(peer.0);
            bytes.extend(pace.smoothed.to_le_bytes());
            bytes.extend(pace.planned.to_le_bytes());
        }
        bytes.extend((self.doubtful.len() as u32).to_le_bytes());
        bytes.extend(self.doubtful.iter().flat_map(|range| [range.start, range.end]).flat_map(u32::to_le_bytes));
        bytes.extend(self.skips.total.to_le_bytes());
        bytes.extend(self.skips.in_row.to_le_bytes());
        bytes.extend(self.starved.to_le_bytes());
        bytes.extend((self.resting.len() as u32).to_le_bytes());
        for (peer, rest) in &self.resting {
            bytes.extend(peer.0);
            bytes.extend(rest.times.to_le_bytes());
            bytes.extend(rest.left.to_le_bytes());
        }
        match self.shuffle {
            ShufflePolicy::Full if self.micro_batch == 0 => {}
            ShufflePolicy::Full => bytes.extend(self.micro_batch.to_le_bytes()),
            ShufflePolicy::Blocks { rows, blocks } => {
                bytes.extend([self.micro_batch, rows, blocks].into_iter().flat_map(u32::to_le_bytes));
            }
        }
        bytes
    }

    /// How long the canonical bytes are.
    pub fn encoded_len(&self) -> usize {
        let ranges: usize = self.shares.iter().map(|(_, ranges)| ranges.len()).sum();
        let paces = 4 + self.paces.len() * 40;
        let order = match self.shuffle {
            ShufflePolicy::Blocks { .. } => 12,
            ShufflePolicy::Full if self.micro_batch > 0 => 4,
            ShufflePolicy::Full => 0,
        };
        let resting = 4 + 4 + self.resting.len() * 40;
        36 + 4 + self.shares.len() * 36 + ranges * 8 + paces + 4 + self.doubtful.len() * 8 + 12 + resting + order
    }

    /// Reads a ledger from its canonical bytes. Nothing is reserved on the word of the bytes.
    ///
    /// # Errors
    /// If the bytes are not exactly one ledger in a state that a run can reach.
    pub fn decode(bytes: &[u8]) -> Result<Self, LedgerError> {
        let mut rest = Reader { bytes };
        let mut ledger = Self {
            seed: rest.u64()?,
            samples: rest.u32()?,
            batch_size: rest.u32()?,
            epoch: rest.u64()?,
            cursor: rest.u32()?,
            step: rest.u64()?,
            shares: rest.shares()?,
            paces: rest.paces()?,
            doubtful: rest.ranges()?,
            skips: SkipSummary { total: rest.u64()?, in_row: rest.u32()? },
            starved: rest.u32()?,
            resting: rest.resting()?,
            micro_batch: 0,
            shuffle: ShufflePolicy::Full,
        };
        rest.order(&mut ledger)?;
        if !rest.bytes.is_empty() {
            return Err(LedgerError { reason: "more bytes follow it" });
        }
        ledger.check()?;
        Ok(ledger)
    }

    /// Checks what [`Reader`] cannot see: how the parts fit each other.
    fn check(&self) -> Result<(), LedgerError> {
        let fail = |reason: &'static str| Err(LedgerError { reason });
        if self.samples == 0 || !(1..=MAX_BATCH_SIZE).contains(&self.batch_size) {
            return fail("no run has its number of samples and batch size");
        }
        if !super::fits(self.batch_size, self.micro_batch) {
            return fail("its batches are not of whole micro-batches");
        }
        if self.step == 0 {
            let has_batch = !self.shares.is_empty() || !self.paces.is_empty() || !self.doubtful.is_empty();
            let has_missed = self.skips != SkipSummary::default() || self.starved > 0 || !self.resting.is_empty();
            let is_fresh = self.epoch == 0 && self.cursor == 0 && !has_batch && !has_missed;
            return if is_fresh { Ok(()) } else { fail("it has a batch before the first step") };
        }
        if self.step > MAX_STEP || self.epoch >= self.step {
            return fail("no run reaches its step and epoch");
        }
        if self.cursor > self.samples || self.shares.is_empty() || self.paces.is_empty() {
            return fail("its batch is not of its epoch");
        }
        // Every step looks after all that an earlier one left, so the pending batch is full unless the epoch ends.
        let total: u64 =
            self.shares.iter().flat_map(|(_, ranges)| ranges).map(|range| u64::from(range.end - range.start)).sum();
        let is_full = total == u64::from(self.batch_size);
        if total > u64::from(self.batch_size) || !(is_full || self.cursor == self.samples) {
            return fail("its batch is of the wrong size");
        }
        // Across peers, positions only ascend; within one, they also leave gaps.
        let mut end = 0;
        for (_, ranges) in &self.shares {
            let ascends = ranges.first().is_some_and(|range| range.start >= end);
            if !ascends || !ranges.is_sorted_by(|a, b| a.end < b.start) {
                return fail("the positions of its batch do not ascend");
            }
            end = ranges.last().map_or(end, |range| range.end);
        }
        let is_border = |at: u32| at == self.samples || at.is_multiple_of(self.micro_batch.max(1));
        let ranges = self.shares.iter().flat_map(|(_, ranges)| ranges).chain(&self.doubtful);
        if !is_border(self.cursor) || !ranges.flat_map(|range| [range.start, range.end]).all(is_border) {
            return fail("it cuts a micro-batch");
        }
        if end > self.cursor {
            return fail("its batch has positions that were not handed out");
        }
        if self.shares.iter().any(|(peer, _)| !self.paces.contains_key(peer)) {
            return fail("a peer has a share, but no pace");
        }
        let batch = assignment::merge(self.shares.iter().flat_map(|(_, ranges)| ranges.iter().cloned()));
        let is_sorted = self.doubtful.is_sorted_by(|a, b| a.end < b.start);
        if !is_sorted || assignment::common(&self.doubtful, &batch) != self.doubtful {
            return fail("its doubtful positions are not of its batch");
        }
        if self.skips.total >= self.step || u64::from(self.skips.in_row) > self.skips.total {
            return fail("no run skips so many steps");
        }
        if u64::from(self.starved) >= self.step {
            return fail("no run is starved in so many steps");
        }
        Ok(())
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], LedgerError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(LedgerError { reason: "they end too early" })?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, LedgerError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, LedgerError> {
        self.array().map(u64::from_le_bytes)
    }

    /// What is dealt together, and how it is shuffled, of a run that says it: others have no such bytes.
    fn order(&mut self, ledger: &mut Ledger) -> Result<(), LedgerError> {
        let too_long = LedgerError { reason: "more bytes follow it" };
        match self.bytes.len() {
            0 => return Ok(()),
            4 => ledger.micro_batch = self.u32()?,
            12 => {
                ledger.micro_batch = self.u32()?;
                ledger.shuffle = ShufflePolicy::Blocks { rows: self.u32()?, blocks: self.u32()? };
                return ledger.shuffle.check().map_err(|_| LedgerError { reason: "no run shuffles by its blocks" });
            }
            _ => return Err(too_long),
        }
        if ledger.micro_batch == 0 { Err(too_long) } else { Ok(()) }
    }

    /// How many entries follow.
    fn count(&mut self, limit: usize) -> Result<usize, LedgerError> {
        let count = self.u32()? as usize;
        if count <= limit { Ok(count) } else { Err(LedgerError { reason: "it announces more than a run can have" }) }
    }

    /// A peer that comes after `last`.
    fn peer(&mut self, last: Option<PeerId>) -> Result<PeerId, LedgerError> {
        let peer = PeerId(self.array()?);
        if last < Some(peer) { Ok(peer) } else { Err(LedgerError { reason: "its peers are not sorted and distinct" }) }
    }

    fn shares(&mut self) -> Result<AssignmentTable, LedgerError> {
        let mut shares = AssignmentTable::new();
        for _ in 0..self.count(MAX_SHARES)? {
            let peer = self.peer(shares.last().map(|(peer, _)| *peer))?;
            shares.push((peer, self.ranges()?));
        }
        Ok(shares)
    }

    fn ranges(&mut self) -> Result<Vec<Range<u32>>, LedgerError> {
        let mut ranges = Vec::new();
        for _ in 0..self.count(MAX_BATCH_SIZE as usize)? {
            ranges.push(self.range()?);
        }
        Ok(ranges)
    }

    fn range(&mut self) -> Result<Range<u32>, LedgerError> {
        let range = self.u32()?..self.u32()?;
        if range.is_empty() { Err(LedgerError { reason: "it has an empty range" }) } else { Ok(range) }
    }

    fn resting(&mut self) -> Result<BTreeMap<PeerId, Rest>, LedgerError> {
        let mut resting = BTreeMap::new();
        for _ in 0..self.count(MAX_SHARES)? {
            let peer = self.peer(resting.last_key_value().map(|(peer, _)| *peer))?;
            let rest = Rest { times: self.u32()?, left: self.u32()? };
            if !rest.is_possible() {
                return Err(LedgerError { reason: "no member rests so" });
            }
            resting.insert(peer, rest);
        }
        Ok(resting)
    }

    fn paces(&mut self) -> Result<BTreeMap<PeerId, Throughput>, LedgerError> {
        let mut paces = BTreeMap::new();
        for _ in 0..self.count(MAX_SHARES)? {
            let peer = self.peer(paces.last_key_value().map(|(peer, _)| *peer))?;
            let pace = Throughput { smoothed: self.u32()?, planned: self.u32()? };
            if pace.smoothed > MAX_SPEED || !(1..=MAX_SPEED).contains(&pace.planned) {
                return Err(LedgerError { reason: "no member has such a speed" });
            }
            paces.insert(peer, pace);
        }
        Ok(paces)
    }
}
