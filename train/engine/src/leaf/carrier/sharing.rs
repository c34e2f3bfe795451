//! A share under way: what is handed on, what counts, and what is computed here in a leaf's place.

use std::ops::Range;

use starling_run::training::contribution;
use starling_topology::ledger::{UNMEASURED, split};
use starling_topology::{CarrierBody, FlawKind, PeerId, Time};

use super::leaf_slot::Owed;
use super::share_parts::{Part, PartState, ShareParts, samples};
use super::{CarrierConfig, CarrierEngine, CarrierEvent, Output};
use crate::leaf::part_gradient::PartGradient;
use crate::leaf::violation::LeafViolation;
use crate::steps::StepResult;

impl<G: PartGradient, R: StepResult> CarrierEngine<G, R> {
    pub(super) fn begin(&mut self, now: Time, (step, epoch): (u64, u64), share: Vec<Range<u32>>, micro_batch: u32) {
        if let Some(parts) = self.parts.as_mut().filter(|parts| parts.is_of(step, epoch, &share)) {
            parts.is_whole = false; // It is told again.
            return;
        }
        self.clear_parts();
        self.outputs.push_back(Output::Clear);
        let is_next = self.position.is_some_and(|position| position.step.checked_add(1) == Some(step));
        let ready = self.leaves.iter().filter(|(_, slot)| is_next && slot.is_ready(step - 1));
        let ready: Vec<(PeerId, Option<u32>)> = ready.map(|(leaf, slot)| (*leaf, slot.speed())).collect();
        // Who was not measured yet is taken for average.
        let own_speed = (self.own_speed > UNMEASURED).then_some(self.own_speed);
        let speeds: Vec<Option<u32>> = [own_speed].into_iter().chain(ready.iter().map(|(_, speed)| *speed)).collect();
        let known: Vec<u64> = speeds.iter().flatten().map(|speed| u64::from(*speed)).collect();
        let typical =
            known.iter().sum::<u64>().checked_div(known.len() as u64).and_then(|speed| u32::try_from(speed).ok());
        let weights: Vec<u32> = speeds.iter().map(|speed| speed.or(typical).unwrap_or(1)).collect();
        let mut cut = split(&share, micro_batch, &weights).into_iter();
        self.numbers += 1;
        let own = cut.next().unwrap_or_default();
        let mut parts = vec![Part {
            leaf: None,
            number: self.numbers,
            ranges: own.clone(),
            expected: None,
            state: PartState::Waiting,
        }];
        let computing = Some((self.numbers, 0));
        self.outputs.push_back(Output::Compute { number: self.numbers, ranges: own, is_backup: false });
        for ((leaf, speed), ranges) in ready.into_iter().zip(cut) {
            if ranges.is_empty() {
                continue;
            }
            self.numbers += 1;
            let number = self.numbers;
            let takes = |speed: u32| {
                // Speeds count eighths of a sample per second.
                let nanos = u128::from(samples(&ranges)) * 8_000_000_000 / u128::from(speed.max(1));
                std::time::Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            };
            let expected = speed.map(|speed| now + takes(speed));
            if let Some(slot) = self.leaves.get_mut(&leaf) {
                slot.owed = Some(Owed { number, step, ranges: ranges.clone(), sent: now });
            }
            self.send(now, leaf, CarrierBody::Work { number, step, epoch, ranges: ranges.clone() }, None);
            parts.push(Part { leaf: Some(leaf), number, ranges, expected, state: PartState::Waiting });
        }
        let (began, own_done, is_whole) = (now, None, false);
        self.parts = Some(ShareParts { step, epoch, share, began, parts, computing, own_done, is_whole });
    }

    /// The learner has computed a part.
    pub(super) fn take_own(&mut self, now: Time, number: u64) {
        let counts_twice = self.flaw == Some(FlawKind::CountsLeavesTwice);
        let Some(parts) = &mut self.parts else { return };
        let Some((_, at)) = parts.computing.take_if(|(computing, _)| *computing == number) else { return };
        let Some(part) = parts.parts.get_mut(at) else { return };
        if part.state == PartState::Counted && !counts_twice {
            return;
        }
        part.state = PartState::Counted;
        if at == 0 {
            let measured = contribution::speed(samples(&part.ranges), now - parts.began);
            self.own_speed = match (self.own_speed, measured) {
                (known, UNMEASURED) => known,
                (0, measured) => measured,
                (known, measured) => (3 * known + measured + 2) / 4,
            };
            parts.own_done = Some(now);
        }
        self.outputs.push_back(Output::Count(number));
    }

    /// A leaf has brought the gradient that it owes; its header is admitted.
    pub(super) fn take_gradient(&mut self, now: Time, leaf: PeerId, gradient: G) -> Result<(), LeafViolation> {
        let CarrierConfig { elements: expected, most, .. } = self.config;
        if gradient.elements() != expected {
            return Err(LeafViolation::Length { elements: gradient.elements(), expected });
        }
        if let Some((at, value)) = gradient.first_bad(most) {
            let is_finite = value.is_finite();
            return Err(if is_finite {
                LeafViolation::TooLarge { at, value }
            } else {
                LeafViolation::NotFinite { at }
            });
        }
        let takes_late = self.flaw == Some(FlawKind::TakesLateGradients);
        let counts_twice = self.flaw == Some(FlawKind::CountsLeavesTwice);
        let Some(owed) = self.leaves.get_mut(&leaf).and_then(|slot| slot.answer(now, None)) else { return Ok(()) };
        let weight = samples(&owed.ranges);
        let mut part = self.parts.as_mut().and_then(|parts| parts.part_of(leaf, owed.number));
        let counts = part.as_mut().filter(|part| part.state != PartState::Counted);
        let Some(part) = counts else {
            self.outputs.push_back(Output::Event(CarrierEvent::Late { leaf, step: owed.step }));
            if takes_late && self.parts.as_ref().is_some_and(|parts| !parts.is_whole) {
                self.outputs.push_back(Output::Add { leaf, ranges: owed.ranges, weight, gradient });
            }
            return Ok(());
        };
        part.state = PartState::Counted;
        let number = part.number;
        self.outputs.push_back(Output::Event(CarrierEvent::Brought { leaf, step: owed.step, samples: weight }));
        self.outputs.push_back(Output::Add { leaf, ranges: owed.ranges, weight, gradient });
        // What is computed in its place is of no use any more.
        if let Some(parts) = self.parts.as_mut().filter(|_| !counts_twice)
            && let Some((computing, at)) = parts.computing
            && parts.parts.get(at).is_some_and(|part| part.number == number)
        {
            parts.computing = None;
            self.outputs.push_back(Output::Drop(computing));
        } else if let Some(slot) = self.leaves.get_mut(&leaf) {
            slot.note_in_time();
        }
        Ok(())
    }

    /// The step is committed: its share is over.
    pub(super) fn drop_parts(&mut self, step: u64) {
        if let Some(parts) = self.parts.take_if(|parts| parts.step <= step) {
            self.outputs.extend(parts.computing.map(|(number, _)| Output::Drop(number)));
            if !parts.is_whole {
                self.outputs.push_back(Output::Over(parts.step));
            }
        }
    }

    pub(super) fn clear_parts(&mut self) {
        self.drop_parts(u64::MAX);
    }

    /// Computes what is late, tells what is whole.
    pub(super) fn complete(&mut self, now: Time) {
        let (ignores, waits) =
            (self.flaw == Some(FlawKind::CountsWithoutLeaves), self.flaw == Some(FlawKind::WaitsForLeaves));
        let most = self.config.max_stall / 8;
        let Some(parts) = &mut self.parts else { return };
        if parts.own_done.is_none() || parts.computing.is_some() || parts.is_whole {
            return;
        }
        if ignores || parts.parts.iter().all(|part| part.state == PartState::Counted) {
            parts.is_whole = true;
            return self.outputs.push_back(Output::Whole(parts.step));
        }
        let is_due = |part: &Part| match part.state {
            PartState::Counted => false,
            PartState::Lost => true,
            PartState::Waiting => parts.due(part, most).is_some_and(|due| due <= now),
        };
        let Some(at) = parts.parts.iter().position(|part| is_due(part) && !waits) else { return };
        let (step, part) = (parts.step, &parts.parts[at]);
        let late = part.leaf.filter(|_| part.state == PartState::Waiting);
        late.and_then(|leaf| self.leaves.get_mut(&leaf)).into_iter().for_each(|slot| slot.note_late(step));
        self.numbers += 1;
        parts.computing = Some((self.numbers, at));
        let ranges = part.ranges.clone();
        let event = part.leaf.map(|leaf| Output::Event(CarrierEvent::Backup { leaf, step }));
        self.outputs.extend(event);
        self.outputs.push_back(Output::Compute { number: self.numbers, ranges, is_backup: true });
    }
}
