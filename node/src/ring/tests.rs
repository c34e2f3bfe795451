//! What a neighbour can do wrong on a ring stream.

use starling_collective::Phase;
use starling_topology::{Rank, WorldSize};

use super::*;

fn header(payload_bytes: u32) -> SegmentHeader {
    let segment = SegmentId { bucket: 0, phase: Phase::ReduceScatter, chunk: Rank(0), segment: 0 };
    SegmentHeader { operation: OperationKey { step: 1, attempt: 0 }, segment, payload_bytes }
}

#[tokio::test]
async fn a_segment_survives_the_trip() {
    let layout = Layout::new(4, WorldSize::new(2), LayoutConfig { bucket_elements: 4, segment_elements: 4 });
    let bytes = encode(&[1.0, 2.0, 3.0, 4.0], &layout, header(8).operation, header(8).segment);
    let frame = read_frame(&mut bytes.as_slice(), 16).await.expect("a whole segment");
    assert_eq!(frame.header, header(8));
    assert_eq!(frame.payload, [1.0_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat());
}

#[tokio::test]
async fn a_segment_that_is_too_long_is_misbehaviour_and_costs_nothing() {
    let error = read_frame(&mut header(u32::MAX).to_bytes().as_slice(), 1024).await.expect_err("too long");
    assert!(matches!(&error, RingFailure::Misbehaved(claim) if claim.contains("at most 1024")), "{error:?}");
}

#[tokio::test]
async fn a_header_of_nonsense_is_misbehaviour() {
    let error = read_frame(&mut [0xff; SegmentHeader::BYTES].as_slice(), 1024).await.expect_err("nonsense");
    assert!(matches!(error, RingFailure::Misbehaved(_)), "{error:?}");
}

#[tokio::test]
async fn a_stream_that_ends_in_a_segment_is_broken() {
    let mut bytes = header(8).to_bytes().to_vec();
    bytes.extend([0; 7]);
    let error = read_frame(&mut bytes.as_slice(), 1024).await.expect_err("cut");
    assert!(matches!(error, RingFailure::Broken(_)), "{error:?}");
}

#[test]
fn a_value_that_is_not_finite_names_its_segment() {
    let layout = Layout::new(2, WorldSize::new(2), LayoutConfig { bucket_elements: 2, segment_elements: 2 });
    let (reply, _) = oneshot::channel();
    let mut operation = Operation { step: 1, buffer: vec![0.0; 2], divisor: 1.0, reply };
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let output = Output::Accumulate { segment: header(4).segment, payload: value.to_le_bytes().to_vec() };
        let error = execute(&mut operation, &layout, output, &mut VecDeque::new()).expect_err("not finite");
        assert!(error.contains("not finite") && error.contains("bucket: 0"), "{error}");
    }
}
