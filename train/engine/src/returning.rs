//! What a member comes back with whose process is gone.

use std::collections::BTreeSet;

use starling_topology::{PeerId, Record};

/// With what it takes its seat again, or why it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Return {
    /// Others may hold what it should have saved, and have not said what they hold. Alone it would go back behind that: it goes on
    /// once it has heard them, or as a fork by its user's word.
    Behind(Vec<PeerId>),
    /// It takes its seat.
    Seat {
        /// Whether it may say that it holds the state: it does not if it was still to load it, or what it had is damaged.
        has_state: bool,
    },
}

/// A member whose process is gone.
#[derive(Debug, Clone, Copy)]
pub struct Returning<'a> {
    /// Who it is.
    pub me: PeerId,
    /// Its seat.
    pub record: &'a Record,
    /// The step of the best checkpoint that it can load, of those that its root admits.
    pub found: Option<u64>,
    /// Whether it can compute the state before the first step, and has nothing damaged that may have been a later one.
    pub can_begin: bool,
    /// How often it saves its state.
    pub stride: u64,
    /// Who has said what it holds, and handed over what is stable of it.
    pub heard: &'a BTreeSet<PeerId>,
}

impl Returning<'_> {
    /// What it comes back with.
    pub fn outcome(&self) -> Return {
        let mut ahead = self.record.ahead_of(self.me, self.found.unwrap_or(0), self.stride);
        ahead.retain(|peer| !self.heard.contains(peer));
        // What it has signed is on its disk, as long as nothing there is damaged.
        if self.can_begin && self.record.is_in_each_quorum(self.me) {
            ahead.clear();
        }
        if !ahead.is_empty() {
            return Return::Behind(ahead);
        }
        let begins_anew = self.can_begin && self.record.can_begin_anew(self.me);
        Return::Seat { has_state: self.found.is_some() || begins_anew }
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::{Lineage, Proposal, Reason, Resume, Root, RunId, View};

    use super::*;

    const ME: PeerId = PeerId([1; 32]);
    const OTHER: PeerId = PeerId([2; 32]);

    /// Alone since `step`, when the other left.
    fn record(step: u64) -> Record {
        let view = View::found(RunId([7; 32]), ME);
        let resume =
            Resume { step, lineage: Lineage::NONE, holders: Vec::new(), donors: Vec::new(), syncing: Vec::new() };
        let (reasons, joiners) = (vec![Reason::Left(OTHER)], Vec::new());
        let origin = Some(Proposal { view: view.clone(), resume, reasons, joiners, promised: 1, of: 1 });
        let (promised, accepted, echoed) = (None, None, None);
        let chain = Vec::new();
        Record { view, origin, certificate: None, chain, root: Root::default(), promised, accepted, echoed }
    }

    fn outcome(record: &Record, found: Option<u64>, can_begin: bool, heard: &[PeerId]) -> Return {
        let heard = heard.iter().copied().collect();
        Returning { me: ME, record, found, can_begin, stride: 5, heard: &heard }.outcome()
    }

    #[test]
    fn who_should_have_saved_more_waits_for_those_who_may_have() {
        let record = record(17);
        assert_eq!(outcome(&record, Some(10), false, &[]), Return::Behind(vec![OTHER]));
        assert_eq!(outcome(&record, Some(10), false, &[OTHER]), Return::Seat { has_state: true });
        assert_eq!(outcome(&record, Some(15), false, &[]), Return::Seat { has_state: true });
        assert_eq!(
            outcome(&record, None, true, &[OTHER]),
            Return::Seat { has_state: false },
            "the run had gone past it"
        );
    }

    #[test]
    fn the_state_before_the_first_step_is_held_by_who_can_compute_it() {
        let record = record(0);
        assert_eq!(outcome(&record, None, true, &[]), Return::Seat { has_state: true });
        assert_eq!(outcome(&record, None, false, &[]), Return::Seat { has_state: false });
        assert_eq!(outcome(&record, Some(3), false, &[]), Return::Seat { has_state: true });
    }
}
