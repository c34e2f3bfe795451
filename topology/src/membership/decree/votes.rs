//! Who has a vote. A newcomer steps like everybody else, and decides nothing before it holds the state and has contributed.
//!
//! ```text
//!   newcomer                           voters                               proposer
//!      | holds the state, and has contributed to a step
//!      |-- contributes ----------------> |  each notes it                         |
//!      |-- contributes, each heartbeat   |  <------------------ prepare ----------|  the next change, or one for this alone
//!      |                                 |-- promise(contributing: newcomer) ---> |
//!      |   a quorum says so: the next view gives it a vote                        |
//!      |   its own view says that it votes: it owes nothing more                  |
//! ```
//!
//! Steps to which it brought nothing for lack of data don't count. It says so again until its own view gives it the vote: what is said in a view that is over is lost, and so is what a broken
//! connection swallows. No decree gives more than one vote if those who had one would not be a quorum of the next view then. A
//! voter names no more of those who came by one invitation than may vote by it ([`Signer::may_vote`]): a quorum decides about votes,
//! as about all else. Before the run's first step is committed there is nothing to contribute to: who needs no state votes at once. And
//! where nobody who votes stays, those do from then on that they name, or else those who hold the state.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::decree::proposal_inputs::ProposalInputs;
use crate::membership::flaw::FlawKind;
use crate::membership::seat::Seat;
use crate::message::Body;
use crate::time::Time;
use crate::vote::certificate::Signer;
use crate::vote::promise::Promise;
use crate::vote::proposal::{Progress, ResumePlan};

/// After so many steps with the state one has contributed for sure: zeros may be under way when the state comes, and how fast it
/// computes it has to say before it gets samples.
const STEPS_TO_SHARE: u64 = 3;
/// The time that a vote which is due waits doubles this often, where change after change does not give it.
const MAX_DOUBLINGS: u32 = 6;

/// A vote that is due.
#[derive(Debug, Clone, Copy)]
pub(in crate::membership) struct Due {
    /// Since when, in this view.
    since: Time,
    /// Once we have come to that step ourselves; `None` if it has yet to load the state, and say so anew.
    step: Option<u64>,
    /// How many changes have given nobody a vote, in views before this one, since it said so first.
    times: u32,
}

/// Who has a vote in the next view.
#[derive(Debug, Default)]
pub(in crate::membership) struct Votes {
    /// Who has none, in the order in which they came.
    pub(in crate::membership) newcomers: Vec<PeerId>,
    /// Who gets one now.
    pub(in crate::membership) given: Vec<PeerId>,
}

impl Votes {
    /// Among those who stay or join, where all go on so.
    pub(in crate::membership) fn of(
        inputs: &ProposalInputs<'_>,
        staying: &BTreeMap<PeerId, Progress>,
        resume: &ResumePlan,
    ) -> Self {
        let ProposalInputs { view, candidates, .. } = inputs;
        let joining = candidates.iter().map(|candidate| candidate.contact.peer);
        // Who came first is the first to get a vote: else those who come later and have lower ids take its place again and again.
        let waited = view.newcomers().iter().copied().filter(|peer| staying.contains_key(peer));
        let voted = staying.keys().copied().filter(|peer| view.votes(*peer));
        let come = joining.filter(|peer| !staying.contains_key(peer));
        let (old, new): (Vec<PeerId>, Vec<PeerId>) =
            voted.chain(waited).chain(come).partition(|peer| view.votes(*peer));
        let is_ready = |peer: &PeerId| resume.syncing.binary_search(peer).is_err();
        let given: BTreeSet<PeerId> = if old.is_empty() {
            let ready: BTreeSet<PeerId> = new.iter().copied().filter(is_ready).collect();
            let named: BTreeSet<PeerId> = ready.iter().copied().filter(|peer| inputs.is_shown(*peer)).collect();
            let all = || new.iter().copied().collect();
            [named, ready].into_iter().find(|peers| !peers.is_empty()).unwrap_or_else(all)
        } else {
            let has_begun = resume.step > 0;
            let due = new.iter().copied().filter(|peer| is_ready(peer) && (!has_begun || inputs.is_shown(*peer)));
            due.take(view.quorum.most_added(old.len())).collect()
        };
        let newcomers = new.into_iter().filter(|peer| !given.contains(peer)).collect();
        Self { newcomers, given: given.into_iter().collect() }
    }
}

impl ProposalInputs<'_> {
    /// Whether a quorum has heard from this newcomer that it contributes, and finds that it may vote.
    fn is_shown(&self, peer: PeerId) -> bool {
        let says_so = |promise: &Promise| promise.contributing.binary_search(&peer).is_ok();
        let naming = self.promises.iter().filter(|(_, promise)| says_so(promise)).map(|(by, _)| *by);
        self.view.has_quorum(&naming.collect())
    }
}

impl Membership {
    /// We have committed `step`. Who has no vote says so as soon as steps have its contribution.
    pub(in crate::membership) fn note_contribution(&mut self, step: u64) {
        if !self.synced || self.is_outside() || !self.is_newcomer() {
            return;
        }
        let had = self.has_contributed();
        self.whole_since.get_or_insert(step);
        if !had && self.has_contributed() {
            self.tell_contributes();
        }
    }

    /// We bring nothing to `step`: only after it can steps be said to have our contribution.
    pub(in crate::membership) fn starve(&mut self, step: u64) {
        self.whole_since = self.whole_since.map(|since| since.max(step));
    }

    /// Says it again: others may not have heard it in the view that they are in by now.
    pub(in crate::membership) fn contribute_again(&mut self) {
        if self.is_newcomer() && self.has_contributed() && !self.is_flawed(FlawKind::OwesNothing) {
            self.tell_contributes();
        }
    }

    fn tell_contributes(&mut self) {
        let step = self.reached;
        self.tell_members(&Body::Contributes { step });
    }

    /// Whether we have a seat and no vote.
    fn is_newcomer(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| !seat.view.votes(self.me.peer))
    }

    fn has_contributed(&self) -> bool {
        self.synced && self.whole_since.is_some_and(|since| self.reached >= since.saturating_add(STEPS_TO_SHARE))
    }

    /// A member says that steps up to this one have its contributions. The earliest that it says counts.
    pub(in crate::membership) fn note_contributing(&mut self, now: Time, from: PeerId, step: u64) {
        let Some(seat) = self.seat.as_mut().filter(|seat| !seat.view.votes(from)) else { return };
        seat.syncing.remove(&from);
        let due = seat.due.entry(from).or_insert(Due { since: now, step: None, times: 0 });
        due.step = Some(due.step.map_or(step, |earliest| earliest.min(step)));
    }

    /// Whether a vote has been due for so long that it takes a change of its own: at once where nobody else's may be due soon. Where we
    /// vote ourselves: others can't give one.
    pub(in crate::membership) fn owes_votes(&self, now: Time) -> bool {
        let Some(seat) = self.seat.as_ref().filter(|seat| seat.view.votes(self.me.peer)) else { return false };
        let may = |peer: &PeerId| seat.trusts(*peer) && !seat.leavers.contains(peer);
        let due = seat.due_by(self.reached);
        let others = seat.view.newcomers().iter().filter(|peer| may(peer) && !due.contains(peer)).count();
        let owed = seat.named(&*self.notary, due);
        let delay = self.config.vote_delay();
        let waits = |due: &Due| match due.times {
            0 if others == 0 => false,
            times => now - due.since < delay * (1 << times.min(MAX_DOUBLINGS)),
        };
        self.finished.is_none() && owed.iter().filter(|peer| may(peer)).any(|peer| !waits(&seat.due[peer]))
    }
}

impl Seat {
    /// To whom votes are due, as far as who has come to `step` can know: nobody has contributed that was not there for so long.
    pub(in crate::membership) fn due_by(&self, step: u64) -> Vec<PeerId> {
        let least = |peer: &PeerId| self.came_after.get(peer).copied().unwrap_or(0).saturating_add(STEPS_TO_SHARE);
        let has_shared = |peer: &PeerId, due: &Due| due.step.is_some_and(|since| step >= since.max(least(peer)));
        self.due.iter().filter(|(peer, due)| has_shared(peer, due)).map(|(peer, _)| *peer).collect()
    }

    /// Those of them that we name: those last whom we have named in vain. Who says to some only that it contributes, and has the least id,
    /// would else take for ever the place of one that all have heard.
    pub(in crate::membership) fn named(&self, notary: &dyn Signer, mut due: Vec<PeerId>) -> Vec<PeerId> {
        if due.is_empty() {
            return due; // Mostly nobody.
        }
        due.sort_by_key(|peer| (self.due.get(peer).map_or(0, |due| due.times), *peer));
        let mut named = notary.may_vote(due, &self.view);
        named.sort_unstable();
        named
    }

    /// What was due in the view before still is, to those who have no vote here; to those that need the state once they have it. Whom
    /// we have `named`, so that we call for changes that give nobody a vote, waits longer each time: the others have not heard it, or
    /// it says that it contributes, and in the change that it lacks the state.
    pub(in crate::membership) fn keep_due(&mut self, now: Time, old: &Self, named: &[PeerId]) {
        let is_newcomer = |peer: &PeerId| self.view.contains(*peer) && !self.view.votes(*peer);
        let in_vain = self.view.voters().all(|peer| old.view.votes(peer));
        let due = old.due.iter().filter(|(peer, _)| is_newcomer(peer));
        let later = due.map(|(peer, due)| {
            let step = due.step.filter(|_| !self.syncing.contains(peer));
            let times = due.times.saturating_add(u32::from(in_vain && named.contains(peer)));
            (*peer, Due { since: now, step, times })
        });
        self.due = later.collect();
        for (peer, step) in &mut self.came_after {
            *step = old.came_after.get(peer).copied().unwrap_or(*step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::proposal_inputs::{answer_to, follows};
    use super::*;
    use crate::config::Config;
    use crate::id::RunId;
    use crate::view::View;
    use crate::view::lineage::Lineage;
    use crate::vote::proposal::{JoinRequest, Proposal, Reason};
    use crate::vote::quorum::Quorum;

    const STEP: u64 = 23;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    /// Of whom each says that a vote is due to them, and who of these wants to leave.
    type Said<'a> = (u8, &'a [u8], bool);

    /// What follows in a view of so many voters, and of newcomers after them, that stands at `step`.
    fn next(quorum: Quorum, voters: u8, step: u64, said: &[Said<'_>]) -> Proposal {
        after(quorum, voters, step, said, |_| &[])
    }

    /// The same, where each names others that it can't reach.
    fn after(
        quorum: Quorum,
        voters: u8,
        step: u64,
        said: &[Said<'_>],
        named: impl Fn(u8) -> &'static [u8],
    ) -> Proposal {
        let members = said.len() as u8;
        let view = View::found(RunId([7; 32]), peer(1)).with_quorum(quorum).succeed((1..=members).map(peer));
        let view = view.with_newcomers((voters + 1..=members).map(peer));
        let lineage = if step > 0 { Lineage::of(&view) } else { Lineage::NONE };
        let promise = |(name, due, leaving): &Said<'_>| {
            let progress = Progress { step, lineage, has_state: true, has_result: true };
            let contributing = due.iter().map(|name| peer(*name)).collect();
            let unreachable = named(*name).iter().map(|it| peer(*it)).collect();
            (peer(*name), Promise { unreachable, contributing, leaving: *leaving, ..Promise::at(progress) })
        };
        let promises: BTreeMap<PeerId, Promise> = said.iter().map(promise).collect();
        let answer = answer_to((&view, None), &promises, &BTreeSet::new(), |_| {});
        let proposal = answer.expect("all hold the state");
        assert!(
            follows(&Config::default(), &view, None, &promises, &BTreeMap::new(), &proposal),
            "who accepts it finds the same"
        );
        proposal
    }

    fn voters(proposal: &Proposal) -> Vec<u8> {
        let given = proposal.reasons.iter().filter_map(|reason| match reason {
            Reason::Votes(peer) => Some(peer),
            _ => None,
        });
        assert!(given.into_iter().all(|peer| proposal.view.votes(*peer)));
        proposal.view.voters().map(|peer| peer.0[0]).collect()
    }

    #[test]
    fn a_quorum_has_to_say_so() {
        let of = |said: &[Said<'_>]| voters(&next(Quorum::Majority, 4, STEP, said));
        let quiet: &[u8] = &[];
        let by = |names: &[u8], due: &'static [u8]| -> Vec<Said<'_>> {
            (1..=6).map(|name| (name, if names.contains(&name) { due } else { &[] }, false)).collect()
        };
        assert_eq!(of(&by(&[], quiet)), [1, 2, 3, 4]);
        assert_eq!(of(&by(&[3], &[5])), [1, 2, 3, 4], "that one may be hostile");
        assert_eq!(of(&by(&[2, 3], &[5])), [1, 2, 3, 4], "they don't decide without the others");
        assert_eq!(of(&by(&[2, 3, 5, 6], &[5])), [1, 2, 3, 4], "newcomers have no say");
        assert_eq!(of(&by(&[2, 3, 4], &[5])), [1, 2, 3, 4, 5]);
        assert_eq!(of(&by(&[1, 2], &[5, 6])), [1, 2, 3, 4, 5, 6], "with the casting vote");
        // A founder alone lets vote whom it likes.
        let said: Vec<Said<'_>> = vec![(1, &[2], false), (2, &[], false), (3, &[], false)];
        assert_eq!(voters(&next(Quorum::Majority, 1, STEP, &said)), [1, 2]);
    }

    #[test]
    fn who_came_first_gets_its_vote_first() {
        let view = View::found(RunId([7; 32]), peer(9)).succeed([3, 5, 7, 9].map(peer));
        let view = view.with_newcomers([7, 5, 3].map(peer));
        let progress = Progress { step: STEP, lineage: Lineage::of(&view), has_state: true, has_result: true };
        let founder = Promise { contributing: [3, 5, 7].map(peer).to_vec(), ..Promise::at(progress) };
        let others = [3, 5, 7].map(|name| (peer(name), Promise::at(progress)));
        let promises: BTreeMap<PeerId, Promise> = others.into_iter().chain([(peer(9), founder)]).collect();
        let joiner = |name| JoinRequest::new(crate::Contact { peer: peer(name), addresses: Vec::new() }, 1);
        let config = Config::default();
        let answer = answer_to((&view, None), &promises, &BTreeSet::new(), |inputs| {
            inputs.candidates = [1, 6].map(joiner).to_vec()
        });
        let proposal = answer.expect("all hold the state");
        let follows = |proposal: &Proposal| follows(&config, &view, None, &promises, &BTreeMap::new(), proposal);
        assert!(follows(&proposal), "who accepts it finds the same");
        assert_eq!(voters(&proposal), [7, 9]);
        assert_eq!(proposal.view.newcomers(), [5, 3, 1, 6].map(peer), "those who come now wait behind the others");
        let other = proposal.view.clone().with_newcomers([1, 3, 5, 6].map(peer));
        let other = Proposal { view: other, ..proposal };
        assert!(!follows(&other), "nobody may let others wait longer");
    }

    /// Lets one more vote.
    #[derive(Debug)]
    struct OneMore;

    impl Signer for OneMore {
        fn sign(&self, _: &[u8]) -> [u8; 64] {
            [0; 64]
        }

        fn is_signed(&self, _: PeerId, _: &[u8], _: &[u8; 64]) -> bool {
            true
        }

        fn may_vote(&self, mut newcomers: Vec<PeerId>, _: &View) -> Vec<PeerId> {
            newcomers.truncate(1);
            newcomers
        }
    }

    #[test]
    fn who_is_named_in_vain_keeps_nobodys_place() {
        let view = View::found(RunId([7; 32]), peer(1)).succeed([1, 5, 6].map(peer)).with_newcomers([5, 6].map(peer));
        let mut seat = Seat::new(view, None, &crate::Config::default(), Time::ZERO);
        let due = |times| Due { since: Time::ZERO, step: Some(0), times };
        seat.due = [(peer(5), due(0)), (peer(6), due(0))].into();
        assert_eq!(seat.named(&OneMore, seat.due_by(STEP)), [peer(5)]);
        // The others have not heard of it.
        seat.due.insert(peer(5), due(1));
        assert_eq!(seat.named(&OneMore, seat.due_by(STEP)), [peer(6)]);
        seat.due.insert(peer(6), due(1));
        assert_eq!(seat.named(&OneMore, seat.due_by(STEP)), [peer(5)]);
    }

    #[test]
    fn those_who_voted_before_remain_a_quorum() {
        for quorum in Quorum::ALL {
            for old in 1..=9u8 {
                let due: Vec<u8> = (old + 1..=old + 12).collect();
                let said: Vec<Said<'_>> =
                    (1..=old + 12).map(|name| (name, if name <= old { &due[..] } else { &[] }, false)).collect();
                let proposal = next(quorum, old, STEP, &said);
                let given = proposal.view.voter_count() - usize::from(old);
                let before: BTreeSet<PeerId> = (1..=old).map(peer).collect();
                assert!(given == 1 || proposal.view.has_quorum(&before), "{quorum}: {old} and {given}");
                assert!(given > 0 && proposal.view.members().len() == usize::from(old) + 12, "{quorum}: {old}");
            }
        }
    }

    #[test]
    fn before_the_first_step_and_where_no_voter_stays_none_has_to_say_so() {
        let quiet = |leaver: u8| (1..=3).map(|name| (name, &[][..], name == leaver)).collect::<Vec<Said<'_>>>();
        assert_eq!(voters(&next(Quorum::Majority, 1, 0, &quiet(0))), [1, 2], "as many as leave the first a quorum");
        assert_eq!(voters(&next(Quorum::Majority, 1, STEP, &quiet(0))), [1]);
        assert_eq!(voters(&next(Quorum::Majority, 1, STEP, &quiet(1))), [2, 3]);
        assert_eq!(voters(&next(Quorum::Majority, 2, STEP, &quiet(1))), [2], "one that votes is left");
    }

    #[test]
    fn the_word_of_newcomers_puts_out_nobody_but_them() {
        let staying = |voters: u8, members: u8, named: fn(u8) -> &'static [u8]| -> Vec<u8> {
            let said: Vec<Said<'_>> = (1..=members).map(|name| (name, &[][..], false)).collect();
            let proposal = after(Quorum::Majority, voters, STEP, &said, named);
            proposal.view.members().iter().map(|peer| peer.0[0]).collect()
        };
        let of_one = |name| if name == 2 { &[3][..] } else { &[] };
        assert_eq!(staying(1, 3, of_one), [1, 2, 3], "the one that votes reaches both");
        let of_two = |name| match name {
            2 => &[3, 4][..],
            3 => &[4],
            _ => &[],
        };
        assert_eq!(staying(1, 4, of_two), [1, 2, 3, 4], "and all three");
        let of_the_voter = |name| if name == 2 { &[1, 3][..] } else { &[] };
        assert_eq!(staying(1, 3, of_the_voter), [1, 3], "who names all others stands in the way itself");
        let of_a_voter = |name| if matches!(name, 1 | 2) { &[3][..] } else { &[] };
        assert_eq!(staying(1, 3, of_a_voter), [1, 2], "a voter names it as well");
        let of_each_other = |name| match name {
            2 => &[3][..],
            3 => &[2],
            _ => &[],
        };
        assert_eq!(staying(1, 3, of_each_other), [1, 2, 3], "neither reaches the other, and both a third");
    }
}
