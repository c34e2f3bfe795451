//! Segments that come for an operation, in any order.

use starling_collective::{
    Codec, Execution, Layout, LayoutConfig, NoForwardPolicy, Operation, OperationKey, Phase, Schedule, SegmentHeader,
    SegmentId, Workspace,
};
use starling_topology::plan::Plan;
use starling_topology::{Rank, WorldSize};

use crate::target::Target;

const KEY: OperationKey = OperationKey { step: 3, attempt: 1 };
const WORLD: u32 = 4;
const ELEMENTS: usize = 64;
const PLANS: [Plan; 3] = [Plan::Ring, Plan::Tree, Plan::Mesh];
const CODECS: [Codec; 4] = Codec::ALL;

/// A byte chooses plan, codec and rank; then come segments: from whom, header, how many bytes, payload.
pub(super) const SEGMENTS: Target = Target {
    name: "segments",
    seeds: || (0..48).map(expected).collect(),
    take,
    longest: 16 * 1024,
    per_byte: 8,
    besides: 64 * 1024,
};

fn layout(plan: &Plan) -> Layout {
    let world = WorldSize::new(WORLD);
    let config = LayoutConfig { bucket_elements: 32, segment_elements: 4 };
    Layout::weighted(ELEMENTS, world, config, &vec![1; plan.chunks(world) as usize])
}

fn chosen(choice: u8) -> (&'static Plan, Codec, Rank) {
    let choice = usize::from(choice);
    let rank = Rank(u32::try_from(choice / 12).unwrap_or(0) % WORLD);
    (&PLANS[choice % 3], CODECS[choice / 3 % 4], rank)
}

fn begun(choice: u8) -> Execution<Workspace> {
    let (plan, codec, rank) = chosen(choice);
    let schedule = Schedule::new(plan, WorldSize::new(WORLD), Operation::AllReduce, rank);
    let workspace = Workspace::new(layout(plan), codec, vec![1.0; ELEMENTS], WORLD as f32);
    let mut execution = Execution::new(KEY, schedule, workspace, 2, Vec::new());
    execution.bring_wanted(0, |_, _| {});
    execution
}

/// All segments of both halves from all ranks, of which the machine refuses those that it does not wait for.
fn expected(choice: u8) -> Vec<u8> {
    let (plan, codec, _) = chosen(choice);
    let layout = layout(plan);
    let mut bytes = vec![choice];
    for bucket in 0..layout.buckets() {
        for (chunk, phase) in (0..layout.chunks()).flat_map(|at| [(at, Phase::ReduceScatter), (at, Phase::AllGather)]) {
            for segment in 0..layout.segments(bucket, Rank(chunk)) {
                let id = SegmentId { bucket, phase, chunk: Rank(chunk), segment };
                let Some(header) = SegmentHeader::encoded(KEY, id, &layout, codec) else { continue };
                bytes.push((chunk % WORLD) as u8);
                bytes.extend(header.to_bytes());
                bytes.extend((header.payload_bytes as u16).to_le_bytes());
                bytes.extend(std::iter::repeat_n(0u8, header.payload_bytes as usize));
            }
        }
    }
    bytes
}

fn take(bytes: &[u8]) -> bool {
    let Some((choice, mut rest)) = bytes.split_first() else { return false };
    let mut execution = begun(*choice);
    let receivers = execution.schedule().receivers().len();
    let mut payload = Vec::new();
    while let Some((segment, after)) = segment(rest) {
        rest = after;
        let (from, header, came) = segment;
        payload.clear();
        payload.extend_from_slice(came);
        // Whoever sends what is not waited for is to blame, and the rest is looked at as if nothing had come.
        let _blamed = execution.take(Rank(from), header, &mut payload, &NoForwardPolicy);
        let mut sent = 0;
        for position in 0..receivers {
            while let Some(header) = execution.next_send(position) {
                sent += 1;
                assert!(sent < 10_000, "it sends without end");
                let mut out = vec![0; header.payload_bytes as usize];
                starling_collective::Buffer::write(execution.buffer_mut(), &header.segment, &mut out);
            }
        }
        execution.bring_wanted(0, |_, _| {});
    }
    true
}

type Segment<'a> = (u32, &'a [u8; SegmentHeader::BYTES], &'a [u8]);

fn segment(bytes: &[u8]) -> Option<(Segment<'_>, &[u8])> {
    let (from, rest) = bytes.split_first()?;
    let (header, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (payload, rest) = rest.split_at(length);
    Some(((u32::from(*from), header, payload), rest))
}
