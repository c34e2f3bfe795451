//! The cyclic order of a view's members.

use std::collections::BTreeSet;

use crate::id::{PeerId, Rank, WorldSize};
use crate::plan::{Bucket, CostTable, ring_order, view_costs};
use crate::view::View;

/// A ring: each member sends to the next one and receives from the previous one.
///
/// A pure function of the view, so all members that hold one view compute one ring: the one in which an all-reduce is
/// fastest by the costs that the view carries; without costs the sorted order of peer ids, or, if members are severed, one
/// in which no two of those are neighbours, where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    order: Vec<PeerId>,
}

impl Ring {
    /// The ring of `view`. Where none leads around the severed pairs, the sorted order: its members reduce by a star.
    pub fn plan(view: &View) -> Self {
        let order = fastest(view).or_else(|| ring_around(view.members(), view.severed()));
        Self { order: order.unwrap_or_else(|| view.members().to_vec()) }
    }

    /// Whether no two neighbours are severed in `view`.
    pub(crate) fn leads_around(&self, view: &View) -> bool {
        let next = self.order.iter().cycle().skip(1);
        view.severed().is_empty() || self.order.iter().zip(next).all(|(a, b)| !view.is_severed(*a, *b))
    }

    /// How many members the ring has.
    pub fn world_size(&self) -> WorldSize {
        WorldSize::new(u32::try_from(self.order.len()).expect("invariant: members are bounded"))
    }

    /// The position of `peer`, if it is a member.
    pub fn rank_of(&self, peer: PeerId) -> Option<Rank> {
        let position = self.order.iter().position(|member| *member == peer)?;
        Some(Rank(u32::try_from(position).expect("invariant: members are bounded")))
    }

    /// The peer at `rank`.
    ///
    /// # Panics
    /// If `rank` is not in this ring.
    pub fn peer(&self, rank: Rank) -> PeerId {
        self.order[rank.0 as usize]
    }

    /// `costs`, which are by place among the sorted members, by rank.
    ///
    /// # Panics
    /// If they are those of another number of members.
    pub(crate) fn arrange(&self, costs: &CostTable) -> CostTable {
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        let place = |peer| sorted.binary_search(peer).expect("invariant: all of the order are sorted");
        let places =
            self.order.iter().map(|peer| Rank(u32::try_from(place(peer)).expect("invariant: members are bounded")));
        costs.reordered(&places.collect::<Vec<_>>())
    }

    /// The peer that the one at `rank` sends to.
    pub fn next(&self, rank: Rank) -> PeerId {
        self.peer(self.world_size().next(rank))
    }

    /// The peer that the one at `rank` receives from.
    pub fn previous(&self, rank: Rank) -> PeerId {
        self.peer(self.world_size().previous(rank))
    }
}

/// What orders are compared by. The order is known before what is reduced is, and between a model's buckets it hardly
/// differs: large enough that bandwidth counts, small enough that delay does.
const TYPICAL: Bucket = Bucket { bytes: 4 << 20, segment_bytes: 64 << 10 };

/// The order that the view's costs call for, if it has any. None if there is no way round but over a severed pair.
fn fastest(view: &View) -> Option<Vec<PeerId>> {
    view.costs()?;
    let members = view.members();
    let order: Vec<PeerId> =
        ring_order(&view_costs(view), TYPICAL).into_iter().map(|place| members[place.0 as usize]).collect();
    let next = order.iter().cycle().skip(1);
    order.iter().zip(next).all(|(a, b)| !view.is_severed(*a, *b)).then_some(order)
}

/// Up to this many members, all orders are tried.
const FEW: usize = 9;

/// A cyclic order of `members` (sorted) in which no two neighbours are `severed` (sorted pairs, lower one first).
///
/// Among few members it finds one if there is one. Among more, it mends the sorted order: at a severed pair `(a, b)` it
/// looks for another pair of neighbours `(c, d)` such that `a`, `c` and `b`, `d` are not severed, and turns the stretch from `b` to `c`
/// around, which mends at least one pair and breaks none (E. M. Palmer, "The hidden algorithm of Ore's theorem on
/// Hamiltonian cycles", 1997). That always succeeds if each member can reach half of the others.
pub(crate) fn ring_around(members: &[PeerId], severed: &[(PeerId, PeerId)]) -> Option<Vec<PeerId>> {
    let apart = |a: PeerId, b: PeerId| severed.binary_search(&(a.min(b), a.max(b))).is_ok();
    if severed.is_empty() || members.len() < 2 {
        return Some(members.to_vec());
    }
    if members.len() <= FEW {
        let mut order = vec![members[0]];
        return extend(&mut order, members, &apart).then_some(order);
    }
    let mut order = members.to_vec();
    let count = order.len();
    while let Some(gap) = (0..count).find(|at| apart(order[*at], order[(at + 1) % count])) {
        order.rotate_left((gap + 1) % count); // The severed pair is now the last one and the first one.
        let (a, b) = (order[count - 1], order[0]);
        let turn = (1..count - 1).find(|at| !apart(b, order[*at]) && !apart(a, order[at - 1]))?;
        order[..turn].reverse();
    }
    let first = order.iter().position(|peer| *peer == members[0])?;
    order.rotate_left(first);
    Some(order)
}

/// Whether `members` can reduce although these pairs are `severed`: a ring leads around them, or one of the members is in none of
/// them, and so a hub of a star.
pub(crate) fn is_way(members: &[PeerId], severed: &[(PeerId, PeerId)]) -> bool {
    !hubs(members, severed).is_empty() || ring_around(members, severed).is_some()
}

/// The hubs of a view whose members have to reduce by a star, as no ring leads around its severed pairs or it is unsteady; of any other
/// view none.
pub(crate) fn star_hubs(view: &View) -> Vec<PeerId> {
    let needs_star = || view.is_unsteady() || !Ring::plan(view).leads_around(view);
    if view.severed().is_empty() || !needs_star() { Vec::new() } else { hubs_of(view) }
}

/// The members of `view` that are severed from nobody. Of a newcomer nobody may have found that out yet: only where no voter is one.
pub(crate) fn hubs_of(view: &View) -> Vec<PeerId> {
    let all = hubs(view.members(), view.severed());
    let voters: Vec<PeerId> = all.iter().copied().filter(|peer| view.votes(*peer)).collect();
    if voters.is_empty() { all } else { voters }
}

/// Those of `members` that are in none of these pairs.
fn hubs(members: &[PeerId], severed: &[(PeerId, PeerId)]) -> Vec<PeerId> {
    let apart: BTreeSet<PeerId> = severed.iter().flat_map(|(a, b)| [*a, *b]).collect();
    members.iter().copied().filter(|peer| !apart.contains(peer)).collect()
}

/// Depth first: completes `order` with the members that it lacks.
fn extend(order: &mut Vec<PeerId>, members: &[PeerId], apart: &impl Fn(PeerId, PeerId) -> bool) -> bool {
    let last = order[order.len() - 1];
    if order.len() == members.len() {
        return !apart(last, order[0]);
    }
    for peer in members {
        if !order.contains(peer) && !apart(last, *peer) {
            order.push(*peer);
            if extend(order, members, apart) {
                return true;
            }
            order.pop();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    #[test]
    fn a_ring_closes_and_depends_on_the_members_only() {
        for size in 1..=16u8 {
            let members: Vec<PeerId> = (0..size).map(|name| PeerId([name; 32])).collect();
            let founded = View::found(RunId([0; 32]), members[0]);
            let ring = Ring::plan(&founded.succeed(members.iter().copied()));
            assert_eq!(ring, Ring::plan(&founded.succeed(members.iter().rev().copied())));
            for rank in ring.world_size().ranks() {
                let next = ring.rank_of(ring.next(rank)).expect("a member");
                assert_eq!(ring.previous(next), ring.peer(rank));
                assert_eq!(ring.rank_of(ring.peer(rank)), Some(rank));
            }
            assert_eq!(ring.rank_of(PeerId([99; 32])), None);
        }
    }

    fn peers(count: u8) -> Vec<PeerId> {
        (1..=count).map(|name| PeerId([name; 32])).collect()
    }

    #[track_caller]
    fn assert_avoids(order: &[PeerId], members: &[PeerId], severed: &[(PeerId, PeerId)]) {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, members);
        for (at, peer) in order.iter().enumerate() {
            let next = order[(at + 1) % order.len()];
            assert!(!severed.contains(&(*peer.min(&next), *peer.max(&next))), "{order:?} avoids {severed:?}");
        }
    }

    #[test]
    fn a_ring_leads_around_one_severed_pair_among_four_and_more() {
        for count in 2..=20u8 {
            let members = peers(count);
            for a in 0..members.len() {
                for b in a + 1..members.len() {
                    let severed = [(members[a], members[b])];
                    match ring_around(&members, &severed) {
                        Some(order) => assert_avoids(&order, &members, &severed),
                        None => assert!(count <= 3, "there is a ring around {severed:?} among {count}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_ring_leads_around_any_pairs_that_leave_each_member_half_of_the_others() {
        let mut state = 1u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        for _ in 0..2_000 {
            let members = peers(10 + below(40) as u8);
            let mut degrees = vec![0; members.len()];
            let mut severed = Vec::new();
            for _ in 0..below(members.len() * 3) {
                let (a, b) = (below(members.len()), below(members.len()));
                let limit = members.len() / 2 - 1;
                let pair = (members[a.min(b)], members[a.max(b)]);
                if a != b && degrees[a] < limit && degrees[b] < limit && !severed.contains(&pair) {
                    (degrees[a], degrees[b]) = (degrees[a] + 1, degrees[b] + 1);
                    severed.push(pair);
                }
            }
            severed.sort_unstable();
            let order = ring_around(&members, &severed).expect("Dirac: there is one");
            assert_avoids(&order, &members, &severed);
        }
    }

    #[test]
    fn a_hub_is_a_way_where_there_is_no_ring() {
        let members = peers(4);
        let apart =
            |pairs: &[(usize, usize)]| pairs.iter().map(|(a, b)| (members[*a], members[*b])).collect::<Vec<_>>();
        let of_three = apart(&[(0, 1), (0, 2), (1, 2)]);
        assert!(ring_around(&members, &of_three).is_none() && is_way(&members, &of_three));
        assert!(!is_way(&members[..3], &of_three), "nobody reaches all");
        assert!(is_way(&members, &apart(&[(0, 1), (2, 3)])), "a ring leads around");
        let path = apart(&[(0, 1), (0, 2), (1, 3)]);
        assert!(!is_way(&members, &path));
        let view = View::found(RunId([0; 32]), members[0]).succeed(members.clone());
        assert_eq!((star_hubs(&view), star_hubs(&view.clone().with_severed(of_three))), (Vec::new(), vec![members[3]]));
        let one = view.with_severed(apart(&[(0, 1)]));
        assert_eq!((star_hubs(&one), star_hubs(&one.clone().with_unsteady(true))), (Vec::new(), members[2..].to_vec()));
    }

    #[test]
    fn the_ring_of_a_view_avoids_its_severed_pairs() {
        let members = peers(5);
        let pair = (members[0], members[1]);
        let view = View::found(RunId([0; 32]), members[0]).succeed(members.clone()).with_severed([pair]);
        let ring = Ring::plan(&view);
        for rank in ring.world_size().ranks() {
            assert!(!view.is_severed(ring.peer(rank), ring.peer(ring.world_size().next(rank))));
        }
        assert_eq!(ring.peer(Rank(0)), members[0]);
    }
}
