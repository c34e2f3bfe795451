//! Looking out for a run that has gone on without this peer.

use starling_engine::member::quorum_search::SearchResult;
use starling_topology::{Root, Time, View};

use super::Peer;

impl Peer {
    /// Whether it takes no part, and looks out for what it lacks.
    pub fn looks_out(&self) -> bool {
        self.member.apart().is_some()
    }

    /// Which checkpoints are of the branch that it is on, or was on when it left.
    pub fn root(&self) -> Option<Root> {
        self.member.membership().root()
    }

    /// The view that it has a seat in, also while it waits there for more members.
    pub fn seat(&self) -> Option<&View> {
        self.member.membership().view()
    }

    /// Whether it has a seat, and a quorum.
    pub fn has_quorum(&self) -> bool {
        self.member.takes_part()
    }

    /// Whether it says that it goes on.
    pub fn goes_on(&self) -> bool {
        self.member.goes_on()
    }

    /// The time has come to ask others whether the run has gone on without it.
    pub fn look_out(&mut self, now: Time) {
        self.member.look_out(now, self.steps.progress().step, self.steps.last_step());
        self.obey(now);
    }

    /// They have been asked.
    pub fn searched(&mut self, now: Time, came_to: SearchResult<'_>) {
        self.member.searched(now, came_to);
        self.obey(now);
    }
}
