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
pub struct Past<'a> {
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
pub enum Presence {
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
pub enum Way {
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
pub fn way_back(past: Past<'_>, presence: Presence, alone: bool) -> Option<Way> {
    let is_last = past.record.is_some_and(|record| record.view.members() == [past.me]);
    let others = past.left || past.had_others || (past.record.is_some() && !is_last);
    Some(match (past.record, presence) {
        // Of two branches that never were forks, neither gives way by itself.
        (Some(_), Presence::Live) if is_last && past.joins => Way::Join,
        // Its vote may be needed, and whoever goes on without it says so.
        (Some(_), _) if is_last => Way::Recover,
        (Some(_), Presence::Live | Presence::Forked) => Way::Recover,
        (None, Presence::Live | Presence::Forked) => Way::Join,
        (_, Presence::There | Presence::Silent) if alone && others => Way::Fork,
        (Some(_), Presence::There | Presence::Silent) => Way::Recover,
        (None, Presence::There) => Way::Join,
        (None, Presence::Silent) if past.left => Way::Join,
        (None, Presence::Silent) if others => return None,
        (None, Presence::Silent) => Way::Found,
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

    fn all() -> Vec<(Option<Record>, bool, bool, Presence, bool)> {
        let mut cases = Vec::new();
        for record in [None, Some(record(&[])), Some(record(&[2, 3]))] {
            for bits in 0..8 {
                for presence in [Presence::Live, Presence::Forked, Presence::There, Presence::Silent] {
                    cases.push((record.clone(), bits & 1 == 1, bits & 2 == 2, presence, bits & 4 == 4));
                }
            }
        }
        cases
    }

    fn decide(
        (record, left, had_others, presence, alone): &(Option<Record>, bool, bool, Presence, bool),
    ) -> Option<Way> {
        let past = Past { me: ME, record: record.as_ref(), left: *left, had_others: *had_others, joins: false };
        way_back(past, *presence, *alone)
    }

    #[test]
    fn a_run_with_a_past_is_never_begun_again() {
        for case in all() {
            let (record, left, had_others, presence, _) = &case;
            let has_past = record.is_some() || *left || *had_others || *presence != Presence::Silent;
            assert_eq!(decide(&case) == Some(Way::Found), !has_past, "{case:?}");
        }
    }

    #[test]
    fn a_fork_takes_a_word_of_the_user_and_never_where_somebody_goes_on() {
        for case in all().iter().filter(|case| decide(case) == Some(Way::Fork)) {
            assert!(case.4 && case.3 < Presence::Forked, "{case:?}");
        }
    }

    #[test]
    fn the_last_to_leave_needs_nobody_and_no_word() {
        for case in all().iter().filter(|case| case.0 == Some(record(&[]))) {
            assert_eq!(decide(case), Some(Way::Recover), "{case:?}");
        }
    }

    #[test]
    fn a_user_may_give_a_branch_up_for_one_that_is_no_fork() {
        let record = record(&[]);
        let past = Past { me: ME, record: Some(&record), left: false, had_others: false, joins: true };
        for (presence, way) in
            [(Presence::Live, Way::Join), (Presence::Forked, Way::Recover), (Presence::There, Way::Recover)]
        {
            assert_eq!(way_back(past, presence, false), Some(way), "{presence:?}");
        }
    }

    #[test]
    fn only_a_seat_among_others_and_a_leave_wait() {
        let silent = |record, left, had_others| decide(&(record, left, had_others, Presence::Silent, false));
        assert_eq!(silent(Some(record(&[2])), false, true), Some(Way::Recover));
        assert_eq!(silent(None, true, true), Some(Way::Join));
        assert_eq!(silent(None, false, true), None, "nothing says whether the others go on");
    }
}
