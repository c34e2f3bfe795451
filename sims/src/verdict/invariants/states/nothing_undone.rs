//! The resume rule: a member that goes from a view to its successor never goes back behind what it has committed, and
//! none of those that go on is more than one step apart.

use std::collections::BTreeMap;

use starling_topology::{CatchUpAction, MemberResumePlan, PeerId, Progress, ViewId};

use crate::verdict::invariants::Broken;

const NAME: &str = "nothing_undone";

/// Remembers the view of each process.
#[derive(Debug, Default)]
pub struct NothingUndone {
    views: BTreeMap<PeerId, ViewId>,
}

impl NothingUndone {
    /// `peer`, which stood at `progress`, was told to go on in the view called `id`.
    ///
    /// # Errors
    /// If it is to forget a step, or to take over what does not fit where it stands.
    pub fn entered(
        &mut self,
        peer: PeerId,
        id: ViewId,
        resumption: &MemberResumePlan,
        progress: Progress,
    ) -> Result<(), Broken> {
        let before = self.views.insert(peer, id);
        let follows = before.is_some() && before == resumption.view.parent;
        let (step, at) = (resumption.step, progress.step);
        let fits = match &resumption.catch_up {
            CatchUpAction::Current => step == at,
            CatchUpAction::Result { from } => step == at + 1 && !from.is_empty() && !from.contains(&peer),
            CatchUpAction::State { from } => !from.is_empty() && !from.contains(&peer),
        };
        if !fits {
            let seen = format!("{peer:?} stands at {progress:?} and was told {:?} of step {step}", resumption.catch_up);
            return Err(Broken::new(NAME, seen));
        }
        if follows && progress.has_state && step < at {
            return Err(Broken::new(NAME, format!("{peer:?} committed step {at}, its next view goes on after {step}")));
        }
        Ok(())
    }

    /// `peer` is out, or its process is another one now.
    pub fn begins_anew(&mut self, peer: PeerId) {
        self.views.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::{Lineage, RunId, View};

    #[test]
    fn a_step_that_is_undone_is_noticed() {
        let (one, two) = (PeerId([1; 32]), PeerId([2; 32]));
        let first = View::found(RunId([0; 32]), one);
        let next = first.succeed([one, two]);
        let at = |step| Progress { step, lineage: Lineage::NONE, has_state: true, has_result: true };
        let told = |step, catch_up| MemberResumePlan {
            view: next.clone(),
            step,
            lineage: Lineage::NONE,
            catch_up,
            syncing: Vec::new(),
        };
        let entered = |resumption: &MemberResumePlan, progress| {
            let mut invariant = NothingUndone::default();
            let begun = MemberResumePlan {
                view: first.clone(),
                step: 4,
                lineage: Lineage::NONE,
                catch_up: CatchUpAction::Current,
                syncing: Vec::new(),
            };
            invariant.entered(one, first.id(), &begun, at(4)).expect("it goes on where it stands");
            invariant.entered(one, next.id(), resumption, progress)
        };
        assert_eq!(entered(&told(7, CatchUpAction::Current), at(7)), Ok(()));
        assert_eq!(entered(&told(8, CatchUpAction::Result { from: vec![two] }), at(7)), Ok(()));
        assert_eq!(entered(&told(9, CatchUpAction::State { from: vec![two] }), at(7)), Ok(()));
        assert!(entered(&told(6, CatchUpAction::State { from: vec![two] }), at(7)).is_err());
        assert!(entered(&told(8, CatchUpAction::Current), at(7)).is_err());
        assert!(entered(&told(9, CatchUpAction::Result { from: vec![two] }), at(7)).is_err());
        assert!(entered(&told(8, CatchUpAction::Result { from: vec![] }), at(7)).is_err());
        assert!(entered(&told(8, CatchUpAction::State { from: vec![one] }), at(7)).is_err());
    }
}
