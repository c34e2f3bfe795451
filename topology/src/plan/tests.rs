//! Plans against brute force, closed forms and hostile costs.

mod agreed;
mod auto;
mod costs;
mod order;
mod routes;

use crate::id::{Rank, WorldSize};
use crate::plan::{CostTable, Link};

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

pub(super) fn link(delay_us: u32, bytes_per_second: u64) -> Link {
    Link { delay_us, bytes_per_second }
}

/// All links alike.
pub(super) fn uniform(size: u32, delay_us: u32, bytes_per_second: u64) -> CostTable {
    CostTable::from_fn(WorldSize::new(size), |_, _| link(delay_us, bytes_per_second)).expect("costs that can be")
}

/// Even and odd ranks at one site each; the way between them takes ten times as long.
pub(super) fn two_sites(size: u32) -> CostTable {
    let between = |from: Rank, to: Rank| {
        if from.0 % 2 == to.0 % 2 { link(500, 125_000_000) } else { link(5_000, 12_500_000) }
    };
    CostTable::from_fn(WorldSize::new(size), between).expect("costs that can be")
}

/// Links of very different quality, each direction its own.
pub(super) fn random(size: u32, seed: u64) -> CostTable {
    let rng = std::cell::RefCell::new(Rng(seed));
    let draw = |_, _| {
        let mut rng = rng.borrow_mut();
        link(50 + u32::try_from(rng.below(80_000)).expect("small"), 1_000_000 << rng.below(8))
    };
    CostTable::from_fn(WorldSize::new(size), draw).expect("costs that can be")
}
