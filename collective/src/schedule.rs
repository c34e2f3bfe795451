//! Which operation over which plan: one rank's part in each chunk.

use std::ops::Range;
use std::sync::Arc;

use starling_topology::plan::{Plan, Route};
use starling_topology::{Rank, WorldSize};

use crate::codec::Codec;
use crate::segment::layout::Layout;
use crate::slots::RankSet;

/// What becomes of the members' buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// All hold the mean of all contributions.
    AllReduce,
    /// Each chunk's owner holds the mean of all contributions to it; what others hold of it afterwards means nothing.
    ReduceScatter,
    /// All hold what each chunk's owner brought.
    AllGather,
    /// All hold what one rank brought.
    Broadcast {
        /// That rank.
        root: Rank,
    },
}

impl Operation {
    /// How many payload bytes all ranks together send: `n - 1` times the buffer for contributions, as often for results.
    ///
    /// Every plan sends as many, whatever its trees: a tree over `n` ranks has `n - 1` edges. What plans differ in is over
    /// which links, and after how many hops.
    pub fn wire_bytes(self, layout: &Layout, codec: Codec) -> u64 {
        let once: usize = layout.ranges().map(|range| layout.codec_of(&range, codec).payload_bytes(range.len())).sum();
        let phases = if self == Self::AllReduce { 2 } else { 1 };
        phases * u64::from(layout.world_size().get() - 1) * once as u64
    }
}

/// What goes over a link of a plan, beside others of its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLoad {
    /// As much as over any other.
    Even,
    /// Contributions or results, where other links carry both: between a hub of a star and who is none.
    Single,
    /// Contributions and results, where other links carry one of them: between two hubs of a star.
    Double,
}

/// One rank's part in an operation: whom it hears and tells, for each chunk. Cheap to clone; one serves all operations
/// of a view over the same plan.
#[derive(Debug, Clone)]
pub struct Schedule {
    rank: Rank,
    world: WorldSize,
    roles: Arc<[Role]>,
    receivers: Arc<[Rank]>,
    senders: Arc<[Rank]>,
    /// Whether some links of the plan carry contributions and results, and others one of them.
    is_uneven: bool,
}

/// One rank's part in one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    /// Whose sums are added, this rank's own contribution included, in order of rank; empty if nothing is reduced.
    pub(crate) order: Vec<Rank>,
    /// Whose contributions are in the sum that comes from each of `order`; in this rank's own, its own.
    pub(crate) sums: Vec<RankSet>,
    /// Where in `order` this rank's own contribution is.
    pub(crate) own: usize,
    /// To whom the sum goes; nobody, if this rank owns the chunk.
    pub(crate) up: Option<Rank>,
    /// From whom the result comes, if it does.
    pub(crate) from: Option<Rank>,
    /// How many links the result has come over when it is here.
    pub(crate) depth: u32,
    /// To whom the result goes.
    pub(crate) down: Vec<Rank>,
    /// Whether the chunk's owner itself takes this rank's sum, and sends the result back.
    pub(crate) is_answered: bool,
    /// Whether the rank's own contribution is rounded before others are added to it, as theirs have been.
    pub(crate) rounds: bool,
}

impl Schedule {
    /// The part of `rank` in `operation` over `plan`.
    ///
    /// # Panics
    /// If the world does not have `rank`, or the operation's root, or the plan is one of another world.
    pub fn new(plan: &Plan, world: WorldSize, operation: Operation, rank: Rank) -> Self {
        assert!(rank.0 < world.get(), "a schedule's rank is one of its world");
        let role = |chunk: Rank| match operation {
            // All chunks have the same trees, turned: to draw each of them would cost the world's size squared.
            Operation::AllReduce if *plan == Plan::Ring => Role::in_ring(world, chunk, rank),
            Operation::AllReduce => Role::reduce(&plan.route(world, chunk), world, rank, true),
            Operation::ReduceScatter => Role::reduce(&plan.route(world, chunk), world, rank, false),
            Operation::AllGather => Role::gather(&plan.route(world, chunk), rank),
            Operation::Broadcast { root } => Role::gather(&plan.broadcast(world, root, chunk), rank),
        };
        let roles: Arc<[Role]> = (0..plan.chunks(world)).map(Rank).map(role).collect();
        let told = |role: &Role| role.up.into_iter().chain(role.down.iter().copied()).collect::<Vec<_>>();
        let heard = |role: &Role| role.order.iter().copied().chain(role.from).collect::<Vec<_>>();
        let receivers = sorted(roles.iter().flat_map(told));
        let senders = sorted(roles.iter().flat_map(heard).filter(|other| *other != rank));
        let is_uneven = matches!(plan, Plan::Star(hubs) if hubs.count() > 1);
        Self { rank, world, roles, receivers, senders, is_uneven }
    }

    /// The same over the links of `other`, which are at least those that it needs: as it is, it goes by no others.
    ///
    /// # Panics
    /// If that one has not all of them.
    #[must_use]
    pub fn over_links_of(self, other: &Self) -> Self {
        let has_all = |own: &[Rank], others: &[Rank]| own.iter().all(|rank| others.binary_search(rank).is_ok());
        assert!(has_all(&self.receivers, &other.receivers), "there is a link to each receiver");
        assert!(has_all(&self.senders, &other.senders), "there is a link from each sender");
        Self { receivers: other.receivers.clone(), senders: other.senders.clone(), ..self }
    }

    /// Whose part this is.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks have a part.
    pub fn world_size(&self) -> WorldSize {
        self.world
    }

    /// Into how many chunks buckets are cut.
    pub fn chunks(&self) -> u32 {
        u32::try_from(self.roles.len()).expect("invariant: a plan has no more chunks than ranks")
    }

    /// Whether this rank finishes the chunk.
    pub fn owns(&self, chunk: Rank) -> bool {
        self.roles.get(chunk.0 as usize).is_some_and(|role| role.up.is_none() && role.from.is_none())
    }

    /// Whether nothing is added to this rank's contribution to the chunk: what it sends of it begins its way here.
    pub fn begins(&self, chunk: Rank) -> bool {
        self.roles.get(chunk.0 as usize).is_some_and(|role| role.order.len() == 1)
    }

    /// How many segments of these `buckets` of one operation over `layout` come from each of [`Self::senders`], in their order.
    pub fn receptions(&self, layout: &Layout, buckets: Range<u32>) -> Vec<u64> {
        let from = |sender: &Rank| {
            let of_role = |(chunk, role): (u32, &Role)| {
                let times =
                    role.order.iter().filter(|rank| *rank == sender).count() + usize::from(role.from == Some(*sender));
                let segments = || buckets.clone().map(|bucket| u64::from(layout.segments(bucket, Rank(chunk))));
                if times == 0 { 0 } else { times as u64 * segments().sum::<u64>() }
            };
            (0..).zip(self.roles.iter()).map(of_role).sum()
        };
        self.senders().iter().map(from).collect()
    }

    /// All to whom this rank ever sends, in order: the links that it has to open.
    pub fn receivers(&self) -> &[Rank] {
        &self.receivers
    }

    /// What goes over the link to `receiver`, beside other links of the plan.
    pub fn load(&self, receiver: Rank) -> LinkLoad {
        let contributes = self.roles.iter().any(|role| role.up == Some(receiver));
        let answers = self.roles.iter().any(|role| role.down.contains(&receiver));
        match self.is_uneven {
            false => LinkLoad::Even,
            true if contributes && answers => LinkLoad::Double,
            true => LinkLoad::Single,
        }
    }

    /// All from whom this rank ever receives, in order.
    pub fn senders(&self) -> &[Rank] {
        &self.senders
    }

    /// Whose contributions are in what comes from `from` of this chunk in the reduce-scatter; `None` if nothing comes from
    /// there.
    pub fn contributions(&self, chunk: Rank, from: Rank) -> Option<&RankSet> {
        let role = self.roles.get(chunk.0 as usize)?;
        role.order.binary_search(&from).ok().map(|at| &role.sums[at])
    }

    /// Whether the chunk's owner itself takes what this rank has to bring, and sends the result back: it knows what was said.
    pub(crate) fn is_answered(&self, chunk: Rank) -> bool {
        self.roles.get(chunk.0 as usize).is_some_and(|role| role.is_answered)
    }

    /// Whether all that comes of this chunk in the reduce-scatter has as many contributions.
    pub(crate) fn is_even(&self, chunk: Rank) -> bool {
        self.roles.get(chunk.0 as usize).is_some_and(|role| role.is_even())
    }

    pub(crate) fn roles(&self) -> &[Role] {
        &self.roles
    }
}

impl Role {
    fn reduce(route: &Route, world: WorldSize, rank: Rank, gathers: bool) -> Self {
        let mut order = route.contributors(rank);
        let own = order.partition_point(|other| *other < rank);
        let rounds = route.is_direct() && !order.is_empty();
        order.insert(own, rank);
        let sums = contributions(route, world, rank, &order);
        let (from, down) = if gathers { (route.down(rank), route.receivers(rank)) } else { (None, Vec::new()) };
        let up = route.up(rank);
        let is_answered = gathers && from == Some(route.owner()) && up == from;
        Self { order, sums, own, up, from, depth: depth(route, rank), down, is_answered, rounds }
    }

    /// As [`Self::reduce`] over the ring's route.
    fn in_ring(world: WorldSize, chunk: Rank, rank: Rank) -> Self {
        let (owner, before, next) = (world.previous(chunk), world.previous(rank), world.next(rank));
        let (is_first, is_owner, is_last) = (rank == chunk, rank == owner, next == owner);
        let mut order = if is_first { vec![rank] } else { vec![before, rank] };
        order.sort_unstable();
        let own = order.partition_point(|other| *other < rank);
        // The chunk began at the rank of its name, and has come by all between.
        let come_by = (rank.0 + world.get() - chunk.0) % world.get();
        let sums = order.iter().map(|other| match *other == rank {
            true => RankSet::run(rank, 1, world.get()),
            false => RankSet::run(chunk, come_by, world.get()),
        });
        let sums = sums.collect();
        let from = (!is_owner).then_some(before);
        let down = if is_last { Vec::new() } else { vec![next] };
        let is_answered = !is_owner && world.get() == 2;
        let depth = (rank.0 + world.get() - owner.0) % world.get();
        Self { order, sums, own, up: (!is_owner).then_some(next), from, depth, down, is_answered, rounds: false }
    }

    fn is_even(&self) -> bool {
        let mut others = self.sums.iter().enumerate().filter(|(at, _)| *at != self.own).map(|(_, sum)| sum.count());
        others.next().is_none_or(|first| others.all(|sum| sum == first))
    }

    fn gather(route: &Route, rank: Rank) -> Self {
        let (from, down) = (route.down(rank), route.receivers(rank));
        let (order, sums) = (Vec::new(), Vec::new());
        let depth = depth(route, rank);
        Self { order, sums, own: 0, up: None, from, depth, down, is_answered: false, rounds: false }
    }

    /// How many times each segment of the chunk comes to this rank.
    pub(crate) fn receptions(&self) -> u64 {
        self.order.len().saturating_sub(1) as u64 + u64::from(self.from.is_some())
    }
}

/// How many links a result comes over on its way to `rank`.
fn depth(route: &Route, rank: Rank) -> u32 {
    let way = std::iter::successors(route.down(rank), |before| route.down(*before));
    u32::try_from(way.count()).expect("invariant: a world has fewer than 2^32 ranks")
}

/// Whose contributions are in what each of `order` brings to `rank`, which is one of them: its own, and those of all below it.
fn contributions(route: &Route, world: WorldSize, rank: Rank, order: &[Rank]) -> Vec<RankSet> {
    let mut sums = vec![RankSet::default(); order.len()];
    for from in world.ranks() {
        let mut way = from;
        while way != rank && route.up(way).is_some_and(|next| next != rank) {
            way = route.up(way).expect("invariant: it goes on");
        }
        // The last one before the rank brings it, if the way leads there.
        let leads = way == rank || route.up(way).is_some();
        if let Some(sum) = order.binary_search(&way).ok().filter(|_| leads) {
            sums[sum].push(from);
        }
    }
    sums
}

fn sorted(ranks: impl Iterator<Item = Rank>) -> Arc<[Rank]> {
    let mut ranks: Vec<Rank> = ranks.collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.into()
}

#[cfg(test)]
mod tests {
    use starling_topology::plan::HubSet;

    use super::*;

    #[test]
    fn a_rings_roles_are_those_of_its_routes() {
        for world in (1..=9).map(WorldSize::new) {
            for (rank, chunk) in world.ranks().flat_map(|rank| world.ranks().map(move |chunk| (rank, chunk))) {
                let drawn = Role::reduce(&Plan::Ring.route(world, chunk), world, rank, true);
                assert_eq!(Role::in_ring(world, chunk, rank), drawn, "{rank:?}, {chunk:?} of {world:?}");
            }
        }
    }

    /// Between two hubs goes what each brings and what each says; with others a hub has one of both.
    #[test]
    fn hubs_have_both_phases_between_them() {
        let world = WorldSize::new(5);
        let star = |hubs: &[u32]| {
            let hubs = hubs.iter().copied().map(Rank).collect();
            Plan::Star(HubSet::new(world, hubs).expect("hubs that can be"))
        };
        let loads = |plan: &Plan, rank: u32| -> Vec<LinkLoad> {
            let schedule = Schedule::new(plan, world, Operation::AllReduce, Rank(rank));
            schedule.receivers().iter().map(|receiver| schedule.load(*receiver)).collect()
        };
        let (single, double) = (LinkLoad::Single, LinkLoad::Double);
        assert_eq!(loads(&star(&[1, 3]), 1), [single, single, double, single]);
        assert_eq!(loads(&star(&[1, 3]), 3), [single, double, single, single]);
        assert_eq!(loads(&star(&[1, 3]), 0), [single, single]);
        for plan in [Plan::Ring, Plan::Tree, Plan::Mesh, star(&[2])] {
            assert!(
                world.ranks().all(|rank| loads(&plan, rank.0).iter().all(|load| *load == LinkLoad::Even)),
                "{plan:?}"
            );
        }
    }

    /// What goes up is what came, and one's own; what the owner has, at the end, is everybody's.
    #[test]
    fn sums_are_of_as_many_as_have_contributed_to_them() {
        for world in (2..=9).map(WorldSize::new) {
            let hubs = [Rank(0), Rank(world.get() - 1)].map(|rank| vec![rank]);
            let stars = hubs.map(|hubs| Plan::Star(HubSet::new(world, hubs).expect("hubs that can be")));
            for plan in [Plan::Ring, Plan::Tree, Plan::Mesh].into_iter().chain(stars) {
                let schedules: Vec<_> =
                    world.ranks().map(|rank| Schedule::new(&plan, world, Operation::AllReduce, rank)).collect();
                for (schedule, chunk) in
                    schedules.iter().flat_map(|schedule| (0..schedule.chunks()).map(move |chunk| (schedule, chunk)))
                {
                    let role = &schedule.roles()[chunk as usize];
                    let mut sum = RankSet::default();
                    let is_in = |rank: &Rank| role.sums.iter().filter(|summed| summed.contains(*rank)).count() == 1;
                    world.ranks().filter(is_in).for_each(|rank| sum.push(rank));
                    assert_eq!(sum.count(), role.sums.iter().map(RankSet::count).sum(), "{plan:?} of {world:?}: once");
                    match role.up {
                        Some(up) => {
                            let there = schedules[up.0 as usize].contributions(Rank(chunk), schedule.rank());
                            assert_eq!(there, Some(&sum));
                        }
                        None => assert_eq!(sum, RankSet::all(world.get()), "{plan:?} of {world:?}"),
                    }
                }
            }
        }
    }
}
