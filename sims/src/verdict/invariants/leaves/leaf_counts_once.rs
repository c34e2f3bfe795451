//! A leaf's samples count once, from it or from its carrier: what a member contributes is made of parts that are its share, each position
//! once. That the sum is what the ledger asked for, [`exactly_once`](super::super::ExactlyOnce) says.

use starling_topology::PeerId;

use crate::peer::Gathered;
use crate::verdict::invariants::Broken;

const NAME: &str = "leaf_counts_once";

/// Remembers nothing but how much it has seen.
#[derive(Debug, Default)]
pub struct LeafCountsOnce {
    by_leaves: u64,
}

impl LeafCountsOnce {
    /// `peer` has put a contribution together.
    ///
    /// # Errors
    /// If its parts are not the share, each position once.
    pub fn gathered(&mut self, peer: PeerId, gathered: &Gathered) -> Result<(), Broken> {
        let Gathered { step, share, parts, .. } = gathered;
        self.by_leaves += parts.iter().filter(|(by, _)| by.is_some()).count() as u64;
        let mut counted: Vec<u32> = parts.iter().flat_map(|(_, ranges)| ranges.iter().flat_map(Clone::clone)).collect();
        counted.sort_unstable();
        if counted.iter().copied().eq(share.iter().flat_map(Clone::clone)) {
            return Ok(());
        }
        Err(Broken::new(NAME, format!("{peer:?} contributes {parts:?} to step {step}, and its share is {share:?}")))
    }

    /// How many parts of contributions came from leaves.
    pub fn by_leaves(&self) -> u64 {
        self.by_leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_counts_once() {
        let (me, leaf) = (PeerId([1; 32]), Some(PeerId([9; 32])));
        let check = |parts: Vec<(Option<PeerId>, Vec<std::ops::Range<u32>>)>| {
            let gathered = Gathered { step: 3, share: vec![0..4, 7..9], sum: 0, parts };
            LeafCountsOnce::default().gathered(me, &gathered)
        };
        assert_eq!(check(vec![(None, vec![0..2, 7..8]), (leaf, vec![2..4, 8..9])]), Ok(()));
        assert!(check(vec![(None, vec![0..4, 7..9]), (leaf, vec![2..4, 2..2])]).is_err(), "twice");
        assert!(check(vec![(None, vec![0..2, 7..9])]).is_err(), "not at all");
        assert!(check(vec![(None, vec![0..4, 7..10])]).is_err(), "not its own");
    }
}
