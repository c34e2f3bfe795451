//! The end of a run: all have committed the last step, compare what they hold, and go.

use std::collections::BTreeSet;

use super::{Event, Membership, Output, Phase, Timer};
use crate::id::{Digest, PeerId};
use crate::message::{Body, Refusal};
use crate::time::Time;
use crate::view::View;

impl Membership {
    pub(super) fn finish(&mut self, now: Time, step: u64, digest: Digest) {
        if self.view.is_none() || matches!(self.phase, Phase::Finishing { .. }) {
            return;
        }
        for joiner in std::mem::take(&mut self.joiners).into_keys() {
            self.send(joiner, Body::Refuse(Refusal::RunFinished));
        }
        self.phase = Phase::Finishing { step, digest, gone: BTreeSet::new(), parting: false };
        for other in self.others() {
            self.send(other, Body::Finished { step, digest });
        }
        self.complete_when_all_finished(now);
    }

    pub(super) fn complete_when_all_finished(&mut self, now: Time) {
        let Phase::Finishing { step, digest, parting, .. } = &mut self.phase else { return };
        let others: Vec<PeerId> =
            self.view.iter().flat_map(View::members).copied().filter(|peer| *peer != self.me.peer).collect();
        if *parting || !others.iter().all(|peer| self.finished.contains_key(peer)) {
            return;
        }
        let (step, ours) = (*step, *digest);
        let diverged = self.finished.iter().find(|(_, theirs)| **theirs != (step, ours));
        if let Some((peer, (_, theirs))) = diverged {
            let (peer, theirs) = (*peer, *theirs);
            return self.end(Event::Diverged { peer, step, ours, theirs });
        }
        *parting = true;
        for other in others {
            self.send(other, Body::Goodbye);
        }
        let at = now + self.config.goodbye_limit();
        self.outputs.push_back(Output::SetTimer { timer: Timer::Goodbye, at });
        self.part_when_all_gone();
    }

    /// `peer` needs nothing more from us: it said so, or it finished and went.
    pub(super) fn say_gone(&mut self, peer: PeerId) {
        let known = self.knows(peer);
        if let Phase::Finishing { gone, .. } = &mut self.phase
            && known
        {
            gone.insert(peer);
            self.part_when_all_gone();
        }
    }

    fn part_when_all_gone(&mut self) {
        if let Phase::Finishing { gone, parting: true, .. } = &self.phase
            && self.others().is_subset(gone)
        {
            self.part();
        }
    }

    pub(super) fn part(&mut self) {
        if let Phase::Finishing { step, digest, parting: true, .. } = self.phase {
            self.end(Event::Complete { step, digest });
        }
    }
}
