//! What an executor refuses, and what it keeps for later.

use starling_topology::Rank;
use starling_topology::plan::Plan;

use super::cluster::layout;
use crate::{
    Buffer, Codec, Execution, Layout, NoForwardPolicy, Operation, OperationKey, Phase, Schedule, SegmentHeader,
    SegmentId, Violation, Workspace,
};

const KEY: OperationKey = OperationKey { step: 3, attempt: 1 };
const CODEC: Codec = Codec::Bf16;

/// Chunks of 4 elements in 2 segments; the last two elements are exact.
fn three() -> Layout {
    layout(14, 3, 12, 2).with_exact(2)
}

/// Rank 1 of 3 in a mesh.
fn meshed(spare: Vec<Vec<u8>>) -> Execution<Workspace> {
    let schedule = Schedule::new(&Plan::Mesh, three().world_size(), Operation::AllReduce, Rank(1));
    let workspace = Workspace::new(three(), CODEC, vec![1.0; 14], 3.0);
    let mut execution = Execution::new(KEY, schedule, workspace, 2, spare);
    execution.bring(0);
    execution
}

/// A segment of the chunk that rank 1 owns, and its payload.
fn sent(operation: OperationKey) -> (SegmentHeader, Vec<u8>) {
    let segment = SegmentId { bucket: 0, phase: Phase::ReduceScatter, chunk: Rank(1), segment: 0 };
    let header = SegmentHeader::encoded(operation, segment, &three(), CODEC).expect("in the layout");
    let mut payload = vec![0; header.payload_bytes as usize];
    CODEC.encode(&[2.0, 3.0], &mut payload);
    (header, payload)
}

fn take(execution: &mut Execution<Workspace>, from: u32, header: SegmentHeader, payload: &[u8]) -> Option<Violation> {
    execution.take(Rank(from), &header.to_bytes(), &mut payload.to_vec(), &NoForwardPolicy).err()
}

#[test]
fn a_segment_of_another_operation_is_refused() {
    for operation in [OperationKey { step: 4, ..KEY }, OperationKey { attempt: 0, ..KEY }] {
        let (header, payload) = sent(operation);
        let refused = take(&mut meshed(Vec::new()), 0, header, &payload);
        assert_eq!(refused, Some(Violation::OtherOperation { operation }));
        assert!(refused.is_some_and(|refused| refused.to_string().contains(&format!("step {}", operation.step))));
    }
}

#[test]
fn as_many_bytes_come_as_were_declared_and_as_the_layout_says() {
    let (header, payload) = sent(KEY);
    let (segment, declared) = (header.segment, header.payload_bytes);
    for came in [0, payload.len() - 1, payload.len() + 1] {
        let mut payload = payload.clone();
        payload.resize(came, 0);
        let incomplete = Violation::Incomplete { segment, declared, came };
        assert_eq!(take(&mut meshed(Vec::new()), 0, header, &payload), Some(incomplete));
        let header = SegmentHeader { payload_bytes: came as u32, ..header };
        let refused = take(&mut meshed(Vec::new()), 0, header, &payload);
        assert!(matches!(refused, Some(Violation::PayloadLength { .. })), "{refused:?}");
    }
    let header = SegmentHeader { codec: Codec::F32, payload_bytes: 2 * declared, ..header };
    let refused = take(&mut meshed(Vec::new()), 0, header, &[0; 8]);
    assert!(matches!(refused, Some(Violation::WrongCodec { .. })), "{refused:?}");
    let refused = meshed(Vec::new()).take(Rank(0), &[0xff; SegmentHeader::BYTES], &mut [0; 4], &NoForwardPolicy);
    assert!(matches!(refused, Err(Violation::MalformedHeader { .. })), "{refused:?}");
}

#[test]
fn a_bad_payload_is_named_even_if_it_is_kept_for_later() {
    let (header, mut payload) = sent(KEY);
    CODEC.encode(&[2.0, f32::NAN], &mut payload);
    // Rank 0's would be used at once, rank 2's waits for it.
    for from in [0, 2] {
        let refused = take(&mut meshed(Vec::new()), from, header, &payload);
        assert!(matches!(refused, Some(Violation::BadSegment(bad)) if bad.segment == header.segment), "{refused:?}");
    }
}

#[test]
fn what_waits_is_copied_into_memory_that_was_there() {
    let (header, payload) = sent(KEY);
    let mut execution = meshed(vec![vec![7; 100]]);
    assert_eq!(take(&mut execution, 2, header, &payload), None);
    let twice = Violation::Duplicate { rank: Rank(1), segment: header.segment };
    assert_eq!(take(&mut execution, 2, header, &payload), Some(twice));
    assert_eq!(execution.due(), [6, 5 - 1], "contributions to our chunk, and the results of the sender's");
    let (workspace, spare) = execution.finish();
    assert_eq!(workspace.values(), [1.0; 14], "an operation that is interrupted has added nothing yet");
    assert_eq!(spare, [payload], "and leaves the memory");
    assert!(spare[0].capacity() >= 100);
}

#[test]
fn what_waits_is_a_name_and_written_once_a_link_is_free() {
    let mut execution = meshed(Vec::new());
    assert_eq!(execution.schedule().receivers(), [Rank(0), Rank(2)]);
    let mut sent = Vec::new();
    for position in [0, 1] {
        assert!(execution.has_sends(position));
        while let Some(header) = execution.next_send(position) {
            let mut payload = vec![0; header.payload_bytes as usize];
            execution.buffer_mut().write(&header.segment, &mut payload);
            sent.push((position, header.segment.bucket, header.segment.chunk));
        }
        assert!(!execution.has_sends(position));
    }
    // The last bucket first, whose elements are those of the first two chunks.
    let own = |position, chunk| [(position, 0, Rank(chunk)); 2];
    assert_eq!(sent[..3], [&[(0, 1, Rank(0))][..], &own(0, 0)].concat());
    assert_eq!(sent[3..], own(1, 2));
    assert_eq!(execution.next_send(2), None, "nobody");
}
