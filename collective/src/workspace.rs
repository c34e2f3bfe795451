//! The buffer that an operation runs on, and what a driver does to it.

use std::ops::Range;

use thiserror::Error;

use crate::codec::{BadPayload, Codec};
use crate::feedback::Dropped;
use crate::kernel;
use crate::layout::Layout;
use crate::segment::{OperationKey, Phase, SegmentHeader, SegmentId};
use crate::session::Output;
use crate::sink::Nowhere;

/// Elements that are worked on at a time where a scratch is needed: they fit the first-level cache.
const BLOCK: usize = 1024;

/// A segment whose values no correct peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("sent a bad payload for {segment}: {source}")]
pub struct BadSegment {
    /// The segment.
    pub segment: SegmentId,
    /// What is wrong with it.
    pub source: BadPayload,
}

/// One member's copy of its contribution, which the operation turns into the result. The contribution itself stays with
/// whoever brought it, so an operation that is aborted has changed nothing.
///
/// [`Self::apply`] does what a machine asks. Drivers for which payloads are more than bytes call what is below it.
#[derive(Debug)]
pub struct Workspace {
    layout: Layout,
    codec: Codec,
    values: Vec<f32>,
    /// What sums are divided by.
    divisor: f32,
    dropped: Option<Dropped>,
    /// Whether all results that were made here are finite: sums of finite numbers may not be.
    is_finite: bool,
    /// For payloads that are only checked.
    scratch: Vec<f32>,
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
        Self { layout, codec, values, divisor, dropped: None, is_finite: true, scratch: Vec::new() }
    }

    /// Books what this operation drops, for error feedback. For operations that reduce; the contribution has what earlier
    /// ones dropped in it already.
    pub fn booking(mut self, dropped: Dropped) -> Self {
        self.dropped = Some(dropped).filter(|_| self.codec.is_lossy());
        self
    }

    /// How payloads are encoded, but for exact elements.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The header of a segment to be sent in an operation.
    ///
    /// # Panics
    /// If the layout has no such segment.
    pub fn header(&self, operation: OperationKey, segment: SegmentId) -> SegmentHeader {
        let header = SegmentHeader::encoded(operation, segment, &self.layout, self.codec);
        header.expect("invariant: machines name segments of their layout")
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
    pub fn finish(self) -> (Vec<f32>, Option<Dropped>) {
        (self.values, self.dropped)
    }

    /// Does to the buffer what the machine asks. [`Output::Send`] is the driver's own: it calls [`Self::encode`].
    ///
    /// # Errors
    /// [`BadSegment`] if a payload has a value that no correct peer sends. The buffer is partly updated then and the
    /// operation must end.
    ///
    /// # Panics
    /// If a payload is not as long as its segment's: the driver has checked that before.
    pub fn apply<P: AsRef<[u8]>>(&mut self, output: &Output<P>) -> Result<(), BadSegment> {
        match output {
            Output::Accumulate { segment, payload } => self.accumulate(segment, payload.as_ref()),
            Output::Prepend { segment, payloads } => {
                let payloads: Vec<&[u8]> = payloads.iter().map(AsRef::as_ref).collect();
                self.prepend(segment, payloads)
            }
            Output::Store { segment, payload } => self.store(segment, payload.as_ref()),
            Output::Divide { segment } => {
                self.divide(segment);
                Ok(())
            }
            Output::Round { segment } => {
                self.round(segment);
                Ok(())
            }
            Output::Send { .. } | Output::BucketDone(_) | Output::Done => Ok(()),
        }
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

    /// Writes the payload of a segment to be sent. Not before all outputs that came before it have been done, and once for
    /// each [`Output::Send`].
    ///
    /// # Panics
    /// If the layout has no such segment, or the room is not as long as its payload.
    pub fn write(&mut self, segment: &SegmentId, into: &mut [u8]) {
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

    /// Makes of the payload what [`Output::Accumulate`] and then [`Output::Send`] of the same segment would send, in its
    /// place. Afterwards the buffer may hold this sum or what it held before: nothing reads it until its result is stored.
    ///
    /// # Errors
    /// As [`Self::apply`].
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub fn contribute(&mut self, segment: &SegmentId, payload: &mut [u8]) -> Result<(), BadSegment> {
        let (range, codec) = self.locate(segment);
        let bad = |source| BadSegment { segment: *segment, source };
        let mine = &self.values[range.clone()];
        match &mut self.dropped {
            Some(dropped) if codec.is_lossy() => codec.contribute(payload, mine, dropped.book(range, 1.0)),
            _ => codec.contribute(payload, mine, Nowhere(mine.len())),
        }
        .map_err(bad)
    }

    /// Checks the payload of a segment that is kept for later, so that its sender is known if it is to blame.
    ///
    /// # Errors
    /// As [`Self::apply`].
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub fn check(&mut self, segment: &SegmentId, payload: &[u8]) -> Result<(), BadSegment> {
        let (range, codec) = self.locate(segment);
        let bad = |source| BadSegment { segment: *segment, source };
        self.scratch.resize(range.len(), 0.0);
        codec.store(&mut self.scratch, payload).map_err(bad)
    }

    /// [`Output::Accumulate`].
    ///
    /// # Errors
    /// As [`Self::apply`].
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub fn accumulate(&mut self, segment: &SegmentId, payload: &[u8]) -> Result<(), BadSegment> {
        let (range, codec) = self.locate(segment);
        let bad = |source| BadSegment { segment: *segment, source };
        codec.accumulate(&mut self.values[range], payload).map_err(bad)
    }

    /// [`Output::Accumulate`] and then [`Output::Divide`] of the same segment, in one pass.
    ///
    /// # Errors
    /// As [`Self::apply`].
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub fn conclude(&mut self, segment: &SegmentId, payload: &[u8]) -> Result<(), BadSegment> {
        let (range, codec) = self.locate(segment);
        let bad = |source| BadSegment { segment: *segment, source };
        codec.conclude(&mut self.values[range.clone()], payload, self.divisor).map_err(bad)?;
        self.look_at(range);
        Ok(())
    }

    /// [`Output::Prepend`].
    ///
    /// # Errors
    /// As [`Self::apply`].
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub fn prepend(&mut self, segment: &SegmentId, payloads: Vec<&[u8]>) -> Result<(), BadSegment> {
        let (range, codec) = self.locate(segment);
        let bad = |source| BadSegment { segment: *segment, source };
        prepend(codec, &mut self.values[range], payloads).map_err(bad)
    }

    /// [`Output::Store`].
    ///
    /// # Errors
    /// As [`Self::apply`].
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub fn store(&mut self, segment: &SegmentId, payload: &[u8]) -> Result<(), BadSegment> {
        let (range, codec) = self.locate(segment);
        let bad = |source| BadSegment { segment: *segment, source };
        codec.store(&mut self.values[range], payload).map_err(bad)
    }

    /// [`Output::Divide`].
    ///
    /// # Panics
    /// If the layout has no such segment.
    pub fn divide(&mut self, segment: &SegmentId) {
        let (range, _) = self.locate(segment);
        kernel::divide(&mut self.values[range.clone()], self.divisor);
        self.look_at(range);
    }

    /// While they are in the cache. Results that others have made are looked at as they come.
    fn look_at(&mut self, results: Range<usize>) {
        self.is_finite &= kernel::first_non_finite(&self.values[results]).is_none();
    }

    /// [`Output::Round`].
    ///
    /// # Panics
    /// If the layout has no such segment.
    pub fn round(&mut self, segment: &SegmentId) {
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

    fn locate(&self, segment: &SegmentId) -> (Range<usize>, Codec) {
        let range = self.layout.range(segment).expect("invariant: machines name segments of their layout");
        let codec = self.layout.codec_of(&range, self.codec);
        (range, codec)
    }
}

/// `into = (p0 + p1 + ...) + into`, block by block, so that the sum of the payloads never leaves the cache.
fn prepend(codec: Codec, into: &mut [f32], mut payloads: Vec<&[u8]>) -> Result<(), BadPayload> {
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
