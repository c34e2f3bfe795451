//! No way back: a process never enters an earlier generation than the one that it is in, or the same one again, so
//! nobody is in two views. One that was left out may enter any view when it joins again.

use std::collections::BTreeMap;

use starling_topology::{Generation, PeerId};

use crate::verdict::invariants::Broken;

const NAME: &str = "monotonic_generation";

/// Remembers each process's generation.
#[derive(Debug, Default)]
pub struct MonotonicGeneration {
    generations: BTreeMap<PeerId, Generation>,
}

impl MonotonicGeneration {
    /// `peer` entered a view of `generation`.
    ///
    /// # Errors
    /// If it was in that one, or in a later one, before.
    pub fn entered(&mut self, peer: PeerId, generation: Generation) -> Result<(), Broken> {
        match self.generations.insert(peer, generation) {
            Some(before) if before >= generation => {
                Err(Broken::new(NAME, format!("{peer:?} went from generation {before} to {generation}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// `peer` is out, or its process is another one now.
    pub fn begins_anew(&mut self, peer: PeerId) {
        self.generations.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_back_is_noticed() {
        let (one, two) = (PeerId([1; 32]), PeerId([2; 32]));
        let mut invariant = MonotonicGeneration::default();
        assert_eq!(invariant.entered(one, Generation(3)), Ok(()));
        assert_eq!(invariant.entered(two, Generation(2)), Ok(()));
        assert_eq!(invariant.entered(one, Generation(5)), Ok(()));
        assert!(invariant.entered(one, Generation(5)).is_err());
        assert!(invariant.entered(two, Generation(1)).is_err());
        invariant.begins_anew(one);
        assert_eq!(invariant.entered(one, Generation(2)), Ok(()));
    }
}
