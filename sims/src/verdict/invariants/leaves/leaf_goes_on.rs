//! A leaf that can reach a member which could carry it goes on: it applies a step within a time that follows from `max_stall`, as long as one
//! such member is there all the time and further than it.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_topology::{PeerId, Time};

use crate::verdict::invariants::Broken;

const NAME: &str = "leaf_goes_on";

/// A member that could carry a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: PeerId,
    /// Counts its processes.
    pub incarnation: u32,
    /// The step that it has committed last.
    pub step: u64,
}

#[derive(Debug, Clone, Default)]
struct Watched {
    step: Option<u64>,
    /// Since when each member could carry it and was further.
    since: BTreeMap<(PeerId, u32), Time>,
}

/// Remembers how far leaves are, and since when somebody could carry them.
#[derive(Debug, Default)]
pub struct LeafGoesOn {
    watched: BTreeMap<PeerId, Watched>,
    longest: Duration,
}

impl LeafGoesOn {
    /// The longest that it may take: one `max_stall` to notice that a carrier is silent, three until one is left that commits nothing, one
    /// that is waited at most between two rounds of questions, and one to wait for others that load the state, and to load it.
    pub fn limit(max_stall: Duration) -> Duration {
        max_stall * 6
    }

    /// A process of this leaf starts.
    pub fn begins(&mut self, leaf: PeerId) {
        self.watched.insert(leaf, Watched::default());
    }

    /// A leaf is at `step`, and these could carry it.
    ///
    /// # Errors
    /// If one could for longer than the limit, and was further than the leaf, which has not gone on.
    pub fn looked(
        &mut self,
        now: Time,
        leaf: PeerId,
        step: Option<u64>,
        candidates: &[Candidate],
        max_stall: Duration,
    ) -> Result<(), Broken> {
        let watched = self.watched.entry(leaf).or_default();
        if watched.step != step {
            *watched = Watched { step, since: BTreeMap::new() };
        }
        let is_further = |candidate: &&Candidate| candidate.step > 0 && step.is_none_or(|step| candidate.step > step);
        let there: Vec<(PeerId, u32)> =
            candidates.iter().filter(is_further).map(|candidate| (candidate.name, candidate.incarnation)).collect();
        watched.since.retain(|candidate, _| there.contains(candidate));
        there.into_iter().for_each(|candidate| _ = watched.since.entry(candidate).or_insert(now));
        let longest = watched.since.values().map(|since| now - *since).max().unwrap_or_default();
        self.longest = self.longest.max(longest);
        if longest <= Self::limit(max_stall) {
            return Ok(());
        }
        *watched = Watched { step, since: BTreeMap::new() };
        Err(Broken::new(NAME, format!("{leaf:?} is at {step:?} for {longest:?}, and could be carried further")))
    }

    /// The longest that a leaf stood still though it could be carried further.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_that_stands_still_though_it_could_go_on_is_noticed() {
        let (leaf, stall) = (PeerId([9; 32]), Duration::from_secs(1));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let member = |step| Candidate { name: PeerId([1; 32]), incarnation: 0, step };
        let mut invariant = LeafGoesOn::default();
        let mut look =
            |now, step, candidates: &[Candidate]| invariant.looked(at(now), leaf, step, candidates, stall).is_ok();
        assert!((0..30).all(|now| look(now, Some(4), &[member(4)])), "there is nothing to get");
        assert!((30..36).all(|now| look(now, Some(4), &[member(5)])));
        assert!(look(36, Some(5), &[member(5)]), "it went on");
        assert!((37..43).all(|now| look(now, Some(5), &[member(6)])) && look(43, Some(5), &[]));
        assert!((44..51).all(|now| look(now, Some(5), &[member(6)])), "nobody was there for a while");
        assert!(!(51..54).all(|now| look(now, Some(5), &[member(6)])));
    }
}
