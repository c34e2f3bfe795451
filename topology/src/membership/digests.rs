//! Members that hold one state can prove it: each tells its digest to the next one of the ring.

use std::collections::{BTreeMap, VecDeque};

use super::Membership;
use crate::id::{Digest, PeerId};
use crate::interface::Event;
use crate::message::Body;

/// How many digests are kept, of ours and of the others'.
const KEPT: usize = 4;

/// The last digests that are known.
#[derive(Debug, Default)]
pub(super) struct Digests {
    ours: BTreeMap<u64, Digest>,
    theirs: VecDeque<(PeerId, u64, Digest)>,
}

impl Digests {
    /// Forgets what was told of steps that are reduced again.
    pub(super) fn keep_to(&mut self, step: u64) {
        self.ours.retain(|at, _| *at <= step);
        self.theirs.retain(|(_, at, _)| *at <= step);
    }

    /// Forgets all: our state is replaced.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Membership {
    pub(super) fn compute_digest(&mut self, step: u64, digest: Digest) {
        self.reached = self.reached.max(step);
        self.digests.ours.insert(step, digest);
        while self.digests.ours.len() > KEPT {
            self.digests.ours.pop_first();
        }
        if self.asking.is_some() {
            return;
        }
        if let Some(seat) = &self.seat {
            let next = seat.ring.rank_of(self.me.peer).map(|rank| seat.ring.next(rank));
            if let Some(next) = next.filter(|next| *next != self.me.peer) {
                self.send(next, Body::Digest { step, digest });
            }
        }
        let same_step = self.digests.theirs.iter().find(|(_, theirs, _)| *theirs == step).copied();
        if let Some((peer, step, theirs)) = same_step {
            self.compare_digest(peer, step, theirs);
        }
    }

    pub(super) fn compare_digest(&mut self, peer: PeerId, step: u64, theirs: Digest) {
        match self.digests.ours.get(&step) {
            Some(ours) if *ours != theirs => {
                let ours = *ours;
                self.end(Event::Diverged { peer, step, ours, theirs });
            }
            Some(_) => {}
            None => {
                self.digests.theirs.push_back((peer, step, theirs));
                if self.digests.theirs.len() > KEPT {
                    self.digests.theirs.pop_front();
                }
            }
        }
    }
}
