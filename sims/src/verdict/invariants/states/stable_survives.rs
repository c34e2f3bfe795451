//! Part of promise P9: a state that a quorum of a view's members had on disk is not undone, as long as one good copy of it
//! is on a machine that is in the run, or comes back to it. Where later views have taken in others, a quorum of them may have
//! nothing but an older state; then one of those who took the steps must have that on disk. Judged by the disks alone,
//! whatever their peers say, and whoever knows of it.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::{Digest, PeerId, Quorum, Reason, Record, ViewId};

use crate::steps::state::State;
use crate::verdict::invariants::Broken;

const NAME: &str = "stable_survives";

/// Remembers which states became stable, and in which views they were committed.
#[derive(Debug, Default)]
pub struct StableSurvives {
    views: BTreeMap<ViewId, Known>,
    /// In which view each state was committed first.
    committed: BTreeMap<Digest, ViewId>,
    /// After which step each is, and who knows that it has had it on disk.
    saved: BTreeMap<Digest, (u64, BTreeSet<PeerId>)>,
}

#[derive(Debug)]
struct Known {
    /// The view that this one goes on from; none for a fork, which may leave behind what it can't reach.
    parent: Option<ViewId>,
    voters: BTreeSet<PeerId>,
    quorum: Quorum,
    /// Those who had yet to load the state after this step.
    syncing: (u64, Vec<PeerId>),
    /// The newest state that was committed in it and is stable.
    stable: Option<(u64, Digest)>,
}

impl StableSurvives {
    /// Somebody has written down that it is in the view of `record`.
    pub fn wrote(&mut self, record: &Record) {
        let view = &record.view;
        self.views.entry(view.id()).or_insert_with(|| {
            let forks = record.origin.as_ref().map_or(view.forked, |origin| origin.reasons.contains(&Reason::Forked));
            let voters = view.voters().collect();
            let resume = record.origin.as_ref().map(|origin| &origin.resume);
            let syncing = resume.map(|resume| (resume.step, resume.syncing.clone())).unwrap_or_default();
            let (parent, quorum) = (view.parent.filter(|_| !forks), view.quorum);
            Known { parent, voters, quorum, syncing, stable: None }
        });
    }

    /// A state was committed in `view`.
    pub fn committed(&mut self, view: ViewId, after: &State) {
        self.committed.entry(after.digest).or_insert(view);
    }

    /// `peer` has a good copy of `state` on disk.
    pub fn saved(&mut self, peer: PeerId, state: &State) {
        let Some(view) = self.committed.get(&state.digest).and_then(|view| self.views.get_mut(view)) else { return };
        let (_, savers) = self.saved.entry(state.digest).or_insert((state.step, BTreeSet::new()));
        savers.insert(peer);
        if view.quorum.is_met(savers.intersection(&view.voters).count(), view.voters.len(), false) {
            view.stable = view.stable.max(Some((state.step, state.digest)));
        }
    }

    /// The disk of `peer` was set back: it does not know any more what it has said that it has, and no rule about votes holds where it
    /// votes.
    pub fn set_back(&mut self, peer: PeerId) {
        self.saved.values_mut().for_each(|(_, savers)| _ = savers.remove(&peer));
        for (id, view) in &mut self.views {
            let is_theirs = |digest: &Digest| self.committed.get(digest) == Some(id);
            let of_view = self.saved.iter().filter(|(digest, _)| is_theirs(digest));
            let is_met = |savers: &BTreeSet<PeerId>| {
                view.quorum.is_met(savers.intersection(&view.voters).count(), view.voters.len(), false)
            };
            let stable = of_view.filter(|(_, (_, savers))| is_met(savers)).map(|(digest, (step, _))| (*step, *digest));
            view.stable = stable.max();
        }
    }

    /// Whether a stable state that led to `view` is still on a machine, as `holder` says.
    pub fn is_held(&self, view: ViewId, holder: impl Fn(u64, Digest) -> Option<PeerId>) -> bool {
        let chain = std::iter::successors(Some(view), |view| self.views.get(view).and_then(|known| known.parent));
        let mut stable = chain.filter_map(|view| self.views.get(&view)?.stable);
        stable.any(|(step, digest)| holder(step, digest).is_some())
    }

    /// Members go on in `view` after `step`; `holder` says on which machine there is a good copy of a state, and `has` who can
    /// go on from one of that step.
    ///
    /// # Errors
    /// If a state that they go back behind is stable, and there is one.
    pub fn resumed(
        &mut self,
        view: ViewId,
        step: u64,
        holder: impl Fn(u64, Digest) -> Option<PeerId>,
        has: impl Fn(PeerId, u64) -> bool,
    ) -> Result<(), Broken> {
        let parent = |view: &ViewId| self.views.get(view).and_then(|known| known.parent);
        let broken = |stable: u64, holder: PeerId| {
            let seen = format!("{view:?} goes on after step {step}, and {holder:?} has step {stable}, which is stable");
            Err(Broken::new(NAME, seen))
        };
        // Those who have decided this view are a quorum of the one before, and one of them had it on disk.
        let own = parent(&view).and_then(|before| self.views.get(&before)?.stable);
        if let Some((stable, digest)) = own.filter(|(stable, _)| *stable > step)
            && let Some(holder) = holder(stable, digest)
        {
            return broken(stable, holder);
        }
        let ancestors = std::iter::successors(parent(&view), parent);
        let stable = ancestors.filter_map(|view| self.views.get(&view)?.stable);
        let behind: Vec<(u64, Digest)> = stable.filter(|(stable, _)| *stable > step).collect();
        let held = behind.into_iter().find_map(|(stable, digest)| Some((holder(stable, digest)?, stable)));
        let (Some((holder, stable)), Some(before)) = (held, parent(&view).and_then(|before| self.views.get(&before)))
        else {
            return Ok(());
        };
        let (least, syncing) = &before.syncing;
        let took_steps = |peer: &&PeerId| step >= *least || !syncing.contains(peer);
        if before.voters.iter().filter(took_steps).any(|peer| has(*peer, step)) {
            // Those who come later go on from there.
            self.views.entry(view).and_modify(|known| known.parent = None);
            return Ok(());
        }
        broken(stable, holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::ledger::Ledger;
    use starling_topology::{RunId, View};

    #[test]
    fn a_stable_state_that_is_gone_back_behind_is_noticed() {
        let peers = [1, 2, 3].map(|name| PeerId([name; 32]));
        let first = View::found(RunId([0; 32]), peers[0]).succeed(peers);
        let mut next = first.succeed(peers);
        let mut invariant = StableSurvives::default();
        let record =
            |view: &View| Record { root: starling_topology::Root::default(), ..Record::of(view.clone(), None) };
        invariant.wrote(&record(&first));
        invariant.wrote(&record(&next));
        let state = State { step: 4, digest: Digest([4; 32]), ..State::initial(Ledger::new(1, 9, 3)) };
        invariant.committed(first.id(), &state);
        invariant.saved(peers[0], &state);
        let (held, none) = (|_, _| Some(peers[0]), |_, _| false);
        assert_eq!(invariant.resumed(next.id(), 0, held, none), Ok(()), "it is on one disk of three");
        invariant.saved(peers[1], &state);
        assert!(invariant.resumed(next.id(), 3, held, none).is_err());
        assert_eq!(invariant.resumed(next.id(), 3, |_, _| None, none), Ok(()), "no copy is left");
        assert_eq!(invariant.resumed(next.id(), 4, held, none), Ok(()));
        let has = |peer, _| peer == peers[2];
        assert!(invariant.resumed(next.id(), 3, held, has).is_err(), "each quorum has one who had it");
        let later = next.succeed(peers);
        invariant.wrote(&record(&later));
        assert!(invariant.resumed(later.id(), 3, held, none).is_err());
        assert_eq!(invariant.resumed(later.id(), 3, held, has), Ok(()), "it has what it goes on from on disk");
        next.forked = true;
        invariant.wrote(&record(&next));
        assert_eq!(invariant.resumed(next.id(), 0, held, none), Ok(()), "a fork says that it is one");
    }
}
