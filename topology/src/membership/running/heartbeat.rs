//! What happens regularly.

use crate::membership::interface::Timer;
use crate::membership::{Membership, Steps};
use crate::message::{Body, Evidence};
use crate::time::Time;

impl Membership {
    pub(in crate::membership) fn beat(&mut self, now: Time) {
        self.set_timer(Timer::Heartbeat, now + self.config.heartbeat_interval());
        if self.outbox.is_waiting() {
            return; // What is said regularly need not be kept until then.
        }
        self.probe(now);
        self.forget_joiners(now);
        if self.is_outside() {
            return self.come_back_if_alone(now);
        }
        self.try_severed(now);
        let me = self.me.peer;
        // Whoever is through waits for the others too, and so does who has held its steps for a change that nobody else wants.
        let holds_long = self.steps == Steps::Held && self.held_for(now) >= self.config.max_stall;
        let Some(seat) = &mut self.seat else { return };
        let is_whole = !seat.waiting && seat.recovering.is_none();
        let has_brought = self.waits.is_some() && self.steps != Steps::Held;
        let waits = has_brought || (holds_long && is_whole) || self.finished.is_some();
        let joiners = &self.joiners;
        seat.told.retain(|peer, _| seat.suspects.contains_key(peer) || joiners.contains_key(peer));
        let silent = seat.detector.take_silent(now);
        let neighbours = seat.neighbours(me);
        let step = self.reached;
        let waiting = seat.standstill.count(waits, &neighbours);
        for peer in neighbours {
            self.send(peer, Body::Heartbeat { step, waiting });
        }
        self.finish_again();
        self.contribute_again();
        self.tell_row();
        self.consider_replanning(now);
        for (peer, silence) in silent {
            self.suspect(now, peer, Evidence::Silent(silence));
        }
        if self.seat.as_ref().is_some_and(|seat| seat.standstill.is_general()) {
            self.seek_change(now);
        }
    }
}
