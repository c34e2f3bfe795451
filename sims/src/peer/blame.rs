//! Those who send what no correct peer sends.

use starling_topology::{Evidence, Input, PeerId, Time};

use super::{Effect, Peer};

impl Peer {
    pub(super) fn blame(&mut self, from: PeerId, violation: &dyn std::error::Error) {
        self.effects.push(Effect::Blames(from, violation.to_string()));
    }

    /// It has nothing to do with `other` any more, which has misbehaved.
    pub fn shun(&mut self, now: Time, other: PeerId) {
        self.input(now, Input::Suspected { peer: other, evidence: Evidence::Misbehaved });
        self.obey(now);
    }
}
