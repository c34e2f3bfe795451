//! A user's wish to leave, which nobody answers.

use std::time::Duration;

use starling_topology::{Membership, PeerId, Time};

/// What a member does that nobody has let go for a whole `max_stall`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaveAction {
    /// It ends, without a decision of the others: they will miss it.
    Alone,
    /// It stays on: these have yet to load the state, which nobody else holds.
    AwaitsHeirs(Vec<PeerId>),
    /// It is about to end by itself.
    Departs,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Leaving {
    max_stall: Duration,
    until: Option<Time>,
}

impl Leaving {
    pub(super) fn new(max_stall: Duration) -> Self {
        Self { max_stall, until: None }
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.until = Some(now + self.max_stall);
    }

    pub(super) fn until(&self) -> Option<Time> {
        self.until
    }

    /// It is that time. If it does not end, it is asked again as much later.
    pub(super) fn expired(&mut self, now: Time, membership: &Membership) -> LeaveAction {
        self.begin(now);
        if membership.departs() {
            return LeaveAction::Departs;
        }
        let heirs = membership.heirs();
        let stays = !heirs.is_empty() && !membership.has_ended();
        if stays { LeaveAction::AwaitsHeirs(heirs) } else { LeaveAction::Alone }
    }
}
