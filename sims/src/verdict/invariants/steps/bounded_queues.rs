//! Part of promise P10, no unbounded memory: what a peer keeps for later stays within a bound that it can compute
//! beforehand.

use starling_topology::PeerId;

use crate::verdict::invariants::Broken;

const NAME: &str = "bounded_queues";

/// Remembers how full a queue ever was.
#[derive(Debug, Default)]
pub struct BoundedQueues {
    longest: usize,
}

impl BoundedQueues {
    /// `peer` keeps `length` of `what`, of which it may keep `limit`.
    ///
    /// # Errors
    /// If it keeps more.
    pub fn keeps(&mut self, peer: PeerId, what: &str, length: usize, limit: usize) -> Result<(), Broken> {
        self.longest = self.longest.max(length);
        if length <= limit {
            return Ok(());
        }
        Err(Broken::new(NAME, format!("{peer:?} keeps {length} {what} of at most {limit}")))
    }

    /// The longest that a queue ever was.
    pub fn longest(&self) -> usize {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_beyond_its_bound_is_noticed() {
        let mut invariant = BoundedQueues::default();
        assert_eq!(invariant.keeps(PeerId([1; 32]), "things", 4, 4), Ok(()));
        assert!(invariant.keeps(PeerId([1; 32]), "things", 5, 4).is_err());
        assert_eq!(invariant.longest(), 5);
    }
}
