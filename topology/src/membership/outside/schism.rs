//! Two views that were both decided to follow one, as two chains show that part there. Somebody has signed on both ways: its disk was
//! set back in between, its key is with two processes, or it is hostile.
//!
//! Neither way is the right one by its form. But what those say who have signed on both is worth nothing, so a way counts by the others:
//! it *stands* if, without them, the voters of its last view are a quorum. Who has not signed on both, and whose own way stands, is led
//! away from it by no word: those who are with it come back, and decide there. Who is on a way that does not stand, while the other one
//! does, goes there once it has no quorum, or has signed on both: be it one of these, or somebody that they have let in. Where both
//! stand, or neither does, it is as if nobody had signed twice.

use std::collections::BTreeSet;

use crate::id::{PeerId, ViewId};
use crate::membership::Membership;
use crate::membership::flaw::FlawKind;
use crate::view::View;
use crate::vote::certificate::SuccessionProof;

/// Where another chain parts from ours, with what was decided on both sides.
#[derive(Debug)]
pub(in crate::membership) struct Schism {
    /// The first view of the other way.
    pub(in crate::membership) beside: View,
    ours_stands: bool,
    theirs_stands: bool,
    has_mine: bool,
}

impl Schism {
    /// Whether nobody's word leads us over there.
    pub(in crate::membership) fn keeps_us(&self) -> bool {
        self.ours_stands && !self.has_mine
    }

    /// Whether the other way is the one to go.
    pub(in crate::membership) fn gives_way(&self) -> bool {
        self.theirs_stands && !self.ours_stands
    }

    /// Whether our vote is worth nothing where we are: on a way that does not stand without it.
    pub(in crate::membership) fn forfeits(&self) -> bool {
        self.has_mine && !self.ours_stands
    }

    /// Whether we have signed on both.
    pub(in crate::membership) fn has_mine(&self) -> bool {
        self.has_mine
    }
}

impl Membership {
    /// Where `links`, which are said to lead to the view called `theirs`, part from the way to our view, if both sides are decided and
    /// somebody has signed on both.
    pub(in crate::membership) fn schism(&self, links: &[SuccessionProof], theirs: ViewId) -> Option<Schism> {
        let seat = self.seat.as_ref().filter(|seat| !seat.by_word && !self.is_flawed(FlawKind::CountsDoubleSigners))?;
        let at = links.iter().position(|link| self.chain.parts_with(link))?;
        let (first, later) = (&links[at], &links[at + 1..]);
        self.chain.beside(&*self.notary, first)?;
        // No more is looked at than is proven, so that nobody has us check what is none.
        let mut proven = vec![first];
        for link in later {
            if !link.follows(&*self.notary, &proven[proven.len() - 1].view) {
                break;
            }
            proven.push(link);
        }
        let ours = self.chain.from(first.view.parent?);
        let seals = |link: &SuccessionProof, peer| link.is_sealed_by(&*self.notary, peer);
        let signers = proven.iter().flat_map(|link| &link.certificate().seals).map(|(signer, _)| *signer);
        let mut both: BTreeSet<PeerId> = signers.collect();
        both.retain(|peer| ours.iter().any(|link| seals(link, *peer)) && proven.iter().any(|link| seals(link, *peer)));
        if both.is_empty() {
            return None;
        }
        let stands = |view: &View| view.has_quorum(&view.voters().filter(|peer| !both.contains(peer)).collect());
        let last = &proven[proven.len() - 1].view;
        Some(Schism {
            ours_stands: stands(&seat.view),
            theirs_stands: proven.len() == links.len() - at && last.id() == theirs && stands(last),
            has_mine: both.contains(&self.me.peer),
            beside: first.view.clone(),
        })
    }
}
