//! Segments arrive as they were sent, through memory; a process that counts wrongly, or is gone, is an error.

use starling_collective::{Codec, OperationKey, Phase, SegmentId};
use starling_topology::Rank;

use super::*;
use crate::fixture::{config, connection, limits};
use crate::{LinkLimit, TransportPolicy};

const LONGEST: usize = 16 * 1024;

fn header(segment: u32) -> SegmentHeader {
    let segment = SegmentId { bucket: 0, phase: Phase::AllGather, chunk: Rank(0), segment };
    SegmentHeader { operation: OperationKey { step: 1, attempt: 0 }, segment, codec: Codec::F32, payload_bytes: 4 }
}

fn values(segment: u32) -> Vec<f32> {
    let length = (segment as usize * 977) % (LONGEST / 4 + 1);
    (0..length).map(|index| (index as f32).mul_add(0.5, segment as f32)).collect()
}

async fn link() -> (Sender, Receiver) {
    link_within(limits()).await
}

async fn link_within(limits: LinkLimit) -> (Sender, Receiver) {
    let (sending, receiving) = connection(TransportPolicy::Local, LONGEST).await;
    let config = LinkConfig { limits, ..config(LONGEST) };
    let sender = Sender::new(sending, &config).expect("two ends of one process are local");
    (sender, Receiver::new(receiving, &config).expect("local as well"))
}

#[tokio::test]
async fn segments_go_through_in_order_and_unchanged() {
    const SEGMENTS: u32 = 300;
    let (mut sender, mut receiver) = link().await;
    let send = async {
        for segment in 0..SEGMENTS {
            sender.flush(true).await.expect("room");
            assert!(!sender.is_busy());
            if segment % 2 == 0 {
                sender.load(&header(segment), &values(segment));
            } else {
                let bytes: Vec<u8> = values(segment).iter().flat_map(|value| value.to_le_bytes()).collect();
                sender.load_bytes(&header(segment), &bytes);
            }
        }
    };
    let receive = async {
        for segment in 0..SEGMENTS {
            receiver.next(true).await.expect("a segment");
            let (head, payload) = receiver.segment();
            assert_eq!(*head, header(segment).to_bytes());
            let expected: Vec<u8> = values(segment).iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(payload, expected);
        }
    };
    tokio::join!(send, receive);
    let traffic = &receiver.end.traffic;
    assert_eq!(traffic.sent.load(Ordering::Relaxed), traffic.received.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_full_link_waits_and_an_empty_one_too() {
    let (mut sender, mut receiver) = link().await;
    assert!(futures::FutureExt::now_or_never(receiver.next(true)).is_none(), "nothing is there");
    for segment in 0..SLOTS as u32 {
        assert!(!sender.is_busy());
        sender.load(&header(segment), &[1.0]);
    }
    assert!(sender.is_busy());
    assert!(futures::FutureExt::now_or_never(sender.flush(true)).is_none(), "no slot is free");
    receiver.next(true).await.expect("the first");
    sender.flush(true).await.expect("a slot is free");
}

#[tokio::test]
async fn a_link_is_busy_until_its_owner_looks() {
    let (mut sender, mut receiver) = link().await;
    for segment in 0..SLOTS as u32 {
        sender.load(&header(segment), &[1.0]);
    }
    receiver.next(true).await.expect("the first");
    // Two questions in a row have one answer, whatever the other end does in between.
    assert!(sender.is_busy());
    let looked = futures::FutureExt::now_or_never(sender.flush(false)).expect("a slot is free");
    looked.expect("nothing failed");
    assert!(!sender.is_busy());
}

#[tokio::test]
async fn an_end_that_takes_nothing_ends_the_link() {
    let short = Duration::from_millis(20);
    let (mut sender, mut receiver) = link_within(LinkLimit { record: short, send: short }).await;
    for segment in 0..SLOTS as u32 {
        sender.load(&header(segment), &[1.0]);
    }
    // Who only looks, and whose wait is cancelled again and again, has waited all the same.
    assert!(futures::FutureExt::now_or_never(sender.flush(false)).is_none());
    assert!(futures::FutureExt::now_or_never(sender.flush(true)).is_none());
    let error = sender.flush(true).await.expect_err("it takes nothing");
    assert!(matches!(error, ConnectionError::Stuck { .. }), "{error}");
    // Once it takes something, all is well.
    receiver.next(true).await.expect("the first");
    sender.flush(true).await.expect("a slot is free");
}

#[tokio::test]
async fn bytes_that_ring_for_nothing_change_nothing() {
    let (sender, mut receiver) = link().await;
    let mut rung = 0;
    // More than one look takes in.
    while rung < 1000 {
        rung += sender.end.bell.try_write(&[1; 100]).expect("room for a few bytes");
    }
    assert!(futures::FutureExt::now_or_never(receiver.next(true)).is_none(), "nothing is there");
    let (mut sender, waited) = (sender, receiver.next(true));
    let load = async { sender.load(&header(0), &[1.0]) };
    let ((), received) = tokio::join!(load, waited);
    received.expect("a segment");
}

#[tokio::test]
async fn a_process_that_is_gone_is_noticed() {
    let (sender, mut receiver) = link().await;
    drop(sender);
    receiver.next(true).await.expect_err("gone");
    let (mut sender, receiver) = link().await;
    drop(receiver);
    for segment in 0..SLOTS as u32 {
        sender.load(&header(segment), &[1.0]);
    }
    sender.flush(true).await.expect_err("gone");
}

#[tokio::test]
async fn what_is_sent_before_the_end_arrives() {
    let (mut sender, mut receiver) = link().await;
    sender.load(&header(0), &[1.0]);
    drop(sender);
    receiver.next(true).await.expect("it was sent");
    receiver.next(true).await.expect_err("gone");
}

#[tokio::test]
async fn counters_and_lengths_that_make_no_sense_are_errors() {
    for (sent, expected) in [(SLOTS + 1, "no sense"), (u64::MAX, "no sense")] {
        let (sender, mut receiver) = link().await;
        sender.end.memory.counter(SENT).store(sent, Ordering::Release);
        let error = receiver.next(true).await.expect_err("too many");
        assert!(error.to_string().contains(expected), "{error}");
    }
    for taken in [SLOTS + 2, u64::MAX, 0] {
        let (mut sender, mut receiver) = link().await;
        for segment in 0..SLOTS as u32 {
            sender.load(&header(segment), &[1.0]);
        }
        receiver.next(true).await.expect("the first");
        sender.flush(true).await.expect("a slot is free");
        sender.load(&header(0), &[1.0]);
        receiver.end.memory.counter(TAKEN).store(taken, Ordering::Release);
        let error = sender.flush(true).await.expect_err("more than was sent, or less than before");
        assert!(matches!(error, ConnectionError::Counter), "{error}");
    }

    // A counter that goes back after it was looked at.
    let (mut sender, mut receiver) = link().await;
    sender.load(&header(0), &[1.0]);
    receiver.next(true).await.expect("a segment");
    sender.end.memory.counter(SENT).store(0, Ordering::Release);
    let error = receiver.next(true).await.expect_err("less than before");
    assert!(matches!(error, ConnectionError::Counter), "{error}");

    let (mut sender, mut receiver) = link().await;
    sender.load(&header(0), &[1.0]);
    let length = sender.end.slot(0) + LENGTH;
    sender.end.memory.write(length, &(LONGEST as u64 + 1).to_le_bytes());
    let error = receiver.next(true).await.expect_err("too long");
    assert!(error.to_string().contains("at most"), "{error}");
}

#[tokio::test]
async fn memory_of_another_handshake_is_not_taken() {
    let (sender, _receiver) = link().await;
    assert!(!is_marked(&sender.end.memory, &[0; 32]));
}
