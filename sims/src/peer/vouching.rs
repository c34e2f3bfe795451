//! Which of its checkpoints are stable: its heads go out, those of others come in.

use starling_topology::heads::{Input, Output};
use starling_topology::{Digest, Head, Lost, PeerId, Time, View};

use super::{Effect, Peer};
use crate::state::State;

/// In larger views nobody vouches for anything: each would hear of all.
const MAX_VOUCHING: usize = 32;
/// Nobody forges one here.
const SIGNATURE: [u8; 64] = [0; 64];

impl Peer {
    /// A peer has signed a head.
    pub fn heard(&mut self, now: Time, from: PeerId, head: Head) {
        self.vouch(now, Input::Received { from, head, signature: SIGNATURE });
    }

    /// It tells again what it has signed, as it does now and then.
    pub fn repeat_heads(&mut self, now: Time) {
        self.vouch(now, Input::Repeat);
        self.obey(now);
    }

    /// It goes on in a view, or in none.
    pub(super) fn vouch_in(&mut self, now: Time, view: Option<&View>) {
        let view = view.filter(|view| view.members().len() <= MAX_VOUCHING).cloned();
        self.vouch(now, Input::View(view.zip(self.machine.root())));
    }

    /// Whether it may sign that it has saved this state.
    pub fn vouches_for(&self, state: &State) -> bool {
        self.machine.vouches_for(state.step, state.lineage)
    }

    /// Whether it is in this view since that was decided, and has not come back to it from its record.
    pub fn has_entered(&self, view: &View) -> bool {
        self.changed.is_some_and(|(generation, _)| generation == view.generation)
    }

    /// Whether it is in its view by the word of one alone.
    pub fn came_by_word(&self) -> bool {
        self.machine.came_by_word()
    }

    /// What it had saved and has lost.
    pub fn loss(&self) -> Lost {
        self.machine.loss()
    }

    /// A checkpoint is on its disk, under this name.
    pub(super) fn vouch_for(&mut self, now: Time, state: &State, manifest: Digest) {
        // It may have been on its way when its branch was left.
        if self.vouches_for(state) {
            let (step, lineage, digest) = (state.step, state.lineage, state.digest);
            self.vouch(now, Input::Saved { step, lineage, digest, manifest });
        }
    }

    /// Hands an input to the machine and does what it asks.
    pub(super) fn vouch(&mut self, now: Time, input: Input) {
        let from = if let Input::Received { from, .. } = &input { Some(*from) } else { None };
        if let (Err(violation), Some(from)) = (self.heads.handle(input), from) {
            self.blame(from, &violation);
        }
        while let Some(output) = self.heads.poll() {
            match output {
                Output::Sign(head) => self.vouch(now, Input::Signed { head, signature: SIGNATURE }),
                Output::Announce { head, .. } => {
                    let members = self.view().map(|view| view.members().to_vec()).unwrap_or_default();
                    self.effects.push(Effect::Announce(members, Box::new(head)));
                }
                Output::Stable(proof) => {
                    self.note_stable(now, proof.head.step);
                    self.effects.push(Effect::Stable(Box::new(proof)));
                }
                Output::Differs { peer, step, .. } => {
                    let seen =
                        format!("{:?} and {peer:?} have signed two states of step {step} in one view", self.name);
                    self.broken("bitwise_agreement", seen);
                }
            }
        }
    }
}
