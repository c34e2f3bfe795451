//! What a neighbour can do wrong on a stream for segments.

use starling_collective::{Layout, LayoutConfig, OperationKey, Phase, SegmentId};
use starling_topology::{Rank, WorldSize};

use super::*;

fn header(payload_bytes: u32) -> SegmentHeader {
    let segment = SegmentId { bucket: 0, phase: Phase::ReduceScatter, chunk: Rank(0), segment: 0 };
    SegmentHeader { operation: OperationKey { step: 1, attempt: 0 }, segment, codec: Codec::F32, payload_bytes }
}

#[tokio::test]
async fn a_segment_survives_the_trip() {
    let (queue, _segments) = mpsc::channel(1);
    let mut outgoing = OutgoingLink(Sending::Universal { queue, waiting: None });
    let layout = Layout::new(2, WorldSize::new(1), LayoutConfig::default());
    let mut workspace = Workspace::new(layout, Codec::F32, vec![1.0, 2.0], 1.0);
    outgoing.load(&header(8), &mut workspace);
    let OutgoingLink(Sending::Universal { waiting: Some(bytes), .. }) = outgoing else { panic!("nothing waits") };
    let frame = read_frame(&mut bytes.as_slice(), 16).await.expect("a whole segment");
    assert_eq!(frame.header, header(8).to_bytes());
    assert_eq!(frame.payload, [1.0_f32, 2.0].map(f32::to_le_bytes).concat());
}

#[tokio::test]
async fn a_segment_that_is_too_long_is_misbehaviour_and_costs_nothing() {
    let error = read_frame(&mut header(u32::MAX).to_bytes().as_slice(), 1024).await.expect_err("too long");
    assert!(matches!(&error, LinkFailure::Misbehaved(claim) if claim.contains("at most 1024")), "{error:?}");
}

#[tokio::test]
async fn a_header_of_nonsense_is_misbehaviour() {
    let error = read_frame(&mut [0xff; SegmentHeader::BYTES].as_slice(), 1024).await.expect_err("nonsense");
    assert!(matches!(error, LinkFailure::Misbehaved(_)), "{error:?}");
}

#[tokio::test]
async fn a_stream_that_ends_in_a_segment_is_broken() {
    let mut bytes = header(8).to_bytes().to_vec();
    bytes.extend([0; 7]);
    let error = read_frame(&mut bytes.as_slice(), 1024).await.expect_err("cut");
    assert!(matches!(error, LinkFailure::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn what_a_stream_found_reaches_the_reducer_as_it_was() {
    let (frames, queue) = mpsc::channel(1);
    let mut incoming = IncomingLink::of(queue);
    frames.send(Err(LinkFailure::Misbehaved("nonsense".to_owned()))).await.expect("room");
    let failure = incoming.next(1, true).await.expect_err("misbehaviour");
    assert!(matches!(failure, LinkFailure::Misbehaved(_)), "{failure:?}");
    drop(frames);
    let failure = incoming.next(1, true).await.expect_err("closed");
    assert!(matches!(failure, LinkFailure::Broken(_)), "{failure:?}");
}
