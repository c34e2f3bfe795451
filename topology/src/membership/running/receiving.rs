//! Where a message belongs: to our view, to one before it or after it, or to another branch of the run.

use crate::error::Violation;
use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::decree::installing::Decided;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::Event;
use crate::membership::outside::beyond::is_beyond;
use crate::message::{Body, Envelope, RefusalReason};
use crate::time::Time;

/// The most messages of later views that are kept.
pub(in crate::membership) const MAX_EARLY: usize = 256;

impl Membership {
    pub(in crate::membership) fn receive(
        &mut self,
        now: Time,
        from: PeerId,
        envelope: Envelope,
    ) -> Result<(), Violation> {
        if from == self.me.peer {
            return Ok(()); // Another process has our identity; whoever it joins will find out.
        }
        if envelope.run != self.run {
            return match envelope.body {
                Body::Join(_) => {
                    self.send(from, Body::Refuse(RefusalReason::OtherRun));
                    Ok(())
                }
                _ => Err(Violation::OtherRun),
            };
        }
        let is_believed =
            [FlawKind::TakesGenerations, FlawKind::CountsWithoutBound].into_iter().any(|flaw| self.is_flawed(flaw));
        if is_beyond(&envelope, self.config.last_step) && !is_believed {
            return Err(Violation::Beyond);
        }
        if self.departs() {
            self.hear_of_departure(now, from, (envelope.generation, envelope.view));
            return Ok(());
        }
        self.note_answer(from);
        let Envelope { generation, view, body, .. } = envelope;
        match body {
            Body::Join(joiner) => self.receive_join(now, from, joiner),
            Body::Refuse(refusal) => {
                self.receive_refusal(now, from, refusal);
                Ok(())
            }
            Body::Install { proposal, certificate, contacts, fork, chain } => {
                self.receive_install(now, from, Decided { proposal, certificate, fork, chain }, contacts)
            }
            Body::Hello(branch_position) => {
                self.meet(now, from, (generation, view, branch_position), None);
                Ok(())
            }
            Body::Outsider { branch_position, contacts, chain } => {
                self.meet(now, from, (generation, view, branch_position), Some((contacts, chain)));
                Ok(())
            }
            body => self.receive_in_view(now, from, Envelope { run: self.run, generation, view, body }),
        }
    }

    fn receive_in_view(&mut self, now: Time, from: PeerId, envelope: Envelope) -> Result<(), Violation> {
        let Some(seat) = &self.seat else {
            // Of the view that is about to let us in, perhaps: others may have installed it before us.
            self.keep_early(from, envelope);
            return Ok(());
        };
        let known = seat.view.contains(from);
        if envelope.view == seat.id && known {
            return self.receive_from_member(now, from, envelope.body);
        }
        let urgent = matches!(envelope.body, Body::Prepare { .. });
        if Some(envelope.view) == seat.view.parent && known && (urgent || !self.is_outside()) {
            self.tell(Event::Stale { from });
            // What has arrived after its own decree was decided is late, and its sender not behind for long.
            let late = matches!(envelope.body, Body::Accept { .. } | Body::Echo { .. } | Body::Promise { .. });
            if urgent || (!late && self.may_answer(now, from)) {
                self.send_install(from, None);
            }
        } else if envelope.generation > seat.view.generation {
            self.keep_early(from, envelope);
            if self.may_answer(now, from) {
                self.say_hello(from);
            }
        } else if !self.is_outside() && (urgent || self.may_answer(now, from)) {
            self.show_out(from, envelope.view);
        }
        Ok(())
    }

    fn keep_early(&mut self, from: PeerId, envelope: Envelope) {
        // What answers something is of no use before we have asked, and what is said regularly is said again.
        let lasts = !matches!(
            envelope.body,
            Body::Heartbeat { .. }
                | Body::Contributes { .. }
                | Body::Promise { .. }
                | Body::Nack { .. }
                | Body::Propose { .. }
                | Body::Echo { .. }
                | Body::Confirm { .. }
                | Body::Accept { .. }
        );
        if lasts {
            self.early.push_back((from, envelope));
            if self.early.len() > MAX_EARLY {
                self.early.pop_front();
            }
        }
    }

    /// Handles what came too early for the view before.
    pub(in crate::membership) fn replay_early(&mut self, now: Time) {
        for (from, envelope) in std::mem::take(&mut self.early) {
            // What is wrong with it was wrong when it came; its sender has had the benefit of the doubt.
            let _refused = self.receive_in_view(now, from, envelope);
        }
    }

    fn receive_from_member(&mut self, now: Time, from: PeerId, body: Body) -> Result<(), Violation> {
        let votes = matches!(body, Body::Prepare { .. } | Body::Propose { .. } | Body::Confirm { .. });
        if self.join_attempt.as_ref().is_some_and(|join_attempt| !votes || join_attempt.forfeits) {
            return Ok(());
        }
        self.note_alive(now, from);
        let Some(seat) = &mut self.seat else { return Ok(()) };
        match body {
            Body::Prepare { ballot, boundary, unreachable } => {
                self.receive_prepare(now, from, ballot, boundary, &unreachable)
            }
            Body::Promise { ballot, promise, accepted } => {
                self.receive_promise(now, from, ballot, promise, accepted.map(|accepted| *accepted))
            }
            Body::Nack { ballot, promised } => {
                self.receive_nack(now, from, ballot, promised);
                Ok(())
            }
            Body::Propose { ballot, justified, promises, seal } => {
                self.receive_propose(now, from, ballot, (*justified, seal), &promises)
            }
            Body::Echo { ballot, seal } => {
                self.receive_echo(now, from, ballot, seal);
                Ok(())
            }
            Body::Confirm { ballot, echoes } => self.receive_confirm(now, from, ballot, echoes),
            Body::Accept { ballot, seal } => {
                self.receive_accept(now, from, ballot, seal);
                Ok(())
            }
            Body::Introduce(joiner) => {
                self.look_at(now, joiner);
                Ok(())
            }
            Body::Leave => {
                seat.leavers.insert(from);
                Ok(())
            }
            Body::Suspect { peer, evidence } => {
                self.receive_suspect(now, from, peer, evidence);
                Ok(())
            }
            Body::Synced => {
                seat.syncing.remove(&from);
                Ok(())
            }
            Body::Digest { step, digest } => {
                self.receive_digest(now, from, step, digest);
                Ok(())
            }
            Body::Finished { peer, step, digest } => self.receive_finished(now, from, (peer, step, digest)),
            Body::Goodbye => {
                if seat.gone.insert(from) {
                    self.pass_goodbyes_on(Some(from));
                }
                Ok(())
            }
            Body::Measured { links } => self.receive_row(from, &links),
            Body::Contributes { step } => {
                self.note_contributing(now, from, step);
                Ok(())
            }
            Body::Heartbeat { waiting, .. } => {
                seat.standstill.hear(from, waiting);
                Ok(())
            }
            Body::Join(_) | Body::Refuse(_) | Body::Install { .. } | Body::Hello(_) | Body::Outsider { .. } => Ok(()),
        }
    }
}
