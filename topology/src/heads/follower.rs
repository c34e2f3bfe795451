//! Follows the heads of a run without being a member: which checkpoint to fetch, from whom, and when it is stable.
//!
//! ```text
//!   members                                        follower
//!      |-- heads: run, step, view, digest; signature -->|    newer than what it holds: fetch it from who has signed
//!      |<---------------- what has led to that view? ----|    from a view that it knows: see [history](crate::history)
//!      |   a quorum of it has signed the same head       |    stable: keep the signatures beside the checkpoint
//! ```
//!
//! A member counts only members of its own view. A follower counts only views to which it was led from one that it knows to be the
//! run's, so whoever was in none has it neither fetch nor keep anything. Stable ones come first, and each *branch* has its newest
//! one: whoever goes on alone, or has begun the same run anew, keeps nobody from the others', however far it is. Branches that go
//! back to the founder's key, and those that members have begun alone, have places of their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Head, MAX_STEPS, Proof, Signature};
use crate::error::Violation;
use crate::history::{AnchorSet, BranchOrigin, MAX_APART, MAX_PROVEN, ViewSearch};
use crate::id::{Digest, PeerId, RunId, ViewId};
use crate::message::MAX_MEMBERS;
use crate::view::View;

/// Members of known views whose heads are kept: those with the highest ones.
const MAX_SIGNERS: usize = 2 * MAX_MEMBERS;
/// Others whose heads are kept: the last ones that came.
const MAX_STRANGERS: usize = 256;
/// Branches of which checkpoints are kept.
pub const MAX_BRANCHES: usize = MAX_PROVEN + MAX_APART;
/// Views that are known at a time.
const MAX_VIEWS: usize = 8;
/// Views that are asked for at a time.
const MAX_ASKED: usize = 4;
/// Peers that vouched for a checkpoint, of each, and checkpoints that somebody vouched for.
const MAX_HOLDERS: usize = 16;

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// A peer's head came. The driver has verified that the signature is the peer's own.
    Received {
        /// The signer.
        from: PeerId,
        /// The head.
        head: Head,
        /// The signature of its canonical bytes.
        signature: [u8; 64],
    },
    /// A peer holds a checkpoint and shows that it is stable. The driver has verified each signature, and told the way to its view
    /// before; else it counts for nothing.
    Proven {
        /// Who holds it.
        from: PeerId,
        /// The proof.
        proof: Proof,
    },
    /// The way to a view, whoever wanted to know it; `None` if nobody leads there.
    Walked {
        /// The view's id.
        id: ViewId,
        /// The way.
        view_search: Option<Box<ViewSearch>>,
    },
    /// The fetch has ended: these checkpoints are on disk now, by name, with their steps.
    Holds(BTreeMap<Digest, u64>),
    /// The fetch of this checkpoint has failed.
    Failed(Digest),
    /// It is time to try again what failed.
    Retry,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "none is kept")]
pub enum Output {
    /// Fetch this checkpoint from these peers; then [`Input::Holds`] or [`Input::Failed`]. One at a time.
    Fetch {
        /// Its head.
        head: Head,
        /// Who should have it.
        from: Vec<PeerId>,
    },
    /// Make a [`ViewSearch`] to this view, by what these peers answer; then [`Input::Walked`].
    Ask {
        /// The view's id.
        view: ViewId,
        /// Who should know it.
        from: Vec<PeerId>,
    },
    /// A quorum has signed what is held: write this beside the checkpoint. Comes again if the others have signed as well.
    Stable(Proof),
}

/// What tells heads of one run apart, in the order of their steps.
type Name = (u64, Digest, ViewId, Digest);

/// What has a newest stable checkpoint of its own: a branch of the run, and what has become of it as a fork.
pub type BranchKey = (u64, bool);

/// The one of a view.
pub fn branch(view: &View) -> BranchKey {
    (view.branch, view.forked)
}

/// A stable checkpoint.
#[derive(Debug, Clone, Copy)]
struct Stable {
    step: u64,
    manifest: Digest,
    view: ViewId,
    /// How many had signed it when that was told.
    signers: usize,
}

impl Stable {
    fn of(Proof { head, signatures, .. }: &Proof) -> Self {
        Self { step: head.step, manifest: head.manifest, view: head.view, signers: signatures.len() }
    }
}

/// Follows one run's heads. See the module's picture.
#[derive(Debug)]
pub struct Follower {
    run: RunId,
    anchors: AnchorSet,
    /// The run's last step.
    steps: u64,
    /// The checkpoints on disk.
    held: BTreeMap<Digest, u64>,
    /// The newest of them that is stable, of each branch.
    stable: BTreeMap<BranchKey, Stable>,
    /// At most [`MAX_STEPS`] of each peer.
    signed: BTreeMap<PeerId, BTreeMap<u64, (Head, [u8; 64])>>,
    /// Those of them that are in no known view, in the order in which they came.
    strangers: VecDeque<PeerId>,
    /// Who has vouched for a checkpoint without having signed it.
    holders: BTreeMap<Digest, BTreeSet<PeerId>>,
    /// Those of the run that heads name.
    views: BTreeMap<ViewId, View>,
    asked: BTreeSet<ViewId>,
    /// Views and checkpoints that could not be had, until the next retry.
    missed_views: BTreeSet<ViewId>,
    missed: BTreeSet<Digest>,
    fetching: Option<Digest>,
    outputs: VecDeque<Output>,
}

impl Follower {
    /// Follows `run`, whose last step is `steps`, and some of whose views are known, with checkpoints that are held already, by name;
    /// `proofs` show which of them are stable.
    pub fn new(run: RunId, steps: u64, anchors: AnchorSet, held: BTreeMap<Digest, u64>, proofs: &[Proof]) -> Self {
        let mut stable = BTreeMap::new();
        for proof in proofs {
            let newest = stable.entry(branch(&proof.view)).or_insert_with(|| Stable::of(proof));
            if newest.step < proof.head.step {
                *newest = Stable::of(proof);
            }
        }
        Self {
            run,
            anchors,
            steps,
            held,
            stable,
            signed: BTreeMap::new(),
            strangers: VecDeque::new(),
            holders: BTreeMap::new(),
            views: BTreeMap::new(),
            asked: BTreeSet::new(),
            missed_views: BTreeSet::new(),
            missed: BTreeSet::new(),
            fetching: None,
            outputs: VecDeque::new(),
        }
    }

    /// What to do next; drain to `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The step of the newest checkpoint that is held and stable.
    pub fn stable_step(&self) -> Option<u64> {
        self.stable.values().map(|stable| stable.step).max()
    }

    /// The views that are known to be the run's.
    pub fn anchors(&self) -> &AnchorSet {
        &self.anchors
    }

    /// Whether the state after this step is later than what is held of this branch, which counts.
    fn is_later(&self, place: BranchKey, step: u64) -> bool {
        self.stable.get(&place).map_or_else(|| self.has_room(place), |stable| step > stable.step)
    }

    /// Whether one more branch of this kind counts.
    fn has_room(&self, place: BranchKey) -> bool {
        let Some(descent) = self.anchors.descent(place) else { return false };
        let is_founders = |place: &BranchKey| self.anchors.descent(*place) == Some(BranchOrigin::Proven);
        let of_kind = self.stable.keys().filter(|held| is_founders(held) == (descent == BranchOrigin::Proven)).count();
        of_kind < if descent == BranchOrigin::Proven { MAX_PROVEN } else { MAX_APART }
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// A [`Violation`] if a peer sent a head of another run or of a step that the run never takes, signed two states for
    /// one step of a view, or showed a proof that is none. The machine is unchanged then.
    pub fn handle(&mut self, input: Input) -> Result<(), Violation> {
        match input {
            Input::Received { from, head, signature } => self.receive(from, head, signature)?,
            Input::Proven { from, proof } => self.believe(from, proof)?,
            Input::Walked { id, view_search } => self.arrive(id, view_search.as_deref()),
            Input::Holds(held) => {
                // What is gone can be stable no more.
                self.stable.retain(|_, stable| held.contains_key(&stable.manifest));
                (self.held, self.fetching) = (held, None);
            }
            Input::Failed(manifest) => {
                self.fetching.take_if(|fetching| *fetching == manifest);
                self.missed.insert(manifest);
            }
            Input::Retry => {
                self.missed.clear();
                self.missed_views.clear();
            }
        }
        self.recall();
        self.settle();
        self.tidy();
        self.ask();
        self.fetch();
        Ok(())
    }

    fn receive(&mut self, from: PeerId, head: Head, signature: [u8; 64]) -> Result<(), Violation> {
        if head.run != self.run {
            return Err(Violation::OtherRun);
        }
        if head.step > self.steps {
            return Err(Violation::BeyondEnd { step: head.step });
        }
        let before = self.signed.get(&from).and_then(|heads| heads.get(&head.step)).map(|(before, _)| *before);
        if before.is_some_and(|before| before.view == head.view && before != head) {
            return Err(Violation::TwoHeads { step: head.step });
        }
        self.note(from, head, signature);
        Ok(())
    }

    fn believe(&mut self, from: PeerId, proof: Proof) -> Result<(), Violation> {
        proof.check(self.run, self.steps)?;
        if self.stable.get(&branch(&proof.view)).is_some_and(|stable| proof.head.step < stable.step) {
            return Ok(());
        }
        let Proof { head, view, signatures } = proof;
        if !self.views.contains_key(&head.view) && self.anchors.view(head.view).is_none() {
            return Ok(()); // Whoever wants to be believed leads there first.
        }
        if self.holders.contains_key(&head.manifest) || self.holders.len() < MAX_HOLDERS {
            let holders = self.holders.entry(head.manifest).or_default();
            if holders.len() < MAX_HOLDERS {
                holders.insert(from);
            }
        }
        self.missed.remove(&head.manifest);
        self.views.insert(head.view, view);
        for (signer, signature) in signatures {
            self.note(signer, head, signature);
        }
        Ok(())
    }

    /// Heads of earlier steps in this view matter no more.
    fn floor(&self, view: ViewId) -> u64 {
        let of_branch = self.views.get(&view).and_then(|view| self.stable.get(&branch(view)));
        let stable = of_branch.or_else(|| self.stable.values().find(|stable| stable.view == view));
        stable.map_or(0, |stable| stable.step)
    }

    fn note(&mut self, from: PeerId, head: Head, signature: [u8; 64]) {
        if head.step < self.floor(head.view) {
            return;
        }
        let heads = self.signed.entry(from).or_default();
        heads.insert(head.step, (head, signature));
        while heads.len() > MAX_STEPS {
            heads.pop_first();
        }
        if self.signed.len() > MAX_SIGNERS {
            let last = |heads: &BTreeMap<u64, _>| heads.last_key_value().map(|(step, _)| *step);
            let lowest = self.signed.iter().min_by_key(|(_, heads)| last(heads)).map(|(peer, _)| *peer);
            self.signed.remove(&lowest.unwrap_or(from));
        }
    }

    fn arrive(&mut self, id: ViewId, view_search: Option<&ViewSearch>) {
        self.asked.remove(&id);
        match view_search
            .filter(|view_search| view_search.to() == id)
            .and_then(|view_search| Some((view_search, view_search.view()?.clone())))
        {
            Some((view_search, view)) => {
                view_search.arrive(&mut self.anchors);
                self.views.insert(id, view);
            }
            None => _ = self.missed_views.insert(id),
        }
    }

    /// Views that it was led past count as soon as a head names them.
    fn recall(&mut self) {
        let named = self.signed.values().flat_map(BTreeMap::values).map(|(head, _)| head.view);
        let unknown: BTreeSet<ViewId> = named.filter(|view| !self.views.contains_key(view)).collect();
        for id in unknown {
            if let Some(view) = self.anchors.view(id) {
                self.views.insert(id, view.clone());
            }
        }
    }

    /// Who has signed which heads.
    fn heads(&self) -> BTreeMap<Name, (Head, Vec<Signature>)> {
        let mut all = BTreeMap::new();
        for (peer, heads) in &self.signed {
            for (head, signature) in heads.values() {
                let name = (head.step, head.manifest, head.view, head.digest);
                let (_, signatures) = all.entry(name).or_insert_with(|| (*head, Vec::new()));
                signatures.push((*peer, *signature));
            }
        }
        all
    }

    /// The heads that a quorum of a known view has signed, by ascending step.
    fn proofs(&self) -> Vec<Proof> {
        let all = self.heads().into_values();
        let proof = |(head, signatures): (Head, Vec<Signature>)| {
            let view = self.views.get(&head.view)?.clone();
            let signatures = signatures.into_iter().filter(|(peer, _)| view.contains(*peer)).collect();
            let proof = Proof { head, view, signatures };
            proof.is_quorum().then_some(proof)
        };
        all.filter_map(proof).collect()
    }

    /// Tells what has become stable, or was signed by all since: of each branch the newest.
    fn settle(&mut self) {
        let proofs = self.proofs();
        let held = proofs.iter().filter(|proof| self.held.contains_key(&proof.head.manifest));
        let newest: BTreeMap<BranchKey, &Proof> = held.map(|proof| (branch(&proof.view), proof)).collect();
        for (place, proof) in newest {
            let now = Stable::of(proof);
            let before = self.stable.get(&place);
            let is_news = before.map_or_else(
                || self.has_room(place),
                |before| {
                    let is_complete = now.signers > before.signers && now.signers == proof.view.members().len();
                    before.step < now.step
                        || (before.step == now.step && (before.manifest != now.manifest || is_complete))
                },
            );
            if is_news {
                self.stable.insert(place, now);
                self.outputs.push_back(Output::Stable(proof.clone()));
            }
        }
    }

    /// Forgets what nobody needs any more.
    fn tidy(&mut self) {
        let seen: BTreeSet<ViewId> = self.signed.values().flatten().map(|(_, (head, _))| head.view).collect();
        let floors: BTreeMap<ViewId, u64> = seen.into_iter().map(|view| (view, self.floor(view))).collect();
        let mut named = BTreeMap::new();
        let mut manifests = BTreeSet::new();
        self.signed.retain(|_, heads| {
            heads.retain(|step, (head, _)| floors.get(&head.view).is_none_or(|floor| step >= floor));
            for (head, _) in heads.values() {
                let newest: &mut u64 = named.entry(head.view).or_default();
                *newest = head.step.max(*newest);
                manifests.insert(head.manifest);
            }
            !heads.is_empty()
        });
        self.views.retain(|id, _| named.contains_key(id));
        self.forget_strangers();
        while self.views.len() > MAX_VIEWS {
            let oldest = self.views.keys().min_by_key(|id| named.get(id)).copied();
            self.views.remove(&oldest.expect("invariant: there are several"));
        }
        self.holders.retain(|manifest, _| manifests.contains(manifest));
        self.missed.retain(|manifest| manifests.contains(manifest));
        self.missed_views.retain(|view| named.contains_key(view));
    }

    /// Whoever is in no known view has a place until enough others have come: keys cost nothing.
    fn forget_strangers(&mut self) {
        let (views, signed) = (&self.views, &mut self.signed);
        let is_member = |peer: &PeerId| views.values().any(|view| view.contains(*peer));
        self.strangers.retain(|peer| signed.contains_key(peer) && !is_member(peer));
        let new: Vec<PeerId> =
            signed.keys().filter(|peer| !is_member(peer) && !self.strangers.contains(peer)).copied().collect();
        self.strangers.extend(new);
        while self.strangers.len() > MAX_STRANGERS {
            self.strangers.pop_front().map(|peer| signed.remove(&peer));
        }
    }

    /// Asks for the way to the views of heads that may become stable: to those first that known members name, then to the newest.
    fn ask(&mut self) {
        let is_member = |peer: &PeerId| self.views.values().any(|view| view.contains(*peer));
        let mut wanted: BTreeMap<ViewId, (bool, u64, BTreeSet<PeerId>)> = BTreeMap::new();
        for (head, signatures) in self.heads().into_values() {
            let is_known = self.views.contains_key(&head.view) || self.anchors.view(head.view).is_some();
            if !is_known && !self.missed_views.contains(&head.view) && !self.asked.contains(&head.view) {
                let (by_member, newest, from) = wanted.entry(head.view).or_default();
                *by_member |= signatures.iter().any(|(peer, _)| is_member(peer));
                *newest = head.step.max(*newest);
                from.extend(signatures.into_iter().map(|(peer, _)| peer));
            }
        }
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted.sort_by_key(|(_, (by_member, newest, _))| Reverse((*by_member, *newest)));
        for (view, (_, _, from)) in wanted {
            if self.asked.len() < MAX_ASKED && self.asked.insert(view) {
                self.outputs.push_back(Output::Ask { view, from: from.into_iter().collect() });
            }
        }
    }

    /// Fetches the newest stable checkpoint that is not held; else the newest one that more voters have signed than may be hostile, which
    /// may become stable.
    fn fetch(&mut self) {
        if self.fetching.is_some() {
            return;
        }
        let is_missing = |head: &Head| !self.held.contains_key(&head.manifest) && !self.missed.contains(&head.manifest);
        let is_founders = |place: BranchKey| self.anchors.descent(place) == Some(BranchOrigin::Proven);
        let proven = self.proofs().into_iter().map(|proof| (branch(&proof.view), proof.head));
        let proven = proven.filter(|(place, head)| is_missing(head) && self.is_later(*place, head.step));
        let proven = proven.max_by_key(|(place, head)| (is_founders(*place), !place.1, head.step));
        let likely = || {
            let known = self.heads().into_values().filter_map(|(head, signatures)| {
                let view = self.views.get(&head.view)?;
                let signers = signatures.iter().filter(|(peer, _)| view.contains(*peer)).count();
                let voters = signatures.iter().filter(|(peer, _)| view.votes(*peer)).count();
                (signers > 0).then(|| (branch(view), head, (signers, voters > view.most_hostile())))
            });
            let known: Vec<(BranchKey, Head, (usize, bool))> = known.collect();
            let is_held = |place: BranchKey, step: u64| {
                known
                    .iter()
                    .any(|(other, it, _)| *other == place && it.step >= step && self.held.contains_key(&it.manifest))
            };
            // What a few make up would fill the disk, and keep what others sign from coming.
            let newer = known.iter().filter(|(place, head, (_, has_honest))| {
                *has_honest && is_missing(head) && self.is_later(*place, head.step) && !is_held(*place, head.step)
            });
            let newest = newer.max_by_key(|(place, head, (signers, _))| (is_founders(*place), head.step, *signers));
            newest.map(|(place, head, _)| (*place, *head))
        };
        let Some((_, head)) = proven.or_else(likely) else { return };
        let mut from: BTreeSet<PeerId> = self.holders.get(&head.manifest).cloned().unwrap_or_default();
        let view = self.views.get(&head.view);
        let heads = self.signed.iter().filter(|(_, heads)| heads.values().any(|(it, _)| it.manifest == head.manifest));
        let members = heads.filter(|(peer, _)| view.is_some_and(|view| view.contains(**peer)));
        from.extend(members.map(|(peer, _)| *peer));
        self.fetching = Some(head.manifest);
        self.outputs.push_back(Output::Fetch { head, from: from.into_iter().collect() });
    }
}

#[cfg(test)]
mod tests;
