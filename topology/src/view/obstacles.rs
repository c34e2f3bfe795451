//! Obstacles: the members that go where no ring leads around links that are down, and nobody is left who reaches all others.
//!
//! Nobody goes who could stay all the same: at the end no member is out that one of those who stay reaches together with all who stay. Which
//! few go is a guess at first, and as few as that finds; who did not have to go after all is taken back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::id::PeerId;
use crate::view::View;

/// Whether members can reduce although these pairs of them are severed.
type WayFinder<'a> = &'a dyn Fn(&[PeerId], &[(PeerId, PeerId)]) -> bool;

/// Members of a view, and which of them can't reach each other.
pub(crate) struct Obstacles<'a> {
    view: &'a View,
    /// Those who may stay, each with whether it holds what one of those who stay has to hold, if any of them does.
    members: &'a BTreeMap<PeerId, bool>,
    /// Who says that it can't reach whom.
    told: &'a BTreeSet<(PeerId, PeerId)>,
    /// Sorted, lower one first.
    severed: Vec<(PeerId, PeerId)>,
    is_way: WayFinder<'a>,
}

impl<'a> Obstacles<'a> {
    /// Those among these `members` of `view`, where each has `told` whom it can't reach.
    pub(crate) fn among(
        view: &'a View,
        members: &'a BTreeMap<PeerId, bool>,
        told: &'a BTreeSet<(PeerId, PeerId)>,
        is_way: WayFinder<'a>,
    ) -> Self {
        let stay = |(a, b): &&(PeerId, PeerId)| a != b && members.contains_key(a) && members.contains_key(b);
        let severed: BTreeSet<(PeerId, PeerId)> =
            told.iter().filter(stay).map(|(a, b)| (*a.min(b), *a.max(b))).collect();
        Self { view, members, told, severed: severed.into_iter().collect(), is_way }
    }

    /// The pairs that are severed once these are gone.
    pub(crate) fn severed_without(&self, gone: &BTreeSet<PeerId>) -> Vec<(PeerId, PeerId)> {
        self.severed.iter().filter(|(a, b)| !gone.contains(a) && !gone.contains(b)).copied().collect()
    }

    /// Who goes: nobody, if there is a way. Else the worst first, or, if that is fewer, all who are severed from one that is a hub then.
    pub(crate) fn find(&self) -> BTreeSet<PeerId> {
        let gone = self.spare(&self.worst_first());
        if gone.len() < 2 {
            return gone;
        }
        let around = self.around_a_hub().map(|around| self.spare(&around));
        around.filter(|around| around.len() < gone.len()).unwrap_or(gone)
    }

    /// Members one after the other, until there is a way without them: a newcomer that names others whom no voter names, and that do not name
    /// it, since its word puts out nobody; then any newcomer; then the one with most severed pairs; of several, the highest. The last
    /// one that holds what has to be held stays.
    pub(crate) fn worst_first(&self) -> Vec<PeerId> {
        let (mut order, mut gone) = (Vec::new(), BTreeSet::new());
        while !self.is_way_without(&gone) {
            let left: Vec<PeerId> = self.left_without(&gone);
            let apart = self.apart_without(&gone);
            let holders = left.iter().filter(|peer| self.holds(peer)).count();
            let rank = |peer: &PeerId| {
                let severed = apart.get(peer).map_or(0, BTreeSet::len);
                (self.names_alone(*peer, &gone), severed > 0 && !self.view.votes(*peer), severed, *peer)
            };
            let worst = left.iter().filter(|peer| holders != 1 || !self.holds(peer)).map(rank).max();
            let (.., worst) = worst.expect("invariant: one alone needs no link, and of two there is one to spare");
            order.push(worst);
            gone.insert(worst);
        }
        order
    }

    /// All who are severed from one that is a hub without them: from that from which fewest are. Of several that of which more of those
    /// say so themselves, then a voter, then the lowest. What a newcomer alone says puts out nobody.
    fn around_a_hub(&self) -> Option<Vec<PeerId>> {
        let apart = self.apart_without(&BTreeSet::new());
        let of = |hub: &PeerId| apart.get(hub).into_iter().flatten();
        let is_held = self.members.values().any(|holds| *holds);
        let keeps = |hub: &PeerId| {
            let holders = || self.members.keys().filter(|peer| self.holds(peer));
            let stays = |peer: &PeerId| apart.get(hub).is_none_or(|gone| !gone.contains(peer));
            !is_held || holders().any(stays)
        };
        let silent = |hub: &PeerId| of(hub).filter(|peer| !self.told.contains(&(**peer, *hub))).count();
        let may_be = |hub: &&PeerId| !self.names_alone(**hub, &BTreeSet::new()) && keeps(hub);
        let hubs = self.members.keys().filter(may_be);
        let hub = hubs.min_by_key(|hub| (of(hub).count(), silent(hub), Reverse(self.view.votes(**hub)), **hub))?;
        let gone: Vec<PeerId> = of(hub).copied().collect();
        self.is_way_without(&gone.iter().copied().collect()).then_some(gone)
    }

    /// Of those who are to go, in this order, those for whom there is no place: each stays with whom there is a way all the same, the last
    /// ones first.
    fn spare(&self, order: &[PeerId]) -> BTreeSet<PeerId> {
        let mut gone: BTreeSet<PeerId> = order.iter().copied().collect();
        for peer in order.iter().rev() {
            gone.remove(peer);
            if !self.is_way_without(&gone) {
                gone.insert(*peer);
            }
        }
        // Who stays after all may be the hub that another one lacked.
        let has_place = |peer: &PeerId, gone: &BTreeSet<PeerId>| {
            let others = gone.iter().copied().filter(|other| other != peer).collect();
            self.is_way_without(&others)
        };
        while let Some(peer) = self.reached_by_hubs(&gone).into_iter().find(|peer| has_place(peer, &gone)) {
            gone.remove(&peer);
        }
        gone
    }

    /// Those of these that one who stays reaches together with all who stay.
    fn reached_by_hubs(&self, gone: &BTreeSet<PeerId>) -> Vec<PeerId> {
        let apart = self.apart_without(gone);
        let hubs: Vec<PeerId> = self.left_without(gone).into_iter().filter(|peer| !apart.contains_key(peer)).collect();
        let is_apart = |a: PeerId, b: PeerId| self.severed.binary_search(&(a.min(b), a.max(b))).is_ok();
        let is_reached = |peer: &PeerId| hubs.iter().any(|hub| !is_apart(*hub, *peer));
        gone.iter().copied().filter(is_reached).collect()
    }

    fn left_without(&self, gone: &BTreeSet<PeerId>) -> Vec<PeerId> {
        self.members.keys().filter(|peer| !gone.contains(*peer)).copied().collect()
    }

    fn is_way_without(&self, gone: &BTreeSet<PeerId>) -> bool {
        (self.is_way)(&self.left_without(gone), &self.severed_without(gone))
    }

    /// From whom each is severed that is not gone.
    fn apart_without(&self, gone: &BTreeSet<PeerId>) -> BTreeMap<PeerId, BTreeSet<PeerId>> {
        let mut apart: BTreeMap<PeerId, BTreeSet<PeerId>> = BTreeMap::new();
        for (a, b) in self.severed_without(gone) {
            apart.entry(a).or_default().insert(b);
            apart.entry(b).or_default().insert(a);
        }
        apart
    }

    /// Whether a newcomer names somebody who stays that does not name it, and whom nobody names who votes.
    fn names_alone(&self, by: PeerId, gone: &BTreeSet<PeerId>) -> bool {
        let is_named_alone = |peer: PeerId| {
            let is_voters = |(teller, other): &(PeerId, PeerId)| *other == peer && self.view.votes(*teller);
            !self.told.contains(&(peer, by)) && !self.told.iter().any(is_voters)
        };
        let stays = |peer: &PeerId| self.members.contains_key(peer) && !gone.contains(peer);
        let named = self.told.range((by, PeerId([0; 32]))..).take_while(|(teller, _)| *teller == by);
        !self.view.votes(by)
            && named.map(|(_, peer)| *peer).filter(|peer| *peer != by && stays(peer)).any(is_named_alone)
    }

    fn holds(&self, peer: &PeerId) -> bool {
        self.members.get(peer).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::view::ring::is_way;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    /// Who goes of so many members, of which the first ones vote, where each pair says who can't reach whom.
    fn gone(members: u8, voters: u8, told: &[(u8, u8)]) -> Vec<u8> {
        gone_of(members, voters, &|_| true, told)
    }

    fn gone_of(members: u8, voters: u8, holds: &dyn Fn(u8) -> bool, told: &[(u8, u8)]) -> Vec<u8> {
        let view = View::found(RunId([7; 32]), peer(0)).succeed((0..members).map(peer));
        let view = view.with_newcomers((voters..members).map(peer));
        let told = told.iter().map(|(a, b)| (peer(*a), peer(*b))).collect();
        let members = (0..members).map(|name| (peer(name), holds(name))).collect();
        Obstacles::among(&view, &members, &told, &is_way).find().into_iter().map(|peer| peer.0[0]).collect()
    }

    /// Both of each pair say so.
    fn both(pairs: &[(u8, u8)]) -> Vec<(u8, u8)> {
        pairs.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect()
    }

    /// All pairs of these.
    fn all_of(members: std::ops::Range<u8>) -> Vec<(u8, u8)> {
        members.clone().flat_map(|a| members.clone().filter(move |b| a < *b).map(move |b| (a, b))).collect()
    }

    #[test]
    fn who_alone_is_severed_from_the_only_hub_goes_whoever_has_no_vote() {
        // All but the first one can't reach each other, and of these the second can't reach the first either.
        for voters in 3..7 {
            let told = both(&[all_of(1..7), vec![(0, 1)]].concat());
            assert_eq!(gone(7, voters, &told), [1], "{voters} vote");
        }
        assert_eq!(gone(7, 3, &both(&all_of(1..7))), [0; 0], "nobody is in its way");
        // The last one, which reaches all but the first, has no vote yet.
        let told = both(&[all_of(0..5), vec![(0, 5)]].concat());
        assert_eq!(gone(6, 5, &told), [0]);
    }

    #[test]
    fn one_goes_rather_than_two() {
        // Two would be hubs but for the link between them, and of four others no two reach each other: without one of those there is no ring.
        let told = |between: &[(u8, u8)]| [both(&all_of(2..6)), between.to_vec()].concat();
        assert_eq!(gone(6, 6, &told(&[(0, 1), (1, 0)])), [1]);
        assert_eq!(gone(6, 6, &told(&[(1, 0)])), [1], "who says so");
        assert_eq!(gone(6, 6, &told(&[(0, 1)])), [0], "who says so");
        assert_eq!(gone(6, 1, &told(&[(1, 0)])), [1], "its word puts out nobody");
        // It alone holds the state.
        assert_eq!(gone_of(6, 6, &|name| name == 1, &told(&[(1, 0), (0, 1)])), [0]);
    }

    #[test]
    fn a_newcomer_goes_where_one_has_to_go_in_any_case() {
        let told = both(&[(0, 1), (0, 3), (1, 3), (2, 3)]);
        assert_eq!(gone(4, 3, &told), [3], "of three the third one is a hub");
        assert_eq!(gone(4, 4, &told), [3]);
        // Of the others each reaches two.
        let told = both(&[(0, 1), (2, 3), (4, 0)]);
        assert_eq!(gone(5, 5, &told), [0; 0]);
        assert_eq!(gone(5, 4, &[told.as_slice(), &both(&[(4, 1), (4, 2)])].concat()), [4]);
    }

    #[test]
    fn nobody_is_out_whom_a_hub_of_those_who_stay_reaches() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let (mut put_out, mut several) = (0, 0);
        for _ in 0..4_000 {
            let members = 2 + below(9) as u8;
            let voters = 1 + below(u64::from(members)) as u8;
            let odds = 1 + below(6);
            let mut told = Vec::new();
            for (a, b) in all_of(0..members) {
                if below(odds) == 0 {
                    told.extend(match below(4) {
                        0 => vec![(a, b)],
                        1 => vec![(b, a)],
                        _ => vec![(a, b), (b, a)],
                    });
                }
            }
            let holder = below(u64::from(members) * 2) as u8;
            let gone = gone_of(members, voters, &|name| name == holder, &told);
            let talk = |a: u8, b: u8| !told.contains(&(a, b)) && !told.contains(&(b, a));
            let stay: Vec<u8> = (0..members).filter(|name| !gone.contains(name)).collect();
            assert!(!stay.is_empty() && !gone.contains(&holder), "{told:?}: {gone:?} of {members} go, {holder} holds");
            for out in &gone {
                let hub = stay.iter().find(|hub| talk(**hub, *out) && stay.iter().all(|peer| talk(**hub, *peer)));
                assert_eq!(hub, None, "{told:?}: {gone:?} of {members} go");
            }
            put_out += usize::from(!gone.is_empty());
            several += usize::from(gone.len() > 1);
        }
        assert!(put_out > 500 && several > 100, "{put_out}, {several}");
    }
}
