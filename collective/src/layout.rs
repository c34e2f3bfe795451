//! Where everything lies: elements, buckets, chunks, segments.

use std::ops::Range;

use starling_topology::{Rank, WorldSize};

use crate::segment::SegmentId;

/// Bytes of one element on the wire.
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

/// Cuts a flat buffer into buckets, each bucket into one chunk per rank, each chunk into segments.
///
/// ```text
///   | bucket 0                        | bucket 1                        | bucket 2 |     the last one may be short
///   | chunk 0  | chunk 1  | chunk 2   |                                                  equal up to one element,
///   | s0 s1 s2 | s0 s1 s2 | s0 s1 s2  |                                                  the first chunks the longer
/// ```
///
/// A pure function of its arguments: all members compute the same one. A bucket with fewer elements than ranks has
/// empty chunks, which have no segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    elements: usize,
    world: WorldSize,
    config: LayoutConfig,
    buckets: u32,
}

impl Layout {
    /// The layout of `elements` elements among `world` ranks.
    ///
    /// # Panics
    /// If the config holds a zero, or sizes that do not fit the wire's 32 bits: a config is checked where it is read.
    pub fn new(elements: usize, world: WorldSize, config: LayoutConfig) -> Self {
        let LayoutConfig { bucket_elements, segment_elements } = config;
        assert!(bucket_elements > 0 && segment_elements > 0, "a bucket and a segment have at least one element");
        let buckets = u32::try_from(elements.div_ceil(bucket_elements));
        assert!(u32::try_from(bucket_elements).is_ok(), "a bucket has fewer than 2^32 elements");
        assert!(segment_elements <= u32::MAX as usize / ELEMENT_BYTES, "a segment has fewer than 2^32 bytes");
        Self { elements, world, config, buckets: buckets.expect("invariant: there are fewer than 2^32 buckets") }
    }

    /// How many elements the flat buffer has.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Among how many ranks each bucket is cut.
    pub fn world_size(&self) -> WorldSize {
        self.world
    }

    /// How many buckets there are; none if there are no elements.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The elements of `bucket`; empty if there is no such bucket.
    pub fn bucket(&self, bucket: u32) -> Range<usize> {
        let at = |index: usize| index.saturating_mul(self.config.bucket_elements).min(self.elements);
        at(bucket as usize)..at(bucket as usize + 1)
    }

    /// The elements of one rank's chunk of `bucket`, as positions in the flat buffer; may be empty.
    pub fn chunk(&self, bucket: u32, chunk: Rank) -> Range<usize> {
        let bucket = self.bucket(bucket);
        let world = self.world.get() as usize;
        let (each, longer) = (bucket.len() / world, bucket.len() % world);
        let at = |index: usize| bucket.start + index.min(world) * each + index.min(longer);
        at(chunk.0 as usize)..at(chunk.0 as usize + 1)
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
}
