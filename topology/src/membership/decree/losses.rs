//! What members say that they had saved, and have lost: nobody goes back behind that while somebody who is not there may hold it.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Config;
use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::decree::claims::Claims;
use crate::membership::decree::drafting::could_have_decided;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::BlockReason;
use crate::membership::seat::Seat;
use crate::message::Evidence;
use crate::view::View;
use crate::view::lineage::Lineage;
use crate::view::mark::{LostState, Mark, MarkStatus};
use crate::vote::promise::{JustifiedProposal, Promise};
use crate::vote::proposal::{Proposal, Reason};

/// The newest step after `step` that a voter of `view` had saved and has lost, and that may be stable all the same: the voters of whom
/// nothing is known and those who have lost something could have signed it, and a member of whom nothing is known may hold it, be it
/// a newcomer. Where all have promised, or have `restarted` and ask to be let in without their seats, nobody else can have it. Who says
/// that it holds more, and is not to stay all the same, is as one of whom nothing is known: its link may just have failed. Who does not
/// know what it has lost could have signed anything that is newer than `step`, up to what is [signable].
pub(in crate::membership) fn missed(
    view: &View,
    promises: &BTreeMap<PeerId, Promise>,
    restarted: &BTreeSet<PeerId>,
    step: u64,
    signable: Option<u64>,
) -> Option<LostState> {
    let told = |peer: &PeerId| promises.get(peer).map(|promise| promise.lost.up_to(signable));
    let lost = |peer: &PeerId| told(peer).filter(|lost| lost.is_after(step));
    // Of what is stable one voter at least tells that has promised; who has no vote has signed nothing that counts.
    let newest = view.voters().filter_map(|peer| lost(&peer)).max()?;
    let holds_more = |promise: &Promise| promise.progress.has_state && promise.progress.step > step;
    let may_hold = |peer: &PeerId| promises.get(peer).map_or_else(|| !restarted.contains(peer), holds_more);
    let all_told = !view.members().iter().any(may_hold);
    let may_have_signed = |peer: &PeerId| promises.get(peer).is_none_or(holds_more) || lost(peer).is_some();
    (!all_told && could_have_decided(view, may_have_signed)).then_some(newest)
}

/// The last step whose state a member of the view can have signed, where that is known: members sign what is due alone, and nobody is
/// further than those who have taken part in all steps allow. It takes more of these than may be hostile. Later views there are none
/// while the next one is yet to be chosen.
pub(in crate::membership) fn signable(config: &Config, claims: &Claims<'_>) -> Option<u64> {
    claims.furthest().map(|step| config.due_by(step.min(config.last_step)))
}

impl Membership {
    /// What we had saved before we came back and have lost, as far as our branch admits it, and until we have come as far
    /// again.
    pub fn loss(&self) -> LostState {
        let Some(seat) = self.seat.as_ref().filter(|_| !self.is_flawed(FlawKind::HidesLoss)) else {
            return LostState::Nothing;
        };
        let held = self.progress.has_state.then_some(self.progress.step);
        // Nothing comes after the last step.
        if held == Some(self.config.last_step) { LostState::Nothing } else { self.noted.lost(&seat.root, held) }
    }

    /// What keeps those who have promised us from going on with what they hold, if they are a quorum.
    pub(in crate::membership) fn misses(&self) -> Option<BlockReason> {
        let seat = self.seat.as_ref()?;
        let decree = seat.decree.as_ref().filter(|decree| seat.view.has_quorum(decree.round.promised()))?;
        let held = decree.promises.values().map(|promise| promise.progress).filter(|progress| progress.has_state);
        let Some(step) = held.map(|progress| progress.step).max() else { return Some(BlockReason::State) };
        let signable = signable(&self.config, &Claims::new(&seat.view, seat.resumed(), &decree.promises));
        missed(&seat.view, &decree.promises, &self.restarted(seat), step, signable).map(BlockReason::Lost)
    }

    /// Members whose processes are gone, and others with their names ask to be let in: they have lost their seats, and say what they hold.
    pub(in crate::membership) fn restarted(&self, seat: &Seat) -> BTreeSet<PeerId> {
        let asks = |peer: &PeerId| self.joiners.contains_key(peer);
        let gone = seat.suspects.iter().filter(|(_, evidence)| **evidence == Evidence::Restarted);
        gone.map(|(peer, _)| *peer).filter(asks).collect()
    }

    /// We go on after this step, as a decree says: what we may have signed and lost without knowing is no more than was due by then, or was
    /// gone back behind.
    pub(in crate::membership) fn limit_loss(&mut self, step: u64, lineage: Lineage) {
        let (due, Some(seat)) = (self.config.due_by(step), &self.seat) else { return };
        if self.noted == MarkStatus::Unknown {
            let lineage = if due == seat.root.step { seat.root.lineage } else { lineage };
            self.noted = MarkStatus::Saved(Mark { step: due, lineage });
        }
    }

    /// Whether what some of these have lost is given up for what one says of others, of whom we know nothing: that they have lost their
    /// seats.
    pub(in crate::membership) fn believes_nothing_of(&self, seat: &Seat, justified: &JustifiedProposal) -> bool {
        let ours =
            |peer: &PeerId| self.joiners.contains_key(peer) || seat.suspects.get(peer) == Some(&Evidence::Restarted);
        let known = restarted_in(&justified.proposal).into_iter().filter(ours).collect();
        let promises = justified.grounds();
        let signable = signable(&self.config, &Claims::new(&seat.view, seat.resumed(), &promises));
        missed(&seat.view, &promises, &known, justified.proposal.resume.step, signable).is_some()
    }
}

/// Of whom a proposal says that they have lost their seats.
pub(in crate::membership) fn restarted_in(proposal: &Proposal) -> BTreeSet<PeerId> {
    let restarted = |reason: &Reason| if let Reason::Restarted(peer) = reason { Some(*peer) } else { None };
    proposal.reasons.iter().filter_map(restarted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::vote::proposal::Progress;
    use crate::vote::quorum::Quorum;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    /// What is missed in a view of so many voters where these have promised, each with what it has lost, and all hold `step`.
    fn missed(quorum: Quorum, voters: u8, step: u64, told: &[(u8, LostState)]) -> Option<LostState> {
        let view = View::found(RunId([7; 32]), peer(0)).with_quorum(quorum).succeed((0..voters).map(peer));
        let promise = |lost: LostState| {
            let progress = Progress { step, lineage: Lineage::NONE, has_state: true, has_result: false };
            Promise { recovering: true, lost, ..Promise::at(progress) }
        };
        let promises = told.iter().map(|(name, lost)| (peer(*name), promise(*lost))).collect();
        super::missed(&view, &promises, &BTreeSet::new(), step, None)
    }

    #[test]
    fn what_a_voter_has_lost_is_waited_for_while_a_quorum_may_have_signed_it() {
        use Quorum::{Majority, TwoThirds};
        let (lost, holds) = (LostState::Step(120), LostState::Nothing);
        assert_eq!(missed(Majority, 5, 0, &[(0, lost), (1, lost), (2, lost)]), Some(LostState::Step(120)));
        assert_eq!(
            missed(Majority, 5, 100, &[(0, holds), (1, LostState::Step(110)), (2, holds)]),
            Some(LostState::Step(110)),
            "two are away"
        );
        assert_eq!(missed(Majority, 5, 0, &[(0, holds), (1, holds), (2, holds)]), None, "nobody has lost anything");
        assert_eq!(missed(Majority, 5, 120, &[(0, holds), (1, lost), (2, holds)]), None, "somebody holds it");
        let all: Vec<_> = (0..5).map(|name| (name, lost)).collect();
        assert_eq!(missed(Majority, 5, 0, &all), None, "nobody else can hold it");
        let most = [(0, holds), (1, holds), (2, holds), (3, lost)];
        assert_eq!(missed(Majority, 5, 100, &most), None, "two are no quorum");
        // Half of them with the casting vote are one.
        assert_eq!(missed(Majority, 2, 100, &[(0, lost)]), Some(LostState::Step(120)));
        assert_eq!(missed(Majority, 4, 100, &[(0, holds), (1, lost), (2, holds)]), None);
        assert_eq!(missed(Majority, 4, 100, &[(0, lost), (1, holds), (2, holds)]), Some(LostState::Step(120)));
        // Of four one may hide that it has signed, of seven two.
        assert_eq!(missed(TwoThirds, 4, 100, &[(0, holds), (1, holds), (2, lost)]), Some(LostState::Step(120)));
        assert_eq!(missed(TwoThirds, 4, 100, &[(0, holds), (1, holds), (2, holds)]), None);
        assert_eq!(
            missed(TwoThirds, 7, 100, &[(0, holds), (1, holds), (2, holds), (3, holds), (4, holds), (5, lost)]),
            None
        );
    }

    #[test]
    fn who_does_not_know_what_it_has_lost_may_have_signed_anything() {
        use Quorum::Majority;
        let (unknown, lost, holds) = (LostState::Unknown, LostState::Step(120), LostState::Nothing);
        assert_eq!(missed(Majority, 5, 120, &[(0, unknown), (1, holds), (2, holds)]), Some(LostState::Unknown));
        assert_eq!(missed(Majority, 5, 100, &[(0, unknown), (1, lost), (2, lost)]), Some(LostState::Unknown));
        let most = [(0, holds), (1, holds), (2, holds), (3, unknown)];
        assert_eq!(missed(Majority, 5, 100, &most), None, "two are no quorum");
        let all: Vec<_> = (0..5).map(|name| (name, unknown)).collect();
        assert_eq!(missed(Majority, 5, 100, &all), None, "nobody else can hold it");
        // It waits for the only other one, though it can decide alone.
        assert_eq!(missed(Majority, 2, 100, &[(0, unknown)]), Some(LostState::Unknown));
        assert_eq!(missed(Majority, 1, 100, &[(0, unknown)]), None);
    }

    #[test]
    fn nobody_has_signed_what_those_who_were_there_all_the_time_cannot_have_passed() {
        let config = Config { checkpoint_every: 9, last_step: 24, ..Config::default() };
        // Of the others, whether each came back, and at which step it stands.
        let missed = |quorum, voters: u8, others: &[(bool, u64)]| {
            let view = View::found(RunId([7; 32]), peer(0)).with_quorum(quorum).succeed((0..voters).map(peer));
            let promise = |recovering, step, lost| {
                let progress = Progress { step, lineage: Lineage::of(&view), has_state: true, has_result: false };
                Promise { recovering, lost, ..Promise::at(progress) }
            };
            let told = others.iter().map(|(recovering, step)| promise(*recovering, *step, LostState::Nothing));
            let told = std::iter::once(promise(true, 9, LostState::Unknown)).chain(told);
            let promises: BTreeMap<PeerId, Promise> = (0..).map(peer).zip(told).collect();
            let step = others.iter().map(|(_, step)| *step).max().unwrap_or(0);
            let signable = signable(&config, &Claims::new(&view, None, &promises));
            super::missed(&view, &promises, &BTreeSet::new(), step, signable)
        };
        use Quorum::{Majority, TwoThirds};
        assert_eq!(
            missed(TwoThirds, 4, &[(false, 16), (false, 16)]),
            None,
            "nobody has come to the next one that is due"
        );
        assert_eq!(missed(TwoThirds, 4, &[(false, 17), (false, 17)]), Some(LostState::Step(18)), "somebody may have");
        assert_eq!(missed(TwoThirds, 4, &[(false, 18), (false, 18)]), None, "it is here");
        assert_eq!(missed(TwoThirds, 4, &[(true, 16), (false, 16)]), Some(LostState::Unknown), "one may be lying");
        assert_eq!(
            missed(TwoThirds, 4, &[(true, 16), (true, 16)]),
            Some(LostState::Unknown),
            "they may have lost steps"
        );
        assert_eq!(missed(TwoThirds, 4, &[(false, 24), (false, 24)]), None, "nothing comes after the last step");
        assert_eq!(missed(Majority, 3, &[(false, 16)]), None);
        assert_eq!(missed(Majority, 3, &[(true, 16)]), Some(LostState::Unknown));
        assert_eq!(
            missed(Majority, 5, &[(false, 16), (true, 9)]),
            Some(LostState::Unknown),
            "of five one may be lying"
        );
    }

    #[test]
    fn who_has_no_vote_has_signed_nothing_that_counts() {
        let view = View::found(RunId([7; 32]), peer(0)).succeed((0..3).map(peer)).with_newcomers([peer(2)]);
        let progress = Progress { step: 100, lineage: Lineage::NONE, has_state: true, has_result: false };
        let promise = |lost| Promise { recovering: true, lost, ..Promise::at(progress) };
        let promises = |first| BTreeMap::from([(peer(0), promise(first)), (peer(2), promise(LostState::Step(120)))]);
        let missed = |view: &View, promises: &BTreeMap<PeerId, Promise>, gone: &[u8]| {
            super::missed(view, promises, &gone.iter().map(|name| peer(*name)).collect(), 100, None)
        };
        assert_eq!(missed(&view, &promises(LostState::Nothing), &[]), None);
        assert_eq!(missed(&view, &promises(LostState::Step(110)), &[]), Some(LostState::Step(110)));
        assert_eq!(
            missed(&view, &promises(LostState::Step(110)), &[1]),
            None,
            "who has no seat any more holds nothing"
        );
        // It may hold what those who vote have signed.
        let alone = View::found(RunId([7; 32]), peer(0)).succeed((0..2).map(peer)).with_newcomers([peer(1)]);
        let lost = BTreeMap::from([(peer(0), promise(LostState::Step(110)))]);
        assert_eq!(missed(&alone, &lost, &[]), Some(LostState::Step(110)));
        let beside = Promise { progress: Progress { step: 110, ..progress }, ..promise(LostState::Nothing) };
        let mut both = lost.clone();
        both.insert(peer(1), beside);
        assert_eq!(missed(&alone, &both, &[]), Some(LostState::Step(110)), "who holds it is here, and was not to stay");
        both.insert(peer(1), promise(LostState::Nothing));
        assert_eq!(missed(&alone, &both, &[]), None);
    }
}
