//! The machine for one operation: all buckets of a flat buffer, several in flight.

use std::collections::VecDeque;

use starling_topology::Rank;

use crate::all_reduce::AllReduce;
use crate::error::Violation;
use crate::layout::Layout;
use crate::segment::SegmentId;

/// What happened. `P` is a segment's payload: bytes in `starling-node`, contribution counts in `starling-sims`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input<P> {
    /// Begin.
    Start,
    /// A segment arrived.
    Received {
        /// The rank that sent it.
        from: Rank,
        /// Its name.
        segment: SegmentId,
        /// Its content, one value per element of the segment.
        payload: P,
    },
    /// Give up. Everything after this is ignored.
    Abort,
}

/// What to do next. A driver does these in order, and each before it polls for the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<P> {
    /// Send what the buffer now holds of this segment.
    Send {
        /// To which rank; always the next one.
        to: Rank,
        /// The segment.
        segment: SegmentId,
    },
    /// Add the payload to what the buffer holds.
    Accumulate {
        /// The segment.
        segment: SegmentId,
        /// What to add.
        payload: P,
    },
    /// The buffer holds the sum of all contributions: make it the mean.
    Divide {
        /// The segment.
        segment: SegmentId,
    },
    /// Overwrite what the buffer holds with the owner's result.
    Store {
        /// The segment.
        segment: SegmentId,
        /// The result.
        payload: P,
    },
    /// This bucket holds the result, and nobody needs more of it from us.
    BucketDone(u32),
    /// All buckets are done.
    Done,
}

/// One rank's part in one operation. Create it once this rank's contribution is in the buffer.
///
/// At most `in_flight` buckets that this rank has begun are unfinished. Segments of a bucket that others began earlier
/// are taken in all the same, so no order of delivery can block a ring: of all unfinished buckets the lowest is begun
/// by every rank.
///
/// A rank that is done knows that all others have contributed, for each element comes back to it only after that. A layout
/// without elements is done at once and tells nothing of the others.
#[derive(Debug)]
pub struct Session<P> {
    layout: Layout,
    rank: Rank,
    in_flight: u32,
    buckets: Vec<Bucket>,
    state: State,
    /// The buckets below this one have been begun.
    begun: u32,
    done: u32,
    outputs: VecDeque<Output<P>>,
}

#[derive(Debug, Clone)]
enum Bucket {
    Untouched,
    Active(AllReduce),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Done,
    Aborted,
}

impl<P> Session<P> {
    /// The part of `rank` in an operation over `layout`, with at most `in_flight` buckets (at least one) begun and
    /// unfinished at a time.
    ///
    /// # Panics
    /// If the layout's world does not have `rank`.
    pub fn new(layout: Layout, rank: Rank, in_flight: u32) -> Self {
        assert!(rank.0 < layout.world_size().get(), "a session's rank is one of its world");
        let buckets = vec![Bucket::Untouched; layout.buckets() as usize];
        let (begun, done) = (0, 0);
        let in_flight = in_flight.max(1);
        Self { layout, rank, in_flight, buckets, state: State::Waiting, begun, done, outputs: VecDeque::new() }
    }

    /// The layout that the operation runs over.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whose part this is.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Whether all buckets are done. Never true after an abort.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// What to do next; drain to `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output<P>> {
        self.outputs.pop_front()
    }

    /// Takes in what happened. A second `Start` changes nothing.
    ///
    /// # Errors
    /// A [`Violation`] if the segment is not one that the previous rank sends, once, at this point. The machine is
    /// unchanged then.
    pub fn handle(&mut self, input: Input<P>) -> Result<(), Violation> {
        if self.state == State::Aborted {
            return Ok(());
        }
        match input {
            Input::Start => {
                if self.state == State::Waiting {
                    self.state = State::Running;
                    self.advance();
                }
            }
            Input::Received { from, segment, payload } => {
                self.receive(from, segment, payload)?;
                self.settle(segment.bucket);
                self.advance();
            }
            Input::Abort => {
                self.state = State::Aborted;
                self.buckets = Vec::new();
                self.outputs = VecDeque::new();
            }
        }
        Ok(())
    }

    fn receive(&mut self, from: Rank, segment: SegmentId, payload: P) -> Result<(), Violation> {
        let (rank, previous) = (self.rank, self.layout.world_size().previous(self.rank));
        if from != previous {
            return Err(Violation::WrongSender { from, rank, previous, segment });
        }
        let Some(bucket) = self.buckets.get_mut(segment.bucket as usize) else {
            return Err(Violation::OutOfBounds { segment });
        };
        match bucket {
            Bucket::Untouched => {
                let mut machine = AllReduce::new(&self.layout, rank, segment.bucket);
                machine.receive(&self.layout, segment, payload, &mut self.outputs)?;
                *bucket = Bucket::Active(machine);
                Ok(())
            }
            Bucket::Active(machine) => machine.receive(&self.layout, segment, payload, &mut self.outputs),
            Bucket::Done if self.layout.range(&segment).is_none() => Err(Violation::OutOfBounds { segment }),
            Bucket::Done => Err(Violation::Duplicate { rank, segment }),
        }
    }

    /// Begins as many buckets as may be in flight, and ends the operation after the last.
    fn advance(&mut self) {
        if self.state != State::Running {
            return;
        }
        while self.begun < self.layout.buckets() && self.begun < self.done.saturating_add(self.in_flight) {
            let index = self.begun;
            self.begun += 1;
            let bucket = &mut self.buckets[index as usize];
            if let Bucket::Untouched = bucket {
                *bucket = Bucket::Active(AllReduce::new(&self.layout, self.rank, index));
            }
            if let Bucket::Active(machine) = bucket {
                machine.start(&self.layout, &mut self.outputs);
            }
            self.settle(index);
        }
        if self.done == self.layout.buckets() {
            self.state = State::Done;
            self.outputs.push_back(Output::Done);
        }
    }

    /// Frees a bucket's machine once it has done its part.
    fn settle(&mut self, index: u32) {
        let bucket = &mut self.buckets[index as usize];
        if matches!(bucket, Bucket::Active(machine) if machine.is_done()) {
            *bucket = Bucket::Done;
            self.done += 1;
            self.outputs.push_back(Output::BucketDone(index));
        }
    }
}
