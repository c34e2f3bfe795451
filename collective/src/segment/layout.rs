//! Where everything lies: elements, buckets, chunks, segments.

use std::ops::Range;

use starling_topology::plan::Plan;
use starling_topology::{Rank, WorldSize};

use crate::codec::Codec;
use crate::segment::SegmentId;

/// Bytes of one element on the wire, without a codec that shortens it.
pub const ELEMENT_BYTES: usize = size_of::<f32>();

/// How a flat buffer is cut. All members of a run use the same values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutConfig {
    /// Elements that are reduced together; only the last bucket may have fewer.
    pub bucket_elements: usize,
    /// Elements that travel in one message; only a chunk's last segment may have fewer.
    pub segment_elements: usize,
}

impl Default for LayoutConfig {
    /// Buckets of 4 MiB, segments of 128 KiB: large enough to hide a message's latency, small enough to stream.
    fn default() -> Self {
        Self { bucket_elements: 1 << 20, segment_elements: 1 << 15 }
    }
}

impl LayoutConfig {
    /// The same for members that reduce by `plan`: in a star a bucket is as long as a chunk of a mesh.
    ///
    /// All that is sent goes over the hubs' links, and who sends faster than others is ahead of them by at most the buckets in
    /// flight. What the slowest brings last a hub sends to everybody only then, and by that much its link is late. Nor do more bytes
    /// wait at a hub's link than a network holds: what it loses instead slows down those most that have most to send, the hubs.
    #[must_use]
    pub fn under(self, plan: &Plan, world: WorldSize) -> Self {
        let Self { bucket_elements, segment_elements } = self;
        if !matches!(plan, Plan::Star(_)) {
            return self;
        }
        // Whole segments, one at least: a short one costs as much as a long one.
        let whole = (bucket_elements / world.get() as usize).max(1).next_multiple_of(segment_elements.max(1));
        Self { bucket_elements: whole.min(bucket_elements), segment_elements }
    }
}

/// Cuts a flat buffer into buckets, each bucket into chunks, each chunk into segments.
///
/// ```text
///   | bucket 0                        | bucket 1                        | bucket 2 |     the last one may be short
///   | chunk 0  | chunk 1  | chunk 2   |                                                  equal up to one element,
///   | s0 s1 s2 | s0 s1 s2 | s0 s1 s2  |                                                  or in proportion to weights
/// ```
///
/// The last elements may be *exact*: a bucket of their own, which no codec shortens. They are for numbers that are not
/// gradients.
///
/// A pure function of its arguments: all members compute the same one. A bucket with fewer elements than chunks has
/// empty chunks, which have no segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    elements: usize,
    world: WorldSize,
    config: LayoutConfig,
    buckets: u32,
    chunks: Chunks,
    /// How many elements at the end are exact.
    exact: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Chunks {
    /// This many, equal up to one element, the first ones the longer.
    Equal(u32),
    /// The sum of the weights before each chunk, and of all.
    Weighted(Vec<u64>),
}

impl Layout {
    /// The layout of `elements` elements among `world` ranks, in one chunk for each rank, equal up to one element.
    ///
    /// # Panics
    /// If the config holds a zero, or sizes that do not fit the wire's 32 bits: a config is checked where it is read.
    pub fn new(elements: usize, world: WorldSize, config: LayoutConfig) -> Self {
        let LayoutConfig { bucket_elements, segment_elements } = config;
        assert!(bucket_elements > 0 && segment_elements > 0, "a bucket and a segment have at least one element");
        let buckets = u32::try_from(elements.div_ceil(bucket_elements));
        assert!(u32::try_from(bucket_elements).is_ok(), "a bucket has fewer than 2^32 elements");
        assert!(segment_elements <= u32::MAX as usize / ELEMENT_BYTES / 2, "a segment has fewer than 2^31 bytes");
        let buckets = buckets.expect("invariant: there are fewer than 2^32 buckets");
        Self { elements, world, config, buckets, chunks: Chunks::Equal(world.get()), exact: 0 }
    }

    /// The layout among members that reduce by `plan`, with one chunk for each of `weights`, as large in proportion.
    ///
    /// # Panics
    /// As [`Self::weighted`].
    pub fn by_plan(elements: usize, plan: &Plan, world: WorldSize, config: LayoutConfig, weights: &[u32]) -> Self {
        Self::weighted(elements, world, config.under(plan, world), weights)
    }

    /// The layout with one chunk for each of `weights`, as large in proportion. Equal weights make equal chunks.
    ///
    /// # Panics
    /// As [`Self::new`]; and if all weights are zero, or there are more chunks than ranks.
    pub fn weighted(elements: usize, world: WorldSize, config: LayoutConfig, weights: &[u32]) -> Self {
        assert!(weights.len() <= world.get() as usize, "a chunk has an owner of its own");
        let chunks = u32::try_from(weights.len()).expect("invariant: there are no more chunks than ranks");
        let before = |sum: &mut u64, weight: &u32| {
            *sum += u64::from(*weight);
            Some(*sum)
        };
        let sums: Vec<u64> = [0].into_iter().chain(weights.iter().scan(0, before)).collect();
        assert!(sums[weights.len()] > 0, "a bucket has a chunk with elements");
        let equal = weights.iter().all(|weight| *weight == weights[0]);
        let chunks = if equal { Chunks::Equal(chunks) } else { Chunks::Weighted(sums) };
        Self { chunks, ..Self::new(elements, world, config) }
    }

    /// This layout with the last `exact` elements in a bucket of their own, which travels as plain `f32` whatever the codec.
    ///
    /// # Panics
    /// If there are fewer elements.
    pub fn with_exact(mut self, exact: usize) -> Self {
        let shortened = self.elements.checked_sub(exact).expect("a layout has all of its exact elements");
        let buckets = shortened.div_ceil(self.config.bucket_elements) + usize::from(exact > 0);
        self.buckets = u32::try_from(buckets).expect("invariant: there are fewer than 2^32 buckets");
        self.exact = exact;
        self
    }

    /// How many elements the flat buffer has.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// How many ranks reduce it.
    pub fn world_size(&self) -> WorldSize {
        self.world
    }

    /// How many buckets there are; none if there are no elements.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Into how many chunks each bucket is cut.
    pub fn chunks(&self) -> u32 {
        match &self.chunks {
            Chunks::Equal(chunks) => *chunks,
            Chunks::Weighted(sums) => u32::try_from(sums.len() - 1).expect("invariant: no more chunks than ranks"),
        }
    }

    /// How many elements a codec may shorten: all but the exact ones at the end.
    pub fn shortened(&self) -> usize {
        self.elements - self.exact
    }

    /// How the elements of `range`, which lie in one bucket, travel where `codec` was agreed.
    pub fn codec_of(&self, range: &Range<usize>, codec: Codec) -> Codec {
        if range.start >= self.shortened() { Codec::F32 } else { codec }
    }

    /// The most bytes that a segment's payload has with `codec`.
    pub fn longest_payload(&self, codec: Codec) -> usize {
        let exact = self.exact.min(self.config.segment_elements);
        codec.payload_bytes(self.config.segment_elements).max(Codec::F32.payload_bytes(exact))
    }

    /// The elements of `bucket`; empty if there is no such bucket.
    pub fn bucket(&self, bucket: u32) -> Range<usize> {
        if self.exact > 0 && bucket + 1 == self.buckets {
            return self.shortened()..self.elements;
        }
        let end = if bucket < self.buckets { self.shortened() } else { self.elements };
        let at = |index: usize| index.saturating_mul(self.config.bucket_elements).min(end);
        if bucket < self.buckets { at(bucket as usize)..at(bucket as usize + 1) } else { end..end }
    }

    /// The first bucket that, with all behind it, lies at or behind the element `position`; one more than the last if none
    /// does.
    pub fn bucket_from(&self, position: usize) -> u32 {
        let shortened = self.shortened().div_ceil(self.config.bucket_elements);
        let at = match position.div_ceil(self.config.bucket_elements) {
            at if at < shortened => at,
            // The exact one, if there is one and it lies there.
            _ => shortened + usize::from(position > self.shortened()),
        };
        u32::try_from(at).map_or(self.buckets, |at| at.min(self.buckets))
    }

    /// The elements of one chunk of `bucket`, as positions in the flat buffer; may be empty.
    pub fn chunk(&self, bucket: u32, chunk: Rank) -> Range<usize> {
        let bucket = self.bucket(bucket);
        let at = |index: usize| match &self.chunks {
            Chunks::Equal(chunks) => {
                let chunks = *chunks as usize;
                let (each, longer) = (bucket.len() / chunks, bucket.len() % chunks);
                bucket.start + index.min(chunks) * each + index.min(longer)
            }
            Chunks::Weighted(sums) => {
                let last = sums.len() - 1;
                // Both factors have 32 and at most 39 bits: a weight for each of at most 128 ranks.
                let before = bucket.len() as u128 * u128::from(sums[index.min(last)]) / u128::from(sums[last]);
                bucket.start + usize::try_from(before).expect("invariant: at most the bucket")
            }
        };
        at(chunk.0 as usize)..at((chunk.0 as usize).saturating_add(1))
    }

    /// How many segments a chunk has; none if it is empty.
    pub fn segments(&self, bucket: u32, chunk: Rank) -> u32 {
        let segments = self.chunk(bucket, chunk).len().div_ceil(self.config.segment_elements);
        u32::try_from(segments).expect("invariant: a bucket has fewer than 2^32 elements")
    }

    /// The elements of `segment`, as positions in the flat buffer; `None` if there is no such segment.
    pub fn range(&self, segment: &SegmentId) -> Option<Range<usize>> {
        if segment.segment >= self.segments(segment.bucket, segment.chunk) {
            return None;
        }
        let chunk = self.chunk(segment.bucket, segment.chunk);
        let start = chunk.start + segment.segment as usize * self.config.segment_elements;
        Some(start..chunk.end.min(start + self.config.segment_elements))
    }

    /// The elements of all segments, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let chunks = (0..self.buckets).flat_map(|bucket| (0..self.chunks()).map(move |chunk| (bucket, Rank(chunk))));
        chunks.flat_map(|(bucket, chunk)| {
            let whole = self.chunk(bucket, chunk);
            let step = self.config.segment_elements;
            whole.clone().step_by(step).map(move |start| start..whole.end.min(start + step))
        })
    }
}
