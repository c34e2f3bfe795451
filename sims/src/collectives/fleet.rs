//! All ranks of one operation.

use starling_collective::{
    Buffer, Codec, Execution, ForwardPolicy, Layout, Operation, OperationKey, Schedule, SegmentHeader, Violation,
    Workspace,
};
use starling_topology::plan::Plan;
use starling_topology::{Rank, WorldSize};

use super::wire::Wire;
use crate::hardware::network::rng::Rng;
use crate::steps::buffer::{self, Counted, Payload};
use crate::steps::contribution::{Cell, Contributions, numbers};

/// The only operation.
const KEY: OperationKey = OperationKey { step: 1, attempt: 0 };

/// What happens to a rank.
#[derive(Debug, Clone)]
pub(super) enum FleetEvent {
    Ready(u32),
    /// The link to the receiver at this position can take the next segment.
    Free(usize),
    Arrives(Rank, SegmentHeader, Payload),
}

/// The ranks of one operation.
#[derive(Debug)]
pub(super) struct Fleet {
    plan: Plan,
    operation: Operation,
    layout: Layout,
    codec: Codec,
    contributions: Vec<Vec<f32>>,
    members: Vec<Worker>,
    rng: Rng,
    pub(super) delivered: u64,
    pub(super) refused: u64,
    /// Segments that went on from where they lay.
    pub(super) passed_on: u64,
    pub(super) sent_bytes: u64,
}

#[derive(Debug)]
struct Worker {
    execution: Execution<Counted>,
    /// Which of its links are busy.
    busy: Vec<bool>,
}

/// Where what came last may go on from where it lies.
struct Links<'a> {
    receivers: &'a [Rank],
    busy: &'a [bool],
    gives_place: bool,
}

impl ForwardPolicy for Links<'_> {
    fn takes(&self, to: Rank) -> bool {
        self.receivers.binary_search(&to).is_ok_and(|position| !self.busy[position])
    }

    fn gives_place(&self) -> bool {
        self.gives_place
    }
}

impl Fleet {
    pub(super) fn new(plan: &Plan, operation: Operation, layout: &Layout, codec: Codec, rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        let world = layout.world_size();
        let contributions = world.ranks().map(|_| numbers(rng.between(1, u64::MAX), layout.elements())).collect();
        let (plan, layout) = (plan.clone(), layout.clone());
        let mut fleet = Self {
            plan,
            operation,
            layout,
            codec,
            contributions,
            members: Vec::new(),
            rng,
            delivered: 0,
            refused: 0,
            passed_on: 0,
            sent_bytes: 0,
        };
        fleet.restart();
        fleet
    }

    /// Begins anew, from the contributions, in the memory of the operation that was interrupted.
    pub(super) fn restart(&mut self) {
        let world = self.layout.world_size();
        let in_flight = u32::try_from(self.rng.between(1, 3)).expect("invariant: drawn small");
        self.sent_bytes = 0;
        let mut before = std::mem::take(&mut self.members).into_iter();
        let member = |rank: Rank| {
            let spare = before.next().map(|member| member.execution.finish().1).unwrap_or_default();
            let schedule = Schedule::new(&self.plan, world, self.operation, rank);
            let contribution = self.contributions[rank.0 as usize].clone();
            let workspace = Workspace::new(self.layout.clone(), self.codec, contribution, world.get() as f32);
            let buffer = Counted::new(workspace, |_| brought(rank, world));
            let busy = vec![false; schedule.receivers().len()];
            Worker { execution: Execution::new(KEY, schedule, buffer, in_flight, spare), busy }
        };
        self.members = world.ranks().map(member).collect();
    }

    /// Lets things happen until nothing is left, or `limit` things have happened.
    pub(super) fn run(&mut self, wire: &mut Wire<FleetEvent>, limit: Option<u64>, problems: &mut Vec<String>) {
        for rank in self.layout.world_size().ranks() {
            // The last buckets come first, as from a backward pass.
            let mut from = self.layout.buckets();
            loop {
                let next = self.rng.between(0, u64::from(from.saturating_sub(1)));
                from = u32::try_from(next).expect("invariant: below a bucket's number");
                wire.wake(rank, self.rng.micros(0, 50_000), FleetEvent::Ready(from));
                if from == 0 {
                    break;
                }
            }
        }
        for _ in 0..limit.unwrap_or(u64::MAX) {
            let Some((rank, happening)) = wire.deliver() else { return };
            let again = match &happening {
                FleetEvent::Arrives(..) if self.rng.one_in(50) => Some(happening.clone()),
                FleetEvent::Arrives(..) | FleetEvent::Ready(_) | FleetEvent::Free(_) => None,
            };
            if let Err(violation) = self.hand(rank, happening, wire) {
                problems.push(format!("a correct rank's segment was refused: {violation}"));
            }
            if let Some(happening) = again {
                match self.hand(rank, happening, wire) {
                    Ok(()) => problems.push("a segment that came twice was taken twice".to_owned()),
                    Err(_) => self.refused += 1,
                }
            }
        }
    }

    fn hand(&mut self, rank: Rank, happening: FleetEvent, wire: &mut Wire<FleetEvent>) -> Result<(), Violation> {
        let Worker { execution, busy } = &mut self.members[rank.0 as usize];
        let receivers = execution.schedule().receivers().to_vec();
        let mut load = |position: usize, header, payload: Payload| {
            let length = payload.bytes.len() as u64;
            self.sent_bytes += length;
            let takes = wire.send(rank, receivers[position], length, FleetEvent::Arrives(rank, header, payload));
            wire.wake(rank, takes, FleetEvent::Free(position));
        };
        match happening {
            FleetEvent::Ready(from) => execution.bring(from),
            FleetEvent::Free(position) => busy[position] = false,
            FleetEvent::Arrives(from, header, mut payload) => {
                self.delivered += 1;
                let links = Links { receivers: &receivers, busy: &*busy, gives_place: self.rng.one_in(2) };
                let goes_on = execution.take(from, &header.to_bytes(), &mut payload, &links)?;
                if let Some((to, header)) = goes_on {
                    let position = receivers.binary_search(&to).expect("invariant: one of the receivers");
                    self.passed_on += 1;
                    busy[position] = true;
                    load(position, header, payload);
                }
            }
        }
        for (position, busy) in busy.iter_mut().enumerate().filter(|(_, busy)| !**busy) {
            if let Some(header) = execution.next_send(position) {
                let mut payload = Payload::default();
                execution.buffer_mut().write(&header.segment, &mut payload);
                *busy = true;
                load(position, header, payload);
            }
        }
        Ok(())
    }

    /// That all are done, hold what they should, to the bit, and have sent what the formula says.
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let world = self.layout.world_size();
        for (rank, member) in world.ranks().zip(&self.members) {
            if !member.execution.is_done() || member.execution.due().iter().any(|due| *due > 0) {
                problems.push(format!("rank {} hangs", rank.0));
            }
            let wrong = |(cell, made): &&(Cell, Contributions)| {
                self.expected(rank, cell.chunk, world).is_some_and(|expected| expected != *made)
            };
            if let Some((cell, made)) = member.execution.buffer().cells.iter().find(wrong) {
                problems.push(format!("rank {} has {made:?} in {cell:?}", rank.0));
            }
        }
        if self.operation != Operation::ReduceScatter {
            let digest = |member: &Worker| {
                let mut hasher = blake3::Hasher::new();
                member
                    .execution
                    .buffer()
                    .workspace
                    .values()
                    .iter()
                    .for_each(|value| _ = hasher.update(&value.to_le_bytes()));
                hasher.finalize()
            };
            let digests: Vec<blake3::Hash> = self.members.iter().map(digest).collect();
            if let Some(rank) = digests.iter().position(|digest| *digest != digests[0]) {
                problems.push(format!("rank {rank} ends with other bits than rank 0"));
            }
        }
        let formula = self.operation.wire_bytes(&self.layout, self.codec);
        if self.sent_bytes != formula {
            problems.push(format!("{} bytes were sent, {formula} is the formula", self.sent_bytes));
        }
    }

    /// What a rank should hold of a chunk; nothing in particular, where the operation leaves it open.
    fn expected(&self, rank: Rank, chunk: Rank, world: WorldSize) -> Option<Contributions> {
        let all = || buffer::mean(world, |rank| brought(rank, world));
        let owner = self.plan.route(world, chunk).owner();
        match self.operation {
            Operation::AllReduce => Some(all()),
            Operation::ReduceScatter => (owner == rank).then(all),
            Operation::AllGather => Some(brought(owner, world)),
            Operation::Broadcast { root } => Some(brought(root, world)),
        }
    }
}

/// What `rank` brings, told from all others.
fn brought(rank: Rank, world: WorldSize) -> Contributions {
    Contributions::of(rank, world, 1 << (rank.0 % 64), Vec::new())
}
