//! Part of promise P9: a member that comes back goes on from a state of the branch that it was on: from what it had when it
//! entered its last view, from what that followed from, or from what has followed since.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::{CatchUpAction, Lineage, MemberResumePlan, PeerId};

use crate::steps::state::State;
use crate::verdict::invariants::Broken;

const NAME: &str = "own_branch";

/// A state, by its step and its lineage.
type Name = (u64, Lineage);

/// Remembers which state followed from which, and where each member stood when it entered its last view.
#[derive(Debug, Default)]
pub struct OwnBranch {
    /// What each state followed from, and the number of the commit that came to it first.
    before: BTreeMap<Name, (Name, u64)>,
    commits: u64,
    /// The state from which each member went on, and how many commits there had been by then.
    entered: BTreeMap<PeerId, (Name, u64)>,
    /// Those whose disks were set back: they may come twice to a view, and to its steps.
    set_back: BTreeSet<PeerId>,
}

impl OwnBranch {
    /// Somebody went from `before` to `after`.
    pub fn committed(&mut self, before: &State, after: &State) {
        self.commits += 1;
        let commit = ((before.step, before.lineage), self.commits);
        self.before.entry((after.step, after.lineage)).or_insert(commit);
    }

    /// `peer` goes on as it was told.
    pub fn entered(&mut self, peer: PeerId, resumption: &MemberResumePlan, is_downloading: bool) {
        let MemberResumePlan { step, lineage, catch_up, .. } = resumption;
        // What is on its way was asked for in an earlier view; the initial state never is.
        let is_there = *catch_up == CatchUpAction::Current && (!is_downloading || *step == 0);
        if (matches!(catch_up, CatchUpAction::State { .. }) || is_there) && !self.set_back.contains(&peer) {
            self.entered.insert(peer, ((*step, *lineage), self.commits));
        }
    }

    /// The disk of `peer` was set back: it does not know where it went on from last.
    pub fn set_back(&mut self, peer: PeerId) {
        self.entered.remove(&peer);
        self.set_back.insert(peer);
    }

    /// `peer` starts from `state`, which it had saved.
    ///
    /// # Errors
    /// If it is of a branch that was left.
    pub fn loaded(&self, peer: PeerId, state: &State) -> Result<(), Broken> {
        let loaded = (state.step, state.lineage);
        let Some((base, since)) = self.entered.get(&peer) else { return Ok(()) };
        let back = |from: Name| std::iter::successors(Some(from), |name| Some(self.before.get(name)?.0));
        let is_before = back(*base).any(|name| name == loaded);
        // The first commit on the way from there.
        let first = back(loaded).find_map(|name| self.before.get(&name).filter(|(before, _)| before == base));
        if is_before || first.is_some_and(|(_, commit)| commit > since) {
            return Ok(());
        }
        let (step, base) = (state.step, base.0);
        Err(Broken::new(
            NAME,
            format!("{peer:?} goes back to another branch's step {step}, it had gone on from {base}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::ledger::Ledger;
    use starling_topology::{RunId, View};

    const ME: PeerId = PeerId([1; 32]);

    fn state(step: u64, branch: u64) -> State {
        State { step, lineage: Lineage { branch, ..Lineage::NONE }, ..State::initial(Ledger::new(1, 9, 3)) }
    }

    fn enter(invariant: &mut OwnBranch, state: &State) {
        let (view, catch_up) = (View::found(RunId([0; 32]), ME), CatchUpAction::Current);
        let resumption =
            MemberResumePlan { view, step: state.step, lineage: state.lineage, catch_up, syncing: Vec::new() };
        invariant.entered(ME, &resumption, false);
    }

    #[test]
    fn going_back_to_another_branch_is_noticed() {
        let mut invariant = OwnBranch::default();
        let (initial, one, two, three) = (state(0, 0), state(1, 1), state(2, 1), state(3, 1));
        enter(&mut invariant, &initial);
        for (before, after) in [(&initial, &one), (&one, &two), (&two, &three)] {
            invariant.committed(before, after);
            assert_eq!(invariant.loaded(ME, after), Ok(()), "committed since");
        }
        enter(&mut invariant, &two);
        assert_eq!((invariant.loaded(ME, &one), invariant.loaded(ME, &two)), (Ok(()), Ok(())));
        assert!(invariant.loaded(ME, &three).is_err(), "it was given up");
        let other = state(3, 2);
        invariant.committed(&two, &other);
        assert!(invariant.loaded(ME, &three).is_err() && invariant.loaded(ME, &other).is_ok());
        enter(&mut invariant, &initial);
        assert!(invariant.loaded(ME, &one).is_err() && invariant.loaded(ME, &initial).is_ok());
    }
}
