//! The views that a peer takes for the run's.

use std::collections::{BTreeMap, VecDeque};

use super::{MAX_KNOWN, ViewHistory, ViewProof};
use crate::heads::follower::{BranchKey, branch};
use crate::id::{PeerId, RunId, ViewId};
use crate::view::View;
use crate::vote::certificate::Signer;

/// Branches that go back to the founder's key, at most.
pub const MAX_PROVEN: usize = 4;
/// Branches that those begun alone who were members before, at most.
pub const MAX_APART: usize = 4;
/// Views that are remembered beside the newest ones.
const MAX_RECENT: usize = 16;

/// What a branch goes back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BranchOrigin {
    /// The founder's key, each view after that decided by the one before. Or this peer was there itself.
    Proven,
    /// Members that went on alone, as a fork or from the beginning: nobody else has decided that.
    Apart,
}

/// The newest view of each branch that is known, and the last few besides.
#[derive(Debug, Clone)]
pub struct AnchorSet {
    run: RunId,
    founder: Option<PeerId>,
    pub(super) newest: BTreeMap<BranchKey, (View, BranchOrigin)>,
    recent: VecDeque<View>,
    /// All of these, by name.
    named: BTreeMap<ViewId, View>,
}

impl AnchorSet {
    /// Those of a peer that keeps this history of `run`, whose manifest names this founder's key.
    pub fn of(run: RunId, founder: Option<PeerId>, history: &ViewHistory) -> Self {
        let (newest, recent, named) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        let mut anchors = Self { run, founder, newest, recent, named };
        history.ends().into_iter().rev().for_each(|(view, descent)| anchors.admit(&view, descent));
        // Those before, too: who has left knows no later ones, and can't lead there from those.
        let before = history.entries.iter().rev().take(MAX_RECENT).map(|entry| entry.leg.view().clone());
        for view in before.collect::<Vec<_>>().into_iter().rev() {
            if let Some(descent) = anchors.descent(branch(&view)) {
                anchors.admit(&view, descent);
            }
        }
        anchors
    }

    /// What the branch goes back to, if one of its views is known.
    pub fn descent(&self, branch: BranchKey) -> Option<BranchOrigin> {
        self.newest.get(&branch).map(|(_, descent)| *descent)
    }

    /// The view called so, if it is one of those that are known.
    pub fn view(&self, id: ViewId) -> Option<&View> {
        self.named.get(&id)
    }

    /// The newest ones, by name: where to be led on from.
    pub(super) fn names(&self) -> Vec<ViewId> {
        let mut newest: Vec<&(View, BranchOrigin)> = self.newest.values().collect();
        newest.sort_by_key(|(_, descent)| *descent);
        newest.into_iter().take(MAX_KNOWN - 1).map(|(view, _)| view.id()).collect()
    }

    fn views(&self) -> impl Iterator<Item = &View> {
        self.newest.values().map(|(view, _)| view).chain(&self.recent)
    }

    /// What its view goes back to, if `leg` leads from `last`, or from what is known, to one of the run's.
    pub(super) fn judge(
        &self,
        notary: &dyn Signer,
        last: Option<&(View, BranchOrigin)>,
        leg: &ViewProof,
    ) -> Option<BranchOrigin> {
        let view = leg.view();
        let place = branch(view);
        if view.run != self.run || leg.validate().is_err() {
            return None;
        }
        match leg {
            ViewProof::Founded(..) => {
                // Whoever was a member at first could decide something else now: who knows a later view begins there.
                let is_new = self.descent(place) != Some(BranchOrigin::Proven);
                let founder = self.founder?;
                (is_new && leg.is_founders(notary, founder, self.run)).then_some(BranchOrigin::Proven)
            }
            // Where no key says what the run is, the first branch that is heard of is it.
            ViewProof::Apart(_) if self.founder.is_none() && self.newest.is_empty() && last.is_none() => {
                Some(BranchOrigin::Proven)
            }
            ViewProof::Apart(_) => {
                // Nobody has signed whom a branch begun alone lets in: who votes there counts as known before, and nobody else.
                let is_in = |view: &View, of: BranchOrigin, voter: PeerId| match of {
                    BranchOrigin::Proven => view.contains(voter),
                    BranchOrigin::Apart => view.votes(voter),
                };
                let is_known = |voter: PeerId| {
                    let of = |view: &View| self.descent(branch(view)).unwrap_or(BranchOrigin::Apart);
                    last.is_some_and(|(view, descent)| is_in(view, *descent, voter))
                        || self.views().any(|view| is_in(view, of(view), voter))
                };
                let is_free = self.descent(place) != Some(BranchOrigin::Proven);
                (is_free && view.voters().all(is_known)).then_some(BranchOrigin::Apart)
            }
            ViewProof::Next(_) | ViewProof::Over(..) | ViewProof::Back(_) => {
                let known = last.or_else(|| self.newest.get(&place)).into_iter().chain(self.newest.get(&place));
                known.into_iter().find(|(known, _)| leg.follows(notary, known)).map(|(_, descent)| *descent)
            }
        }
    }

    /// Takes a view in that was led to.
    pub(crate) fn admit(&mut self, view: &View, descent: BranchOrigin) {
        let place = branch(view);
        match self.newest.get_mut(&place) {
            Some((_, known)) if *known < descent => return,
            Some((newest, known)) if *known > descent => {
                // It goes back to the founder after all: what was taken for it is another's.
                (*newest, *known) = (view.clone(), descent);
                self.recent.retain(|other| branch(other) != place);
            }
            Some((newest, _)) if newest.generation < view.generation => *newest = view.clone(),
            Some(_) => {}
            None => {
                let of_kind = self.newest.values().filter(|(_, known)| *known == descent).count();
                let room = if descent == BranchOrigin::Proven { MAX_PROVEN } else { MAX_APART };
                if of_kind >= room {
                    return;
                }
                self.newest.insert(place, (view.clone(), descent));
            }
        }
        self.recent.retain(|known| known != view);
        self.recent.push_back(view.clone());
        if self.recent.len() > MAX_RECENT {
            self.recent.pop_front();
        }
        let known: BTreeMap<ViewId, View> = self.views().map(|view| (view.id(), view.clone())).collect();
        self.named = known;
    }
}
