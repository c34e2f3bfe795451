//! How large each rank's chunk should be.

use crate::id::Rank;
use crate::plan::costs::link_costs::CostTable;

/// What the weights of a bucket's chunks sum to.
pub const WEIGHT_TOTAL: u32 = 1 << 16;

/// The weights of the chunks in a mesh, by rank, that let the slowest rank end soonest.
///
/// The owner of a share `w` of a bucket sends `w` to each of the `n - 1` others, and the rest of its own contribution,
/// `1 - w`, to theirs; it receives as much. So rank `r`, with bandwidth `b`, is busy for `(1 + (n - 2) w) / b`. The least
/// time `t` in which all can end is that for which the shares `(t b - 1) / (n - 2)`, none below zero, sum to one. A rank
/// that is too slow for any share owns none: it still sends its contribution and receives the result, which no plan
/// spares it.
///
/// Rates are taken as they are seen on each rank's fastest link, the slower direction. Equal for two ranks, where each
/// sends as much whatever it owns, and where the costs show no bandwidth.
pub fn chunk_weights(costs: &CostTable) -> Vec<u32> {
    let ranks: Vec<Rank> = costs.world_size().ranks().collect();
    hub_weights(costs, &ranks)
}

/// The same where only `owners` own chunks, one each: all others are as busy whatever these own. A rank for each weight.
pub(crate) fn hub_weights(costs: &CostTable, owners: &[Rank]) -> Vec<u32> {
    let world = costs.world_size();
    let rates: Vec<u64> = owners.iter().map(|rank| bandwidth(costs, *rank)).collect();
    let even = rates.iter().all(|rate| *rate == rates[0]);
    if world.get() <= 2 || even || rates.contains(&0) {
        return equal(owners.len());
    }
    // Time in units in which the fastest rank sends a whole bucket in 2^32: finer than any weight. The shares grow with it.
    let fastest = *rates.iter().max().expect("invariant: a world has a rank");
    let share = |rate: u64, time: u64| {
        let sent = u128::from(time) * u128::from(rate) / u128::from(fastest);
        sent.saturating_sub(UNIT) / u128::from(world.get() - 2)
    };
    let total = |time: u64| rates.iter().map(|rate| share(*rate, time)).sum::<u128>();
    // In `n` units of time the fastest alone can own everything.
    let (mut low, mut high) = (0, (UNIT as u64) * u64::from(world.get()));
    while low < high {
        let middle = low + (high - low) / 2;
        if total(middle) >= UNIT { high = middle } else { low = middle + 1 }
    }
    let shares: Vec<u128> = rates.iter().map(|rate| share(*rate, high)).collect();
    apportion(&shares)
}

const UNIT: u128 = 1 << 32;

/// The rate of a rank's fastest link, the slower direction.
pub(crate) fn bandwidth(costs: &CostTable, rank: Rank) -> u64 {
    let others = || costs.world_size().ranks().filter(move |other| *other != rank);
    let out = others().map(|other| costs.link(rank, other).bytes_per_second).max().unwrap_or_default();
    let back = others().map(|other| costs.link(other, rank).bytes_per_second).max().unwrap_or_default();
    out.min(back)
}

fn equal(owners: usize) -> Vec<u32> {
    apportion(&vec![1; owners])
}

/// Weights in proportion to `shares`, rounded so that they sum to [`WEIGHT_TOTAL`].
fn apportion(shares: &[u128]) -> Vec<u32> {
    let whole: u128 = shares.iter().sum();
    let mut before = 0;
    let mut taken = 0;
    let weight = |share: &u128| {
        before += share;
        let upto = u32::try_from(before * u128::from(WEIGHT_TOTAL) / whole).expect("invariant: at most the total");
        let weight = upto - taken;
        taken = upto;
        weight
    };
    shares.iter().map(weight).collect()
}
