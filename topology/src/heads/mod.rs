//! Which checkpoints are **stable**: co-signed by a quorum of a view.
//!
//! ```text
//!   member                                         the others
//!      | saves a checkpoint, verifies it
//!      |-- head: run, step, view, digest; signature -->|    each tells all others
//!      | <---------------------------- theirs ---------|
//!      |   those of a quorum are equal to ours: stable
//! ```
//!
//! A member signs one head for a step in a view, and two quorums of a view share a member, so a step has one stable state
//! in a view. A head says nothing of who else holds the checkpoint: whoever is short of it asks those who have signed.
//!
//! Whoever is no member and stores checkpoints for the members follows them with a [`Follower`]. A [`Proof`] is what
//! convinces anybody, much later too.
//!
//! If the view changes before that, what is not stable is signed again under the next one, if that goes on from it. Only the
//! last few steps are kept, of the members alone, so memory is bounded whatever they send.

pub mod follower;
mod proof;
pub mod retention;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use follower::Follower;
pub use proof::Proof;

use crate::error::Violation;
use crate::id::{Digest, PeerId, RunId, ViewId};
use crate::view::View;
use crate::view::lineage::{Lineage, Root};

const MAGIC: &[u8; 8] = b"STRLHD01";
/// Of each member, the heads of so many steps are kept: the highest.
const MAX_STEPS: usize = 4;
/// How often a head that not all have signed is told again, for as long as a longest stall.
const MAX_REPEATS: u32 = 4;

/// What is signed: the state that the members of a view hold after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: u64,
    /// The view whose members sign.
    pub view: ViewId,
    /// The state's digest.
    pub digest: Digest,
    /// The checkpoint's name: blake3 of its manifest.
    pub manifest: Digest,
}

/// A member and its Ed25519 signature of a head's canonical bytes.
pub type Signature = (PeerId, [u8; 64]);

impl Head {
    /// How long the canonical bytes are.
    pub const BYTES: usize = 8 + 32 + 8 + 32 + 32 + 32;

    /// The canonical bytes: what is signed.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (step, mut at) = (self.step.to_le_bytes(), 0);
        for part in [&MAGIC[..], &self.run.0, &step, &self.view.0, &self.digest.0, &self.manifest.0] {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes
    }

    /// Reads a head from its canonical bytes; `None` if they are not exactly one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (run, rest) = rest.split_first_chunk()?;
        let (step, rest) = rest.split_first_chunk()?;
        let (view, rest) = rest.split_first_chunk()?;
        let (digest, manifest) = rest.split_first_chunk()?;
        (magic == MAGIC).then_some(Self {
            run: RunId(*run),
            step: u64::from_le_bytes(*step),
            view: ViewId(*view),
            digest: Digest(*digest),
            manifest: Digest(manifest.try_into().ok()?),
        })
    }
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// This member is in another view, and so much of what it has saved counts there; `None` if it is in none, and what it holds may
    /// be of a branch that it has left.
    View(Option<(View, Root)>),
    /// This member has a whole, verified checkpoint on its disk, of the branch that it is on. In no view it signs nothing.
    Saved {
        /// The step.
        step: u64,
        /// The view in which it was committed.
        lineage: Lineage,
        /// The state's digest.
        digest: Digest,
        /// The checkpoint's name.
        manifest: Digest,
    },
    /// This member's signature of a head, as [`Output::Sign`] asked.
    Signed {
        /// The head.
        head: Head,
        /// The signature of its canonical bytes.
        signature: [u8; 64],
    },
    /// A peer's head came. The driver has verified that the signature is the peer's own.
    Received {
        /// The signer.
        from: PeerId,
        /// The head.
        head: Head,
        /// The signature of its canonical bytes.
        signature: [u8; 64],
    },
    /// It is time to tell again what may not have got through.
    Repeat,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Sign this head and answer with [`Input::Signed`].
    Sign(Head),
    /// Tell all members.
    Announce {
        /// The head.
        head: Head,
        /// This member's signature of it.
        signature: [u8; 64],
    },
    /// A quorum has signed: write this beside the checkpoint. Comes again if the others have signed as well.
    Stable(Proof),
    /// A member signed another state than this one holds after the same step of the same view.
    Differs {
        /// The member.
        peer: PeerId,
        /// The step.
        step: u64,
        /// Our digest.
        ours: Digest,
        /// Its digest.
        theirs: Digest,
    },
}

/// Collects the signatures of one run's heads. See the module's picture.
#[derive(Debug)]
pub struct HeadTracker {
    run: RunId,
    me: PeerId,
    view: Option<(ViewId, View)>,
    /// Our own checkpoints by step: at most [`MAX_STEPS`].
    own: BTreeMap<u64, Own>,
    /// What members of the view have signed, by step: at most [`MAX_STEPS`] of each.
    theirs: BTreeMap<PeerId, BTreeMap<u64, (Head, [u8; 64])>>,
    outputs: VecDeque<Output>,
}

/// A checkpoint of ours.
#[derive(Debug)]
struct Own {
    lineage: Lineage,
    digest: Digest,
    manifest: Digest,
    /// With our signature, once we have it.
    signed: Option<(Head, [u8; 64])>,
    /// How many signatures it had when it was told as stable; 0 if it was not yet.
    stable: usize,
    repeats: u32,
}

/// After how long a member says [`Input::Repeat`] again, in a run with this longest stall. Who waits for the last state to become
/// stable waits for one such stall.
pub fn repeat_interval(max_stall: Duration) -> Duration {
    max_stall / MAX_REPEATS
}

impl HeadTracker {
    /// Of a member that is in no view yet.
    pub fn new(run: RunId, me: PeerId) -> Self {
        Self { run, me, view: None, own: BTreeMap::new(), theirs: BTreeMap::new(), outputs: VecDeque::new() }
    }

    /// What to do next; drain to `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// A [`Violation`] if a member sent a head of another run, or signed two states for one step of a view. The machine
    /// is unchanged then.
    pub fn handle(&mut self, input: Input) -> Result<(), Violation> {
        match input {
            Input::View(entered) => self.enter(entered),
            Input::Saved { step, lineage, digest, manifest } => {
                self.save(step, Own { lineage, digest, manifest, signed: None, stable: 0, repeats: 0 });
            }
            Input::Signed { head, signature } => self.sign(head, signature),
            Input::Received { from, head, signature } => self.receive(from, head, signature)?,
            Input::Repeat => self.repeat(),
        }
        Ok(())
    }

    fn enter(&mut self, entered: Option<(View, Root)>) {
        let root = entered.as_ref().map(|(_, root)| *root);
        self.view = entered.map(|(view, _)| (view.id(), view));
        let (Some((id, view)), Some(root)) = (&self.view, root) else {
            self.own.clear();
            self.theirs.clear();
            return;
        };
        self.theirs.retain(|peer, heads| {
            heads.retain(|_, (head, _)| head.view == *id);
            view.contains(*peer) && !heads.is_empty()
        });
        // Who loads another state there signs nothing that it had saved beside that one.
        self.own.retain(|step, own| root.admits(*step, own.lineage));
        for (step, own) in self.own.iter_mut().filter(|(_, own)| own.stable == 0) {
            (own.signed, own.repeats) = (None, 0);
            self.outputs.push_back(Output::Sign(own.head(self.run, *step, *id)));
        }
    }

    fn save(&mut self, step: u64, own: Own) {
        // What was on its way to the disk when its view was left may be taken anew in the next one, where a member signs once.
        let Some((id, _)) = &self.view else { return };
        if self.own.get(&step).is_some_and(|before| (before.digest, before.manifest) == (own.digest, own.manifest)) {
            return; // Saved once more.
        }
        self.outputs.push_back(Output::Sign(own.head(self.run, step, *id)));
        self.own.insert(step, own);
        while self.own.len() > MAX_STEPS {
            self.own.pop_first();
        }
    }

    fn sign(&mut self, head: Head, signature: [u8; 64]) {
        let Some((id, _)) = &self.view else { return };
        let Some(own) = self.own.get_mut(&head.step) else { return };
        if own.head(self.run, head.step, *id) != head || own.signed.is_some() {
            return; // The view has changed since, or the checkpoint.
        }
        own.signed = Some((head, signature));
        self.outputs.push_back(Output::Announce { head, signature });
        let others = self.theirs.iter().filter_map(|(peer, heads)| Some((*peer, heads.get(&head.step)?.0)));
        for (peer, theirs) in others.collect::<Vec<_>>() {
            self.compare(peer, &theirs);
        }
        self.count(head.step);
    }

    fn receive(&mut self, from: PeerId, head: Head, signature: [u8; 64]) -> Result<(), Violation> {
        if head.run != self.run {
            return Err(Violation::OtherRun);
        }
        if from == self.me || self.view.as_ref().is_none_or(|(_, view)| !view.contains(from)) {
            return Ok(()); // Whoever joins tells it again in the view that it joins.
        }
        let heads = self.theirs.entry(from).or_default();
        let before = heads.get(&head.step).map(|(before, _)| *before);
        if before == Some(head) {
            return Ok(());
        }
        if before.is_some_and(|before| before.view == head.view) {
            return Err(Violation::TwoHeads { step: head.step });
        }
        heads.insert(head.step, (head, signature));
        while heads.len() > MAX_STEPS {
            heads.pop_first();
        }
        self.compare(from, &head);
        self.count(head.step);
        Ok(())
    }

    fn compare(&mut self, peer: PeerId, theirs: &Head) {
        let ours = self.own.get(&theirs.step).and_then(|own| own.signed).map(|(head, _)| head);
        if let Some(ours) = ours.filter(|ours| ours.view == theirs.view && ours.digest != theirs.digest) {
            let (step, ours, theirs) = (theirs.step, ours.digest, theirs.digest);
            self.outputs.push_back(Output::Differs { peer, step, ours, theirs });
        }
    }

    /// Looks whether our checkpoint of `step` has become stable, or signed by all.
    fn count(&mut self, step: u64) {
        let Some((id, view)) = &self.view else { return };
        let Some(own) = self.own.get_mut(&step) else { return };
        // What the view before has made stable is not this one's to sign.
        let Some((head, signature)) = own.signed.filter(|(head, _)| head.view == *id) else { return };
        let theirs = self.theirs.iter().filter_map(|(peer, heads)| {
            let (theirs, signature) = heads.get(&step)?;
            (*theirs == head).then_some((*peer, *signature))
        });
        let signatures: BTreeMap<PeerId, [u8; 64]> = theirs.chain([(self.me, signature)]).collect();
        let signers: BTreeSet<PeerId> = signatures.keys().copied().collect();
        let is_first = own.stable == 0 && view.has_quorum(&signers);
        let is_complete = own.stable > 0 && own.stable < signers.len() && signers.len() == view.members().len();
        if !is_first && !is_complete {
            return;
        }
        own.stable = signers.len();
        let (view, signatures) = (view.clone(), signatures.into_iter().collect());
        self.outputs.push_back(Output::Stable(Proof { head, view, signatures }));
        // Nobody goes back behind a stable one.
        self.own.retain(|other, _| *other >= step);
    }

    fn repeat(&mut self) {
        let Some((_, view)) = &self.view else { return };
        let members = view.members().len();
        for own in self.own.values_mut().filter(|own| own.stable < members && own.repeats < MAX_REPEATS) {
            if let Some((head, signature)) = own.signed {
                own.repeats += 1;
                self.outputs.push_back(Output::Announce { head, signature });
            }
        }
    }
}

impl Own {
    fn head(&self, run: RunId, step: u64, view: ViewId) -> Head {
        Head { run, step, view, digest: self.digest, manifest: self.manifest }
    }
}

#[cfg(test)]
mod tests;
