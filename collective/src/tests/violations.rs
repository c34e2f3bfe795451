//! Each kind of wrong segment is refused and named, and changes nothing.

use starling_topology::Rank;
use starling_topology::plan::Plan;

use super::cluster::layout;
use crate::{
    Codec, Input, Layout, Operation, OperationKey, Output, Phase, Schedule, SegmentHeader, SegmentId, Session,
    Violation,
};

const RANK: Rank = Rank(1);
const PREVIOUS: Rank = Rank(0);

/// Rank 1 of 4, two buckets of 16 elements, chunks of 4 elements in 2 segments.
fn session() -> Session<u32> {
    let mut session = Session::new(four(), RANK, 1);
    session.handle(Input::Ready { from: 0 }).expect("what is ready is always taken");
    while session.poll().is_some() {}
    session
}

fn four() -> Layout {
    layout(32, 4, 16, 2)
}

fn id(bucket: u32, phase: Phase, chunk: u32, segment: u32) -> SegmentId {
    SegmentId { bucket, phase, chunk: Rank(chunk), segment }
}

fn receive(session: &mut Session<u32>, from: Rank, segment: SegmentId) -> Result<(), Violation> {
    session.handle(Input::Received { from, segment, payload: 7 })
}

#[track_caller]
fn refused(session: &mut Session<u32>, from: Rank, segment: SegmentId, violation: Violation) {
    assert_eq!(receive(session, from, segment), Err(violation));
    assert_eq!(session.poll(), None, "a refused segment leads to nothing");
    assert!(violation.to_string().contains(&segment.to_string()), "{violation} names the segment");
}

#[test]
fn wrong_sender() {
    let segment = id(0, Phase::ReduceScatter, 0, 0);
    for from in [Rank(1), Rank(2), Rank(3), Rank(4), Rank(u32::MAX)] {
        let violation = Violation::WrongSender { from, rank: RANK, segment };
        refused(&mut session(), from, segment, violation);
    }
}

#[test]
fn out_of_bounds() {
    let mut session = session();
    for phase in [Phase::ReduceScatter, Phase::AllGather] {
        for (bucket, chunk, segment) in
            [(2, 0, 0), (u32::MAX, 0, 0), (0, 4, 0), (0, u32::MAX, 0), (0, 0, 2), (0, 0, u32::MAX)]
        {
            let segment = id(bucket, phase, chunk, segment);
            refused(&mut session, PREVIOUS, segment, Violation::OutOfBounds { segment });
        }
    }
}

#[test]
fn impossible_for_this_rank() {
    let mut session = session();
    // Our own chunk starts here, and we own the next one.
    for segment in [id(0, Phase::ReduceScatter, 1, 0), id(0, Phase::AllGather, 2, 1)] {
        refused(&mut session, PREVIOUS, segment, Violation::Impossible { rank: RANK, segment });
    }
}

#[test]
fn premature() {
    let mut session = session();
    // Chunk 0's contribution of ours goes out when its reduce-scatter segment comes.
    let segment = id(1, Phase::AllGather, 0, 1);
    refused(&mut session, PREVIOUS, segment, Violation::Premature { rank: RANK, segment });
    // Bucket 0 has not begun here, so our own chunk of it can't have come round.
    let segment = id(0, Phase::AllGather, 1, 0);
    refused(&mut session, PREVIOUS, segment, Violation::Premature { rank: RANK, segment });
}

#[test]
fn duplicate() {
    let mut session = session();
    for segment in [id(0, Phase::ReduceScatter, 0, 1), id(0, Phase::AllGather, 0, 1), id(1, Phase::ReduceScatter, 3, 0)]
    {
        receive(&mut session, PREVIOUS, segment).expect("once is right");
        while session.poll().is_some() {}
        refused(&mut session, PREVIOUS, segment, Violation::Duplicate { rank: RANK, segment });
    }
}

#[test]
fn a_finished_bucket_is_remembered() {
    let mut session = session();
    let mut done = false;
    for phase in [Phase::ReduceScatter, Phase::AllGather] {
        let own = if phase == Phase::ReduceScatter { 1 } else { 2 };
        for chunk in (0..4).filter(|chunk| *chunk != own) {
            for segment in 0..2 {
                receive(&mut session, PREVIOUS, id(1, phase, chunk, segment)).expect("in its place");
                done |= std::iter::from_fn(|| session.poll()).filter(|output| *output == Output::BucketDone(1)).count()
                    == 1;
            }
        }
    }
    assert!(done);
    let segment = id(1, Phase::AllGather, 0, 1);
    refused(&mut session, PREVIOUS, segment, Violation::Duplicate { rank: RANK, segment });
    let segment = id(1, Phase::AllGather, 0, 2);
    refused(&mut session, PREVIOUS, segment, Violation::OutOfBounds { segment });
}

#[test]
fn nothing_can_come_round_before_the_own_contribution_is_there() {
    let mut session = Session::<u32>::new(four(), RANK, 2);
    session.handle(Input::Ready { from: 1 }).expect("the last bucket is there");
    while session.poll().is_some() {}
    let contribution = id(0, Phase::ReduceScatter, 0, 0);
    receive(&mut session, PREVIOUS, contribution).expect("others may be ahead");
    assert_eq!(session.poll(), None, "it is held");
    refused(&mut session, PREVIOUS, contribution, Violation::Duplicate { rank: RANK, segment: contribution });
    for chunk in [0, 1] {
        let segment = id(0, Phase::AllGather, chunk, 0);
        refused(&mut session, PREVIOUS, segment, Violation::Premature { rank: RANK, segment });
    }
    session.handle(Input::Ready { from: 0 }).expect("what is ready is always taken");
    let next = session.poll();
    assert_eq!(next, Some(Output::Accumulate { segment: contribution, payload: 7 }), "what was held comes first");
}

#[test]
fn alone_nothing_may_come() {
    let mut session = Session::new(layout(4, 1, 4, 4), Rank(0), 1);
    for phase in [Phase::ReduceScatter, Phase::AllGather] {
        let segment = id(0, phase, 0, 0);
        refused(&mut session, Rank(0), segment, Violation::Impossible { rank: Rank(0), segment });
    }
}

/// Rank 1 of 4 in a mesh: it owns chunk 1, of 4 elements in 2 segments.
fn meshed() -> Session<u32> {
    let schedule = Schedule::new(&Plan::Mesh, four().world_size(), Operation::AllReduce, RANK);
    let mut session = Session::over(schedule, four(), 1);
    session.handle(Input::Ready { from: 0 }).expect("what is ready is always taken");
    while session.poll().is_some() {}
    session
}

#[test]
fn in_a_mesh_everybody_sends_to_the_owner_and_only_the_owner_sends_back() {
    let own = id(0, Phase::ReduceScatter, 1, 0);
    for from in [Rank(1), Rank(4), Rank(u32::MAX)] {
        refused(&mut meshed(), from, own, Violation::WrongSender { from, rank: RANK, segment: own });
    }
    let segment = id(0, Phase::AllGather, 2, 0);
    for from in [Rank(0), Rank(1), Rank(3), Rank(9)] {
        refused(&mut meshed(), from, segment, Violation::WrongSender { from, rank: RANK, segment });
    }
    for segment in [id(0, Phase::ReduceScatter, 2, 0), id(0, Phase::AllGather, 1, 0)] {
        refused(&mut meshed(), Rank(2), segment, Violation::Impossible { rank: RANK, segment });
    }
}

#[test]
fn in_a_mesh_a_contribution_counts_once_whether_it_is_held_or_added() {
    let (mut session, segment) = (meshed(), id(0, Phase::ReduceScatter, 1, 0));
    let twice = Violation::Duplicate { rank: RANK, segment };
    receive(&mut session, Rank(3), segment).expect("the first time");
    assert_eq!(session.poll(), None, "ranks 0 and 2 come before");
    refused(&mut session, Rank(3), segment, twice);
    receive(&mut session, Rank(0), segment).expect("the first time");
    while session.poll().is_some() {}
    refused(&mut session, Rank(0), segment, twice);
    refused(&mut session, Rank(3), segment, twice);
    receive(&mut session, Rank(2), segment).expect("the first time");
    let outputs: Vec<Output<u32>> = std::iter::from_fn(|| session.poll()).collect();
    assert!(outputs.contains(&Output::Divide { segment }));
    for from in [Rank(0), Rank(2), Rank(3)] {
        refused(&mut session, from, segment, twice);
    }
}

#[test]
fn a_gather_takes_no_contributions() {
    let schedule = Schedule::new(&Plan::Ring, four().world_size(), Operation::Broadcast { root: Rank(0) }, RANK);
    let mut session = Session::over(schedule, four(), 1);
    let segment = id(0, Phase::ReduceScatter, 0, 0);
    refused(&mut session, PREVIOUS, segment, Violation::Impossible { rank: RANK, segment });
    let segment = id(0, Phase::AllGather, 0, 0);
    receive(&mut session, PREVIOUS, segment).expect("it may come before the start: nothing is contributed");
}

#[test]
fn malformed_header() {
    let operation = OperationKey { step: 3, attempt: 1 };
    let header = SegmentHeader::new(operation, id(1, Phase::AllGather, 2, 1), &four()).expect("in the layout");
    for (at, byte) in [(16, 2), (16, 255), (17, 4), (17, 255), (18, 1), (19, 128)] {
        let mut bytes = header.to_bytes();
        bytes[at] = byte;
        let (codec, reserved) = (bytes[17], [bytes[18], bytes[19]]);
        let violation = Violation::MalformedHeader { phase: bytes[16], codec, reserved };
        assert_eq!(SegmentHeader::from_bytes(&bytes), Err(violation));
    }
}

#[test]
fn payload_length() {
    let layout = four();
    let segment = id(1, Phase::AllGather, 2, 1);
    let header = SegmentHeader::new(OperationKey { step: 3, attempt: 1 }, segment, &layout).expect("in the layout");
    assert_eq!(header.range_in(&layout, Codec::F32), Ok(26..28));
    for declared in [0, 4, 7, 9, u32::MAX] {
        let header = SegmentHeader { payload_bytes: declared, ..header };
        assert_eq!(
            header.range_in(&layout, Codec::F32),
            Err(Violation::PayloadLength { segment, declared, expected: 8 })
        );
    }
    for (codec, bytes) in [(Codec::F32, 8), (Codec::Bf16, 4), (Codec::F16, 4), (Codec::Int8, 6)] {
        let encoded = SegmentHeader::encoded(header.operation, segment, &layout, codec).expect("in the layout");
        assert_eq!((encoded.payload_bytes, encoded.range_in(&layout, codec)), (bytes, Ok(26..28)));
        for expected in Codec::ALL.into_iter().filter(|expected| *expected != codec) {
            let violation = Violation::WrongCodec { segment, declared: codec, expected };
            assert_eq!(encoded.range_in(&layout, expected), Err(violation));
        }
    }
    let segment = id(2, Phase::AllGather, 2, 1);
    assert_eq!(
        SegmentHeader { segment, ..header }.range_in(&layout, Codec::F32),
        Err(Violation::OutOfBounds { segment })
    );
    assert_eq!(SegmentHeader::new(header.operation, segment, &layout), None);
}
