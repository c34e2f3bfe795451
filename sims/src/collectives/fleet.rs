//! All ranks of one operation.

use std::collections::BTreeMap;

use starling_collective::{Codec, Input, Layout, Operation, Output, Schedule, SegmentId, Session, Workspace};
use starling_topology::plan::Plan;
use starling_topology::{Rank, WorldSize};

use super::wire::Wire;
use crate::contribution::{Cell, Contributions};
use crate::rng::Rng;

/// A segment's content, in both forms.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    made: Contributions,
    bytes: Vec<u8>,
}

impl AsRef<[u8]> for Parcel {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What happens to a rank.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    Ready(u32),
    Arrives(Rank, SegmentId, Parcel),
}

/// The ranks of one operation: their machines, and both forms of their buffers.
#[derive(Debug)]
pub(super) struct Fleet {
    plan: Plan,
    operation: Operation,
    layout: Layout,
    codec: Codec,
    contributions: Vec<Vec<f32>>,
    members: Vec<Member>,
    rng: Rng,
    pub(super) delivered: u64,
    pub(super) refused: u64,
    pub(super) sent_bytes: u64,
}

#[derive(Debug)]
struct Member {
    session: Session<Parcel>,
    workspace: Workspace,
    cells: BTreeMap<Cell, Contributions>,
}

impl Fleet {
    pub(super) fn new(plan: &Plan, operation: Operation, layout: &Layout, codec: Codec, rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        let world = layout.world_size();
        // Of very different sizes, so that another order of addition, or another rounding, would show.
        let mut value = || {
            let digits = i32::try_from(rng.between(0, 2_000)).expect("invariant: drawn small") - 1_000;
            digits as f32 * [1e-4, 1e-2, 1.0, 30.0][usize::try_from(rng.between(0, 3)).unwrap_or_default()] / 7.0
        };
        let contributions: Vec<Vec<f32>> =
            world.ranks().map(|_| (0..layout.elements()).map(|_| value()).collect()).collect();
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
            sent_bytes: 0,
        };
        fleet.restart();
        fleet
    }

    /// Begins anew, from the contributions.
    pub(super) fn restart(&mut self) {
        let world = self.layout.world_size();
        let in_flight = u32::try_from(self.rng.between(1, 3)).expect("invariant: drawn small");
        self.sent_bytes = 0;
        self.members = world
            .ranks()
            .map(|rank| Member {
                session: Session::over(
                    Schedule::new(&self.plan, world, self.operation, rank),
                    self.layout.clone(),
                    in_flight,
                ),
                workspace: Workspace::new(
                    self.layout.clone(),
                    self.codec,
                    self.contributions[rank.0 as usize].clone(),
                    world.get() as f32,
                ),
                cells: Cell::all(&self.layout).map(|cell| (cell, brought(rank, world))).collect(),
            })
            .collect();
    }

    /// Lets things happen until nothing is left, or `limit` things have happened.
    pub(super) fn run(&mut self, wire: &mut Wire<Happening>, limit: Option<u64>, problems: &mut Vec<String>) {
        for rank in self.layout.world_size().ranks() {
            // The last buckets come first, as from a backward pass.
            let mut from = self.layout.buckets();
            loop {
                let next = self.rng.between(0, u64::from(from.saturating_sub(1)));
                from = u32::try_from(next).expect("invariant: below a bucket's number");
                wire.wake(rank, self.rng.micros(0, 50_000), Happening::Ready(from));
                if from == 0 {
                    break;
                }
            }
        }
        for _ in 0..limit.unwrap_or(u64::MAX) {
            let Some((rank, happening)) = wire.deliver() else { return };
            let again = match &happening {
                Happening::Arrives(..) if self.rng.one_in(50) => Some(happening.clone()),
                Happening::Arrives(..) | Happening::Ready(_) => None,
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

    fn hand(&mut self, rank: Rank, happening: Happening, wire: &mut Wire<Happening>) -> Result<(), String> {
        let member = &mut self.members[rank.0 as usize];
        let input = match happening {
            Happening::Ready(from) => Input::Ready { from },
            Happening::Arrives(from, segment, payload) => {
                self.delivered += 1;
                Input::Received { from, segment, payload }
            }
        };
        member.session.handle(input).map_err(|violation| violation.to_string())?;
        while let Some(output) = member.session.poll() {
            member.workspace.apply(&output).map_err(|error| error.to_string())?;
            let mut change = |segment: SegmentId, change: &dyn Fn(&mut Contributions)| {
                member.cells.entry(segment.into()).and_modify(change);
            };
            match output {
                Output::Send { to, segment } => {
                    let mut bytes = Vec::new();
                    member.workspace.encode(&segment, &mut bytes);
                    let length = bytes.len() as u64;
                    self.sent_bytes += length;
                    let made = member.cells[&Cell::from(segment)].clone();
                    wire.send(rank, to, length, Happening::Arrives(rank, segment, Parcel { made, bytes }));
                }
                Output::Accumulate { segment, payload } => change(segment, &|made| made.accumulate(&payload.made)),
                Output::Prepend { segment, payloads } => {
                    payloads.iter().for_each(|payload| change(segment, &|made| made.accumulate(&payload.made)));
                }
                Output::Divide { segment } => change(segment, &|made| made.divided += 1),
                Output::Store { segment, payload } => change(segment, &|made| made.clone_from(&payload.made)),
                Output::Round { .. } | Output::BucketDone(_) | Output::Done => {}
            }
        }
        Ok(())
    }

    /// A link has broken: everybody gives up.
    pub(super) fn abort(&mut self, problems: &mut Vec<String>) {
        for member in &mut self.members {
            let taken = member.session.handle(Input::Abort).is_ok();
            if !taken || member.session.poll().is_some() || member.session.is_done() {
                problems.push("an aborted operation wants something".to_owned());
            }
        }
    }

    /// That all are done, hold what they should, to the bit, and have sent what the formula says.
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let world = self.layout.world_size();
        for (rank, member) in world.ranks().zip(&self.members) {
            if !member.session.is_done() {
                problems.push(format!("rank {} hangs", rank.0));
            }
            let wrong = |(cell, made): &(&Cell, &Contributions)| {
                self.expected(rank, cell.chunk, world).is_some_and(|expected| expected != **made)
            };
            if let Some((cell, made)) = member.cells.iter().find(wrong) {
                problems.push(format!("rank {} has {made:?} in {cell:?}", rank.0));
            }
        }
        if self.operation != Operation::ReduceScatter {
            let digest = |member: &Member| {
                let mut hasher = blake3::Hasher::new();
                member.workspace.values().iter().for_each(|value| _ = hasher.update(&value.to_le_bytes()));
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
        let all = || {
            let mut all = world.ranks().map(|rank| brought(rank, world)).reduce(|mut sum, next| {
                sum.accumulate(&next);
                sum
            });
            all.iter_mut().for_each(|all| all.divided = 1);
            all.expect("invariant: a world has at least one rank")
        };
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
