//! What the members of one generation agree on, and in which order they stand ([`ring`]). Of where a state comes from there is
//! the [`lineage`] with its root, of what a machine had saved the [`mark`], of how one that was a member comes back the [`way_back`], and who goes
//! where links are down, `obstacles`.

pub mod lineage;
pub mod mark;
pub(crate) mod obstacles;
pub mod ring;
pub mod way_back;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::id::{Generation, PeerId, Rank, RunId, ViewId, WorldSize};
use crate::message::MAX_MEMBERS;
use crate::plan::{CostTable, Link};
use crate::vote::quorum::Quorum;

/// The most pairs of members that a view may note as severed.
pub const MAX_SEVERED: usize = 1024;
/// The most members of a view that carries the costs of its links. Among more, nobody measures each pair.
pub const MAX_COSTED: usize = 32;
/// The longest encoded view, in bytes: 32 for each member and as many for each newcomer, 64 for each severed pair, 10 for each
/// link that was measured, and what is there once.
pub const MAX_VIEW_BYTES: usize = 64 * MAX_MEMBERS + 64 * MAX_SEVERED + 10 * MAX_COSTED * MAX_COSTED + 256;

/// The agreed member set of one generation. Immutable; a change of members is a new view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The run that this view belongs to.
    pub run: RunId,
    /// Its version.
    pub generation: Generation,
    /// The branch that it is on: a number of the branch or fork that its chain goes back to. Two machines may begin the same
    /// settings, or one machine twice, and both sides of a split run may go on.
    pub branch: u64,
    /// The view before it; `None` for a founder's first. The chain of parents shows a fork.
    pub parent: Option<ViewId>,
    /// Sorted, without duplicates, never empty.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    members: Vec<PeerId>,
    /// Those of the members that have no vote yet: they have yet to load the state, or to contribute. In the order in which they came,
    /// without duplicates, never all of them.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    newcomers: Vec<PeerId>,
    /// The member whose vote breaks a tie between two halves: it has one.
    casting: PeerId,
    /// Pairs of members that can't reach each other, lower one first. Sorted, without duplicates.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_SEVERED>")]
    severed: Vec<(PeerId, PeerId)>,
    /// Whether links of the members fail again and again, so that severed pairs stay so. Only where there are such pairs.
    unsteady: bool,
    /// Whether this view, or one before it, was installed without a quorum.
    pub forked: bool,
    /// What the members have measured, by place among them; [`Link::NONE`] where nobody has. `None` if nobody has at all.
    costs: Option<CostTable>,
    /// Which of the members decide the next view: the same rule in all views of a run.
    pub quorum: Quorum,
}

impl View {
    /// The first view of a run: its founder alone.
    pub fn found(run: RunId, founder: PeerId) -> Self {
        Self {
            run,
            generation: Generation::FIRST,
            branch: 0,
            parent: None,
            members: vec![founder],
            newcomers: Vec::new(),
            casting: founder,
            severed: Vec::new(),
            unsteady: false,
            forked: false,
            costs: None,
            quorum: Quorum::Majority,
        }
    }

    /// The view in which `peer` goes on alone after `parent`, as a fork: nobody was asked. `None` if it does not know in
    /// which view it was last.
    pub fn fork(run: RunId, peer: PeerId, parent: Option<(Generation, ViewId)>) -> Self {
        let generation = parent.map_or(Generation::FIRST, |(generation, _)| generation.next());
        let parent = parent.map(|(_, id)| id);
        Self { generation, parent, forked: true, ..Self::found(run, peer) }
    }

    /// This view as the first one of a branch.
    pub fn on_branch(self, branch: u64) -> Self {
        Self { branch, ..self }
    }

    /// This view as the first one of a run in which such quorums decide.
    pub fn with_quorum(self, quorum: Quorum) -> Self {
        Self { quorum, ..self }
    }

    /// The view that follows this one, with `members` in it, all of which vote.
    ///
    /// # Panics
    /// If `members` is empty: nobody would be left to hold the view.
    pub fn succeed(&self, members: impl IntoIterator<Item = PeerId>) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        assert!(!members.is_empty(), "a view has at least one member");
        let stays = |peer: &PeerId| members.binary_search(peer).is_ok();
        let carried = std::iter::once(self.casting).chain(self.voters()).find(stays);
        let casting = carried.unwrap_or(members[0]);
        Self {
            run: self.run,
            generation: self.generation.next(),
            branch: self.branch,
            parent: Some(self.id()),
            members,
            newcomers: Vec::new(),
            casting,
            severed: Vec::new(),
            unsteady: false,
            forked: self.forked,
            costs: None,
            quorum: self.quorum,
        }
    }

    /// This view with these of its members as newcomers, which have no vote, and came in this order. One member has, whoever they are;
    /// so has the one with the casting vote.
    pub fn with_newcomers(mut self, peers: impl IntoIterator<Item = PeerId>) -> Self {
        let mut named = BTreeSet::new();
        let is_new = |peer: &PeerId| self.contains(*peer) && named.insert(*peer);
        let mut newcomers: Vec<_> = peers.into_iter().filter(is_new).collect();
        if newcomers.len() == self.members.len() {
            newcomers.retain(|peer| *peer != self.casting);
        }
        self.newcomers = newcomers;
        let first = self.voters().next().expect("invariant: one member votes");
        if !self.votes(self.casting) {
            self.casting = first;
        }
        self
    }

    /// This view with the casting vote at `peer`, if that votes.
    pub(crate) fn with_casting(mut self, peer: PeerId) -> Self {
        if self.votes(peer) {
            self.casting = peer;
        }
        self
    }

    /// This view with pairs of members that can't reach each other. Pairs of others are left out.
    pub fn with_severed(mut self, pairs: impl IntoIterator<Item = (PeerId, PeerId)>) -> Self {
        let ordered = pairs.into_iter().map(|(a, b)| (a.min(b), a.max(b)));
        let mut severed: Vec<_> = ordered.filter(|(a, b)| a != b && self.contains(*a) && self.contains(*b)).collect();
        severed.sort_unstable();
        severed.dedup();
        self.unsteady &= !severed.is_empty();
        self.severed = severed;
        self
    }

    /// This view as one whose links fail again and again, or not: one without severed pairs never is.
    pub fn with_unsteady(mut self, unsteady: bool) -> Self {
        self.unsteady = unsteady && !self.severed.is_empty();
        self
    }

    /// This view with what its members have measured: `link` tells it of each ordered pair. None of that in a view of more
    /// than [`MAX_COSTED`].
    pub fn with_costs(mut self, link: impl Fn(PeerId, PeerId) -> Option<Link>) -> Self {
        let measured = |from: Rank, to: Rank| {
            let found = link(self.members[from.0 as usize], self.members[to.0 as usize]);
            found.filter(|link| link.is_possible()).unwrap_or(Link::NONE)
        };
        // Below the bound, so that a large view is not asked for a million pairs.
        let costs = (self.members.len() <= MAX_COSTED).then(|| CostTable::from_fn(self.world_size(), measured));
        self.costs = costs.and_then(Result::ok).filter(CostTable::has_links);
        self
    }

    /// blake3 of the view's canonical bytes.
    pub fn id(&self) -> ViewId {
        // Views of few members, which are named in each message, fit here without memory that grows.
        let mut room = [0; 1 << 10];
        let hash = match postcard::to_slice(self, &mut room) {
            Ok(bytes) => blake3::hash(bytes),
            Err(_) => blake3::hash(&self.encode()),
        };
        ViewId(*hash.as_bytes())
    }

    /// The canonical bytes (postcard).
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: a view always encodes")
    }

    /// Reads a view from bytes that came from elsewhere.
    ///
    /// # Errors
    /// A [`Violation`] if they are too many, are no view, have bytes after it, or exceed a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        if bytes.len() > MAX_VIEW_BYTES {
            return Err(Violation::Undecodable);
        }
        let (view, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| Violation::Undecodable)?;
        if !rest.is_empty() {
            return Err(Violation::Undecodable);
        }
        view.validate()?;
        Ok(view)
    }

    /// The members, sorted.
    pub fn members(&self) -> &[PeerId] {
        &self.members
    }

    /// Whether `peer` is a member.
    pub fn contains(&self, peer: PeerId) -> bool {
        self.members.binary_search(&peer).is_ok()
    }

    /// The members that have no vote yet, in the order in which they came.
    pub fn newcomers(&self) -> &[PeerId] {
        &self.newcomers
    }

    /// Whether `peer` is a member that has a vote.
    pub fn votes(&self, peer: PeerId) -> bool {
        self.contains(peer) && !self.newcomers.contains(&peer)
    }

    /// The members that have a vote, sorted.
    pub fn voters(&self) -> impl Iterator<Item = PeerId> + '_ {
        let newcomers: BTreeSet<PeerId> = self.newcomers.iter().copied().collect();
        self.members.iter().copied().filter(move |member| !newcomers.contains(member))
    }

    /// How many members have a vote.
    pub fn voter_count(&self) -> usize {
        self.members.len() - self.newcomers.len()
    }

    /// Pairs of members that can't reach each other, lower one first, sorted.
    pub fn severed(&self) -> &[(PeerId, PeerId)] {
        &self.severed
    }

    /// Whether these two members can't reach each other.
    pub fn is_severed(&self, a: PeerId, b: PeerId) -> bool {
        self.severed.binary_search(&(a.min(b), a.max(b))).is_ok()
    }

    /// Whether links of the members fail again and again: severed pairs are *damped*, and stay severed though they may be heard again,
    /// and the members reduce by a star where one of them is in no such pair.
    pub fn is_unsteady(&self) -> bool {
        self.unsteady
    }

    /// What the members have measured, by place among the sorted members; [`Link::NONE`] where nobody has.
    pub fn costs(&self) -> Option<&CostTable> {
        self.costs.as_ref()
    }

    /// What one member has measured of its link to another.
    pub fn measured(&self, from: PeerId, to: PeerId) -> Option<Link> {
        let place = |peer| self.members.binary_search(&peer).ok().and_then(|place| u32::try_from(place).ok());
        let link = self.costs.as_ref()?.link(Rank(place(from)?), Rank(place(to)?));
        Some(link).filter(|link| link.is_up())
    }

    /// The member whose vote breaks a tie between two halves: the founder; if it is gone, the lowest of those who had a vote
    /// before; another one of these where one went for its broken link to that. Never one that got its vote just now while
    /// another is left: if it dies at once it leaves half a quorum behind.
    pub fn casting(&self) -> PeerId {
        self.casting
    }

    /// How many of those who vote may be hostile at most, so that what is promised against them holds: fewer than a third.
    pub(crate) fn most_hostile(&self) -> usize {
        most_hostile(self.voter_count())
    }

    /// Whether those of `peers` that vote may decide the next view, by the run's rule.
    pub fn has_quorum(&self, peers: &BTreeSet<PeerId>) -> bool {
        // Both are sorted, so one walk along them will do.
        let mut voters = self.voters().peekable();
        let is_voter = |peer: &&PeerId| {
            while voters.next_if(|voter| voter < *peer).is_some() {}
            voters.next_if_eq(*peer).is_some()
        };
        let present = peers.iter().filter(is_voter).count();
        self.quorum.is_met(present, self.voter_count(), peers.contains(&self.casting))
    }

    /// Whether nothing is decided here without `peer`: the others are no quorum.
    pub fn needs(&self, peer: PeerId) -> bool {
        let others = self.members.iter().copied().filter(|member| *member != peer);
        self.contains(peer) && !self.has_quorum(&others.collect())
    }

    /// The fewest members that are a quorum if the casting vote is among them, and all of them vote.
    pub fn quorum(&self) -> usize {
        self.quorum.needed(self.voter_count())
    }

    /// How many members there are.
    pub fn world_size(&self) -> WorldSize {
        WorldSize::new(u32::try_from(self.members.len()).expect("invariant: members are bounded"))
    }

    /// Checks a view that came from another peer.
    ///
    /// # Errors
    /// [`Violation::MalformedView`] if the members or the severed pairs are not sorted and distinct, the newcomers are not distinct,
    /// there are no members, too many of either, a pair or a newcomer is not of members, it is unsteady without any pair, the casting
    /// vote is of nobody that votes, or there are costs of other links than theirs, or of none.
    pub fn validate(&self) -> Result<(), Violation> {
        let sorted = self.members.windows(2).all(|pair| pair[0] < pair[1]);
        let within = (1..=MAX_MEMBERS).contains(&self.members.len()) && self.severed.len() <= MAX_SEVERED;
        let mut named = BTreeSet::new();
        let are_newcomers = self.newcomers.iter().all(|peer| self.contains(*peer) && named.insert(*peer));
        let ordered = self.severed.windows(2).all(|pair| pair[0] < pair[1]);
        let paired = self.severed.iter().all(|(a, b)| a < b && self.contains(*a) && self.contains(*b));
        let costed = self.costs.as_ref().is_none_or(|costs| {
            let world = costs.world_size().get() as usize;
            world == self.members.len() && world <= MAX_COSTED && costs.has_links()
        });
        let damped = !self.unsteady || !self.severed.is_empty();
        if sorted && within && are_newcomers && ordered && paired && damped && costed && self.votes(self.casting) {
            Ok(())
        } else {
            Err(Violation::MalformedView)
        }
    }
}

/// How many of so many voters may be hostile at most: fewer than a third. Of fewer than four, none.
pub(crate) fn most_hostile(voters: usize) -> usize {
    voters.saturating_sub(1) / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    #[test]
    fn a_view_follows_its_parent() {
        let first = View::found(RunId([1; 32]), peer(5));
        let next = first.succeed([7, 5, 6, 5].map(peer));
        assert_eq!(next.members(), [5, 6, 7].map(peer));
        assert_eq!((next.generation, next.parent), (Generation(2), Some(first.id())));
        assert_eq!((next.casting(), next.world_size().get()), (peer(5), 3));
        assert!(next.contains(peer(6)) && !next.contains(peer(8)));
    }

    #[test]
    fn the_casting_vote_stays_with_who_was_there_before() {
        let halves = |view: &View, half: &[u8]| view.has_quorum(&half.iter().map(|name| peer(*name)).collect());
        let two = View::found(RunId([1; 32]), peer(5)).succeed([3, 5].map(peer));
        assert!(halves(&two, &[5]) && !halves(&two, &[3]), "a newcomer, though lower, has none");
        let without = two.succeed([1, 3].map(peer));
        assert!(halves(&without, &[3]) && !halves(&without, &[1]));
        assert_eq!(two.succeed([8, 9].map(peer)).casting(), peer(8));
        let five = two.succeed([2, 3, 5, 7, 9].map(peer));
        assert!(
            halves(&five, &[2, 7, 9]) && halves(&five, &[1, 2, 4, 5, 6, 9]),
            "those who are no members don't count"
        );
        assert!(!halves(&five, &[1, 3, 4, 6, 8, 9]) && !halves(&five, &[]));
    }

    #[test]
    fn newcomers_count_for_no_quorum() {
        let has = |view: &View, names: &[u8]| view.has_quorum(&names.iter().map(|name| peer(*name)).collect());
        let all = View::found(RunId([1; 32]), peer(5)).succeed([1, 2, 3, 5, 6].map(peer));
        let view = all.clone().with_newcomers([1, 3, 9].map(peer));
        assert_eq!((view.newcomers(), view.voter_count(), view.quorum()), (&[1, 3].map(peer)[..], 3, 2));
        assert_eq!(view.voters().collect::<Vec<_>>(), [2, 5, 6].map(peer));
        assert!(view.votes(peer(2)) && !view.votes(peer(1)) && !view.votes(peer(9)) && view.contains(peer(1)));
        assert!(has(&view, &[2, 6]) && !has(&view, &[1, 3, 5]) && has(&view, &[0, 1, 2, 5, 7]));
        assert_eq!((all.most_hostile(), view.most_hostile()), (1, 0));
        assert_ne!(view.id(), all.id());
        assert_eq!(View::decode(&view.encode()), Ok(view.clone()));
        let other = all.clone().with_newcomers([3, 1, 3].map(peer));
        assert_eq!((other.newcomers(), other.voter_count()), (&[3, 1].map(peer)[..], 3), "as they came");
        assert_eq!(other.voters().collect::<Vec<_>>(), [2, 5, 6].map(peer));
        assert!(other.votes(peer(2)) && !other.votes(peer(1)) && !other.votes(peer(3)));
        assert_eq!(View::decode(&other.encode()), Ok(other));
        // Its casting vote is never a newcomer's, and somebody votes.
        assert_eq!(all.clone().with_newcomers([5].map(peer)).casting(), peer(1));
        let nobody = all.clone().with_newcomers([1, 2, 3, 5, 6].map(peer));
        assert_eq!(nobody.voters().collect::<Vec<_>>(), [peer(5)]);
        // Who has got its vote just now comes after those who had one.
        assert_eq!(view.succeed([1, 2, 6].map(peer)).casting(), peer(2));
        let hostile = [
            View { newcomers: [1, 1].map(peer).to_vec(), ..all.clone() },
            View { newcomers: [1, 3, 1].map(peer).to_vec(), ..all.clone() },
            View { newcomers: vec![peer(9)], ..all.clone() },
            View { newcomers: vec![peer(5)], ..all.clone() },
            View { newcomers: [1, 2, 3, 5, 6].map(peer).to_vec(), ..all.clone() },
        ];
        for view in hostile {
            assert_eq!(View::decode(&view.encode()), Err(Violation::MalformedView));
        }
    }

    #[test]
    fn an_id_covers_everything() {
        let first = View::found(RunId([1; 32]), peer(5));
        let next = first.succeed([5, 6].map(peer));
        let others = [
            View { run: RunId([2; 32]), ..next.clone() },
            View { generation: Generation(3), ..next.clone() },
            View { branch: 1, ..next.clone() },
            View { quorum: Quorum::TwoThirds, ..next.clone() },
            View { parent: None, ..next.clone() },
            first.succeed([5, 7].map(peer)),
        ];
        assert!(others.iter().all(|other| other.id() != next.id()));
        assert_eq!(first.succeed([6, 5].map(peer)).id(), next.id());
    }

    #[test]
    fn a_view_survives_the_trip_and_nothing_else_is_one() {
        let view = View::found(RunId([1; 32]), peer(5)).succeed([5, 6, 7].map(peer)).with_severed([(peer(5), peer(7))]);
        let bytes = view.encode();
        assert_eq!(View::decode(&bytes), Ok(view));
        for length in 0..bytes.len() {
            assert!(View::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(View::decode(&[&bytes[..], &[0]].concat()), Err(Violation::Undecodable));
        let many = (0..MAX_MEMBERS).map(|name| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&name.to_be_bytes());
            PeerId(id)
        });
        let members: Vec<PeerId> = many.collect();
        let first = members[0];
        let largest = View::found(RunId([1; 32]), first).succeed(members.clone());
        let largest = View { generation: Generation(u64::MAX), branch: u64::MAX, ..largest };
        let largest = largest.with_newcomers(members.clone());
        let largest = largest.with_severed(members[1..=MAX_SEVERED.min(MAX_MEMBERS - 1)].iter().map(|it| (first, *it)));
        assert!(largest.encode().len() <= MAX_VIEW_BYTES);
        assert_eq!(View::decode(&largest.encode()), Ok(largest));
        let link = Link { delay_us: 60_000_000, bytes_per_second: 1 << 40 };
        let costed = View::found(RunId([1; 32]), first).succeed(members[..MAX_COSTED].to_vec());
        let costed = costed.with_costs(|_, _| Some(link));
        assert!(costed.encode().len() <= 32 * MAX_COSTED + 10 * MAX_COSTED * MAX_COSTED + 256);
        assert_eq!(View::decode(&costed.encode()), Ok(costed));
        let unsorted = View { members: [6, 5].map(peer).to_vec(), ..View::found(RunId([1; 32]), peer(5)) };
        assert_eq!(View::decode(&unsorted.encode()), Err(Violation::MalformedView));
    }

    #[test]
    fn a_view_is_unsteady_only_where_pairs_are_severed() {
        let view = View::found(RunId([1; 32]), peer(5)).succeed([5, 6, 7].map(peer)).with_severed([(peer(5), peer(7))]);
        let unsteady = view.clone().with_unsteady(true);
        assert!(unsteady.is_unsteady() && unsteady.id() != view.id() && !view.is_unsteady());
        assert_eq!(View::decode(&unsteady.encode()), Ok(unsteady.clone()));
        let without = unsteady.clone().with_severed([]);
        assert!(!without.is_unsteady() && !without.clone().with_unsteady(true).is_unsteady());
        assert_eq!(View { unsteady: true, ..without }.validate(), Err(Violation::MalformedView));
        assert!(!unsteady.succeed([5, 7].map(peer)).is_unsteady(), "who proposes says it of each");
    }

    #[test]
    fn costs_are_of_the_links_of_its_members() {
        let view = View::found(RunId([1; 32]), peer(5)).succeed([5, 6, 7].map(peer));
        let link = Link { delay_us: 7, bytes_per_second: 1_000 };
        let known = |from: PeerId, to: PeerId| (from == peer(7) && to == peer(5)).then_some(link);
        let costed = view.clone().with_costs(known);
        assert_eq!((costed.measured(peer(7), peer(5)), costed.measured(peer(5), peer(7))), (Some(link), None));
        assert_eq!((costed.measured(peer(7), peer(9)), costed.measured(peer(7), peer(7))), (None, None));
        assert_eq!(View::decode(&costed.encode()), Ok(costed.clone()));
        assert_ne!(costed.id(), view.id());
        // One form for nothing measured, none in a large view, and what can't be is none.
        assert_eq!(view.clone().with_costs(|_, _| None), view);
        assert_eq!(view.clone().with_costs(|_, _| Some(Link { bytes_per_second: u64::MAX, ..link })), view);
        let many = view.succeed((0..=MAX_COSTED as u8).map(peer));
        assert_eq!(many.clone().with_costs(|_, _| Some(link)), many);
        assert_eq!(costed.succeed([5, 6].map(peer)).costs(), None);
        let all =
            |size: u32, link: Link| Some(CostTable::from_fn(WorldSize::new(size), |_, _| link).expect("possible"));
        let hostile = [
            View { costs: all(2, link), ..view.clone() },
            View { costs: all(4, link), ..view.clone() },
            View { costs: all(3, Link::NONE), ..view.clone() },
            View { costs: all(MAX_COSTED as u32 + 1, link), ..many },
        ];
        for view in hostile {
            assert_eq!(View::decode(&view.encode()), Err(Violation::MalformedView));
        }
        // The bytes of a link that no link is like: the last one of three times three, before which all are none.
        let last = View { costs: all(3, link), ..view };
        let mut bytes = last.encode();
        let at = bytes.len() - 2;
        bytes[at..].copy_from_slice(&[0, 5]); // Something from the last member to itself.
        assert_eq!(View::decode(&bytes), Err(Violation::Undecodable));
    }

    #[test]
    fn members_must_be_sorted_distinct_and_within_bounds() {
        let view = |members: Vec<PeerId>| View { members, ..View::found(RunId([1; 32]), peer(2)) };
        assert_eq!(view([1, 2, 9].map(peer).to_vec()).validate(), Ok(()));
        for wrong in [vec![], vec![peer(2), peer(1)], vec![peer(2), peer(2)], vec![peer(1), peer(3)]] {
            assert_eq!(view(wrong).validate(), Err(Violation::MalformedView));
        }
    }
}
