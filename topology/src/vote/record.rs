//! What a member keeps on disk, so that it can't promise one thing, die, and promise another. How it lies there, that is
//! [`crate::vote::slot`].

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::id::PeerId;
use crate::view::View;
use crate::view::lineage::Root;
use crate::vote::certificate::{Certificate, MAX_LINKS, SuccessionProof, validate_chain};
use crate::vote::promise::JustifiedProposal;
use crate::vote::proposal::{Ballot, Proposal, Reason};

/// The longest encoded record, in bytes.
pub const MAX_RECORD_BYTES: usize = 2 * 1024 * 1024;

/// The view that a member is in, and its part in the decree for the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The view that it is in.
    pub view: View,
    /// What made that view, for those who have not heard of it; `None` if it is the founder's.
    pub origin: Option<Proposal>,
    /// Who decided that, for those who were not there. None of a fork.
    pub certificate: Option<Certificate>,
    /// What led to the view before it, from as far back as is known: who comes back shows it to those who were away for longer.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_LINKS>")]
    pub chain: Vec<SuccessionProof>,
    /// From where on what it has saved counts.
    pub root: Root,
    /// The highest ballot that it promised.
    pub promised: Option<Ballot>,
    /// What it accepted last, and in which ballot.
    pub accepted: Option<(Ballot, JustifiedProposal)>,
    /// Which proposal it echoed last, by its hash, and in which ballot.
    pub echoed: Option<(Ballot, [u8; 32])>,
}

impl Record {
    /// Of a member of `view`, which `origin` made, that has had no part in a decree yet and knows nothing of what led there.
    pub fn of(view: View, origin: Option<Proposal>) -> Self {
        let (certificate, chain, root) = (None, Vec::new(), Root::default());
        Self { view, origin, certificate, chain, root, promised: None, accepted: None, echoed: None }
    }

    /// Whether `me`, whose process is gone, may go on from the initial state if it has no checkpoint that its [`Root`] admits:
    /// others could not tell that from the state which they had come to.
    pub fn can_begin_anew(&self, me: PeerId) -> bool {
        let resume = self.origin.as_ref().map(|origin| &origin.resume);
        let accepted = self.accepted.as_ref().map(|(_, justified)| &justified.proposal.resume);
        let is_syncing = resume.is_some_and(|resume| resume.syncing.contains(&me));
        let mut resumed = resume.into_iter().chain(accepted).map(|resume| resume.step).chain([self.root.step]);
        !is_syncing && resumed.all(|step| step == 0)
    }

    /// Who was a member before `me` was alone, where it holds no more than the state after `step` and saves one each `stride`
    /// steps: what it should have saved by then may be stable, and only they can have it. Unless it `may_have_signed`
    /// that itself, there was a quorum without it.
    pub fn ahead_of(&self, me: PeerId, step: u64, stride: u64, may_have_signed: bool) -> Vec<PeerId> {
        let Some(origin) = self.origin.as_ref().filter(|_| self.view.members() == [me]) else { return Vec::new() };
        let resumed = origin.resume.step;
        let due = step.checked_div(stride).and_then(|saved| saved.checked_add(1)?.checked_mul(stride));
        let Some(due) = due.filter(|due| *due <= resumed) else { return Vec::new() };
        // What a newcomer signs is worth nothing, and so is what a voter could sign of whose view no step that was due has come.
        let next = self.chain.iter().skip(1).map(SuccessionProof::resumed).chain([resumed]);
        let views: Vec<(&View, u64)> = self.chain.iter().map(|link| &link.view).zip(next).collect();
        let is_known = self.is_up_to_here() && self.chain.first().is_some_and(|first| first.resumed() < due);
        let is_enough = |view: &View| may_have_signed || !view.needs(me);
        let could_sign = |peer: &PeerId| {
            let signs = |(view, to): &(&View, u64)| *to >= due && view.votes(*peer) && is_enough(view);
            !is_known || views.iter().any(signs)
        };
        origin.reasons.iter().filter_map(Reason::gone).filter(|peer| *peer != me && could_sign(peer)).collect()
    }

    /// Whether the chain leads to the view before this one.
    fn is_up_to_here(&self) -> bool {
        self.chain.last().is_some_and(|last| Some(last.view.id()) == self.view.parent)
    }

    /// Whether no others could ever decide without `me`, since the run was founded: then nothing is stable that it has not signed.
    pub fn is_in_each_quorum(&self, me: PeerId) -> bool {
        let views = || self.chain.iter().map(|link| &link.view);
        // The founder's own view is the first.
        let is_whole = views().next().is_some_and(|first| first.generation.0 <= 2);
        is_whole && self.is_up_to_here() && views().all(|view| view.needs(me))
    }

    /// The canonical bytes (postcard).
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: a record always encodes")
    }

    /// Reads bytes that came from a file.
    ///
    /// # Errors
    /// A [`Violation`] if the bytes are too many, are no record, have bytes after it, or exceed a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        if bytes.len() > MAX_RECORD_BYTES {
            return Err(Violation::Undecodable);
        }
        let (record, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| Violation::Undecodable)?;
        if !rest.is_empty() {
            return Err(Violation::Undecodable);
        }
        record.view.validate()?;
        record.certificate.as_ref().map_or(Ok(()), Certificate::validate)?;
        validate_chain(&record.chain)?;
        record.origin.as_ref().map_or(Ok(()), Proposal::validate)?;
        record.accepted.as_ref().map_or(Ok(()), |(_, justified)| justified.validate())?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::view::lineage::Lineage;
    use crate::vote::proposal::ResumePlan;
    use crate::vote::quorum::Quorum;

    const ME: PeerId = PeerId([1; 32]);
    const OTHER: PeerId = PeerId([2; 32]);

    /// The record of a member of a view that went on after `step`, while `syncing` had yet to load the state.
    fn record(step: u64, syncing: &[PeerId]) -> Record {
        let view = View::found(RunId([7; 32]), OTHER).succeed([ME, OTHER]);
        let (donors, lineage) = (vec![OTHER], Lineage::NONE);
        let resume = ResumePlan { step, lineage, holders: Vec::new(), donors, syncing: syncing.to_vec() };
        let (reasons, joiners) = (Vec::new(), Vec::new());
        let origin = Proposal { view: view.clone(), resume, reasons, joiners, promised: 1, of: 1 };
        Record::of(view, Some(origin))
    }

    #[test]
    fn those_who_are_gone_are_ahead_of_whoever_is_alone_without_what_it_should_have_saved() {
        let mut record = record(17, &[]);
        let origin = record.origin.as_mut().expect("it has one");
        origin.reasons = vec![Reason::Left(OTHER), Reason::Joined(ME)];
        assert!(record.ahead_of(ME, 14, 5, true).is_empty(), "others are there, and decide with it");
        record.view = View::found(RunId([7; 32]), ME);
        assert_eq!(record.ahead_of(ME, 14, 5, true), [OTHER]);
        assert!(record.ahead_of(ME, 15, 5, true).is_empty(), "nothing later is stable");
        assert!(record.ahead_of(ME, 0, 0, true).is_empty(), "nothing was to be saved before the end");
        // Whether it voted in the two views before this one, and after which steps they began.
        for (votes, from, is_ahead) in [
            ([true, true], [0, 12], true),
            ([false, false], [0, 12], false),
            ([true, false], [0, 15], true),
            ([true, false], [0, 14], false),
            ([false, false], [15, 16], true),
        ] {
            let mut view = View::found(RunId([7; 32]), ME);
            record.chain.clear();
            for (votes, step) in votes.into_iter().zip(from) {
                view = view.succeed([ME, OTHER]).with_newcomers(if votes { vec![] } else { vec![OTHER] });
                let mut proposal = Proposal { view: view.clone(), ..record.origin.clone().expect("it has one") };
                proposal.resume.step = step;
                let ballot = Ballot { attempt: 1, proposer: ME };
                record.chain.push(SuccessionProof::to(&proposal, Certificate { ballot, seals: Vec::new() }));
            }
            record.view = view.succeed([ME]);
            let ahead: &[PeerId] = if is_ahead { &[OTHER] } else { &[] };
            assert_eq!(record.ahead_of(ME, 14, 5, true), ahead, "it votes: {votes:?}, from {from:?}");
            // It had the casting vote in all views, as far as they are known.
            let ahead = if from[0] < 15 { &[] } else { ahead };
            assert_eq!(record.ahead_of(ME, 14, 5, false), ahead, "it has signed no more: {votes:?}, from {from:?}");
        }
        let founded = Record { origin: None, ..record };
        assert!(founded.ahead_of(ME, 0, 5, true).is_empty());
    }

    #[test]
    fn those_who_are_gone_are_ahead_of_one_that_signed_nothing_where_they_were_a_quorum() {
        let third = PeerId([3; 32]);
        for (founder, members, quorum, is_ahead) in [
            (ME, vec![ME, OTHER], Quorum::Majority, false),
            (OTHER, vec![ME, OTHER], Quorum::Majority, true),
            (ME, vec![ME, OTHER, third], Quorum::Majority, true),
            (OTHER, vec![ME, OTHER], Quorum::TwoThirds, false),
            (OTHER, vec![ME, OTHER, third], Quorum::TwoThirds, false),
        ] {
            let mut record = record(17, &[]);
            let origin = record.origin.as_mut().expect("it has one");
            origin.reasons = vec![Reason::Left(OTHER)];
            let view = View::found(RunId([7; 32]), founder).with_quorum(quorum).succeed(members);
            let mut proposal = Proposal { view: view.clone(), ..origin.clone() };
            proposal.resume.step = 12;
            let ballot = Ballot { attempt: 1, proposer: founder };
            record.chain.push(SuccessionProof::to(&proposal, Certificate { ballot, seals: Vec::new() }));
            record.view = view.succeed([ME]);
            let ahead: &[PeerId] = if is_ahead { &[OTHER] } else { &[] };
            assert_eq!(record.ahead_of(ME, 14, 5, false), ahead, "{view:?}");
            assert_eq!(record.ahead_of(ME, 14, 5, true), [OTHER], "{view:?}");
        }
    }

    #[test]
    fn nothing_is_decided_without_who_had_the_casting_vote_between_two() {
        let alone = |founder: PeerId, others: &[PeerId]| {
            let mut record = record(17, &[]);
            let origin = record.origin.clone().expect("it has one");
            let mut view = View::found(RunId([7; 32]), founder);
            for other in others {
                view = view.succeed([founder, *other]);
                let ballot = Ballot { attempt: 1, proposer: founder };
                let proposal = Proposal { view: view.clone(), ..origin.clone() };
                record.chain.push(SuccessionProof::to(&proposal, Certificate { ballot, seals: Vec::new() }));
            }
            record.view = view.succeed([ME]);
            record
        };
        assert!(alone(ME, &[OTHER]).is_in_each_quorum(ME));
        assert!(!alone(OTHER, &[ME]).is_in_each_quorum(ME), "the other one could decide alone");
        let gap = Record { chain: Vec::new(), ..alone(ME, &[OTHER]) };
        assert!(!gap.is_in_each_quorum(ME), "nobody knows what went before");
        let third = PeerId([3; 32]);
        let mut larger = alone(ME, &[OTHER]);
        larger.chain[0].view = View::found(RunId([7; 32]), ME).succeed([ME, OTHER, third]);
        larger.view = larger.chain[0].view.succeed([ME]);
        assert!(!larger.is_in_each_quorum(ME), "two could decide without the third");
    }

    #[test]
    fn the_initial_state_counts_only_where_the_run_had_not_gone_past_it() {
        let founded = Record { origin: None, ..record(0, &[]) };
        assert!(founded.can_begin_anew(ME) && record(0, &[]).can_begin_anew(ME));
        assert!(!record(0, &[ME]).can_begin_anew(ME), "it came with another state");
        assert!(!record(1, &[]).can_begin_anew(ME));
        let rooted = Record { root: Root { step: 9, ..Root::default() }, ..founded.clone() };
        assert!(!rooted.can_begin_anew(ME), "it began with a checkpoint");
        let next = record(9, &[]).origin.expect("it has one");
        let ballot = Ballot { attempt: 1, proposer: OTHER };
        let (promises, excluded, seal) = (Vec::new(), Vec::new(), [0; 64].into());
        let accepted = Some((
            ballot,
            JustifiedProposal { proposal: next, ballot, promises, excluded, seal, last: seal, echoes: Vec::new() },
        ));
        assert!(!Record { accepted, ..founded }.can_begin_anew(ME), "others were to go on after step 9");
    }
}
