//! Segments of several connections, within an operation and from one to the next.

use futures::FutureExt;
use starling_collective::{Codec, OperationKey, Phase, SegmentId};
use starling_topology::Rank;

use super::*;
use crate::fixture::{SEGMENT_BYTES as LONGEST, config, sealed, sockets};

const CONNECTIONS: usize = 3;

fn header(step: u64, segment: u32) -> SegmentHeader {
    let segment = SegmentId { bucket: 0, phase: Phase::AllGather, chunk: Rank(0), segment };
    SegmentHeader { operation: OperationKey { step, attempt: 0 }, segment, codec: Codec::F32, payload_bytes: 4 }
}

/// Connections whose sending ends can be used one by one.
async fn ends() -> (Vec<Sender>, ParallelReceiver) {
    let config = config(LONGEST);
    let (mut senders, mut receiving) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let (ours, theirs) = sockets().await;
        senders.push(Sender::new(sealed(ours), &config));
        receiving.push(sealed(theirs));
    }
    (senders, ParallelReceiver::new(receiving, &config))
}

async fn send(sender: &mut Sender, step: u64, segment: u32) {
    sender.load(&header(step, segment), 4, |payload| payload.copy_from_slice(&segment.to_le_bytes()));
    sender.flush().await.expect("sent");
}

/// The step and the number of the next segment, whose payload must be its own.
async fn next(receiver: &mut ParallelReceiver, step: u64) -> (u64, u32) {
    receiver.next(step).await.expect("a segment");
    let (header, payload) = receiver.segment();
    let header = SegmentHeader::from_bytes(header).expect("a header");
    assert_eq!(payload, header.segment.segment.to_le_bytes());
    (header.operation.step, header.segment.segment)
}

#[tokio::test]
async fn a_connection_that_is_ahead_waits_for_the_next_operation() {
    let (mut senders, mut receiver) = ends().await;
    send(&mut senders[1], 2, 10).await;
    send(&mut senders[2], 2, 20).await;
    send(&mut senders[2], 2, 21).await;
    assert!(receiver.next(1).now_or_never().is_none(), "nothing of the first step is there");
    for segment in [1, 2] {
        send(&mut senders[0], 1, segment).await;
        assert_eq!(next(&mut receiver, 1).await, (1, segment));
    }
    let mut second = [next(&mut receiver, 2).await, next(&mut receiver, 2).await, next(&mut receiver, 2).await];
    second.sort_unstable();
    assert_eq!(second, [(2, 10), (2, 20), (2, 21)]);
    assert!(receiver.next(2).now_or_never().is_none());
}

#[tokio::test]
async fn if_all_are_ahead_it_is_said() {
    let (mut senders, mut receiver) = ends().await;
    for sender in &mut senders {
        send(sender, 5, 1).await;
    }
    assert_eq!(next(&mut receiver, 1).await, (5, 1));
}

#[tokio::test]
async fn what_was_sent_before_the_end_of_one_counts_and_then_all_end() {
    let (mut senders, mut receiver) = ends().await;
    send(&mut senders[1], 1, 1).await;
    senders.pop();
    assert_eq!(next(&mut receiver, 1).await, (1, 1));
    assert!(receiver.next(1).now_or_never().is_none(), "something may be on its way");
    send(&mut senders[0], 1, 2).await;
    assert_eq!(next(&mut receiver, 1).await, (1, 2));
    receiver.next(1).await.expect_err("nothing comes any more");
    let (senders, mut receiver) = ends().await;
    drop(senders);
    receiver.next(1).await.expect_err("all have ended");
}

#[tokio::test]
async fn over_a_slow_way_few_connections_are_used() {
    let (senders, _receiver) = ends().await;
    let slow = Duration::from_secs(1);
    let mut sender = ParallelSender { senders, used: 1, slow };
    let mut used_after = |took: Duration| {
        sender.adapt(took);
        sender.used
    };
    assert_eq!([slow / 10; 4].map(&mut used_after), [2, 3, 3, 3], "there are no more");
    assert_eq!([slow * 7 / 10, slow * 2, slow * 2].map(&mut used_after), [3, 1, 1]);
    assert_eq!(used_after(slow / 10), 2);
}

#[tokio::test]
async fn segments_take_what_is_free_and_all_arrive() {
    const SEGMENTS: u32 = 400;
    let (senders, mut receiver) = ends().await;
    let mut sender = ParallelSender { senders, used: 1, slow: config(LONGEST).limits.record };
    let send = async {
        for segment in 0..SEGMENTS {
            while !sender.has_room() {
                sender.flush().await.expect("sent");
            }
            let payload = vec![segment as u8; LONGEST];
            let header = SegmentHeader { payload_bytes: LONGEST as u32, ..header(1, segment) };
            sender.load(&header, LONGEST, |room| room.copy_from_slice(&payload));
            assert!(sender.is_busy());
        }
        while sender.is_busy() {
            sender.flush().await.expect("sent");
        }
        assert_eq!(sender.used, CONNECTIONS);
    };
    let receive = async {
        let mut numbers = Vec::new();
        while numbers.len() < SEGMENTS as usize {
            receiver.next(1).await.expect("a segment");
            let (header, payload) = receiver.segment();
            let segment = SegmentHeader::from_bytes(header).expect("a header").segment.segment;
            assert!(payload.iter().all(|byte| *byte == segment as u8));
            numbers.push(segment);
        }
        numbers.sort_unstable();
        numbers
    };
    let ((), numbers) = tokio::join!(send, receive);
    assert!(numbers.into_iter().eq(0..SEGMENTS));
}
