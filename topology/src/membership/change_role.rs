//! Which part a member has in a change of view: for those who watch it.

use super::seat::{Seat, Stage};
use super::{Membership, Steps};

/// Which part a member has in a change of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeRole {
    /// None: its steps run.
    Steps,
    /// It is no member, and asks to be let in.
    Asks,
    /// It came back from its record, and waits for others.
    Recovers,
    /// Its view has too few members.
    Waits,
    /// It is about to propose, once the step under way is complete.
    Stops,
    /// It has prepared a ballot, and waits for promises.
    Prepares,
    /// It has proposed, and waits until that is accepted.
    Proposes,
    /// Its ballot has failed; it tries again.
    Rests,
    /// It has no quorum, and tries again.
    Pauses,
    /// It has promised.
    Promises,
    /// It has accepted.
    Accepts,
    /// Its steps are held for another reason.
    Stands,
}

/// What a machine is to the view that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It has been in no view, or left the last one, and asks to be let into one.
    Joiner,
    /// It is in the view.
    Member,
    /// The others go on without it: it votes in the view that it had, and asks to be let in.
    Outsider,
    /// It is in none and asks for none: it has ended, or is about to.
    Gone,
}

impl Membership {
    /// What this machine is to the view that goes on.
    pub fn role(&self) -> Role {
        match (&self.seat, &self.join_attempt) {
            (None, Some(_)) => Role::Joiner,
            (Some(_), None) => Role::Member,
            (Some(_), Some(_)) => Role::Outsider,
            (None, None) => Role::Gone,
        }
    }

    /// Whether it asks to be let in.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.role(), Role::Joiner | Role::Outsider)
    }

    /// The seat of a member; `None` for whoever is none.
    pub(super) fn member_seat(&self) -> Option<&Seat> {
        self.seat.as_ref().filter(|_| self.role() == Role::Member)
    }

    /// Whether nothing but the word of one that it asked says that its view was decided, and it has taken no step in it.
    pub fn came_by_word(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.by_word)
    }

    /// Which part this member has in a change of view.
    pub fn doing(&self) -> ChangeRole {
        let Some(seat) = self.member_seat() else { return ChangeRole::Asks };
        if let Some(decree) = &seat.decree {
            return match decree.stage {
                Stage::Stopping => ChangeRole::Stops,
                Stage::Promising => ChangeRole::Prepares,
                Stage::Echoing | Stage::Accepting => ChangeRole::Proposes,
                Stage::Resting if seat.paused.is_some() => ChangeRole::Pauses,
                Stage::Resting => ChangeRole::Rests,
            };
        }
        if self.steps == Steps::Running {
            ChangeRole::Steps
        } else if seat.waiting {
            ChangeRole::Waits
        } else if seat.acceptor.accepted.is_some() {
            ChangeRole::Accepts
        } else if seat.recovering.is_some() {
            ChangeRole::Recovers
        } else if seat.acceptor.promised.is_some() {
            ChangeRole::Promises
        } else {
            ChangeRole::Stands
        }
    }
}
