//! Leaves that come, say something, differ, and go.

use starling_topology::{
    AttachRefusalReason, CarrierBody, DetachReason, Digest, LeafBody, LeafProgress, PeerId, RunId, Time,
};

use super::leaf_slot::{LeafSlot, LeafStatus};
use super::share_parts::{Part, PartState};
use super::{ASKS, Asked, CarrierEngine, CarrierEvent, MAX_ASKED, MAX_DIFFERENCES, MAX_DIGESTS, Output};
use crate::leaf::part_gradient::PartGradient;
use crate::leaf::violation::LeafViolation;
use crate::steps::{MemberSet, StepResult};

impl<G: PartGradient, R: StepResult> CarrierEngine<G, R> {
    pub(super) fn receive(
        &mut self,
        now: Time,
        from: PeerId,
        body: LeafBody,
        gradient: Option<G>,
    ) -> Result<(), LeafViolation> {
        if let LeafBody::Attach { run, progress } = body {
            return if gradient.is_some() {
                Err(LeafViolation::Detached)
            } else {
                self.attach(now, from, run, progress)
            };
        }
        let max_stall = self.config.max_stall;
        // What was on its way when it was let go counts for nothing.
        let Some(slot) = self.leaves.get_mut(&from) else { return Ok(()) };
        if !slot.hear(now, max_stall) {
            return Err(LeafViolation::Floods);
        }
        let is_gradient = matches!(body, LeafBody::Gradient { .. });
        if is_gradient != gradient.is_some() {
            return Err(LeafViolation::Detached);
        }
        match body {
            LeafBody::Gradient { .. } => {
                self.admits(from, &body)?;
                let gradient = gradient.ok_or(LeafViolation::Detached)?;
                self.take_gradient(now, from, gradient)
            }
            LeafBody::Declines { number, reason } => {
                match &slot.owed {
                    Some(owed) if owed.number == number => {}
                    _ if number != 0 && number <= slot.answered => return Err(LeafViolation::Twice { number }),
                    Some(_) | None => return Err(LeafViolation::NotGiven { number }),
                }
                slot.answer(now, Some(reason));
                self.parts.iter_mut().for_each(|parts| parts.lose(from));
                Ok(())
            }
            LeafBody::Applied { start, step, digest } => self.note_applied(now, from, start, step, digest),
            LeafBody::Alive => Ok(()),
            LeafBody::Detach => {
                self.lose(from, None);
                self.outputs.push_back(Output::Close(from));
                Ok(())
            }
            LeafBody::Attach { .. } => Err(LeafViolation::OutOfTurn),
        }
    }

    pub(super) fn attach(
        &mut self,
        now: Time,
        from: PeerId,
        run: RunId,
        progress: Option<LeafProgress>,
    ) -> Result<(), LeafViolation> {
        // It has closed its stream before, whether that is known here or not.
        if self.leaves.contains_key(&from) {
            self.lose(from, None);
        }
        let each = self.config.max_stall / 16;
        self.make_room_for(now, from);
        let asked = self.asked.entry(from).or_insert_with(|| Asked::new(now));
        while asked.credits < ASKS && now - asked.at >= each && !each.is_zero() {
            (asked.credits, asked.at) = (asked.credits + 1, asked.at + each);
        }
        if asked.credits == ASKS {
            asked.at = now;
        }
        let refused = asked.refused_until.filter(|until| *until > now);
        if asked.credits == 0 {
            // Who is refused gets no answer to each of many questions.
            return match refused {
                None => Err(LeafViolation::Floods),
                Some(_) => {
                    self.outputs.push_back(Output::Close(from));
                    Ok(())
                }
            };
        }
        let habits = asked.habits;
        asked.credits = asked.credits.saturating_sub(1);
        let is_member = |members: &MemberSet| members.binary_search(&from).is_ok();
        let reason = if run != self.config.run {
            Some(AttachRefusalReason::OtherRun)
        } else if let Some(until) = refused {
            let for_ms = u64::try_from((until - now).as_millis()).unwrap_or(u64::MAX);
            Some(AttachRefusalReason::Misbehaved { for_ms })
        } else if from == self.config.me || self.members.as_ref().is_some_and(is_member) {
            Some(AttachRefusalReason::IsMember)
        } else if self.is_over {
            Some(AttachRefusalReason::RunFinished)
        } else if self.position.is_none() || self.leaves_run {
            Some(AttachRefusalReason::NotReady)
        } else if self.leaves.len() >= self.config.places {
            let places = u32::try_from(self.config.places).unwrap_or(u32::MAX);
            Some(AttachRefusalReason::Full { places })
        } else {
            None
        };
        if let Some(reason) = reason {
            let body = CarrierBody::Refused(reason);
            self.outputs.push_back(Output::Send { to: from, body, result: None });
            self.outputs.push_back(Output::Close(from));
            return Ok(());
        }
        self.leaves.insert(from, LeafSlot::new(now, progress, habits));
        self.outputs.push_back(Output::Event(CarrierEvent::Attached(from)));
        self.send(now, from, CarrierBody::Attached { contacts: self.contacts.clone() }, None);
        Ok(())
    }

    /// Forgets the peer that asked longest ago, one that is refused last, so that there is room for one more.
    pub(super) fn make_room_for(&mut self, now: Time, from: PeerId) {
        if self.asked.len() < MAX_ASKED || self.asked.contains_key(&from) {
            return;
        }
        let is_refused = |asked: &Asked| asked.refused_until.is_some_and(|until| until > now);
        let oldest = self.asked.iter().min_by_key(|(_, asked)| (is_refused(asked), asked.at)).map(|(peer, _)| *peer);
        oldest.into_iter().for_each(|peer| _ = self.asked.remove(&peer));
    }

    /// Tells those who wait where they start, as far as that can be said.
    pub(super) fn start_who_wait(&mut self, now: Time) {
        let Some(position) = self.position else { return };
        let is_needed = |slot: &LeafSlot| matches!(slot.status, LeafStatus::Loads(_));
        if self.lent.is_some() && !self.leaves.values().any(is_needed) {
            self.lent = None;
            self.outputs.push_back(Output::Release);
        }
        for leaf in self.leaves.keys().copied().collect::<Vec<_>>() {
            let Some(LeafStatus::Waits(holds)) = self.leaves.get(&leaf).map(|slot| slot.status) else { continue };
            let (step, lineage) = (position.step, position.lineage);
            let result = self.newest.clone().filter(|result| {
                let is_before = |holds: LeafProgress| {
                    holds.step.checked_add(1) == Some(result.step()) && holds.lineage == result.after()
                };
                result.step() == step && result.lineage() == lineage && holds.is_some_and(is_before)
            });
            let (start, lineage, loads) = match holds {
                Some(holds) if holds == (LeafProgress { step, lineage }) => (step, lineage, false),
                Some(holds) if result.is_some() => (holds.step, holds.lineage, false),
                // One state at a time is kept for leaves.
                Some(_) | None if self.lent.is_none_or(|lent| lent == step) => (step, lineage, true),
                Some(_) | None => continue,
            };
            if loads && self.lent.is_none() {
                self.lent = Some(step);
                self.outputs.push_back(Output::Lend(step));
            }
            let until = now + self.config.max_stall * 4;
            let Some(slot) = self.leaves.get_mut(&leaf) else { continue };
            slot.starts += 1;
            slot.digests.clear();
            (slot.began, slot.sent, slot.applied) = (start, start, (!loads).then_some(start));
            slot.status = if loads { LeafStatus::Loads(until) } else { LeafStatus::Follows };
            let (number, generation) = (slot.starts, position.generation);
            let body = CarrierBody::Start { number, step: start, lineage, generation, loads };
            self.send(now, leaf, body, None);
            if let Some(result) = result.filter(|_| !loads && start < step) {
                self.leaves.get_mut(&leaf).into_iter().for_each(|slot| slot.sent = step);
                self.send(now, leaf, CarrierBody::Result { step, bytes: 0 }, Some(result));
            }
        }
    }

    pub(super) fn note_applied(
        &mut self,
        now: Time,
        leaf: PeerId,
        start: u64,
        step: u64,
        digest: Option<Digest>,
    ) -> Result<(), LeafViolation> {
        let Some(slot) = self.leaves.get_mut(&leaf) else { return Ok(()) };
        if start > slot.starts || start == 0 {
            return Err(LeafViolation::OutOfTurn);
        }
        // It has not heard of its new start yet.
        if start != slot.starts || matches!(slot.status, LeafStatus::Waits(_)) {
            return Ok(());
        }
        if step > slot.sent || slot.applied.is_some_and(|applied| step <= applied) {
            return Err(LeafViolation::Beyond { step });
        }
        slot.applied = Some(step);
        slot.status = LeafStatus::Follows;
        if let Some(digest) = digest {
            slot.digests.insert(step, digest);
            if slot.digests.len() > MAX_DIGESTS {
                slot.digests.pop_first();
            }
        }
        self.compare(now, leaf)
    }

    pub(super) fn note_digest(&mut self, now: Time, step: u64, digest: Digest) {
        self.digests.insert(step, digest);
        if self.digests.len() > MAX_DIGESTS {
            self.digests.pop_first();
        }
        for leaf in self.leaves.keys().copied().collect::<Vec<_>>() {
            if let Err(violation) = self.compare(now, leaf) {
                self.fault(now, leaf, violation);
            }
        }
    }

    /// Compares a leaf's digests with those that are known here.
    pub(super) fn compare(&mut self, now: Time, leaf: PeerId) -> Result<(), LeafViolation> {
        let Some(slot) = self.leaves.get_mut(&leaf) else { return Ok(()) };
        let known = |(step, _): &(u64, Digest)| self.digests.contains_key(step);
        let both: Vec<(u64, Digest)> =
            slot.digests.iter().map(|(step, digest)| (*step, *digest)).filter(known).collect();
        for (step, theirs) in both {
            slot.digests.remove(&step);
            let Some(ours) = self.digests.get(&step).copied().filter(|ours| *ours != theirs) else { continue };
            slot.habits.differed += 1;
            if slot.habits.differed > MAX_DIFFERENCES {
                return Err(LeafViolation::Differs { step });
            }
            slot.status = LeafStatus::Waits(None);
            slot.digests.clear();
            self.send(now, leaf, CarrierBody::Differs { step, digest: ours }, None);
            break;
        }
        Ok(())
    }

    pub(super) fn send(&mut self, now: Time, to: PeerId, body: CarrierBody, result: Option<R>) {
        if let Some(slot) = self.leaves.get_mut(&to) {
            slot.sent(now);
            self.outputs.push_back(Output::Send { to, body, result });
        }
    }

    /// A leaf takes part no more.
    pub(super) fn lose(&mut self, leaf: PeerId, reason: Option<DetachReason>) {
        if let Some(mut slot) = self.leaves.remove(&leaf) {
            if let Some(parts) = &mut self.parts {
                // Who goes with a part that is waited for has others wait as one that is late.
                let owed = slot.owed.as_ref().map(|owed| (owed.number, owed.step));
                let backup = parts.computing.and_then(|(_, at)| parts.parts.get(at)).map(|part| part.number);
                let missing = owed.filter(|(number, _)| {
                    let waits = |part: &mut Part| part.state == PartState::Waiting;
                    // That it is late was noted when its part was begun in its place.
                    backup != Some(*number) && parts.part_of(leaf, *number).is_some_and(waits)
                });
                missing.into_iter().for_each(|(_, step)| slot.note_late(step));
                parts.lose(leaf);
            }
            self.asked.entry(leaf).and_modify(|asked| asked.habits = slot.habits);
            self.outputs.push_back(Output::Event(CarrierEvent::Lost { leaf, reason }));
        }
    }

    pub(super) fn let_go(&mut self, now: Time, leaf: PeerId, reason: DetachReason) {
        self.send(now, leaf, CarrierBody::Lost(reason), None);
        self.outputs.push_back(Output::Close(leaf));
        self.lose(leaf, Some(reason));
    }

    pub(super) fn part_with_all(&mut self, now: Time, word: impl Fn(&LeafSlot) -> CarrierBody) {
        for leaf in self.leaves.keys().copied().collect::<Vec<_>>() {
            let Some(body) = self.leaves.get(&leaf).map(&word) else { continue };
            self.send(now, leaf, body, None);
            self.outputs.push_back(Output::Close(leaf));
            self.lose(leaf, None);
        }
        if self.lent.take().is_some() {
            self.outputs.push_back(Output::Release);
        }
    }

    pub(super) fn refuse_for_a_while(&mut self, now: Time, leaf: PeerId) {
        let until = now + self.config.max_stall * 4;
        self.make_room_for(now, leaf);
        let asked = self.asked.entry(leaf).or_insert_with(|| Asked::new(now));
        asked.refused_until = Some(until);
    }

    /// A peer did what no correct leaf does: it is let go, and refused for a while.
    pub(super) fn fault(&mut self, now: Time, leaf: PeerId, violation: LeafViolation) {
        self.refuse_for_a_while(now, leaf);
        self.outputs.push_back(Output::Fault { leaf, violation });
        self.outputs.push_back(Output::Close(leaf));
        self.lose(leaf, None);
    }
}
