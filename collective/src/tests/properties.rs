//! Properties over generated layouts and headers.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use starling_topology::plan::{HubSet, Plan};
use starling_topology::{Rank, WorldSize};

use super::cluster::layout;
use crate::{Codec, Layout, LayoutConfig, OperationKey, Phase, SegmentHeader, SegmentId};

fn config() -> ProptestConfig {
    ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() }
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::ReduceScatter), Just(Phase::AllGather)]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn segments_partition_the_buffer(elements in 0usize..3_000, world in 1u32..40, bucket in 1usize..800, segment in 1usize..90) {
        let layout = layout(elements, world, bucket, segment);
        let mut next = 0;
        for bucket in 0..layout.buckets() {
            prop_assert_eq!(layout.bucket(bucket).start, next);
            prop_assert!(!layout.bucket(bucket).is_empty());
            let longest = layout.chunk(bucket, Rank(0)).len();
            for chunk in layout.world_size().ranks() {
                let whole = layout.chunk(bucket, chunk);
                prop_assert_eq!(whole.start, next);
                prop_assert!(longest - whole.len() <= 1, "chunks are equal up to one element");
                for index in 0..layout.segments(bucket, chunk) {
                    let id = SegmentId { bucket, phase: Phase::ReduceScatter, chunk, segment: index };
                    let range = layout.range(&id).expect("below the count");
                    prop_assert_eq!(range.start, next);
                    prop_assert!((1..=segment).contains(&range.len()));
                    next = range.end;
                }
                prop_assert_eq!(whole.end, next);
            }
            prop_assert_eq!(layout.bucket(bucket).end, next);
        }
        prop_assert_eq!(next, elements);
    }

    #[test]
    fn a_stars_buckets_are_as_long_as_chunks_of_a_mesh(
        world in 2u32..100, bucket in 1usize..1_000_000, segment in 1usize..100_000,
    ) {
        let world = WorldSize::new(world);
        let config = LayoutConfig { bucket_elements: bucket.max(segment), segment_elements: segment };
        let under = |plan: &Plan| config.under(plan, world);
        let star = |hubs: Vec<Rank>| Plan::Star(HubSet::new(world, hubs).expect("hubs that can be"));
        let (chunk, LayoutConfig { bucket_elements, segment_elements }) =
            (config.bucket_elements / world.get() as usize, under(&star(vec![Rank(1)])));
        prop_assert!((1..=config.bucket_elements).contains(&bucket_elements) && segment_elements == segment);
        prop_assert!(bucket_elements >= chunk && bucket_elements - chunk <= segment, "{bucket_elements} for {chunk}");
        prop_assert_eq!(under(&star(vec![Rank(0), Rank(1)])).bucket_elements, bucket_elements);
        prop_assert_eq!(under(&Plan::Mesh), config);
    }

    #[test]
    fn weighted_chunks_partition_each_bucket_in_proportion(
        elements in 0usize..3_000, bucket in 1usize..800, segment in 1usize..90,
        weights in proptest::collection::vec(prop_oneof![0u32..100, any::<u32>()], 1..20),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let world = WorldSize::new(20);
        let config = LayoutConfig { bucket_elements: bucket, segment_elements: segment };
        let layout = Layout::weighted(elements, world, config, &weights);
        let whole: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        prop_assert_eq!(layout.chunks() as usize, weights.len());
        let mut next = 0;
        for bucket in 0..layout.buckets() {
            for (chunk, weight) in (0..).map(Rank).zip(&weights) {
                let range = layout.chunk(bucket, chunk);
                prop_assert_eq!(range.start, next);
                next = range.end;
                let share = layout.bucket(bucket).len() as f64 * f64::from(*weight) / whole as f64;
                prop_assert!((range.len() as f64 - share).abs() <= 1.0, "{} elements for a share of {}", range.len(), share);
            }
            prop_assert_eq!(layout.bucket(bucket).end, next);
        }
        prop_assert_eq!(next, elements);
        prop_assert_eq!(layout.ranges().map(|range| range.len()).sum::<usize>(), elements);
    }

    #[test]
    fn nothing_lies_outside(
        elements in 0usize..300, world in 1u32..9, bucket in any::<u32>(), chunk in any::<u32>(), segment in any::<u32>(),
    ) {
        let layout = layout(elements, world, 50, 3);
        let id = SegmentId { bucket, phase: Phase::AllGather, chunk: Rank(chunk), segment };
        prop_assert_eq!(layout.range(&id), None);
        prop_assert!(layout.bucket(bucket).is_empty() && layout.chunk(bucket, Rank(chunk)).is_empty());
    }

    #[test]
    fn headers_come_back(
        step in any::<u64>(), attempt in any::<u32>(), bucket in any::<u32>(), phase in phase(),
        chunk in any::<u32>(), segment in any::<u32>(), codec in 0u8..4, payload_bytes in any::<u32>(),
    ) {
        let segment = SegmentId { bucket, phase, chunk: Rank(chunk), segment };
        let codec = Codec::from_tag(codec).expect("a codec's tag");
        let header = SegmentHeader { operation: OperationKey { step, attempt }, segment, codec, payload_bytes };
        prop_assert_eq!(SegmentHeader::from_bytes(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn only_canonical_headers_are_read(bytes in any::<[u8; SegmentHeader::BYTES]>(), zeros in any::<bool>()) {
        let mut bytes = bytes;
        if zeros {
            bytes[16] &= 1;
            bytes[17] &= 3;
            bytes[18..20].fill(0);
        }
        let read = SegmentHeader::from_bytes(&bytes);
        prop_assert_eq!(read.is_ok(), bytes[16] < 2 && bytes[17] < 4 && bytes[18..20] == [0; 2]);
        if let Ok(header) = read {
            prop_assert_eq!(header.to_bytes(), bytes);
        }
    }
}
