//! Whether all members wait in vain, each for something that none of them will do.
//!
//! Every member is alive and hears the others, so that nobody is suspected; yet the operation under way can't end, because what
//! one of them sent is lost. No member can tell that by itself: who waits for long may wait for a slow device, or for a slow link
//! somewhere else. So each tells its neighbours how far it is, in heartbeats, to a member that does not wait: one more than the
//! least that it has heard. If there is such a member, no number is above its distance. If there is none, all numbers grow.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::PeerId;

/// Nobody is farther away than so many members that each hear only of a few.
const MOST: u32 = 1 << 16;

/// What a member has heard of in its view.
#[derive(Debug, Default)]
pub(in crate::membership) struct Standstill {
    heard: BTreeMap<PeerId, u32>,
    own: u32,
    /// What `own` is above only if all wait.
    farthest: u32,
}

impl Standstill {
    /// Of a member of a view of so many, each of which hears so many others, if there are as many.
    pub(in crate::membership) fn new(members: usize, neighbours: usize) -> Self {
        // A ring in which each hears as many on the left as on the right; and one more, for those who can't hear each other.
        let hops = members.div_ceil(neighbours) + 1;
        Self { farthest: u32::try_from(hops).unwrap_or(MOST).min(MOST), ..Self::default() }
    }

    pub(in crate::membership) fn hear(&mut self, from: PeerId, waiting: u32) {
        self.heard.insert(from, waiting.min(MOST));
    }

    /// How far it is from this member to one that does not wait, as it tells its neighbours.
    pub(in crate::membership) fn count(&mut self, waits: bool, neighbours: &BTreeSet<PeerId>) -> u32 {
        let least = neighbours.iter().map(|peer| self.heard.get(peer).copied().unwrap_or(0)).min();
        self.own = if waits { least.map_or(0, |least| least.saturating_add(1).min(MOST)) } else { 0 };
        self.own
    }

    /// Whether all members wait.
    pub(in crate::membership) fn is_general(&self) -> bool {
        self.own > self.farthest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether any of `members`, each of which hears `reach` on either side, ever takes it for general.
    fn is_general(members: usize, reach: usize, waits: impl Fn(usize) -> bool) -> bool {
        let name = |at: usize| PeerId([u8::try_from(at % members).expect("few"); 32]);
        let around = |at: usize| (1..=reach).flat_map(move |by| [at + by, at + members - by]);
        let neighbours = |at| around(at).map(name).filter(|peer| *peer != name(at)).collect::<BTreeSet<_>>();
        let mut all: Vec<_> = (0..members).map(|_| Standstill::new(members, 2 * reach)).collect();
        (0..4 * members).any(|_| {
            let told: Vec<u32> = (0..members).map(|at| all[at].count(waits(at), &neighbours(at))).collect();
            for (at, member) in all.iter_mut().enumerate() {
                around(at).for_each(|from| member.hear(name(from), told[from % members]));
            }
            all.iter().any(Standstill::is_general)
        })
    }

    #[test]
    fn only_if_all_wait_is_it_general() {
        for (members, reach) in [(2, 1), (3, 1), (5, 2), (9, 4), (20, 4), (64, 4)] {
            assert!(is_general(members, reach, |_| true), "{members}");
            assert!(!is_general(members, reach, |at| at != members / 2), "{members}: one of them computes");
        }
    }
}
