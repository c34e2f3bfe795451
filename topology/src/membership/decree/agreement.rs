//! One decree of Paxos (L. Lamport, "Paxos Made Simple", 2001), apart from all else: what an acceptor may say, and what
//! a proposer may propose.
//!
//! ```text
//!   proposer                                acceptor
//!      |-- prepare(ballot) ------------------> |   promises to take part in no lower ballot,
//!      |  <---- promise(ballot, accepted) -----|   and tells what it accepted last
//!      |   a quorum has promised: the value of the highest ballot told, or a new one
//!      |-- propose(ballot, value) -----------> |
//!      |  <---- accept(ballot) ----------------|   unless it has promised a higher ballot
//!      |   a quorum has accepted: decided
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::id::PeerId;
use crate::vote::proposal::Ballot;

/// What one member has promised and accepted. It must outlive the member's process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::membership) struct Acceptor<V> {
    pub(in crate::membership) promised: Option<Ballot>,
    pub(in crate::membership) accepted: Option<(Ballot, V)>,
    /// What it was shown last, by its hash: [`crate::vote::echo`].
    pub(in crate::membership) echoed: Option<(Ballot, [u8; 32])>,
}

impl<V: Clone + PartialEq> Acceptor<V> {
    pub(in crate::membership) fn new() -> Self {
        Self { promised: None, accepted: None, echoed: None }
    }

    /// Promises `ballot`, or says which higher one stands against it. To promise the same one again is fine.
    pub(in crate::membership) fn prepare(&mut self, ballot: Ballot) -> Result<(), Ballot> {
        self.refuse_lower(ballot)?;
        self.promised = Some(ballot);
        Ok(())
    }

    /// Echoes what is shown to it in `ballot`, or says which higher one stands against it. It echoes one value in a ballot.
    pub(in crate::membership) fn echo(&mut self, ballot: Ballot, shown: [u8; 32]) -> Result<(), Ballot> {
        self.refuse_lower(ballot)?;
        if self.echoed.is_some_and(|(before, kept)| before == ballot && kept != shown) {
            return Err(ballot);
        }
        self.promised = Some(ballot);
        self.echoed = Some((ballot, shown));
        Ok(())
    }

    /// Accepts `value`, or says which higher ballot stands against it. A ballot has one value: who has accepted that accepts no
    /// other in it.
    pub(in crate::membership) fn accept(&mut self, ballot: Ballot, value: V) -> Result<(), Ballot> {
        self.refuse_lower(ballot)?;
        if self.accepted.as_ref().is_some_and(|(before, kept)| *before == ballot && *kept != value) {
            return Err(ballot);
        }
        self.promised = Some(ballot);
        self.accepted = Some((ballot, value));
        Ok(())
    }

    fn refuse_lower(&self, ballot: Ballot) -> Result<(), Ballot> {
        match self.promised {
            Some(promised) if promised > ballot => Err(promised),
            Some(_) | None => Ok(()),
        }
    }
}

/// A proposer's account of one ballot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::membership) struct Round<V> {
    pub(in crate::membership) ballot: Ballot,
    promised: BTreeSet<PeerId>,
    /// What was accepted before, by the ballot in which that was, and who tells of it.
    told: BTreeMap<Ballot, (V, BTreeSet<PeerId>)>,
    accepted: BTreeSet<PeerId>,
}

impl<V: Clone> Round<V> {
    pub(in crate::membership) fn new(ballot: Ballot) -> Self {
        Self { ballot, promised: BTreeSet::new(), told: BTreeMap::new(), accepted: BTreeSet::new() }
    }

    /// `peer` has promised, and accepted this before.
    pub(in crate::membership) fn promise(&mut self, peer: PeerId, accepted: Option<(Ballot, V)>) {
        self.promised.insert(peer);
        if let Some((ballot, value)) = accepted {
            self.told.entry(ballot).or_insert_with(|| (value, BTreeSet::new())).1.insert(peer);
        }
    }

    /// `peer` has accepted this ballot's value.
    pub(in crate::membership) fn accept(&mut self, peer: PeerId) {
        self.accepted.insert(peer);
    }

    /// Who has promised.
    pub(in crate::membership) fn promised(&self) -> &BTreeSet<PeerId> {
        &self.promised
    }

    /// Who has accepted.
    pub(in crate::membership) fn accepted(&self) -> &BTreeSet<PeerId> {
        &self.accepted
    }

    /// The value that may be decided already, so that no other one may be proposed.
    pub(in crate::membership) fn forced(&self) -> Option<&V> {
        self.told.values().next_back().map(|(value, _)| value)
    }

    /// The same where some of those who promised need not be heard, as a quorum of the others has promised: with those who are heard.
    /// Who tells of the value of the highest ballot is left out as long as `may_leave_out` says so, of the value and its tellers, with
    /// those who were heard until then. `None`: nobody is left who tells of any.
    pub(in crate::membership) fn forced_without(
        &self,
        may_leave_out: impl Fn(&V, &BTreeSet<PeerId>, &BTreeSet<PeerId>) -> bool,
    ) -> Option<(&V, BTreeSet<PeerId>)> {
        let mut heard = self.promised.clone();
        for (value, tellers) in self.told.values().rev() {
            if !may_leave_out(value, tellers, &heard) {
                return Some((value, heard));
            }
            heard.retain(|peer| !tellers.contains(peer));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::view::View;

    const RUN: RunId = RunId([7; 32]);

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    fn ballot(attempt: u64, proposer: u8) -> Ballot {
        Ballot { attempt, proposer: peer(proposer) }
    }

    #[test]
    fn an_acceptor_refuses_lower_ballots_only() {
        let mut acceptor = Acceptor::new();
        assert_eq!(acceptor.prepare(ballot(1, 2)), Ok(()));
        assert_eq!(acceptor.prepare(ballot(1, 2)), Ok(()));
        assert_eq!(acceptor.prepare(ballot(1, 1)), Err(ballot(1, 2)));
        assert_eq!(acceptor.accept(ballot(1, 1), 'a'), Err(ballot(1, 2)));
        assert_eq!(acceptor.accept(ballot(2, 1), 'b'), Ok(()));
        assert_eq!(acceptor.accept(ballot(2, 1), 'c'), Err(ballot(2, 1)));
        assert_eq!(acceptor.accept(ballot(2, 1), 'b'), Ok(()));
        assert_eq!((acceptor.promised, acceptor.accepted), (Some(ballot(2, 1)), Some((ballot(2, 1), 'b'))));
    }

    #[test]
    fn the_value_of_the_highest_ballot_is_forced() {
        let mut round = Round::new(ballot(5, 1));
        round.promise(peer(1), None);
        assert_eq!(round.forced(), None);
        round.promise(peer(2), Some((ballot(3, 2), 'b')));
        round.promise(peer(3), Some((ballot(2, 3), 'c')));
        assert_eq!(round.forced(), Some(&'b'));
        let heard = |without: &[char]| {
            let forced = round.forced_without(|value, tellers, heard| {
                assert!(tellers.is_subset(heard));
                without.contains(value)
            });
            forced.map(|(value, heard)| (*value, heard.len()))
        };
        assert_eq!((heard(&[]), heard(&['b']), heard(&['c'])), (Some(('b', 3)), Some(('c', 2)), Some(('b', 3))));
        assert_eq!(heard(&['b', 'c']), None);
    }

    /// Each of some ballots is at one of its stages; each acceptor has its account. Messages are never lost from the
    /// model, only not yet delivered, which covers loss as well.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct World {
        acceptors: Vec<Acceptor<u8>>,
        rounds: Vec<Round<u8>>,
        values: Vec<Option<u8>>,
        /// By ballot: acceptors that were asked to promise, and to accept.
        asked: Vec<(BTreeSet<PeerId>, BTreeSet<PeerId>)>,
    }

    impl World {
        fn successors(&self, view: &View) -> Vec<Self> {
            let mut next = Vec::new();
            for (at, round) in self.rounds.iter().enumerate() {
                for (index, member) in view.members().iter().enumerate() {
                    if self.values[at].is_none() && !self.asked[at].0.contains(member) {
                        let mut world = self.clone();
                        world.asked[at].0.insert(*member);
                        let told = world.acceptors[index].accepted;
                        if world.acceptors[index].prepare(round.ballot).is_ok() {
                            world.rounds[at].promise(*member, told);
                            // A quorum may propose at once; waiting for more promises is covered by other orders.
                            if view.has_quorum(world.rounds[at].promised()) {
                                let forced = world.rounds[at].forced().copied();
                                world.values[at] = Some(forced.unwrap_or(at as u8));
                            }
                        }
                        next.push(world);
                    }
                    if let Some(value) = self.values[at]
                        && !self.asked[at].1.contains(member)
                    {
                        let mut world = self.clone();
                        world.asked[at].1.insert(*member);
                        if world.acceptors[index].accept(round.ballot, value).is_ok() {
                            world.rounds[at].accept(*member);
                        }
                        next.push(world);
                    }
                }
            }
            next
        }
    }

    fn explore(members: u8, ballots: &[Ballot]) -> usize {
        let view = View::found(RUN, peer(1)).succeed((1..=members).map(peer));
        let start = World {
            acceptors: vec![Acceptor::new(); members as usize],
            rounds: ballots.iter().map(|ballot| Round::new(*ballot)).collect(),
            values: vec![None; ballots.len()],
            asked: vec![(BTreeSet::new(), BTreeSet::new()); ballots.len()],
        };
        let (mut seen, mut open) = (BTreeSet::from([start.clone()]), vec![start]);
        while let Some(world) = open.pop() {
            let decided: BTreeSet<u8> = (0..ballots.len())
                .filter(|at| view.has_quorum(world.rounds[*at].accepted()))
                .filter_map(|at| world.values[at])
                .collect();
            assert!(decided.len() <= 1, "two values are decided: {world:#?}");
            open.extend(world.successors(&view).into_iter().filter(|next| seen.insert(next.clone())));
        }
        seen.len()
    }

    #[test]
    fn no_order_of_messages_decides_two_values() {
        assert!(explore(2, &[ballot(1, 1), ballot(1, 2), ballot(2, 1)]) > 500);
        assert!(explore(3, &[ballot(1, 1), ballot(1, 2)]) > 500);
        assert!(explore(4, &[ballot(1, 1), ballot(1, 2)]) > 5_000);
    }

    #[test]
    fn quorums_meet() {
        for count in 1..=8u8 {
            let view = View::found(RUN, peer(1)).succeed((1..=count).map(peer));
            let set = |bits: u32| (1..=count).filter(|name| bits >> (name - 1) & 1 == 1).map(peer).collect();
            for bits in 0..1u32 << count {
                let (side, rest): (BTreeSet<PeerId>, BTreeSet<PeerId>) = (set(bits), set(!bits));
                assert!(view.has_quorum(&side) != view.has_quorum(&rest), "exactly one of two halves: {side:?}");
            }
            let fewest: BTreeSet<PeerId> = (1..=count).map(peer).take(view.quorum()).collect();
            assert!(view.has_quorum(&fewest));
        }
    }
}
