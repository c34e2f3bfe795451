//! What a peer is doing, for who wants to disturb it there.

use starling_topology::{Part, Time, Timer};

use super::Peer;
use crate::sweep::coverage::{LAST, Phase};

impl Peer {
    /// What it is doing: its part in a change of view, or what its step waits for.
    pub fn phase(&self) -> Phase {
        match self.member.membership().doing() {
            Part::Asks => "asks",
            Part::Recovers => "recovers",
            Part::Waits => "waits",
            Part::Stops => "stops",
            Part::Prepares => "prepares",
            Part::Proposes => "proposes",
            Part::Rests => "rests",
            Part::Pauses => "pauses",
            Part::Promises => "promises",
            Part::Accepts => "accepts",
            Part::Steps if self.fetch.is_some() => "fetches",
            Part::Steps if self.download.is_some() => "loads",
            Part::Steps if self.learner.saving => LAST,
            Part::Steps if self.learner.computing.is_some() => "computes",
            Part::Steps if self.operation.is_some() => "reduces",
            Part::Steps | Part::Stands => "idles",
        }
    }

    /// What its machine waits for, and until when by its clock.
    pub fn timers(&self) -> impl Iterator<Item = (Timer, Time)> + '_ {
        self.timers.iter().map(|(timer, at)| (*timer, *at))
    }
}
