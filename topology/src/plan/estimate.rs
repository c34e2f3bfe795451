//! What a plan would cost.

use crate::id::Rank;
use crate::plan::Plan;
use crate::plan::costs::link_costs::{CostTable, NEVER_NS};
use crate::plan::groups::GroupTable;

/// What a rank spends on each message, besides its bytes, in nanoseconds: a system call, a record, a wake-up.
const MESSAGE_NS: u64 = 10_000;

/// By how many hundredths each further sender makes what a rank receives take longer. Those that send to one rank at once
/// fill each other's queues, and what comes before its turn is held: among 4 members a mesh was found to take 9 % longer than
/// a ring over 100 Mbit/s and 40 ms, 15 % over 1 Gbit/s, and 40 % within one machine, where it costs processor time.
const CROWD_PERCENT: u64 = 5;

/// What is to be reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes of all chunks as they travel: encoded.
    pub bytes: u64,
    /// The longest segment, encoded.
    pub segment_bytes: u64,
}

/// The expected cost of one all-reduce, in the alpha-beta model (R. W. Hockney, 1994) with full duplex links.
///
/// Segments stream, so the time is that of the first one's way (`latency_ns`: all hops of the longest chain, one segment's
/// transfer on each) and that of the busiest place (`transfer_ns`). A place is a link, all that a rank sends, all that it
/// receives, or, as links between two sites share what joins them, all between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// The way of the first segment, to the owner and to the last rank.
    pub latency_ns: u64,
    /// All bytes over the busiest place.
    pub transfer_ns: u64,
    /// Hops of the longest chain, both ways together.
    pub hops: u32,
    /// With how many others the busiest rank exchanges segments.
    pub links: u32,
    /// Bytes that the busiest rank sends.
    pub busiest_bytes: u64,
}

impl Estimate {
    /// The cost of reducing `bucket` by `plan`, with chunks as large as `weights` says, one for each.
    ///
    /// # Panics
    /// If there is not one weight for each chunk of the plan, or all are zero.
    pub fn new(costs: &CostTable, sites: Option<&GroupTable>, plan: &Plan, weights: &[u32], bucket: Bucket) -> Self {
        let world = costs.world_size();
        let whole: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        assert!(weights.len() == plan.chunks(world) as usize && whole > 0, "each chunk of a plan has a weight");
        let size = world.get() as usize;
        let mut load = vec![Load::default(); size * size];
        let mut estimate = Self { latency_ns: 0, transfer_ns: 0, hops: 0, links: 0, busiest_bytes: 0 };
        for (chunk, weight) in (0..).map(Rank).zip(weights) {
            let share = u128::from(bucket.bytes) * u128::from(*weight) / u128::from(whole);
            let bytes = u64::try_from(share).expect("invariant: at most the bucket");
            if bytes == 0 {
                continue;
            }
            let route = plan.route(world, chunk);
            for (from, to) in route.hops() {
                let load = &mut load[from.0 as usize * size + to.0 as usize];
                load.bytes += bytes;
                load.messages += bytes.div_ceil(bucket.segment_bytes.max(1));
            }
            let segment = bytes.min(bucket.segment_bytes);
            let hop = |from: Rank, to: Rank| {
                let link = costs.link(from, to);
                link.delay_ns() + link.transfer_ns(segment) + MESSAGE_NS
            };
            let up = world.ranks().map(|rank| way(rank, |at| route.up(at), hop));
            let down = world.ranks().map(|rank| way(rank, |at| route.down(at), |at, before| hop(before, at)));
            let (up, down) = (longest(up), longest(down));
            estimate.latency_ns = estimate.latency_ns.max((up.0 + down.0).min(NEVER_NS));
            estimate.hops = estimate.hops.max(up.1 + down.1);
        }
        let busy = Busy { costs, load: &load };
        estimate.transfer_ns = busy.longest(sites).min(NEVER_NS);
        estimate.links = world.ranks().map(|rank| busy.links(rank)).max().unwrap_or_default();
        estimate.busiest_bytes = world.ranks().map(|rank| busy.sent(rank).bytes).max().unwrap_or_default();
        estimate
    }

    /// The expected time.
    pub fn total_ns(&self) -> u64 {
        (self.latency_ns + self.transfer_ns).min(NEVER_NS)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Load {
    bytes: u64,
    messages: u64,
}

impl Load {
    fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, messages: self.messages + other.messages }
    }
}

struct Busy<'a> {
    costs: &'a CostTable,
    load: &'a [Load],
}

impl Busy<'_> {
    fn load(&self, from: Rank, to: Rank) -> Load {
        self.load[(from.0 * self.costs.world_size().get() + to.0) as usize]
    }

    fn sent(&self, rank: Rank) -> Load {
        self.costs.world_size().ranks().map(|to| self.load(rank, to)).fold(Load::default(), Load::and)
    }

    fn received(&self, rank: Rank) -> Load {
        self.costs.world_size().ranks().map(|from| self.load(from, rank)).fold(Load::default(), Load::and)
    }

    fn links(&self, rank: Rank) -> u32 {
        let is_used = |other: &Rank| self.load(rank, *other).bytes > 0 || self.load(*other, rank).bytes > 0;
        u32::try_from(self.costs.world_size().ranks().filter(is_used).count()).expect("invariant: ranks are u32")
    }

    /// The time of the place that is busy longest.
    fn longest(&self, sites: Option<&GroupTable>) -> u64 {
        let ranks = || self.costs.world_size().ranks();
        let pairs = || ranks().flat_map(move |from| ranks().map(move |to| (from, to)));
        let fastest = |links: &mut dyn Iterator<Item = (Rank, Rank)>| {
            links.map(|(from, to)| self.costs.link(from, to)).max_by_key(|link| link.bytes_per_second)
        };
        let mut longest = 0;
        let mut place = |load: Load, links: &mut dyn Iterator<Item = (Rank, Rank)>, work: u64, crowd: u64| {
            if load.bytes > 0
                && let Some(link) = fastest(links)
            {
                let alone = link.transfer_ns(load.bytes);
                let crowded = alone.saturating_add(alone / 100 * CROWD_PERCENT * crowd.saturating_sub(1));
                longest = longest.max(crowded.saturating_add(load.messages.saturating_mul(work)));
            }
        };
        for (from, to) in pairs() {
            place(self.load(from, to), &mut [(from, to)].into_iter(), 0, 1);
        }
        for rank in ranks() {
            let senders = ranks().filter(|from| self.load(*from, rank).bytes > 0).count() as u64;
            place(self.sent(rank), &mut ranks().map(|to| (rank, to)), MESSAGE_NS, 1);
            place(self.received(rank), &mut ranks().map(|from| (from, rank)), MESSAGE_NS, senders);
        }
        for (one, other) in
            sites.into_iter().flat_map(|sites| sites.iter().flat_map(|one| sites.iter().map(move |other| (one, other))))
        {
            if one != other {
                let between = || one.iter().flat_map(|from| other.iter().map(|to| (*from, *to)));
                let load = between().map(|(from, to)| self.load(from, to)).fold(Load::default(), Load::and);
                place(load, &mut between(), 0, 1);
            }
        }
        longest
    }
}

/// The time and the hops from `rank` to the root of a tree.
fn way(rank: Rank, next: impl Fn(Rank) -> Option<Rank>, cost: impl Fn(Rank, Rank) -> u64) -> (u64, u32) {
    let mut at = (rank, 0u64, 0);
    while let Some(to) = next(at.0) {
        at = (to, at.1.saturating_add(cost(at.0, to)).min(NEVER_NS), at.2 + 1);
    }
    (at.1, at.2)
}

fn longest(ways: impl Iterator<Item = (u64, u32)>) -> (u64, u32) {
    ways.fold((0, 0), |longest, way| (longest.0.max(way.0), longest.1.max(way.1)))
}
