//! What a peer is doing, for who wants to disturb it there.

use starling_topology::{ChangeRole, Time, Timer};

use super::Peer;
use crate::sweep::coverage::{LAST, Phase};

impl Peer {
    /// What it is doing: its part in a change of view, or what its step waits for.
    pub fn phase(&self) -> Phase {
        match self.member.membership().doing() {
            ChangeRole::Asks => "asks",
            ChangeRole::Recovers => "recovers",
            ChangeRole::Waits => "waits",
            ChangeRole::Stops => "stops",
            ChangeRole::Prepares => "prepares",
            ChangeRole::Proposes => "proposes",
            ChangeRole::Rests => "rests",
            ChangeRole::Pauses => "pauses",
            ChangeRole::Promises => "promises",
            ChangeRole::Accepts => "accepts",
            ChangeRole::Steps if self.fetch.is_some() => "fetches",
            ChangeRole::Steps if self.download.is_some() => "loads",
            ChangeRole::Steps if self.learner.saving => LAST,
            ChangeRole::Steps if self.learner.computing.is_some() => "computes",
            ChangeRole::Steps if self.operation.is_some() => "reduces",
            ChangeRole::Steps | ChangeRole::Stands => "idles",
        }
    }

    /// What its machine waits for, and until when by its clock.
    pub fn timers(&self) -> impl Iterator<Item = (Timer, Time)> + '_ {
        self.timers.iter().map(|(timer, at)| (*timer, *at))
    }
}
