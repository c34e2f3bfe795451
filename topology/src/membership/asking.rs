//! Being let in: the joiner's side.

use super::{Membership, Steps};
use crate::id::{Generation, PeerId};
use crate::interface::{Event, Timer};
use crate::message::{Body, Refusal};
use crate::proposal::Joiner;
use crate::time::Time;

/// The most peers that a joiner asks in turn.
const MAX_ASKED: usize = 64;
/// A joiner's search for members.
#[derive(Debug)]
pub(super) struct Asking {
    /// Whom to ask, in turn.
    candidates: Vec<PeerId>,
    turn: usize,
    /// When a member of a run that goes on last answered.
    pub(super) answered_at: Time,
    /// Not before.
    until: Time,
}

impl Asking {
    pub(super) fn new(now: Time) -> Self {
        Self { candidates: Vec::new(), turn: 0, answered_at: now, until: Time::ZERO }
    }
}

impl Membership {
    /// Asks `peer` too, in its turn.
    pub(super) fn consider_asking(&mut self, peer: PeerId) {
        let me = self.me.peer;
        let Some(asking) = &mut self.asking else { return };
        if peer != me && !asking.candidates.contains(&peer) && asking.candidates.len() < MAX_ASKED {
            asking.candidates.push(peer);
        }
    }

    /// Asks the next candidate.
    pub(super) fn ask(&mut self, now: Time) {
        let interval = self.config.probe_interval();
        // Who was a member asks once its steps are held: before that it can't say what it holds.
        let stands = self.seat.is_none() || self.steps == Steps::Held;
        let Some(asking) = &mut self.asking else { return };
        if stands && now >= asking.until && !asking.candidates.is_empty() {
            let peer = asking.candidates[asking.turn % asking.candidates.len()];
            asking.turn = (asking.turn + 1) % asking.candidates.len();
            let generation = self.seat.as_ref().map_or(Generation(0), |seat| seat.view.generation);
            let (contact, step, incarnation) = (self.me.clone(), self.reached, self.config.incarnation);
            let held = self.seat.is_some() && self.synced && self.steps == Steps::Held;
            let state = held.then_some((self.progress.step, self.progress.lineage));
            self.send(peer, Body::Join(Joiner { contact, incarnation, step, state, generation }));
        }
        self.set_timer(Timer::Join, now + interval);
    }

    pub(super) fn receive_refusal(&mut self, now: Time, from: PeerId, refusal: Refusal) {
        let Some(asking) = &mut self.asking else { return };
        if let Refusal::Quarantined { for_ms } = refusal {
            let limit = self.config.quarantine() * 64;
            let pause = std::time::Duration::from_millis(for_ms).min(limit);
            asking.answered_at = now + pause;
            asking.until = now + pause;
            self.set_timer(Timer::Join, now + pause);
        } else {
            self.end(Event::Refused { from, refusal });
        }
    }

    /// Whether we can leave as we are: we are no member, or the only one. Once a run has begun the only one first hands the
    /// state on to who asks for it.
    pub(super) fn leaves_nothing_behind(&self) -> bool {
        let Some(seat) = self.seat.as_ref().filter(|_| self.asking.is_none()) else { return true };
        let alone = seat.view.members().len() == 1;
        alone && (self.reached == 0 || self.joiners.is_empty())
    }

    /// We want to leave and are in no view that goes on with others.
    pub(super) fn withdraw(&mut self) {
        for (peer, _) in std::mem::take(&mut self.joiners) {
            self.send(peer, Body::Refuse(Refusal::Withdrawn));
        }
        self.end(Event::Left { stayed: Vec::new() });
    }
}
