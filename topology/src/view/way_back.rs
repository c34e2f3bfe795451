//! How a machine comes back to a run that it took part in: what its past and those who answer allow.
//!
//! | its past | somebody goes on | nobody does | nobody does, and its user says alone |
//! |---|---|---|---|
//! | a seat, alone in its view | takes the seat; joins, if its user says so and theirs is no fork | takes the seat | takes the seat |
//! | a seat beside others | takes the seat: it learns that they go on, and joins | takes the seat: waits for a quorum | forks |
//! | left, others stayed | joins | waits for them | forks |
//! | knows others, and no more | joins | is told so | forks |
//! | nothing | | begins | begins |
//!
//! A run that others may go on with is never begun a second time: that would be another branch that nothing shows.

use crate::id::PeerId;
use crate::vote::record::Record;

/// What a machine has of a run.
#[derive(Debug, Clone, Copy)]
pub struct LocalState<'a> {
    /// Who it is.
    pub me: PeerId,
    /// Its seat in a view, if it has not given it up.
    pub record: Option<&'a Record>,
    /// Whether it has given its seat up to others who stayed.
    pub left: bool,
    /// Whether others are known to have been members, or may have been.
    pub had_others: bool,
    /// Whether its user asks to join others, whatever it has.
    pub joins: bool,
}

/// Who of those others is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PresenceStatus {
    /// Nobody answers.
    Silent,
    /// Somebody is there, and in no view: it may wait as well.
    There,
    /// Somebody is in a view, and all who are go on as a fork.
    Forked,
    /// Somebody is in a view.
    Live,
}

/// How the machine takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnAction {
    /// As the first member of the run.
    Found,
    /// From its record: [`crate::Membership::recover`].
    Recover,
    /// By asking the others, until one of them goes on.
    Join,
    /// Alone, beside whatever the others do: [`crate::Membership::fork`].
    Fork,
}

/// How to come back; `None` if only the user can know: others were members, none answers, and nothing says whether they go
/// on.
pub fn way_back(past: LocalState<'_>, presence: PresenceStatus, alone: bool) -> Option<ReturnAction> {
    let is_last = past.record.is_some_and(|record| record.view.members() == [past.me]);
    let others = past.left || past.had_others || (past.record.is_some() && !is_last);
    Some(match (past.record, presence) {
        // Of two branches that never were forks, neither gives way by itself.
        (Some(_), PresenceStatus::Live) if is_last && past.joins => ReturnAction::Join,
        // Its vote may be needed, and whoever goes on without it says so.
        (Some(_), _) if is_last => ReturnAction::Recover,
        (Some(_), PresenceStatus::Live | PresenceStatus::Forked) => ReturnAction::Recover,
        (None, PresenceStatus::Live | PresenceStatus::Forked) => ReturnAction::Join,
        (_, PresenceStatus::There | PresenceStatus::Silent) if alone && others => ReturnAction::Fork,
        (Some(_), PresenceStatus::There | PresenceStatus::Silent) => ReturnAction::Recover,
        (None, PresenceStatus::There) => ReturnAction::Join,
        (None, PresenceStatus::Silent) if past.left => ReturnAction::Join,
        (None, PresenceStatus::Silent) if others => return None,
        (None, PresenceStatus::Silent) => ReturnAction::Found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::view::View;

    const ME: PeerId = PeerId([1; 32]);

    fn record(others: &[u8]) -> Record {
        let members = others.iter().map(|name| PeerId([*name; 32])).chain([ME]);
        let view = View::found(RunId([7; 32]), ME).succeed(members);
        Record { root: crate::Root::default(), ..Record::of(view, None) }
    }

    fn all() -> Vec<(Option<Record>, bool, bool, PresenceStatus, bool)> {
        let mut cases = Vec::new();
        for record in [None, Some(record(&[])), Some(record(&[2, 3]))] {
            for bits in 0..8 {
                for presence in
                    [PresenceStatus::Live, PresenceStatus::Forked, PresenceStatus::There, PresenceStatus::Silent]
                {
                    cases.push((record.clone(), bits & 1 == 1, bits & 2 == 2, presence, bits & 4 == 4));
                }
            }
        }
        cases
    }

    fn decide(
        (record, left, had_others, presence, alone): &(Option<Record>, bool, bool, PresenceStatus, bool),
    ) -> Option<ReturnAction> {
        let past = LocalState { me: ME, record: record.as_ref(), left: *left, had_others: *had_others, joins: false };
        way_back(past, *presence, *alone)
    }

    #[test]
    fn a_run_with_a_past_is_never_begun_again() {
        for case in all() {
            let (record, left, had_others, presence, _) = &case;
            let has_past = record.is_some() || *left || *had_others || *presence != PresenceStatus::Silent;
            assert_eq!(decide(&case) == Some(ReturnAction::Found), !has_past, "{case:?}");
        }
    }

    #[test]
    fn a_fork_takes_a_word_of_the_user_and_never_where_somebody_goes_on() {
        for case in all().iter().filter(|case| decide(case) == Some(ReturnAction::Fork)) {
            assert!(case.4 && case.3 < PresenceStatus::Forked, "{case:?}");
        }
    }

    #[test]
    fn the_last_to_leave_needs_nobody_and_no_word() {
        for case in all().iter().filter(|case| case.0 == Some(record(&[]))) {
            assert_eq!(decide(case), Some(ReturnAction::Recover), "{case:?}");
        }
    }

    #[test]
    fn a_user_may_give_a_branch_up_for_one_that_is_no_fork() {
        let record = record(&[]);
        let past = LocalState { me: ME, record: Some(&record), left: false, had_others: false, joins: true };
        for (presence, way) in [
            (PresenceStatus::Live, ReturnAction::Join),
            (PresenceStatus::Forked, ReturnAction::Recover),
            (PresenceStatus::There, ReturnAction::Recover),
        ] {
            assert_eq!(way_back(past, presence, false), Some(way), "{presence:?}");
        }
    }

    #[test]
    fn only_a_seat_among_others_and_a_leave_wait() {
        let silent = |record, left, had_others| decide(&(record, left, had_others, PresenceStatus::Silent, false));
        assert_eq!(silent(Some(record(&[2])), false, true), Some(ReturnAction::Recover));
        assert_eq!(silent(None, true, true), Some(ReturnAction::Join));
        assert_eq!(silent(None, false, true), None, "nothing says whether the others go on");
    }
}
