//! Hubs: the ranks through which a star reduces.

use std::cmp::Reverse;
use std::fmt;

use thiserror::Error;

use crate::id::{Rank, WorldSize};
use crate::plan::costs::link_costs::CostTable;
use crate::plan::costs::weights::{bandwidth, hub_weights};
use crate::plan::route::{self, Route};
use crate::view::View;
use crate::view::ring::{Ring, hubs_of};

/// The most hubs that a star has. Each further one is one more link for every rank.
pub const MAX_HUBS: usize = 16;

/// Ranks that exchange segments with all others, while these exchange none with each other. Sorted, distinct, one at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubSet {
    hubs: Vec<Rank>,
}

/// Ranks that can't be the hubs of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HubError {
    /// Nobody would own anything, or too many would.
    #[error("{0} hubs, where a star has 1 to {MAX_HUBS}")]
    Count(usize),
    /// Two forms of one thing, or one rank twice.
    #[error("rank {0} is named as a hub after rank {1}: hubs are sorted and distinct")]
    Unsorted(u32, u32),
    /// Nobody has that rank.
    #[error("rank {0} is named as a hub in a world of {1}")]
    OutOfRange(u32, u32),
}

impl HubSet {
    /// These ranks of `world` as hubs.
    ///
    /// # Errors
    /// [`HubError`] if they are none, too many, not sorted and distinct, or not all in the world.
    pub fn new(world: WorldSize, hubs: Vec<Rank>) -> Result<Self, HubError> {
        if hubs.is_empty() || hubs.len() > MAX_HUBS {
            return Err(HubError::Count(hubs.len()));
        }
        if let Some(pair) = hubs.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(HubError::Unsorted(pair[1].0, pair[0].0));
        }
        match hubs.iter().find(|rank| rank.0 >= world.get()) {
            Some(rank) => Err(HubError::OutOfRange(rank.0, world.get())),
            None => Ok(Self { hubs }),
        }
    }

    /// The ranks that have a link to all others, at most `most` of them and [`MAX_HUBS`]: the fastest, of equals the lowest.
    /// `None` if there is no such rank.
    pub fn detect(costs: &CostTable, most: usize) -> Option<Self> {
        let world = costs.world_size();
        let reaches = |rank: Rank, other: Rank| {
            rank == other || (costs.link(rank, other).is_up() && costs.link(other, rank).is_up())
        };
        let is_hub = |rank: &Rank| world.ranks().all(|other| reaches(*rank, other));
        Self::fastest(world, world.ranks().filter(is_hub).collect(), Some(costs), most)
    }

    /// The [hubs](hubs_of) of `view`, by their rank in its `ring`; at most `most` of them, chosen as by [`Self::detect`]. `costs` are by
    /// rank.
    pub(crate) fn of(ring: &Ring, view: &View, costs: Option<&CostTable>, most: usize) -> Option<Self> {
        let (world, members) = (ring.world_size(), hubs_of(view));
        let hubs = world.ranks().filter(|rank| members.contains(&ring.peer(*rank))).collect();
        Self::fastest(world, hubs, costs, most)
    }

    fn fastest(world: WorldSize, mut hubs: Vec<Rank>, costs: Option<&CostTable>, most: usize) -> Option<Self> {
        // Stable, so equals keep the order of their ranks.
        hubs.sort_by_key(|rank| Reverse(costs.map(|costs| bandwidth(costs, *rank))));
        hubs.truncate(most.min(MAX_HUBS));
        hubs.sort_unstable();
        Self::new(world, hubs).ok()
    }

    /// The hubs, sorted. Chunk `c` belongs to the one at place `c`.
    pub fn ranks(&self) -> &[Rank] {
        &self.hubs
    }

    /// How many hubs there are: as many chunks has a bucket.
    pub fn count(&self) -> u32 {
        u32::try_from(self.hubs.len()).expect("invariant: hubs are bounded")
    }

    /// How large the hubs' chunks should be in proportion, so that the slowest rank ends soonest.
    pub(crate) fn weights(&self, costs: &CostTable) -> Vec<u32> {
        hub_weights(costs, &self.hubs)
    }

    /// Chunk `c` belongs to hub `c`: everybody sends to it and receives from it.
    pub(crate) fn route(&self, world: WorldSize, chunk: Rank) -> Route {
        let owner = self.hubs[chunk.0 as usize];
        assert!(owner.0 < world.get(), "hubs are those of the world that is planned");
        route::mesh(world, owner)
    }
}

impl fmt::Display for HubSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks: Vec<String> = self.hubs.iter().map(|rank| rank.0.to_string()).collect();
        write!(f, "{{{}}}", ranks.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hubs_that_can_not_be_are_refused() {
        let hubs = |ranks: &[u32]| HubSet::new(WorldSize::new(20), ranks.iter().copied().map(Rank).collect());
        let all: Vec<u32> = (0..20).collect();
        assert_eq!(hubs(&[]), Err(HubError::Count(0)));
        assert_eq!(hubs(&all[..=MAX_HUBS]), Err(HubError::Count(MAX_HUBS + 1)));
        assert_eq!(hubs(&[3, 3]), Err(HubError::Unsorted(3, 3)));
        assert_eq!(hubs(&[4, 3]), Err(HubError::Unsorted(3, 4)));
        assert_eq!(hubs(&[0, 20]), Err(HubError::OutOfRange(20, 20)));
        assert_eq!(hubs(&[0, u32::MAX]), Err(HubError::OutOfRange(u32::MAX, 20)));
        assert_eq!(hubs(&all[..MAX_HUBS]).map(|hubs| hubs.count()), Ok(16));
        assert_eq!(hubs(&[0, 7, 19]).map(|hubs| hubs.to_string()), Ok("{0 7 19}".to_owned()));
    }
}
