//! Sites: ranks that are much nearer to each other than to all others.

use std::fmt;

use crate::id::{Rank, WorldSize};
use crate::plan::costs::link_costs::{CostTable, NEVER_NS};
use crate::plan::route::Route;

/// Between sites everything takes at least this many times as long as within them.
const GAP: u64 = 3;

/// What distances are compared by: large enough that bandwidth counts, small enough that delay does.
const PROBE_BYTES: u64 = 1 << 16;

/// The largest group in which all send to one directly. In a larger one that would take more links than two trees do.
const MESH_MOST: usize = 4;

/// All ranks, each in one group. Ranks ascend within a group, groups by their first rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTable {
    groups: Vec<Vec<Rank>>,
}

impl GroupTable {
    /// The groups in which the ranks are that have the same label, one label for each rank.
    ///
    /// # Panics
    /// If there is no label: a world has a rank.
    pub fn from_labels(labels: &[u32]) -> Self {
        assert!(!labels.is_empty(), "a world has a rank");
        let mut groups: Vec<(u32, Vec<Rank>)> = Vec::new();
        for (rank, label) in (0..).map(Rank).zip(labels) {
            match groups.iter_mut().find(|(other, _)| other == label) {
                Some((_, group)) => group.push(rank),
                None => groups.push((*label, vec![rank])),
            }
        }
        Self { groups: groups.into_iter().map(|(_, group)| group).collect() }
    }

    /// The sites that the costs show; `None` if all ranks are one site, or each is its own.
    ///
    /// The links of a minimum spanning tree (J. B. Kruskal, 1956) are cut where the next longer one is longest in
    /// proportion. What is left must be apart: every way between two sites takes three times as long as any within one.
    pub fn detect(costs: &CostTable) -> Option<Self> {
        let world = costs.world_size();
        let mut edges: Vec<(u64, Rank, Rank)> = Vec::new();
        for one in world.ranks() {
            edges.extend((one.0 + 1..world.get()).map(Rank).map(|other| (distance(costs, one, other), one, other)));
        }
        edges.sort_unstable();
        let tree = spanning_tree(world, &edges);
        let gaps = tree.windows(2).map(|pair| ratio(pair[0].0, pair[1].0));
        let (at, widest) = (0..).zip(gaps).max_by_key(|(at, gap)| (*gap, std::cmp::Reverse(*at)))?;
        if widest < GAP * 1_000 {
            return None;
        }
        let mut labels: Vec<u32> = (0..world.get()).collect();
        for (_, one, other) in &tree[..=at] {
            merge(&mut labels, *one, *other);
        }
        let groups = Self::from_labels(&labels);
        let is_inner = |one: Rank, other: Rank| labels[one.0 as usize] == labels[other.0 as usize];
        let inner = edges.iter().filter(|(_, one, other)| is_inner(*one, *other)).map(|edge| edge.0).max()?;
        let outer = edges.iter().filter(|(_, one, other)| !is_inner(*one, *other)).map(|edge| edge.0).min()?;
        (outer >= inner.saturating_mul(GAP)).then_some(groups)
    }

    /// How many ranks are in all groups together.
    pub fn world_size(&self) -> WorldSize {
        WorldSize::new(
            u32::try_from(self.groups.iter().map(Vec::len).sum::<usize>()).expect("invariant: ranks are u32"),
        )
    }

    /// The groups.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[Rank]> {
        self.groups.iter().map(Vec::as_slice)
    }

    /// The group of `rank`, and the position in it.
    ///
    /// # Panics
    /// If no group has the rank.
    pub fn place(&self, rank: Rank) -> (usize, usize) {
        let in_group = |group: &Vec<Rank>| group.binary_search(&rank).ok();
        let found = self.groups.iter().enumerate().find_map(|(index, group)| Some((index, in_group(group)?)));
        found.expect("invariant: groups are asked for ranks of their world")
    }

    /// Chunk `c` belongs to rank `c`. In each group one rank stands for the chunk. All others of the group send to it, in a
    /// large group along a ring that ends at it; those that stand for the chunk add up along the ring of groups; and the
    /// result goes back the same ways.
    pub(crate) fn route(&self, world: WorldSize, chunk: Rank) -> Route {
        assert_eq!(world, self.world_size(), "groups are those of the world that is planned");
        let (home, place) = self.place(chunk);
        let count = self.groups.len();
        // The share of a group's work is spread over its ranks, however many there are.
        let stands = |group: usize| {
            let (ours, theirs) = (self.groups[home].len(), self.groups[group].len());
            if group == home { place } else { place * theirs / ours }
        };
        let gate = |group: usize| self.groups[group][stands(group)];
        let (mut up, mut down) = (vec![None; world.get() as usize], vec![None; world.get() as usize]);
        for (group, ranks) in self.groups.iter().enumerate() {
            let size = ranks.len();
            for (place, rank) in ranks.iter().enumerate() {
                let (up, down) = (&mut up[rank.0 as usize], &mut down[rank.0 as usize]);
                (*up, *down) = if place == stands(group) {
                    let is_home = group == home;
                    let (next, before) = (gate((group + 1) % count), gate((group + count - 1) % count));
                    ((!is_home).then_some(next), (!is_home).then_some(before))
                } else if size <= MESH_MOST {
                    (Some(gate(group)), Some(gate(group)))
                } else {
                    (Some(ranks[(place + 1) % size]), Some(ranks[(place + size - 1) % size]))
                };
            }
        }
        let direct = self.groups.iter().all(|group| group.len() <= MESH_MOST);
        Route::new(chunk, up, down, direct)
    }
}

impl fmt::Display for GroupTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.groups.iter().enumerate() {
            let ranks: Vec<String> = group.iter().map(|rank| rank.0.to_string()).collect();
            write!(f, "{}{{{}}}", if index == 0 { "" } else { " " }, ranks.join(" "))?;
        }
        Ok(())
    }
}

/// The worse direction counts.
fn distance(costs: &CostTable, one: Rank, other: Rank) -> u64 {
    let way = |from, to| {
        let link = costs.link(from, to);
        link.delay_ns().saturating_add(link.transfer_ns(PROBE_BYTES)).min(NEVER_NS)
    };
    way(one, other).max(way(other, one))
}

/// How many thousandths of `short` fit into `long`.
fn ratio(short: u64, long: u64) -> u64 {
    long.saturating_mul(1_000) / short.max(1)
}

/// The edges of a minimum spanning tree, the shortest first.
fn spanning_tree(world: WorldSize, edges: &[(u64, Rank, Rank)]) -> Vec<(u64, Rank, Rank)> {
    let mut labels: Vec<u32> = (0..world.get()).collect();
    edges.iter().copied().filter(|(_, one, other)| merge(&mut labels, *one, *other)).collect()
}

/// Gives all ranks with one's label the other's label; whether they differed.
fn merge(labels: &mut [u32], one: Rank, other: Rank) -> bool {
    let (kept, gone) = (labels[one.0 as usize], labels[other.0 as usize]);
    for label in labels.iter_mut().filter(|label| **label == gone) {
        *label = kept;
    }
    kept != gone
}
