//! Being let in: the joiner's side.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Membership, Steps};
use crate::flaw::Flaw;
use crate::id::{Generation, PeerId};
use crate::interface::{Event, Timer};
use crate::message::{Body, Refusal};
use crate::proposal::Joiner;
use crate::time::Time;

/// The most peers that a joiner asks in turn.
const MAX_ASKED: usize = 64;
/// Who has been asked this often and has said nothing is not there.
const MAX_UNANSWERED: u32 = 2;

/// A joiner's search for members.
#[derive(Debug)]
pub(super) struct Asking {
    /// Whom to ask, in turn.
    candidates: Vec<PeerId>,
    turn: usize,
    /// How often each was asked since it last said anything.
    asked: BTreeMap<PeerId, u32>,
    /// Who has refused for good, and why.
    refused: BTreeMap<PeerId, Refusal>,
    /// When a member of a run that goes on last answered.
    pub(super) answered_at: Time,
    /// Not before.
    until: Time,
}

impl Asking {
    pub(super) fn new(now: Time) -> Self {
        let (candidates, asked, refused) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { candidates, turn: 0, asked, refused, answered_at: now, until: Time::ZERO }
    }

    pub(super) fn has_not_asked(&self, peer: PeerId) -> bool {
        !self.asked.contains_key(&peer)
    }

    /// `peer` has spoken to us and is the next one to be asked, if need be in the place of one that was: the proposer may be the
    /// only one who can let us in.
    pub(super) fn turn_to(&mut self, peer: PeerId) {
        let at = self.candidates.iter().position(|candidate| *candidate == peer);
        self.turn = at.unwrap_or_else(|| {
            let before = (self.turn + self.candidates.len()).saturating_sub(1) % self.candidates.len().max(1);
            if let Some(place) = self.candidates.get_mut(before) {
                *place = peer;
            }
            before
        });
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
            let open = |peer: &PeerId| !asking.refused.contains_key(peer);
            let order = asking.candidates.iter().cycle().skip(asking.turn).take(asking.candidates.len());
            let peer = order.copied().find(open).unwrap_or(asking.candidates[0]);
            let at = asking.candidates.iter().position(|candidate| *candidate == peer).unwrap_or(0);
            asking.turn = (at + 1) % asking.candidates.len();
            let asked = asking.asked.entry(peer).or_default();
            *asked = asked.saturating_add(1);
            let view = self.seat.as_ref().map(|seat| &seat.view);
            let (branch, generation) = view.map_or((0, Generation(0)), |view| (view.branch, view.generation));
            let (contact, step, incarnation) = (self.me.clone(), self.reached, self.config.incarnation);
            let held = self.seat.is_some() && self.synced && self.steps == Steps::Held;
            let state = held.then_some((self.progress.step, self.progress.lineage));
            let pass = self.notary.pass();
            self.send(peer, Body::Join(Joiner { contact, incarnation, step, state, branch, generation, pass }));
        }
        self.set_timer(Timer::Join, now + interval);
        self.end_if_refused();
    }

    /// One that we ask refuses. That ends nothing by itself: it is asked no more, and we end once all have refused that are
    /// there.
    pub(super) fn receive_refusal(&mut self, now: Time, from: PeerId, refusal: Refusal) {
        let limit = self.config.quarantine();
        let knows_us = self.seat.as_ref().is_none_or(|seat| seat.view.contains(from));
        let Some(asking) = self.asking.as_mut().filter(|asking| asking.asked.contains_key(&from)) else { return };
        if let Refusal::Quarantined { for_ms } = refusal {
            // Who says so says it again, so that nobody keeps us waiting longer.
            if !knows_us {
                return;
            }
            let pause = Duration::from_millis(for_ms).min(limit);
            (asking.answered_at, asking.until) = (now + pause, now + pause);
            return self.set_timer(Timer::Join, now + pause);
        }
        asking.refused.insert(from, refusal);
        asking.asked.insert(from, 0);
        self.end_if_refused();
        if !self.ended {
            self.ask(now);
        }
    }

    /// Ends if all candidates that are there have refused.
    fn end_if_refused(&mut self) {
        let Some(asking) = &self.asking else { return };
        let is_gone = |peer: &PeerId| asking.asked.get(peer).is_some_and(|asked| *asked > MAX_UNANSWERED);
        let is_out = |peer: &PeerId| asking.refused.contains_key(peer) || is_gone(peer);
        if let Some((from, refusal)) = asking.refused.first_key_value().map(|(from, refusal)| (*from, *refusal))
            && (asking.candidates.iter().all(is_out) || self.is_flawed(Flaw::EndsForRefusal))
        {
            self.end(Event::Refused { from, refusal });
        }
    }

    /// A peer has said something, whatever it is.
    pub(super) fn note_answer(&mut self, from: PeerId) {
        if let Some(asked) = self.asking.as_mut().and_then(|asking| asking.asked.get_mut(&from)) {
            *asked = 0;
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
