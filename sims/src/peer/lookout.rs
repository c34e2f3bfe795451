//! Looking out for a run that has gone on without this peer.

use std::time::Duration;

use starling_engine::Lookout;
use starling_engine::lookout::{Apart, Output, Searched, apart, goes_on};
use starling_topology::{Root, Time, View};

use super::{Effect, Peer};

/// What it looks out with.
#[derive(Debug)]
pub(super) struct Watch {
    machine: Lookout,
    /// What its disk says of it, while it asks to be let in.
    outside: Option<Apart>,
}

impl Watch {
    pub(super) fn new(last_step: u64, max_stall: Duration, outside: Option<Apart>) -> Self {
        Self { machine: Lookout::new(last_step, max_stall), outside }
    }
}

impl Peer {
    /// Something has happened to it: it may have a quorum, or none any more.
    pub(super) fn note_quorum(&mut self, now: Time) {
        if self.machine.view().is_some() {
            self.lookout.outside = None;
        }
        let apart = self.apart();
        self.lookout.machine.note(now, apart);
        self.obey_lookout();
    }

    fn apart(&self) -> Option<Apart> {
        apart(&self.machine, self.lookout.outside)
    }

    /// Whether it takes no part, and looks out for what it lacks.
    pub fn looks_out(&self) -> bool {
        self.apart().is_some()
    }

    /// Which checkpoints are of the branch that it is on, or was on when it left.
    pub fn root(&self) -> Option<Root> {
        self.machine.root()
    }

    /// The view that it has a seat in, also while it waits there for more members.
    pub fn seat(&self) -> Option<&View> {
        self.machine.view()
    }

    /// Whether it has a seat, and a quorum.
    pub fn has_quorum(&self) -> bool {
        self.machine.view().is_some() && !self.machine.has_no_quorum()
    }

    /// Whether it says that it goes on.
    pub fn goes_on(&self) -> bool {
        goes_on(&self.machine, self.lookout.outside, self.has_completed())
    }

    /// The time has come to ask others whether the run has gone on without it.
    pub fn look_out(&mut self, now: Time) {
        if let Some(apart) = self.apart() {
            self.lookout.machine.expired(now, self.steps.progress().step, apart);
        }
        self.obey_lookout();
    }

    /// They have been asked.
    pub fn searched(&mut self, now: Time, came_to: Searched<'_>) {
        self.lookout.machine.searched(now, came_to);
        self.obey_lookout();
    }

    fn obey_lookout(&mut self) {
        while let Some(output) = self.lookout.machine.poll() {
            self.effects.push(match output {
                Output::SetTimer(at) => Effect::LookOut(at),
                Output::Search(terms) => Effect::Search(terms),
                Output::GiveUp => Effect::GiveUpSearch,
                Output::ComeBack => Effect::ComeBack,
            });
        }
    }
}
