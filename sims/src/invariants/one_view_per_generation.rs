//! Agreement: two peers that are in one generation are in one view.

use std::collections::BTreeMap;

use starling_topology::{Generation, PeerId, View, ViewId};

use super::Broken;

const NAME: &str = "one_view_per_generation";

/// Remembers the view of each generation.
#[derive(Debug, Default)]
pub struct OneViewPerGeneration {
    views: BTreeMap<Generation, ViewId>,
}

impl OneViewPerGeneration {
    /// `peer` entered `view`.
    ///
    /// # Errors
    /// If another peer is in another view of the same generation, or `peer` is not in it.
    pub fn entered(&mut self, peer: PeerId, view: &View) -> Result<(), Broken> {
        let (generation, id) = (view.generation, view.id());
        let first = *self.views.entry(generation).or_insert(id);
        if first != id {
            return Err(Broken::new(
                NAME,
                format!("{peer:?} is in {id:?} of generation {generation}, others in {first:?}"),
            ));
        }
        if !view.contains(peer) {
            return Err(Broken::new(NAME, format!("{peer:?} entered {id:?} without being a member")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::RunId;

    #[test]
    fn a_second_view_is_noticed() {
        let (one, two) = (PeerId([1; 32]), PeerId([2; 32]));
        let first = View::found(RunId([0; 32]), one);
        let mut invariant = OneViewPerGeneration::default();
        assert_eq!(invariant.entered(one, &first), Ok(()));
        assert_eq!(invariant.entered(one, &first.succeed([one, two])), Ok(()));
        assert_eq!(invariant.entered(two, &first.succeed([one, two])), Ok(()));
        assert!(invariant.entered(two, &first.succeed([two])).is_err());
    }

    #[test]
    fn a_stranger_is_noticed() {
        let view = View::found(RunId([0; 32]), PeerId([1; 32]));
        assert!(OneViewPerGeneration::default().entered(PeerId([2; 32]), &view).is_err());
    }
}
