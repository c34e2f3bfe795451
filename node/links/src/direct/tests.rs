//! Segments arrive as they were sent, over real sockets; bytes that are no records are errors.

use starling_collective::codec::kernel;
use starling_collective::{Codec, OperationKey, Phase, SegmentId, ValueLimit};
use starling_topology::Rank;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::LinkLimit;
use crate::fixture::{SEGMENT_BYTES as LONGEST, config, sealed, sockets};

fn sender(stream: TcpStream, config: &LinkConfig) -> Sender {
    Sender::new(sealed(stream), config)
}

fn receiver(stream: TcpStream, config: &LinkConfig) -> Receiver {
    Receiver::new(sealed(stream), config)
}

fn header(segment: u32, values: &[f32]) -> SegmentHeader {
    let segment = SegmentId { bucket: 0, phase: Phase::AllGather, chunk: Rank(0), segment };
    let payload_bytes = u32::try_from(size_of_val(values)).expect("short");
    SegmentHeader { operation: OperationKey { step: 1, attempt: 0 }, segment, codec: Codec::F32, payload_bytes }
}

fn load(sender: &mut Sender, header: &SegmentHeader, values: &[f32]) {
    sender.load(header, size_of_val(values), |payload| kernel::write(values, payload));
}

fn values(segment: u32) -> Vec<f32> {
    // Lengths from nothing to the longest, so that records end at any place in the sockets' buffers.
    let length = (segment as usize * 977) % (LONGEST / 4 + 1);
    (0..length).map(|index| (index as f32).mul_add(0.5, segment as f32)).collect()
}

#[tokio::test]
async fn segments_go_around_two_links_unchanged() {
    const SEGMENTS: u32 = 200;
    let ((a, b), (c, d)) = (sockets().await, sockets().await);
    let config = config(LONGEST);
    let (mut first, mut relay_in) = (sender(a, &config), receiver(b, &config));
    let (mut relay_out, mut last) = (sender(c, &config), receiver(d, &config));
    let send = async {
        let mut sent = blake3::Hasher::new();
        for segment in 0..SEGMENTS {
            let values = values(segment);
            load(&mut first, &header(segment, &values), &values);
            sent.update(&header(segment, &values).to_bytes());
            values.iter().for_each(|value| _ = sent.update(&value.to_le_bytes()));
            first.flush().await.expect("sent");
            assert!(!first.is_busy());
        }
        sent.finalize()
    };
    let relay = async {
        for _ in 0..SEGMENTS {
            relay_in.next().await.expect("a segment");
            // Some are copied, some passed on; the order is theirs.
            let (head, payload) = relay_in.segment();
            let header = SegmentHeader::from_bytes(head).expect("a header");
            if payload.len() % 3 == 0 {
                let mut values = vec![0.0; payload.len() / 4];
                kernel::store(&mut values, payload, ValueLimit::FINITE).expect("finite");
                relay_out.flush().await.expect("sent");
                load(&mut relay_out, &header, &values);
            } else {
                if !relay_out.can_pass_on() {
                    relay_out.flush().await.expect("sent");
                }
                relay_out.pass_on(&header, &mut relay_in);
            }
        }
        relay_out.flush().await.expect("sent");
    };
    let receive = async {
        let mut received = blake3::Hasher::new();
        for _ in 0..SEGMENTS {
            last.next().await.expect("a segment");
            let (head, payload) = last.segment();
            received.update(head).update(payload);
        }
        received.finalize()
    };
    let (sent, (), received) = tokio::join!(send, relay, receive);
    assert_eq!(sent, received);
    assert_eq!(config.traffic.sent.load(Ordering::Relaxed), config.traffic.received.load(Ordering::Relaxed));
}

#[tokio::test]
async fn waiting_can_be_cancelled_at_any_byte() {
    let (dialed, accepted) = sockets().await;
    let config = config(LONGEST);
    // The record as it goes over the wire, fed byte by byte.
    let (through, mut wire) = sockets().await;
    let mut sender = sender(through, &config);
    let values = [1.0, 2.0, 3.0];
    load(&mut sender, &header(0, &values), &values);
    sender.flush().await.expect("sent");
    drop(sender);
    let mut bytes = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut wire, &mut bytes).await.expect("read");

    let (mut dialed, mut receiver) = (dialed, receiver(accepted, &config));
    for byte in &bytes[..bytes.len() - 1] {
        dialed.write_all(&[*byte]).await.expect("written");
        receiver.stream.readable().await.expect("a byte is there");
        let waiting = futures::FutureExt::now_or_never(receiver.next());
        assert!(waiting.is_none(), "the record is not whole yet");
    }
    dialed.write_all(&bytes[bytes.len() - 1..]).await.expect("written");
    receiver.next().await.expect("whole");
    assert_eq!(receiver.segment().1, [1.0f32, 2.0, 3.0].map(f32::to_le_bytes).as_flattened());
}

#[tokio::test]
async fn bytes_that_are_no_record_end_the_link() {
    let config = config(LONGEST);
    let garbage: [(&[u8], &str); 4] = [
        (&[0xff; 64], "at most"),
        (&[0; 64], "at most"),
        (&[64, 0, 0, 0], "end"),
        (&[48, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], "end"),
    ];
    for (bytes, reason) in garbage {
        let (mut dialed, accepted) = sockets().await;
        dialed.write_all(bytes).await.expect("written");
        drop(dialed);
        let error = receiver(accepted, &config).next().await.expect_err("no record");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let (mut dialed, accepted) = sockets().await;
    let mut forged = vec![48, 0, 0, 0];
    forged.extend([0; 48]);
    dialed.write_all(&forged).await.expect("written");
    let error = receiver(accepted, &config).next().await.expect_err("forged");
    assert!(matches!(error, ConnectionError::Forged), "{error}");
    assert_eq!(config.traffic.received.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_closed_link_is_seen_by_both_ends() {
    let config = config(LONGEST);
    let (dialed, accepted) = sockets().await;
    let (mut sender, receiver) = (sender(dialed, &config), receiver(accepted, &config));
    drop(receiver);
    let values = vec![1.0; LONGEST / 4];
    let broken = async {
        loop {
            load(&mut sender, &header(0, &values), &values);
            if let Err(error) = sender.flush().await {
                return error;
            }
        }
    };
    let error = broken.await;
    let ConnectionError::Io(error) = error else { panic!("{error}") };
    assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{error}");
}

/// What a test waits for.
const SHORT: LinkLimit = LinkLimit { record: Duration::from_millis(20), send: Duration::from_millis(20) };

fn within(limits: LinkLimit) -> LinkConfig {
    LinkConfig { limits, ..config(LONGEST) }
}

#[tokio::test]
async fn a_record_that_does_not_go_on_ends_the_link() {
    let (mut dialed, accepted) = sockets().await;
    let mut receiver = receiver(accepted, &within(SHORT));
    dialed.write_all(&[48, 0, 0, 0, 1, 2]).await.expect("written");
    let error = receiver.next().await.expect_err("it does not go on");
    assert!(matches!(error, ConnectionError::Slow { filled: 6, .. }), "{error}");
}

#[tokio::test]
async fn bytes_one_by_one_do_not_stretch_a_record() {
    let (mut dialed, accepted) = sockets().await;
    let limits = LinkLimit { record: Duration::from_millis(1), ..SHORT };
    let mut receiver = receiver(accepted, &within(limits));
    // The longest record, a byte for each look: there are far more than fit into the limit.
    dialed.write_all(&[48, 0, 1, 0]).await.expect("written");
    let drip = async {
        loop {
            dialed.write_all(&[0]).await.expect("written");
            tokio::task::yield_now().await;
        }
    };
    let error = tokio::select! {
        received = receiver.next() => received.expect_err("too slow"),
        () = drip => panic!("it never ends"),
    };
    assert!(matches!(error, ConnectionError::Slow { .. }), "{error}");
}

#[tokio::test]
async fn an_end_that_never_reads_ends_the_link() {
    let (dialed, _silent) = sockets().await;
    let mut sender = sender(dialed, &within(SHORT));
    let values = vec![1.0; LONGEST / 4];
    let error = loop {
        load(&mut sender, &header(0, &values), &values);
        if let Err(error) = sender.flush().await {
            break error;
        }
    };
    // The system may be the first to say so.
    let timed_out = matches!(&error, ConnectionError::Io(error) if error.kind() == io::ErrorKind::TimedOut);
    assert!(timed_out || matches!(error, ConnectionError::Stuck { .. }), "{error}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_system_gives_up_a_far_end_that_acknowledges_nothing() {
    let (dialed, _accepted) = sockets().await;
    let sender = sender(dialed, &within(SHORT));
    let limit = socket2::SockRef::from(&sender.stream).tcp_user_timeout().expect("known");
    assert_eq!(limit, Some(SHORT.send));
}
