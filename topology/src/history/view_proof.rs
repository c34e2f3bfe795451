//! One step of the way from a view that a peer knows to another one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::id::{PeerId, RunId, ViewId};
use crate::message::MAX_MEMBERS;
use crate::view::{MAX_VIEW_BYTES, View};
use crate::vote::certificate::{Signer, SuccessionProof, WireSignature};

/// The longest encoded leg, in bytes: two views, and who accepted the second one.
pub const MAX_LEG_BYTES: usize = 2 * MAX_VIEW_BYTES + 98 * MAX_MEMBERS + 256;
/// What the founder's signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling begins a branch 1";

/// A view, and what shows that it is one of the run's to whoever knows the one before it on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "most are the larger ones")]
pub enum ViewProof {
    /// The first one of a branch: the founder's key has signed it.
    Founded(View, WireSignature),
    /// The first one of a branch that somebody has begun alone. Nobody has signed it: it is of those who were members before.
    Apart(View),
    /// The next one: a quorum of the one before has accepted it.
    Next(SuccessionProof),
    /// A later one, with the view that it follows: those of that view's quorum that have accepted it are also a quorum of the one
    /// before on the way.
    Over(View, SuccessionProof),
    /// The one that the one before on the way follows.
    Back(View),
}

/// What the founder's key signs of the first view of a branch.
pub fn beginning(run: RunId, view: ViewId) -> Vec<u8> {
    [PURPOSE, &run.0, &view.0].concat()
}

impl ViewProof {
    /// Where it leads.
    pub fn view(&self) -> &View {
        match self {
            Self::Founded(view, _) | Self::Apart(view) | Self::Back(view) => view,
            Self::Next(link) | Self::Over(_, link) => &link.view,
        }
    }

    /// Whether a way begins with it.
    pub(super) fn is_root(&self) -> bool {
        matches!(self, Self::Founded(..) | Self::Apart(_))
    }

    pub(super) fn validate(&self) -> Result<(), Violation> {
        match self {
            Self::Founded(view, _) | Self::Apart(view) | Self::Back(view) => view.validate(),
            Self::Next(link) => link.validate(),
            Self::Over(parent, link) => parent.validate().and_then(|()| link.validate()),
        }
    }

    /// Whether the founder has signed that a branch of `run` begins with it.
    pub(super) fn is_founders(&self, notary: &dyn Signer, founder: PeerId, run: RunId) -> bool {
        let Self::Founded(view, seal) = self else { return false };
        let is_first = view.run == run && view.parent.is_none() && !view.forked;
        is_first && notary.is_signed(founder, &beginning(run, view.id()), &seal.bytes())
    }

    /// Whether it leads on from `last` to whoever knows that.
    pub(super) fn follows(&self, notary: &dyn Signer, last: &View) -> bool {
        match self {
            Self::Founded(..) | Self::Apart(_) => false,
            Self::Next(link) => link.follows(notary, last),
            Self::Over(parent, link) => is_over(last, parent, link) && link.is_accepted_by(notary, parent),
            Self::Back(view) => last.parent == Some(view.id()) && view.run == last.run && view.branch == last.branch,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        postcard::to_allocvec(self).map_or(usize::MAX, |bytes| bytes.len())
    }
}

/// Whether `link`, which follows `parent`, may be shown to those who know `last`, an earlier one: if a quorum of `last` is among those
/// who accepted it. One of these at least is honest, was in `parent`, and would not have accepted there what is not to follow it.
pub(super) fn is_over(last: &View, parent: &View, link: &SuccessionProof) -> bool {
    let is_later = parent.generation > last.generation && link.view.generation > parent.generation;
    let is_of_one = |view: &View| {
        (view.run, view.branch, view.forked, view.quorum) == (last.run, last.branch, last.forked, last.quorum)
    };
    let has_quorum = || {
        let signers: BTreeSet<PeerId> = link.certificate().seals.iter().map(|(signer, _)| *signer).collect();
        last.has_quorum(&signers)
    };
    is_later && is_of_one(parent) && is_of_one(&link.view) && has_quorum() && link.view.parent == Some(parent.id())
}
