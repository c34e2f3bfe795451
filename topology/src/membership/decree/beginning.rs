//! Beginning anew: where nobody who may hold the run's state has one any more, its members go on from that before the first step.
//!
//! So it is when a run is killed before its first checkpoint, after others came or went: its view went on from a step that was in memory
//! alone. Who comes back does not claim the state before the first step by itself, as others may hold the one that it lacks
//! ([`Record::can_begin_anew`](crate::Record::can_begin_anew)). It does once all of them have said that they hold none. Where some do not
//! come for as long as a fork waits, it does as a fork. What is stable stays out of reach of that: who has signed a state and lost it says
//! so, and then nobody begins anew.

use crate::membership::Membership;
use crate::membership::seat::{Decree, Seat};
use crate::time::Time;
use crate::view::mark::LostState;
use crate::vote::proposal::{Progress, Reason};

impl Membership {
    /// This member holds no state, can compute that before the first step, and has nothing on its disk that may have been a later one.
    pub fn allow_to_begin(&mut self) {
        self.can_begin = true;
    }

    /// Claims the state before the first step, if all that may hold another have said that they do not; whether it did. The promise that
    /// said otherwise is replaced in the next ballot.
    pub(in crate::membership) fn begin_anew(&mut self, now: Time) -> bool {
        let is_due = |(seat, decree): (&Seat, &Decree)| {
            let is_known =
                || self.have_earlier_told(seat, decree) || self.is_paused_for(now, seat, self.config.fork_after);
            let waited = || is_known() || self.is_paused_for(now, seat, Some(self.config.max_stall * 2));
            // Had a checkpoint been due before our view began, those who went may have made it stable.
            let is_safe = || self.have_all_told(seat, decree) && !self.lacks_due(seat, decree, None);
            self.may_begin() && self.is_bereft(now, seat, decree) && is_safe() && waited()
        };
        let due = self.seat.as_ref().and_then(|seat| Some((seat, seat.decree.as_ref()?))).is_some_and(is_due);
        if due {
            self.claim_first();
        }
        due
    }

    /// Claims the state before the first step for a fork, where no member that has promised holds any.
    pub(in crate::membership) fn begin_apart(&mut self, now: Time) {
        let is_due = |(seat, decree): (&Seat, &Decree)| self.may_begin() && self.is_bereft(now, seat, decree);
        if self.seat.as_ref().and_then(|seat| Some((seat, seat.decree.as_ref()?))).is_some_and(is_due) {
            self.claim_first();
            self.renew_promise(now);
        }
    }

    fn claim_first(&mut self) {
        (self.progress, self.synced) = (Progress { has_state: true, ..Progress::default() }, true);
    }

    fn may_begin(&self) -> bool {
        self.can_begin && self.came_back && !self.progress.has_state && self.loss() == LostState::Nothing
    }

    /// Whether all that were ever members on the way to our view have told what they hold, as far as all of that way is known.
    fn have_earlier_told(&self, seat: &Seat, decree: &Decree) -> bool {
        let views = || self.chain.before(seat.view.parent);
        // Before the first link there was the founder's first view, and after the last there is ours.
        let is_whole = views().count() as u64 + 2 == seat.view.generation.0;
        let gone = seat.origin.iter().flat_map(|origin| &origin.reasons).filter_map(Reason::gone);
        let mut earlier = views().flat_map(|view| view.members().iter().copied()).chain(gone);
        is_whole && earlier.all(|peer| self.has_told(decree, &peer))
    }
}
