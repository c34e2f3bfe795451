//! How a process ends, and what it stays for once the run is complete.

use std::time::Duration;

use starling_engine::Settling;
use starling_engine::settling::Output;
use starling_topology::{Digest, Event, PeerId, Time};

use super::{Effect, Peer};
use crate::canary::Sabotage;

/// How a process ends.
#[derive(Debug)]
pub(super) struct Ending {
    settling: Settling,
    /// Whether the state after the last step is on the disk.
    is_saved: bool,
    /// The run is complete, and this is how.
    complete: Option<Event>,
    end: Option<Event>,
}

impl Ending {
    pub(super) fn new(max_stall: Duration, sabotage: Option<Sabotage>) -> Self {
        let mut settling = Settling::new(max_stall);
        if let Some(Sabotage::Machine(flaw)) = sabotage {
            settling.plant(flaw);
        }
        Self { settling, is_saved: false, complete: None, end: None }
    }
}

impl Peer {
    /// How it ended, if it did.
    pub fn end(&self) -> Option<&Event> {
        self.ending.end.as_ref()
    }

    /// Whether the run is complete for it, and it stays for others.
    pub fn has_completed(&self) -> bool {
        self.ending.complete.is_some()
    }

    /// The last thing that its machine tells.
    pub(super) fn end_with(&mut self, now: Time, event: &Event) {
        match event {
            Event::Complete { step, digest } => {
                self.ending.complete = Some(event.clone());
                self.ending.settling.complete(now, (*step, *digest), self.ending.is_saved);
                self.obey_settling();
            }
            _ => self.ending.end = Some(event.clone()),
        }
    }

    /// Whether the state after the last step is on its disk.
    pub fn is_saved(&self) -> bool {
        self.ending.is_saved
    }

    /// It is, or the disk has not taken it.
    pub(super) fn note_saved(&mut self, is_saved: bool) {
        self.ending.is_saved = is_saved;
    }

    pub(super) fn note_stable(&mut self, now: Time, step: u64) {
        self.ending.settling.note_stable(now, step);
        self.obey_settling();
    }

    /// It has left the branch that it was on.
    pub(super) fn forget_stable(&mut self) {
        self.ending.settling.forget();
    }

    /// These keepers are there.
    pub fn look_at_end(&mut self, now: Time, keepers: &[PeerId]) {
        self.ending.settling.look(now, keepers);
        self.obey_settling();
    }

    /// A keeper has said which stable states it holds.
    pub fn keeper_holds(&mut self, now: Time, keeper: PeerId, states: &[(u64, Digest)]) {
        self.ending.settling.holds(now, keeper, states);
        self.obey_settling();
    }

    fn obey_settling(&mut self) {
        while let Some(output) = self.ending.settling.poll() {
            match output {
                Output::SetTimer(at) => self.effects.push(Effect::Settle(at)),
                Output::Ask(keepers) => self.effects.push(Effect::AskKeepers(keepers)),
                Output::Tell(_) => {}
                Output::End => self.ending.end = self.ending.complete.take(),
            }
        }
    }
}
