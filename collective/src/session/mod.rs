//! The machine for one operation: all buckets of a flat buffer, several in flight.
//!
//! An [`Execution`](crate::Execution) drives it over a buffer that may come about meanwhile, which is what members do. The [`workspace`] is what is reduced, a
//! `reduction` how segments are added and put in place, a `sink` where what goes on is written.

pub mod execution;
pub(crate) mod memory;
pub(crate) mod reduction;
pub(crate) mod sink;
pub mod workspace;

use std::collections::{BTreeSet, VecDeque};

use starling_topology::Rank;
use starling_topology::plan::Plan;

use crate::error::Violation;
use crate::schedule::{Operation, Schedule};
use crate::segment::SegmentId;
use crate::segment::layout::Layout;
use crate::session::reduction::Reduction;

/// What happened. `P` is a segment's payload: bytes in `starling-node`, contribution counts in `starling-sims`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input<P> {
    /// This rank's contribution to the bucket `from`, and to all behind it, is in the buffer. 0 means all of it.
    Ready {
        /// The first bucket that is there.
        from: u32,
    },
    /// A segment arrived.
    Received {
        /// The rank that sent it.
        from: Rank,
        /// Its name.
        segment: SegmentId,
        /// Its content, one value per element of the segment.
        payload: P,
    },
}

/// What to do next. A driver does these in order, and each before it polls for the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<P> {
    /// Send what the buffer now holds of this segment.
    Send {
        /// To which rank.
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
    /// Put the sum of the payloads, added in this order, before what the buffer holds: `(p0 + p1 + ...) + buffer`. There
    /// are two at least; never asked for by a ring or a tree.
    Prepend {
        /// The segment.
        segment: SegmentId,
        /// What to add up first.
        payloads: Vec<P>,
    },
    /// The buffer holds the sum of all contributions: make it the mean.
    Divide {
        /// The segment.
        segment: SegmentId,
    },
    /// Replace what the buffer holds by what a receiver would read of it. Nothing changes unless the codec loses something.
    Round {
        /// The segment: of the reduce-scatter if it holds the own contribution, of the all-gather if it holds a result.
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

/// One rank's part in one operation, which may begin before all of this rank's contribution is there.
///
/// Buckets are begun from the last to the first, the order in which gradients come about: backward reaches the last layers
/// first. At most `in_flight` buckets that this rank has begun are unfinished. Segments of a bucket that others began
/// earlier are taken in all the same, so no order of delivery can block a ring: of all unfinished buckets the last is
/// begun by every rank as soon as it is ready there. Operations that reduce nothing store results wherever they come, so
/// there the whole buffer has to be at hand from the beginning.
///
/// A rank that has done an all-reduce knows that all others have contributed, for each element comes back to it only after
/// that. A layout without elements is done at once and tells nothing of the others, nor does another operation.
///
/// Between two members, segments may arrive in any order, and each arrives at most once. What comes out of turn is held:
/// at most what all others contribute to this rank's chunks, of the buckets in flight if they are correct, and of all
/// buckets if they are not. So is what comes for a bucket before this rank's own contribution to it.
#[derive(Debug)]
pub struct Session<P> {
    layout: Layout,
    schedule: Schedule,
    in_flight: u32,
    buckets: Vec<Bucket<P>>,
    state: State,
    /// The contribution to this bucket and to all behind it is at hand.
    ready: u32,
    /// This bucket and all behind it have been begun.
    begun: u32,
    done: u32,
    outputs: VecDeque<Output<P>>,
}

#[derive(Debug)]
enum Bucket<P> {
    Untouched,
    Active(Reduction<P>),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Done,
}

impl<P> Session<P> {
    /// The part of `rank` in an all-reduce round the ring over `layout`, with at most `in_flight` buckets (at least one)
    /// begun and unfinished at a time.
    ///
    /// # Panics
    /// If the layout's world does not have `rank`.
    pub fn new(layout: Layout, rank: Rank, in_flight: u32) -> Self {
        let schedule = Schedule::new(&Plan::Ring, layout.world_size(), Operation::AllReduce, rank);
        Self::over(schedule, layout, in_flight)
    }

    /// The part of `schedule`'s rank in its operation over `layout`, with at most `in_flight` buckets (at least one) begun
    /// and unfinished at a time.
    ///
    /// # Panics
    /// If the layout is not cut for the schedule's plan: as many ranks, as many chunks.
    pub fn over(schedule: Schedule, layout: Layout, in_flight: u32) -> Self {
        assert_eq!(layout.world_size(), schedule.world_size(), "a schedule and its layout are of one world");
        assert_eq!(layout.chunks(), schedule.chunks(), "a layout has as many chunks as the plan");
        let (count, in_flight, outputs) = (layout.buckets(), in_flight.max(1), VecDeque::new());
        let buckets = (0..count).map(|_| Bucket::Untouched).collect();
        let (state, ready, begun, done) = (State::Waiting, count, count, 0);
        Self { layout, schedule, in_flight, buckets, state, ready, begun, done, outputs }
    }

    /// The layout that the operation runs over.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The part that this rank has.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The bucket that a driver which brings them one by one should make ready next; `None` if those that are ready are as
    /// many as may be in flight, or all.
    pub fn wanted(&self) -> Option<u32> {
        let ready = self.layout.buckets() - self.ready;
        self.ready.checked_sub(1).filter(|_| ready < self.done.saturating_add(self.in_flight))
    }

    /// Whether all of this rank's contribution is ready.
    pub fn has_all(&self) -> bool {
        self.ready == 0
    }

    /// Whether this bucket is done: see [`Output::BucketDone`].
    pub fn has_done(&self, bucket: u32) -> bool {
        matches!(self.buckets.get(bucket as usize), Some(Bucket::Done))
    }

    /// Whether all buckets are done.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The first place in the operation of which something has not come, and from whom it has not. Buckets have their places
    /// in the order in which they are begun. What comes at one place rests on places before it alone.
    pub fn missing(&self) -> Option<(u64, BTreeSet<Rank>)> {
        (0..self.layout.buckets()).rev().zip(0_u64..).find_map(|(bucket, place)| {
            let (within, from) = match &self.buckets[bucket as usize] {
                Bucket::Done => None,
                Bucket::Active(machine) => machine.missing(&self.schedule),
                Bucket::Untouched => Reduction::<P>::new(&self.layout, &self.schedule, bucket).missing(&self.schedule),
            }?;
            Some((place << 32 | u64::from(within), from))
        })
    }

    /// What to do next; drain to `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output<P>> {
        self.outputs.pop_front()
    }

    /// Takes in what happened. What is ready stays ready.
    ///
    /// # Errors
    /// A [`Violation`] if the segment is not one that the plan brings from that rank, once, at this point. The machine is
    /// unchanged then.
    pub fn handle(&mut self, input: Input<P>) -> Result<(), Violation> {
        match input {
            Input::Ready { from } => {
                if self.state != State::Done {
                    self.state = State::Running;
                    self.bring(from);
                    self.advance();
                }
            }
            Input::Received { from, segment, payload } => {
                self.receive(from, segment, payload)?;
                self.settle(segment.bucket);
                self.advance();
            }
        }
        Ok(())
    }

    fn receive(&mut self, from: Rank, segment: SegmentId, payload: P) -> Result<(), Violation> {
        let Self { layout, schedule, outputs, .. } = self;
        let Some(bucket) = self.buckets.get_mut(segment.bucket as usize) else {
            return Err(Violation::OutOfBounds { segment });
        };
        match bucket {
            Bucket::Untouched => {
                let mut machine = Reduction::new(layout, schedule, segment.bucket);
                if segment.bucket >= self.ready {
                    machine.bring(schedule, outputs);
                }
                machine.receive(layout, schedule, from, segment, payload, outputs)?;
                *bucket = Bucket::Active(machine);
                Ok(())
            }
            Bucket::Active(machine) => machine.receive(layout, schedule, from, segment, payload, outputs),
            Bucket::Done if layout.range(&segment).is_none() => Err(Violation::OutOfBounds { segment }),
            Bucket::Done => Err(Violation::Duplicate { rank: schedule.rank(), segment }),
        }
    }

    /// The contribution to the bucket `from` and to all behind it is in the buffer.
    fn bring(&mut self, from: u32) {
        for index in (from..self.ready).rev() {
            self.ready = index;
            if let Bucket::Active(machine) = &mut self.buckets[index as usize] {
                machine.bring(&self.schedule, &mut self.outputs);
            }
        }
    }

    /// Begins as many buckets as are ready and may be in flight, and ends the operation after the last.
    fn advance(&mut self) {
        if self.state != State::Running {
            return;
        }
        let count = self.layout.buckets();
        while self.begun > self.ready && count - self.begun < self.done.saturating_add(self.in_flight) {
            self.begun -= 1;
            let bucket = &mut self.buckets[self.begun as usize];
            if let Bucket::Untouched = bucket {
                *bucket = Bucket::Active(Reduction::new(&self.layout, &self.schedule, self.begun));
            }
            if let Bucket::Active(machine) = bucket {
                machine.bring(&self.schedule, &mut self.outputs);
                machine.start(&self.schedule, &mut self.outputs);
            }
            self.settle(self.begun);
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
