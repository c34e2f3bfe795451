//! Who has its disk, as have so many voters of its view that they are a quorum, stays with them: nobody whose disk was set back leads it
//! to a view that does not follow from its own.

use std::collections::BTreeMap;

use starling_topology::{PeerId, Record, View, ViewId};

use crate::verdict::invariants::Broken;

const NAME: &str = "led_away";

/// Remembers which view follows which.
#[derive(Debug, Default)]
pub struct LedAway {
    parents: BTreeMap<ViewId, Option<ViewId>>,
    /// From how many views before it a record has told that a view follows.
    told: BTreeMap<ViewId, usize>,
}

impl LedAway {
    /// Somebody has written down that it is in the view of `record`.
    pub fn wrote(&mut self, record: &Record) {
        // Most records are votes in a view that is known.
        let told = self.told.entry(record.view.id()).or_default();
        if *told > record.chain.len() {
            return;
        }
        *told = record.chain.len() + 1;
        let chain = record.chain.iter().map(|link| &link.view);
        for view in chain.chain([&record.view]) {
            self.parents.entry(view.id()).or_insert(view.parent);
        }
    }

    /// `peer`, which was in the view `before`, is in `next` now, and of the voters these are `intact`.
    ///
    /// # Errors
    /// If that does not follow, though the intact ones could have gone on.
    pub fn entered(
        &self,
        peer: PeerId,
        before: &View,
        next: &View,
        intact: impl Fn(PeerId) -> bool,
    ) -> Result<(), Broken> {
        let (from, to) = (before.id(), next.id());
        let way = std::iter::successors(Some(to), |view| self.parents.get(view).copied().flatten());
        let mut is_known = true;
        let mut follows = false;
        for view in way {
            is_known &= self.parents.contains_key(&view);
            follows |= view == from;
        }
        let has_quorum = before.has_quorum(&before.voters().filter(|voter| intact(*voter)).collect());
        if follows || !is_known || !has_quorum || before.forked || next.forked {
            return Ok(());
        }
        let (old, new) = (before.generation, next.generation);
        let seen = format!("{peer:?} went from {from:?} of generation {old} to {to:?} of {new}, which does not follow");
        Err(Broken::new(NAME, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::{Root, RunId};

    #[test]
    fn who_goes_to_another_branch_is_noticed() {
        let peers = [1, 2, 3].map(|name| PeerId([name; 32]));
        let first = View::found(RunId([0; 32]), peers[0]);
        let all = first.succeed(peers);
        let (later, beside) = (all.succeed([peers[1], peers[2]]), first.succeed([peers[0]]));
        let follows_beside = beside.succeed(peers);
        let mut invariant = LedAway::default();
        for view in [&first, &all, &later, &beside, &follows_beside] {
            invariant.wrote(&Record { root: Root::default(), ..Record::of(view.clone(), None) });
        }
        let (most, few) = (|peer| peer != peers[0], |peer| peer == peers[1]);
        assert_eq!(invariant.entered(peers[1], &all, &later, most), Ok(()));
        assert!(invariant.entered(peers[1], &all, &follows_beside, most).is_err());
        assert_eq!(invariant.entered(peers[1], &all, &follows_beside, few), Ok(()), "they can't go on");
        let mut fork = follows_beside;
        fork.forked = true;
        assert_eq!(invariant.entered(peers[1], &all, &fork, most), Ok(()), "it says that it is one");
    }
}
