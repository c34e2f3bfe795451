//! That a checkpoint is stable, shown to somebody who was not there.

use std::collections::BTreeSet;

use super::{Head, Signature};
use crate::error::Violation;
use crate::id::{PeerId, RunId};
use crate::view::View;

/// A head with the view whose members have signed it, and their signatures. The head names the view by its hash, so
/// nobody can put other members in its place; that a view is one of the run's is shown by a [search](crate::history).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// What is signed.
    pub head: Head,
    /// Whose members sign.
    pub view: View,
    /// By ascending peer.
    pub signatures: Vec<Signature>,
}

impl Proof {
    /// Checks all but the signatures themselves, which the driver verifies: that the head is one of `run`, whose last step
    /// is `steps`, and that those who have signed are a quorum of its view, and nobody else.
    ///
    /// # Errors
    /// A [`Violation`] of whoever sent it.
    pub fn check(&self, run: RunId, steps: u64) -> Result<(), Violation> {
        self.view.validate()?;
        if self.head.run != run {
            return Err(Violation::OtherRun);
        }
        if self.head.step > steps {
            return Err(Violation::BeyondEnd { step: self.head.step });
        }
        let is_its_view = self.view.run == run && self.view.id() == self.head.view;
        let is_sorted = self.signatures.is_sorted_by(|(a, _), (b, _)| a < b);
        if is_its_view && is_sorted && self.is_of_members() && self.is_quorum() {
            Ok(())
        } else {
            Err(Violation::Unproven)
        }
    }

    /// Whether those who have signed are a quorum of the view.
    pub fn is_quorum(&self) -> bool {
        self.view.has_quorum(&self.signatures.iter().map(|(peer, _)| *peer).collect::<BTreeSet<PeerId>>())
    }

    fn is_of_members(&self) -> bool {
        self.signatures.iter().all(|(peer, _)| self.view.contains(*peer))
    }
}
