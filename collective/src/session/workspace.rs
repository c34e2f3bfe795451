//! The buffer that an operation runs on, and what a driver does to it.

use std::ops::Range;

use starling_topology::Rank;
use thiserror::Error;

use crate::buffer::Buffer;
use crate::codec::feedback::OperationResidual;
use crate::codec::kernel;
use crate::codec::{Codec, PayloadViolation, Within};
use crate::segment::layout::{ELEMENT_BYTES, Layout};
use crate::segment::limits::SumLimit;
use crate::segment::{Phase, SegmentId};
use crate::session::sink::Nowhere;
use crate::slots::{RankSet, SlotLayout};

/// Elements that are worked on at a time where a scratch is needed: they fit the first-level cache.
const BLOCK: usize = 1024;

/// A segment whose values no correct peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("sent a bad payload for {segment}: {source}")]
pub struct SegmentViolation {
    /// The segment.
    pub segment: SegmentId,
    /// What is wrong with it.
    pub source: PayloadViolation,
}

/// The buffer of a real operation: `f32`s, encoded as bytes. The contribution itself stays with whoever brought it, so an
/// operation that is aborted has changed nothing.
#[derive(Debug)]
pub struct Workspace {
    layout: Layout,
    codec: Codec,
    values: Vec<f32>,
    /// What sums are divided by.
    divisor: f32,
    dropped: Option<OperationResidual>,
    /// Whether all results that were made here are finite: sums of finite numbers may not be.
    is_finite: bool,
    /// For payloads that are only checked.
    scratch: Vec<f32>,
    limits: SumLimit,
    slots: SlotLayout,
    /// What is read is a sum, or the mean, of so many contributions.
    expected: u32,
}

impl Workspace {
    /// A workspace that holds `values`, this member's contribution already multiplied by its weight, as far as it is there
    /// ([`Self::room`] takes the rest before its bucket is [ready](crate::Input::Ready)); sums are divided by
    /// `divisor`, the sum of all weights.
    ///
    /// # Panics
    /// If there are not as many values as the layout has elements.
    pub fn new(layout: Layout, codec: Codec, values: Vec<f32>, divisor: f32) -> Self {
        assert_eq!(values.len(), layout.elements(), "a contribution is as long as its layout");
        let (scratch, limits, slots, expected) = (Vec::new(), SumLimit::NONE, SlotLayout::default(), 0);
        Self { layout, codec, values, divisor, dropped: None, is_finite: true, scratch, limits, slots, expected }
    }

    /// Refuses what can't have come of contributions within `limits`.
    pub fn within(mut self, limits: SumLimit) -> Self {
        self.limits = limits;
        self
    }

    /// The last elements of an all-reduce are these: refuses what their ranks have not said.
    ///
    /// # Panics
    /// If there are more than elements, or a codec shortens them.
    pub fn with_slots(mut self, slots: SlotLayout) -> Self {
        let first = self.layout.elements().checked_sub(slots.len()).expect("slots are elements");
        assert!(!self.layout.codec_of(&(first..first), self.codec).is_lossy() || slots.is_empty(), "slots are exact");
        self.slots = slots;
        self
    }

    /// Books what this operation drops, for error feedback. For operations that reduce; the contribution has what earlier
    /// ones dropped in it already.
    pub fn booking(mut self, dropped: OperationResidual) -> Self {
        self.dropped = Some(dropped).filter(|_| self.codec.is_lossy());
        self
    }

    /// What the buffer holds now.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Where this member's contribution to `range` goes: for a workspace that was made before all of it was there.
    ///
    /// # Panics
    /// If there are no such elements.
    pub fn room(&mut self, range: Range<usize>) -> &mut [f32] {
        &mut self.values[range]
    }

    /// Whether the results in the buffer, once the operation is done, are finite. If they are not, members have brought numbers
    /// so large that the sums have no end, and whoever was sent these has given up.
    pub fn is_finite(&self) -> bool {
        self.is_finite
    }

    /// The buffer, which is the result once the operation is done, and what it dropped, to commit if the step does.
    pub fn finish(self) -> (Vec<f32>, Option<OperationResidual>) {
        (self.values, self.dropped)
    }

    /// Appends the payload of a segment to be sent: see [`Self::write`].
    ///
    /// # Panics
    /// If the layout has no such segment.
    pub fn encode(&mut self, segment: &SegmentId, into: &mut Vec<u8>) {
        let (range, codec) = self.locate(segment);
        let start = into.len();
        into.resize(start + codec.payload_bytes(range.len()), 0);
        self.write(segment, &mut into[start..]);
    }

    /// While they are in the cache. Results that others have made are looked at as they come.
    fn look_at(&mut self, results: Range<usize>) {
        self.is_finite &= kernel::first_non_finite(&self.values[results]).is_none();
    }

    /// As [`Self::locate`], to read what came.
    fn locate_within(&self, segment: &SegmentId) -> (Range<usize>, Within) {
        let (range, codec) = self.locate(segment);
        let bound = match segment.phase {
            Phase::ReduceScatter => self.limits.of_sum(self.expected),
            Phase::AllGather => self.limits.of_mean(self.divisor),
        };
        (range, codec.within(bound))
    }

    fn locate(&self, segment: &SegmentId) -> (Range<usize>, Codec) {
        let range = self.layout.range(segment).expect("invariant: machines name segments of their layout");
        let codec = self.layout.codec_of(&range, self.codec);
        (range, codec)
    }
}

impl Buffer for Workspace {
    type Payload = [u8];

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn codec(&self) -> Codec {
        self.codec
    }

    fn length(payload: &[u8]) -> usize {
        payload.len()
    }

    fn expect(&mut self, contributions: u32) {
        self.expected = contributions;
    }

    fn inspect(
        &self,
        segment: &SegmentId,
        payload: &[u8],
        summed: &RankSet,
        answered: Option<Rank>,
    ) -> Result<(), SegmentViolation> {
        if self.slots.is_empty() {
            return Ok(());
        }
        let (range, _) = self.locate(segment);
        let first = (self.layout.elements() - self.slots.len()).max(range.start);
        if range.end <= first {
            return Ok(());
        }
        let divisor = match segment.phase {
            Phase::ReduceScatter => 1.0,
            Phase::AllGather => self.divisor,
        };
        let (words, _) = payload[(first - range.start) * ELEMENT_BYTES..].as_chunks();
        let values = words.iter().map(|word| f32::from_le_bytes(*word));
        let slot = first + self.slots.len() - self.layout.elements();
        // What this rank has said is still there: the result has not been stored.
        let said = answered.map(|rank| (rank, &self.values[first..range.end]));
        let bad = self.slots.first_bad(slot, values.clone(), summed, divisor);
        let bad = bad.or_else(|| self.slots.first_other(slot, values, said?, divisor));
        let Some((at, rank)) = bad else { return Ok(()) };
        let source =
            PayloadViolation::Slot { index: first - range.start + at, bits: u32::from_le_bytes(words[at]), rank };
        Err(SegmentViolation { segment: *segment, source })
    }

    fn write(&mut self, segment: &SegmentId, into: &mut [u8]) {
        let (range, codec) = self.locate(segment);
        let values = &self.values[range.clone()];
        match &mut self.dropped {
            // A result has been rounded before: nothing more is lost.
            Some(dropped) if codec.is_lossy() && segment.phase == Phase::ReduceScatter => {
                codec.encode_losing(values, into, dropped.book(range, 1.0));
            }
            _ => codec.encode(values, into),
        }
    }

    fn contribute(&mut self, segment: &SegmentId, payload: &mut [u8]) -> Result<(), SegmentViolation> {
        let (range, codec) = self.locate_within(segment);
        let bad = |source| SegmentViolation { segment: *segment, source };
        let mine = &self.values[range.clone()];
        match &mut self.dropped {
            Some(dropped) if codec.is_lossy() => codec.contribute(payload, mine, dropped.book(range, 1.0)),
            _ => codec.contribute(payload, mine, Nowhere(mine.len())),
        }
        .map_err(bad)
    }

    fn check(&mut self, segment: &SegmentId, payload: &[u8]) -> Result<(), SegmentViolation> {
        let (range, codec) = self.locate_within(segment);
        let bad = |source| SegmentViolation { segment: *segment, source };
        self.scratch.resize(range.len(), 0.0);
        codec.store(&mut self.scratch, payload).map_err(bad)
    }

    fn accumulate(&mut self, segment: &SegmentId, payload: &[u8]) -> Result<(), SegmentViolation> {
        let (range, codec) = self.locate_within(segment);
        let bad = |source| SegmentViolation { segment: *segment, source };
        codec.accumulate(&mut self.values[range], payload).map_err(bad)
    }

    fn conclude(&mut self, segment: &SegmentId, payload: &[u8]) -> Result<(), SegmentViolation> {
        let (range, codec) = self.locate_within(segment);
        let bad = |source| SegmentViolation { segment: *segment, source };
        codec.conclude(&mut self.values[range.clone()], payload, self.divisor).map_err(bad)?;
        self.look_at(range);
        Ok(())
    }

    fn prepend(&mut self, segment: &SegmentId, payloads: Vec<&[u8]>) -> Result<(), SegmentViolation> {
        let (range, codec) = self.locate_within(segment);
        let bad = |source| SegmentViolation { segment: *segment, source };
        prepend(codec, &mut self.values[range], payloads).map_err(bad)
    }

    fn store(&mut self, segment: &SegmentId, payload: &[u8]) -> Result<(), SegmentViolation> {
        let (range, codec) = self.locate_within(segment);
        let bad = |source| SegmentViolation { segment: *segment, source };
        codec.store(&mut self.values[range], payload).map_err(bad)
    }

    fn divide(&mut self, segment: &SegmentId) {
        let (range, _) = self.locate(segment);
        kernel::divide(&mut self.values[range.clone()], self.divisor);
        self.look_at(range);
    }

    fn round(&mut self, segment: &SegmentId) {
        let (range, codec) = self.locate(segment);
        let values = &mut self.values[range.clone()];
        // What is booked is parts of sums; a result has been divided already.
        let scale = match segment.phase {
            Phase::ReduceScatter => 1.0,
            Phase::AllGather => self.divisor,
        };
        match &mut self.dropped {
            Some(dropped) if codec.is_lossy() => codec.round_losing(values, dropped.book(range, scale)),
            _ => codec.round(values),
        }
    }
}

/// `into = (p0 + p1 + ...) + into`, block by block, so that the sum of the payloads never leaves the cache.
fn prepend(codec: Within, into: &mut [f32], mut payloads: Vec<&[u8]>) -> Result<(), PayloadViolation> {
    let mut sum = [0.0; BLOCK];
    for into in into.chunks_mut(BLOCK) {
        let sum = &mut sum[..into.len()];
        for (index, payload) in payloads.iter_mut().enumerate() {
            let (block, rest) = payload.split_at(codec.payload_bytes(sum.len()));
            *payload = rest;
            if index == 0 { codec.store(sum, block)? } else { codec.accumulate(sum, block)? }
        }
        into.iter_mut().zip(sum).for_each(|(mine, theirs)| *mine += *theirs);
    }
    Ok(())
}
