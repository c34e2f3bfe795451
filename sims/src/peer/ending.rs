//! How a process ends, and what it stays for once the run is complete.

use starling_engine::LeaveAction;
use starling_topology::{Digest, Event, PeerId, Time};

use super::{Call, Effect, Peer};

impl Peer {
    /// The user wants it to leave.
    pub fn leave(&mut self, now: Time) {
        self.member.ask_to_leave(now);
        self.tell_carrier(now, starling_engine::leaf::carrier::Input::Leaves);
        self.call_back_to_leave();
        self.obey(now);
    }

    /// Nobody has let it go for long.
    pub fn leave_in_vain(&mut self, now: Time) {
        match self.member.leave_in_vain(now) {
            LeaveAction::Alone => return self.effects.push(Effect::Ends("nobody lets it go")),
            LeaveAction::AwaitsHeirs(_) | LeaveAction::Departs => self.call_back_to_leave(),
        }
        self.obey(now);
    }

    fn call_back_to_leave(&mut self) {
        self.effects.extend(self.member.leaves_at().map(|at| Effect::CallBack(Call::Leave, at)));
    }

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
