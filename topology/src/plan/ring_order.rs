//! The cyclic order of a ring's members.

use crate::id::Rank;
use crate::plan::costs::link_costs::{CostTable, Link, NEVER_NS};
use crate::plan::estimate::Bucket;

/// Up to how many ranks the best order is found, not only a good one.
pub const MAX_EXACT: u32 = 12;

/// How many orders a heuristic may look at: a bound, which 64 ranks stay well below.
const MAX_TRIED: usize = 1 << 20;

/// The time of an all-reduce over a ring in this order, in nanoseconds: each chunk passes each hop twice but for one, and
/// as chunks stream, the slowest hop alone decides how long their bytes take.
pub fn ring_cost(costs: &CostTable, order: &[Rank], bucket: Bucket) -> u64 {
    Hops::new(costs, bucket).cost(order.iter().map(|rank| rank.0 as usize).collect::<Vec<_>>().as_slice())
}

/// The order in which a ring's all-reduce of `bucket` is fastest: the best one up to [`MAX_EXACT`] ranks, a good one
/// above. It begins with rank 0. The same costs give the same order everywhere.
///
/// For each rate that the slowest hop may have, M. Held and R. M. Karp's dynamic programme ("A dynamic programming
/// approach to sequencing problems", 1962) finds the order with the least sum of delays over hops that are not slower.
/// Above [`MAX_EXACT`], the nearest neighbour is visited next, then segments are reversed (2-opt: G. A. Croes, 1958) or
/// moved (Or-opt: I. Or, 1976) as long as that helps.
pub fn ring_order(costs: &CostTable, bucket: Bucket) -> Vec<Rank> {
    let hops = Hops::new(costs, bucket);
    let order = if costs.world_size().get() <= MAX_EXACT { exact(&hops) } else { heuristic(&hops) };
    order.into_iter().map(|index| Rank(u32::try_from(index).expect("invariant: ranks are u32"))).collect()
}

/// What each hop costs.
struct Hops {
    size: usize,
    /// By sender, then receiver: what the hop adds to a chunk's way.
    delay: Vec<u64>,
    /// How long all bytes that cross it take.
    transfer: Vec<u64>,
}

impl Hops {
    fn new(costs: &CostTable, bucket: Bucket) -> Self {
        let world = costs.world_size();
        let chunk = bucket.bytes.div_ceil(u64::from(world.get()));
        let crossing = chunk.saturating_mul(2 * u64::from(world.get() - 1));
        let pairs = || world.ranks().flat_map(|from| world.ranks().map(move |to| costs.link(from, to)));
        let delay = |segment: u64| move |link: Link| 2 * (link.delay_ns() + link.transfer_ns(segment));
        Self {
            size: world.get() as usize,
            delay: pairs().map(delay(chunk.min(bucket.segment_bytes))).map(|nanos| nanos.min(NEVER_NS)).collect(),
            transfer: pairs().map(|link| link.transfer_ns(crossing)).collect(),
        }
    }

    fn at(&self, from: usize, to: usize) -> usize {
        from * self.size + to
    }

    fn cost(&self, order: &[usize]) -> u64 {
        if order.len() < 2 {
            return 0;
        }
        let slowest = self.along(order).map(|hop| self.transfer[hop]).max().unwrap_or_default();
        self.delays(order).saturating_add(slowest)
    }

    fn delays(&self, order: &[usize]) -> u64 {
        self.along(order).map(|hop| self.delay[hop]).fold(0u64, u64::saturating_add)
    }

    fn along(&self, order: &[usize]) -> impl Iterator<Item = usize> {
        (0..order.len()).map(|index| self.at(order[index], order[(index + 1) % order.len()]))
    }
}

/// The best order. A world whose every ring has a link that is down gets the sorted one.
fn exact(hops: &Hops) -> Vec<usize> {
    let sorted: Vec<usize> = (0..hops.size).collect();
    let mut rates: Vec<u64> = hops.transfer.iter().copied().filter(|transfer| *transfer < NEVER_NS).collect();
    rates.sort_unstable();
    rates.dedup();
    let mut best = (hops.cost(&sorted), sorted);
    let Some(shortest) = rates.last().and_then(|slowest| shortest_tour(hops, *slowest)) else { return best.1 };
    let delays = hops.delays(&shortest);
    // Measured links all have rates of their own, and many have too few others that are as fast for a way round.
    let first = rates.partition_point(|slowest| shortest_tour(hops, *slowest).is_none());
    for slowest in rates.into_iter().skip(first) {
        // Slower hops only add to this: no order that needs them can be better.
        if delays.saturating_add(slowest) >= best.0 {
            break;
        }
        if let Some(order) = shortest_tour(hops, slowest) {
            let cost = hops.cost(&order);
            if cost < best.0 {
                best = (cost, order);
            }
        }
    }
    best.1
}

/// The tour from rank 0 with the least sum of delays, over hops whose bytes take at most `slowest`.
fn shortest_tour(hops: &Hops, slowest: u64) -> Option<Vec<usize>> {
    let size = hops.size;
    if size < 2 {
        return None;
    }
    let delay = |from: usize, to: usize| {
        let hop = hops.at(from, to);
        (hops.transfer[hop] <= slowest).then_some(hops.delay[hop])
    };
    // Rank 0 is fixed; bit `i` of a set is rank `i + 1`. By set and last rank: the least sum and the rank before.
    let others = size - 1;
    let mut best: Vec<Option<(u64, usize)>> = vec![None; (1 << others) * others];
    for last in 0..others {
        best[(1 << last) * others + last] = delay(0, last + 1).map(|sum| (sum, last));
    }
    for set in 1usize..1 << others {
        for last in (0..others).filter(|last| set & (1 << last) != 0) {
            let Some((sum, _)) = best[set * others + last] else { continue };
            for next in (0..others).filter(|next| set & (1 << next) == 0) {
                let Some(more) = delay(last + 1, next + 1) else { continue };
                let (sum, at) = (sum.saturating_add(more), (set | 1 << next) * others + next);
                if best[at].is_none_or(|(known, _)| sum < known) {
                    best[at] = Some((sum, last));
                }
            }
        }
    }
    let all = (1 << others) - 1;
    let close = |last: usize| Some((best[all * others + last]?.0.saturating_add(delay(last + 1, 0)?), last));
    let (_, mut last) = (0..others).filter_map(close).min()?;
    let (mut set, mut tour) = (all, Vec::with_capacity(size));
    while set != 0 {
        tour.push(last + 1);
        let (_, before) = best[set * others + last].expect("invariant: the tour was built over this set");
        set &= !(1 << last);
        last = before;
    }
    tour.push(0);
    tour.reverse();
    Some(tour)
}

/// A good order: nearest neighbour, improved until nothing helps.
fn heuristic(hops: &Hops) -> Vec<usize> {
    let mut order = vec![0];
    while order.len() < hops.size {
        let last = order[order.len() - 1];
        let free = (0..hops.size).filter(|next| !order.contains(next));
        let near = |next: &usize| {
            (hops.transfer[hops.at(last, *next)].saturating_add(hops.delay[hops.at(last, *next)]), *next)
        };
        order.extend(free.min_by_key(near));
    }
    let moves = moves(hops.size);
    let mut cost = hops.cost(&order);
    let (mut tried, mut since_better) = (0, 0);
    // Round and round through all moves, until none of them has helped since the last one that did.
    for next in moves.iter().cycle() {
        if since_better == moves.len() || tried == MAX_TRIED {
            break;
        }
        (tried, since_better) = (tried + 1, since_better + 1);
        let moved = next.apply(&order);
        let better = hops.cost(&moved);
        if better < cost {
            (order, cost, since_better) = (moved, better, 0);
        }
    }
    order
}

/// A change to an order that keeps rank 0 first.
enum Move {
    /// The stretch from one position up to another is turned round.
    Reverse(usize, usize),
    /// The stretch is taken out and put in where, without it, the third position is.
    Shift(usize, usize, usize),
}

impl Move {
    fn apply(&self, order: &[usize]) -> Vec<usize> {
        let mut order = order.to_vec();
        match *self {
            Self::Reverse(from, end) => order[from..end].reverse(),
            Self::Shift(from, end, to) => {
                let stretch: Vec<usize> = order.drain(from..end).collect();
                order.splice(to..to, stretch);
            }
        }
        order
    }
}

/// All reversals, and all shifts of up to three ranks.
fn moves(size: usize) -> Vec<Move> {
    let reversals = (1..size).flat_map(|from| (from + 2..=size).map(move |end| Move::Reverse(from, end)));
    let stretches = (1..=3).flat_map(|length| (1..=size.saturating_sub(length)).map(move |from| (from, from + length)));
    let shifts = stretches.flat_map(|(from, end)| {
        (1..=size - (end - from)).filter(move |to| *to != from).map(move |to| Move::Shift(from, end, to))
    });
    reversals.chain(shifts).collect()
}
