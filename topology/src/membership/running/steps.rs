//! Taking steps and standing still: what the driver is told to do, and what it says has come of that.

use crate::membership::Membership;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{HoldPosition, MemberResumePlan, Output};
use crate::membership::seat::Seat;
use crate::message::Body;
use crate::message::stall_report::StallReport;
use crate::time::Time;
use crate::vote::proposal::Progress;

/// Whether the driver's steps run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::membership) enum Steps {
    Running,
    /// We have asked for them to be held.
    Holding,
    Held,
}

impl Membership {
    /// The driver has committed `step`, and misses `waits`.
    pub(in crate::membership) fn reach(&mut self, step: u64, waits: Option<StallReport>) {
        self.reached = self.reached.max(step);
        self.confirm(step);
        if let Some(seat) = &mut self.seat {
            seat.owing.retain(|_, owing| owing.step > step);
            if self.steps == Steps::Running && step > seat.least() {
                seat.note_ours();
            }
        }
        self.note_contribution(step);
        // Whose steps are held sees nothing any more of what it has waited for.
        if self.steps != Steps::Held {
            self.waits = waits.filter(|_| !self.is_flawed(FlawKind::WaitsInSilence));
        }
    }

    /// We have committed `step`. Who takes steps with others in a view needs nobody's word any more that it was decided.
    pub(in crate::membership) fn confirm(&mut self, step: u64) {
        let Some(seat) = self.seat.as_mut().filter(|seat| seat.by_word && step > seat.least()) else { return };
        seat.by_word = false;
        let record = seat.record(&self.chain);
        self.outbox.push(Output::Keep(record));
    }

    pub(in crate::membership) fn held(&mut self, now: Time, progress: Progress) {
        if self.steps == Steps::Running {
            return; // Nobody asked any more.
        }
        self.outbox.drop_holds();
        let has_stepped = |seat: &&mut Seat| self.steps == Steps::Holding && progress.lineage.view == seat.id;
        self.seat.as_mut().filter(has_stepped).into_iter().for_each(Seat::note_ours);
        self.steps = Steps::Held;
        self.progress = progress;
        self.reached = self.reached.max(progress.step);
        self.synced |= progress.has_state;
        self.note_contribution(progress.step);
        self.answer_when_held(now);
        if self.is_outside() {
            self.ask(now);
        }
    }

    pub(in crate::membership) fn hold(&mut self, hold: HoldPosition) {
        if self.steps != Steps::Held {
            self.steps = Steps::Holding;
            self.outbox.push(Output::Hold(hold));
        }
    }

    pub(in crate::membership) fn resume(&mut self, resumption: MemberResumePlan) {
        (self.steps, self.waits, self.held_since) = (Steps::Running, None, None);
        self.can_begin = false; // It does not stand before the first step any more, or holds a state.
        self.outbox.push(Output::Resume(resumption));
    }

    pub(in crate::membership) fn sync(&mut self) {
        self.synced = true;
        self.progress.has_state = true;
        if !self.is_outside() {
            self.tell_synced();
        }
    }

    pub(in crate::membership) fn tell_synced(&mut self) {
        let me = self.me.peer;
        let Some(seat) = &mut self.seat else { return };
        if seat.syncing.remove(&me) {
            self.tell_members(&Body::Synced);
        }
    }
}
