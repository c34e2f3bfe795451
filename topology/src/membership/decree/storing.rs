//! Keeping our part in a view where it outlives this process: nothing is said before, and who can't keep it says so and
//! ends.

use crate::membership::Membership;
use crate::membership::decree::agreement::Acceptor;
use crate::membership::interface::{Event, Timer};
use crate::membership::seat::{Seat, Stage};
use crate::time::Time;
use crate::vote::certificate::Chain;
use crate::vote::record::Record;

impl Membership {
    /// Our part in a view has changed: what we say from now on leaves once that is stored.
    pub(in crate::membership) fn persist(&mut self, now: Time) {
        self.outbox.store(now, self.config.max_stall);
    }

    /// It is stored, and what followed from it leaves. Those who answer get their time from now on.
    pub(in crate::membership) fn stored(&mut self, now: Time) {
        self.outbox.stored(now, self.config.max_stall);
        if self.ended || self.outbox.is_waiting() {
            return;
        }
        let Some(seat) = &self.seat else { return };
        if let Some(decree) = &seat.decree
            && let Some(limit) = self.round_limit(decree.stage, decree.boundary)
        {
            self.set_timer(Timer::Round, now + limit);
        }
        if self.seat.as_ref().is_some_and(|seat| seat.takeover_at.is_some_and(|at| now >= at)) {
            self.give_time(now, std::time::Duration::ZERO);
        }
    }

    /// How long a round of this kind waits for answers, if it does.
    pub(in crate::membership) fn round_limit(
        &self,
        stage: Stage,
        boundary: Option<u64>,
    ) -> Option<std::time::Duration> {
        match stage {
            Stage::Promising if boundary.is_some() => Some(self.config.boundary_limit()),
            Stage::Promising | Stage::Echoing | Stage::Accepting => Some(self.config.promise_limit()),
            Stage::Stopping | Stage::Resting => None,
        }
    }

    /// Whether a round's time has not begun: what it asks has not left yet.
    pub(in crate::membership) fn is_unasked(&self) -> bool {
        let decree = self.seat.as_ref().and_then(|seat| seat.decree.as_ref());
        self.outbox.is_waiting()
            && decree.is_some_and(|decree| self.round_limit(decree.stage, decree.boundary).is_some())
    }

    /// Time to try again, or to give up.
    pub(in crate::membership) fn store_again(&mut self, now: Time) {
        if !self.outbox.try_again(now, self.config.max_stall) {
            self.go(); // If they have let us go, that is how it ends.
            self.ended = true;
            self.outbox.end(Event::NotStored);
        }
    }
}

impl Seat {
    /// What is to be stored of it, and of the `chain` to its view.
    pub(in crate::membership) fn record(&self, chain: &Chain) -> Record {
        let Acceptor { promised, accepted, echoed, .. } = &self.acceptor;
        let mut origin = self.origin.clone();
        for resume in origin.iter_mut().map(|origin| &mut origin.resume) {
            resume.syncing.extend(self.lacks.filter(|me| !resume.syncing.contains(me)));
            resume.syncing.sort_unstable();
        }
        Record {
            view: self.view.clone(),
            origin,
            certificate: self.certificate.clone(),
            chain: chain.until(self.view.parent),
            root: self.root,
            promised: *promised,
            accepted: accepted.clone(),
            echoed: *echoed,
        }
    }
}
