//! What an operation runs on.

use starling_topology::Rank;

use crate::codec::Codec;
use crate::segment::SegmentId;
use crate::segment::layout::Layout;
use crate::session::workspace::SegmentViolation;
use crate::slots::RankSet;

/// One member's copy of its contribution, which an operation turns into the result: numbers in `starling-node`
/// ([`Workspace`](crate::Workspace)), and who they came from in `starling-sims`.
///
/// An [`Execution`](crate::Execution) calls it with segments of its layout, in an order that makes sense, and with payloads
/// that are as long as the segment's. An implementation panics if they are not.
///
/// A [`SegmentViolation`] is a payload with a value that no correct peer sends. The buffer may be partly updated then, and the
/// operation must end.
pub trait Buffer {
    /// What travels of a segment.
    type Payload: ?Sized + ToOwned<Owned: Default>;

    /// Where everything lies.
    fn layout(&self) -> &Layout;

    /// How payloads are encoded, but for exact elements.
    fn codec(&self) -> Codec;

    /// How long a payload is on the wire.
    fn length(payload: &Self::Payload) -> usize;

    /// Of what is read from now on, each value is a sum of at most so many contributions, or their mean.
    fn expect(&mut self, _contributions: u32) {}

    /// Looks at a payload that came, before anything is done with it: what it has of [slots](crate::SlotLayout) comes of what
    /// `summed` have said. With `answered`, it is the answer to what that rank has said here.
    ///
    /// # Errors
    /// [`SegmentViolation`].
    fn inspect(
        &self,
        _segment: &SegmentId,
        _payload: &Self::Payload,
        _summed: &RankSet,
        _answered: Option<Rank>,
    ) -> Result<(), SegmentViolation> {
        Ok(())
    }

    /// Adds a payload to what is there.
    ///
    /// # Errors
    /// [`SegmentViolation`].
    fn accumulate(&mut self, segment: &SegmentId, payload: &Self::Payload) -> Result<(), SegmentViolation>;

    /// Puts the sum of the payloads, added in this order, before what is there.
    ///
    /// # Errors
    /// [`SegmentViolation`].
    fn prepend(&mut self, segment: &SegmentId, payloads: Vec<&Self::Payload>) -> Result<(), SegmentViolation>;

    /// Makes a sum the mean.
    fn divide(&mut self, segment: &SegmentId);

    /// Replaces what is there by what a receiver would read of it.
    fn round(&mut self, segment: &SegmentId);

    /// Overwrites what is there with the owner's result.
    ///
    /// # Errors
    /// [`SegmentViolation`].
    fn store(&mut self, segment: &SegmentId, payload: &Self::Payload) -> Result<(), SegmentViolation>;

    /// Writes what is there as a payload to be sent: once for each that is.
    fn write(&mut self, segment: &SegmentId, into: &mut Self::Payload);

    /// Makes of the payload what [`Self::accumulate`] and then [`Self::write`] would send, in its place. Afterwards the buffer
    /// may hold this sum or what it held before: nothing reads it until its result is stored.
    ///
    /// # Errors
    /// [`SegmentViolation`].
    fn contribute(&mut self, segment: &SegmentId, payload: &mut Self::Payload) -> Result<(), SegmentViolation> {
        self.accumulate(segment, payload)?;
        self.write(segment, payload);
        Ok(())
    }

    /// [`Self::accumulate`] and then [`Self::divide`], in one pass if that is faster.
    ///
    /// # Errors
    /// [`SegmentViolation`].
    fn conclude(&mut self, segment: &SegmentId, payload: &Self::Payload) -> Result<(), SegmentViolation> {
        self.accumulate(segment, payload)?;
        self.divide(segment);
        Ok(())
    }

    /// Checks a payload that is kept for later, so that its sender is known if it is to blame.
    ///
    /// # Errors
    /// [`SegmentViolation`].
    fn check(&mut self, segment: &SegmentId, payload: &Self::Payload) -> Result<(), SegmentViolation>;
}
