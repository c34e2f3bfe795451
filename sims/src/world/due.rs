//! When faults of the plan come: some time after a step, before a message, or in a phase.

use super::{SimEvent, World};
use crate::hardware::network::Seat;
use crate::sweep::coverage::{Phase, STORES};
use crate::sweep::fault::{Fault, When};

impl World {
    /// Brings up the faults that are planned after `step`.
    pub(super) fn bring_up(&mut self, step: u64) {
        let due = |fault: &Fault| match fault.when {
            When::After { step: after, delay } if after <= step => Some(delay),
            When::After { .. } | When::Delivery(_) | When::Phase(..) => None,
        };
        let mut later = Vec::new();
        for index in std::mem::take(&mut self.ahead) {
            match due(&self.plan.faults[index]) {
                Some(delay) => {
                    self.active += 1;
                    self.queue.push(self.now + delay, SimEvent::Strikes(index));
                }
                None => later.push(index),
            }
        }
        self.ahead = later;
    }

    pub(super) fn bring_up_at_phase(&mut self, seat: Seat) {
        let Some(phase) = self.hosts[seat].phase().filter(|_| !self.at_phase.is_empty()) else { return };
        let stores = self.hosts[seat].storing.is_some();
        let due = |at: Phase| at == phase || (at == STORES && stores);
        let is_due =
            |index: &usize| matches!(self.plan.faults[*index].when, When::Phase(of, at) if of == seat && due(at));
        let due: Vec<usize> = self.at_phase.iter().copied().filter(is_due).collect();
        self.at_phase.retain(|index| !due.contains(index));
        for index in due {
            self.active += 1;
            self.strike(index);
        }
    }

    pub(super) fn bring_up_at_delivery(&mut self) {
        while let Some((_, index)) = self.at_delivery.pop_if(|(count, _)| *count <= self.deliveries) {
            self.active += 1;
            self.strike(index);
        }
    }
}
