//! What a member comes back with whose process is gone.

use std::collections::BTreeSet;

use starling_topology::{LostState, MarkStatus, PeerId, Record};

/// With what it takes its seat again, or why it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeatDecision {
    /// Others may hold what it should have saved, and have not said what they hold. Alone it would go back behind that: it goes on
    /// once it has heard them, or as a fork by its user's word.
    Behind(Vec<PeerId>),
    /// It takes its seat.
    Seat {
        /// Whether it may say that it holds the state: it does not if it was still to load it, or what it had is damaged or lost.
        has_state: bool,
        /// Whether it may begin with the state before the first step where nobody holds any:
        /// [`Membership::allow_to_begin`](starling_topology::Membership::allow_to_begin).
        can_begin: bool,
    },
}

/// A member whose process is gone.
#[derive(Debug, Clone, Copy)]
pub struct ReturningMember<'a> {
    /// Who it is.
    pub me: PeerId,
    /// Its seat.
    pub record: &'a Record,
    /// The step of the best checkpoint that it can load, of those that its root admits.
    pub found: Option<u64>,
    /// What it had saved to sign it.
    pub noted: MarkStatus,
    /// Whether it can compute the state before the first step, and has nothing damaged that may have been a later one.
    pub can_begin: bool,
    /// How often it saves its state.
    pub stride: u64,
    /// Who has said what it holds, and handed over what is stable of it.
    pub heard: &'a BTreeSet<PeerId>,
}

impl ReturningMember<'_> {
    /// What it comes back with.
    pub fn outcome(&self) -> SeatDecision {
        let root = &self.record.root;
        let may_have_signed = !self.noted.is_held(root, self.found);
        let mut ahead = self.record.ahead_of(self.me, self.found.unwrap_or(0), self.stride, may_have_signed);
        ahead.retain(|peer| !self.heard.contains(peer));
        // What it has signed is on its disk, as long as nothing there is damaged or lost. Who does not know may have lost anything.
        let has_lost = self.noted.lost(root, self.found) != LostState::Nothing;
        if self.can_begin && !has_lost && self.record.is_in_each_quorum(self.me) {
            ahead.clear();
        }
        if !ahead.is_empty() {
            return SeatDecision::Behind(ahead);
        }
        // An older state counts, and the membership machine says what is lost. The run has gone past the initial one.
        let can_begin = self.can_begin && !has_lost;
        let begins_anew = can_begin && self.record.can_begin_anew(self.me);
        let has_state = self.found.is_some() || begins_anew;
        SeatDecision::Seat { has_state, can_begin: can_begin && !has_state }
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::{
        Ballot, Certificate, Lineage, Mark, Proposal, Reason, ResumePlan, RunId, SuccessionProof, View,
    };

    use super::*;

    const ME: PeerId = PeerId([1; 32]);
    const OTHER: PeerId = PeerId([2; 32]);

    /// Alone since `step`, when the other left.
    fn record(step: u64) -> Record {
        let view = View::found(RunId([7; 32]), ME);
        let resume =
            ResumePlan { step, lineage: Lineage::NONE, holders: Vec::new(), donors: Vec::new(), syncing: Vec::new() };
        let (reasons, joiners) = (vec![Reason::Left(OTHER)], Vec::new());
        let origin = Some(Proposal { view: view.clone(), resume, reasons, joiners, promised: 1, of: 1 });
        Record::of(view, origin)
    }

    fn outcome(record: &Record, found: Option<u64>, can_begin: bool, heard: &[PeerId]) -> SeatDecision {
        lost(record, MarkStatus::Nothing, found, can_begin, heard)
    }

    fn lost(record: &Record, noted: MarkStatus, found: Option<u64>, can_begin: bool, heard: &[PeerId]) -> SeatDecision {
        let heard = heard.iter().copied().collect();
        ReturningMember { me: ME, record, found, noted, can_begin, stride: 5, heard: &heard }.outcome()
    }

    #[test]
    fn who_should_have_saved_more_waits_for_those_who_may_have() {
        let record = record(17);
        assert_eq!(outcome(&record, Some(10), false, &[]), SeatDecision::Behind(vec![OTHER]));
        assert_eq!(
            outcome(&record, Some(10), false, &[OTHER]),
            SeatDecision::Seat { has_state: true, can_begin: false }
        );
        assert_eq!(outcome(&record, Some(15), false, &[]), SeatDecision::Seat { has_state: true, can_begin: false });
        assert_eq!(
            outcome(&record, None, true, &[OTHER]),
            SeatDecision::Seat { has_state: false, can_begin: true },
            "the run had gone past it"
        );
    }

    #[test]
    fn who_has_signed_no_more_than_it_holds_waits_for_nobody_who_needed_its_signature() {
        let mut record = record(17);
        let pair = |founder| View::found(RunId([7; 32]), founder).succeed([ME, OTHER]);
        let mut after = |pair: View| {
            let before = ResumePlan { step: 5, ..record.origin.as_ref().expect("it has one").resume.clone() };
            let origin = Proposal { view: pair.clone(), resume: before, ..record.origin.clone().expect("it has one") };
            let certificate = Certificate { ballot: Ballot { attempt: 1, proposer: ME }, seals: Vec::new() };
            record.chain = vec![SuccessionProof::to(&origin, certificate)];
            record.view = pair.succeed([ME]);
            record.clone()
        };
        let (needed, other) = (after(pair(ME)), after(pair(OTHER)));
        let mark = |step| MarkStatus::Saved(Mark { step, lineage: Lineage::of(&needed.view) });
        let (behind, seat) =
            (SeatDecision::Behind(vec![OTHER]), SeatDecision::Seat { has_state: true, can_begin: false });
        assert_eq!(lost(&needed, mark(10), Some(10), false, &[]), seat);
        assert_eq!(lost(&needed, mark(5), Some(10), false, &[]), seat);
        assert_eq!(lost(&needed, mark(15), Some(10), false, &[]), behind, "it may have signed that with the other one");
        assert_eq!(lost(&needed, MarkStatus::Nothing, Some(10), false, &[]), seat);
        assert_eq!(lost(&needed, MarkStatus::Unknown, Some(10), false, &[]), behind, "nothing says what it has signed");
        assert_eq!(lost(&other, mark(10), Some(10), false, &[]), behind, "the other one was a quorum");
    }

    #[test]
    fn the_state_before_the_first_step_is_held_by_who_can_compute_it() {
        let record = record(0);
        assert_eq!(outcome(&record, None, true, &[]), SeatDecision::Seat { has_state: true, can_begin: false });
        assert_eq!(outcome(&record, None, false, &[]), SeatDecision::Seat { has_state: false, can_begin: false });
        assert_eq!(outcome(&record, Some(3), false, &[]), SeatDecision::Seat { has_state: true, can_begin: false });
    }

    #[test]
    fn who_has_lost_what_it_had_saved_has_an_older_state_and_not_the_first_one() {
        let record = record(0);
        let mark = |step| MarkStatus::Saved(Mark { step, lineage: Lineage::of(&record.view) });
        assert_eq!(
            lost(&record, MarkStatus::Unknown, None, true, &[]),
            SeatDecision::Seat { has_state: false, can_begin: false }
        );
        assert_eq!(
            lost(&record, MarkStatus::Unknown, Some(5), true, &[]),
            SeatDecision::Seat { has_state: true, can_begin: false }
        );
        assert_eq!(lost(&record, mark(5), None, true, &[]), SeatDecision::Seat { has_state: false, can_begin: false });
        assert_eq!(
            lost(&record, mark(10), Some(5), true, &[]),
            SeatDecision::Seat { has_state: true, can_begin: false }
        );
        let left = MarkStatus::Saved(Mark { step: 5, lineage: Lineage { branch: 9, ..Lineage::NONE } });
        assert_eq!(
            lost(&record, left, None, true, &[]),
            SeatDecision::Seat { has_state: true, can_begin: false },
            "of another branch"
        );
    }
}
