//! The buffer that an operation runs on, and what a driver does to it.

use thiserror::Error;

use crate::codec::{BadPayload, Codec};
use crate::feedback::Feedback;
use crate::kernel;
use crate::layout::Layout;
use crate::segment::{Phase, SegmentId};
use crate::session::Output;

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
#[derive(Debug)]
pub struct Workspace {
    layout: Layout,
    codec: Codec,
    values: Vec<f32>,
    /// What sums are divided by.
    divisor: f32,
    feedback: Option<Feedback>,
    /// For rounding: the values before.
    exact: Vec<f32>,
}

impl Workspace {
    /// A workspace that holds `values`, this member's contribution already multiplied by its weight; sums are divided by
    /// `divisor`, the sum of all weights.
    ///
    /// # Panics
    /// If there are not as many values as the layout has elements.
    pub fn new(layout: Layout, codec: Codec, values: Vec<f32>, divisor: f32) -> Self {
        assert_eq!(values.len(), layout.elements(), "a contribution is as long as its layout");
        Self { layout, codec, values, divisor, feedback: None, exact: Vec::new() }
    }

    /// Adds what earlier steps dropped to the contribution, and books what this one drops. For operations that reduce.
    ///
    /// # Panics
    /// If the feedback is for another number of elements.
    pub fn with_feedback(mut self, mut feedback: Feedback) -> Self {
        feedback.begin(&mut self.values);
        self.feedback = Some(feedback);
        self
    }

    /// How payloads are encoded.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// What the buffer holds now.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The buffer, which is the result once the operation is done, and the feedback, to commit if the step does.
    pub fn finish(self) -> (Vec<f32>, Option<Feedback>) {
        (self.values, self.feedback)
    }

    /// Appends the payload of a segment to be sent. Not before all outputs that came before it have been done, and once for
    /// each [`Output::Send`].
    ///
    /// # Panics
    /// If the layout has no such segment.
    pub fn encode(&mut self, segment: &SegmentId, into: &mut Vec<u8>) {
        let range = self.layout.range(segment).expect("invariant: machines name segments of their layout");
        let start = into.len();
        into.resize(start + self.codec.payload_bytes(range.len()), 0);
        self.codec.encode(&self.values[range.clone()], &mut into[start..]);
        // A result has been rounded before: nothing more is lost.
        if segment.phase == Phase::ReduceScatter
            && self.codec.is_lossy()
            && let Some(feedback) = &mut self.feedback
        {
            let exact = &self.values[range.clone()];
            self.exact.clear();
            self.exact.extend_from_slice(exact);
            self.codec.round(&mut self.exact);
            feedback.book(range, exact, &self.exact, 1.0);
        }
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
        let layout = &self.layout;
        let range =
            |segment: &SegmentId| layout.range(segment).expect("invariant: machines name segments of their layout");
        match output {
            Output::Accumulate { segment, payload } => {
                let into = &mut self.values[range(segment)];
                self.codec.accumulate(into, payload.as_ref()).map_err(|source| BadSegment { segment: *segment, source })
            }
            Output::Prepend { segment, payloads } => {
                let into = &mut self.values[range(segment)];
                prepend(self.codec, into, payloads).map_err(|source| BadSegment { segment: *segment, source })
            }
            Output::Store { segment, payload } => {
                let into = &mut self.values[range(segment)];
                self.codec.store(into, payload.as_ref()).map_err(|source| BadSegment { segment: *segment, source })
            }
            Output::Divide { segment } => {
                kernel::divide(&mut self.values[range(segment)], self.divisor);
                Ok(())
            }
            Output::Round { segment } => {
                self.round(segment);
                Ok(())
            }
            Output::Send { .. } | Output::BucketDone(_) | Output::Done => Ok(()),
        }
    }

    fn round(&mut self, segment: &SegmentId) {
        let range = self.layout.range(segment).expect("invariant: machines name segments of their layout");
        let values = &mut self.values[range.clone()];
        let Some(feedback) = self.feedback.as_mut().filter(|_| self.codec.is_lossy()) else {
            self.codec.round(values);
            return;
        };
        self.exact.clear();
        self.exact.extend_from_slice(values);
        self.codec.round(values);
        // What is booked is parts of sums; a result has been divided already.
        let scale = match segment.phase {
            Phase::ReduceScatter => 1.0,
            Phase::AllGather => self.divisor,
        };
        feedback.book(range, &self.exact, values, scale);
    }
}

/// `into = (p0 + p1 + ...) + into`, block by block, so that the sum of the payloads never leaves the cache.
fn prepend<P: AsRef<[u8]>>(codec: Codec, into: &mut [f32], payloads: &[P]) -> Result<(), BadPayload> {
    let mut sum = [0.0; BLOCK];
    let mut payloads: Vec<&[u8]> = payloads.iter().map(AsRef::as_ref).collect();
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
