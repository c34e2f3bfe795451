//! Looking out for a run that has gone on without this peer.

use starling_engine::lookout::Output;
use starling_topology::Time;

use super::{Effect, Peer};

impl Peer {
    /// Something has happened to it: it may have a quorum, or none any more.
    pub(super) fn note_quorum(&mut self, now: Time) {
        let apart = self.machine.root().filter(|_| self.machine.has_no_quorum());
        self.lookout.note(now, apart);
        self.obey_lookout();
    }

    /// Whether it is in a view that goes on: who waits for a quorum is nobody to join.
    pub fn goes_on(&self) -> bool {
        self.view().is_some() && !self.machine.has_no_quorum()
    }

    /// The time has come to ask others whether the run has gone on without it.
    pub fn look_out(&mut self, now: Time) {
        if let Some(root) = self.machine.root() {
            self.lookout.expired(now, self.steps.progress().step, root);
        }
        self.obey_lookout();
    }

    /// They have been asked, and a checkpoint was fetched or not.
    pub fn searched(&mut self, now: Time, fetched: bool) {
        self.lookout.searched(now, fetched);
        self.obey_lookout();
    }

    fn obey_lookout(&mut self) {
        while let Some(output) = self.lookout.poll() {
            self.effects.push(match output {
                Output::SetTimer(at) => Effect::LookOut(at),
                Output::Search(terms) => Effect::Search(terms),
                Output::GiveUp => Effect::GiveUpSearch,
                Output::ComeBack => Effect::ComeBack,
            });
        }
    }
}
