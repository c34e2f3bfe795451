//! The machine for one bucket.

use std::collections::VecDeque;

use starling_topology::Rank;

use crate::error::Violation;
use crate::layout::Layout;
use crate::segment::{Phase, SegmentId};
use crate::session::Output;
use crate::{all_gather, reduce_scatter};

/// One rank's part in the all-reduce of one bucket: what each arriving segment leads to, and when all is done.
///
/// It is dataflow per segment. The only state is which segments have come, one bit each.
#[derive(Debug, Clone)]
pub(crate) struct AllReduce {
    bucket: u32,
    rank: Rank,
    started: bool,
    /// Segments still to come, over both phases.
    expected: u64,
    /// Segments per chunk in the bitmaps: those of the longest chunk.
    stride: usize,
    reduced: Bitmap,
    gathered: Bitmap,
}

impl AllReduce {
    pub(crate) fn new(layout: &Layout, rank: Rank, bucket: u32) -> Self {
        // The first chunk is never shorter than another.
        let stride = layout.segments(bucket, Rank(0)) as usize;
        let bits = stride * layout.world_size().get() as usize;
        let expected = reduce_scatter::segments_received(layout, bucket, rank)
            + all_gather::segments_received(layout, bucket, rank);
        let (reduced, gathered) = (Bitmap::new(bits), Bitmap::new(bits));
        Self { bucket, rank, started: false, expected, stride, reduced, gathered }
    }

    /// Whether this rank has sent all it has to send and received all it will receive.
    pub(crate) fn is_done(&self) -> bool {
        self.started && self.expected == 0
    }

    /// Sends this rank's own chunk on its way.
    pub(crate) fn start<P>(&mut self, layout: &Layout, outputs: &mut VecDeque<Output<P>>) {
        if self.started {
            return;
        }
        self.started = true;
        let world = layout.world_size();
        let chunk = reduce_scatter::sent(self.rank, 0, world);
        for segment in 0..layout.segments(self.bucket, chunk) {
            let segment = SegmentId { bucket: self.bucket, phase: Phase::ReduceScatter, chunk, segment };
            if reduce_scatter::owner(chunk, world) == self.rank {
                outputs.push_back(Output::Divide { segment }); // Alone, the contribution is the sum.
            } else {
                outputs.push_back(Output::Send { to: world.next(self.rank), segment });
            }
        }
    }

    /// Takes in a segment from the previous rank.
    pub(crate) fn receive<P>(
        &mut self,
        layout: &Layout,
        segment: SegmentId,
        payload: P,
        outputs: &mut VecDeque<Output<P>>,
    ) -> Result<(), Violation> {
        if layout.range(&segment).is_none() {
            return Err(Violation::OutOfBounds { segment });
        }
        let (rank, world) = (self.rank, layout.world_size());
        let to = world.next(rank);
        let bit = segment.chunk.0 as usize * self.stride + segment.segment as usize;
        match segment.phase {
            Phase::ReduceScatter => {
                let round = reduce_scatter::round_of(rank, segment.chunk, world);
                let round = round.ok_or(Violation::Impossible { rank, segment })?;
                if !self.reduced.insert(bit) {
                    return Err(Violation::Duplicate { rank, segment });
                }
                outputs.push_back(Output::Accumulate { segment, payload });
                if round + 1 < reduce_scatter::rounds(world) {
                    outputs.push_back(Output::Send { to, segment });
                } else {
                    outputs.push_back(Output::Divide { segment });
                    outputs.push_back(Output::Send { to, segment: SegmentId { phase: Phase::AllGather, ..segment } });
                }
            }
            Phase::AllGather => {
                let round = all_gather::round_of(rank, segment.chunk, world);
                let round = round.ok_or(Violation::Impossible { rank, segment })?;
                let contributed = if segment.chunk == rank { self.started } else { self.reduced.contains(bit) };
                if !contributed {
                    return Err(Violation::Premature { rank, segment });
                }
                if !self.gathered.insert(bit) {
                    return Err(Violation::Duplicate { rank, segment });
                }
                outputs.push_back(Output::Store { segment, payload });
                if round + 1 < all_gather::rounds(world) {
                    outputs.push_back(Output::Send { to, segment });
                }
            }
        }
        self.expected -= 1;
        Ok(())
    }
}

/// A set of small numbers.
#[derive(Debug, Clone)]
struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    fn new(bits: usize) -> Self {
        Self { words: vec![0; bits.div_ceil(64)] }
    }

    fn contains(&self, bit: usize) -> bool {
        self.words[bit / 64] & (1 << (bit % 64)) != 0
    }

    /// Whether `bit` was new.
    fn insert(&mut self, bit: usize) -> bool {
        let new = !self.contains(bit);
        self.words[bit / 64] |= 1 << (bit % 64);
        new
    }
}
