//! How a process ends, and what it stays for once the run is complete.

use starling_topology::{Digest, Event, PeerId, Time};

use super::Peer;

impl Peer {
    /// How it ended, if it did.
    pub fn end(&self) -> Option<&Event> {
        self.end.as_ref()
    }

    /// Whether the run is complete for it, and it stays for others.
    pub fn has_completed(&self) -> bool {
        self.member.has_completed()
    }

    /// Whether the state after the last step is on its disk.
    pub fn is_saved(&self) -> bool {
        self.member.is_saved()
    }

    /// These keepers are there.
    pub fn look_at_end(&mut self, now: Time, keepers: &[PeerId]) {
        self.member.settle(now, keepers);
        self.obey(now);
    }

    /// A keeper has said which stable states it holds.
    pub fn keeper_holds(&mut self, now: Time, keeper: PeerId, states: &[(u64, Digest)]) {
        self.member.keeper_holds(now, keeper, states);
        self.obey(now);
    }
}
