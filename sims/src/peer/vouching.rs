//! Which of its checkpoints are stable: its heads go out, those of others come in.

use starling_topology::{Head, LostState, PeerId, Time, View};

use super::{Peer, SIGNATURE};
use crate::steps::state::State;

impl Peer {
    /// A peer has signed a head.
    pub fn heard(&mut self, now: Time, from: PeerId, head: Head) {
        if let Err(violation) = self.member.heard(from, head, SIGNATURE) {
            self.blame(from, &violation);
        }
        self.obey(now);
    }

    /// It tells again what it has signed, as it does now and then.
    pub fn repeat_heads(&mut self, now: Time) {
        self.member.repeat_heads();
        self.obey(now);
    }

    /// Whether it may sign that it has saved this state.
    pub fn vouches_for(&self, state: &State) -> bool {
        self.member.membership().vouches_for(state.step, state.lineage)
    }

    /// Whether it is in this view since that was decided, and has not come back to it from its record.
    pub fn has_entered(&self, view: &View) -> bool {
        self.changed.is_some_and(|(generation, _)| generation == view.generation)
    }

    /// Whether it is in its view by the word of one alone.
    pub fn came_by_word(&self) -> bool {
        self.member.membership().came_by_word()
    }

    /// Whether it has yet to load what its view goes on from, also where its steps hold a state: of a way that it has left.
    pub fn is_syncing(&self) -> bool {
        self.member.membership().is_syncing()
    }

    /// What it had saved and has lost.
    pub fn loss(&self) -> LostState {
        self.member.membership().loss()
    }
}
