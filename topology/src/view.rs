//! What the members of one generation agree on.

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::id::{Generation, PeerId, RunId, ViewId, WorldSize};
use crate::message::MAX_MEMBERS;

/// The agreed member set of one generation. Immutable; a change of members is a new view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The run that this view belongs to.
    pub run: RunId,
    /// Its version.
    pub generation: Generation,
    /// The view before it; `None` for a founder's first. The chain of parents shows a fork.
    pub parent: Option<ViewId>,
    /// Sorted, without duplicates, never empty.
    members: Vec<PeerId>,
}

impl View {
    /// The first view of a run: its founder alone.
    pub fn found(run: RunId, founder: PeerId) -> Self {
        Self { run, generation: Generation::FIRST, parent: None, members: vec![founder] }
    }

    /// The view that follows this one, with `members` in it.
    ///
    /// # Panics
    /// If `members` is empty: nobody would be left to hold the view.
    pub fn succeed(&self, members: impl IntoIterator<Item = PeerId>) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        assert!(!members.is_empty(), "a view has at least one member");
        Self { run: self.run, generation: self.generation.next(), parent: Some(self.id()), members }
    }

    /// blake3 of the view's canonical bytes (postcard).
    pub fn id(&self) -> ViewId {
        let bytes = postcard::to_allocvec(self).expect("invariant: a view always encodes");
        ViewId(*blake3::hash(&bytes).as_bytes())
    }

    /// The members, sorted.
    pub fn members(&self) -> &[PeerId] {
        &self.members
    }

    /// Whether `peer` is a member.
    pub fn contains(&self, peer: PeerId) -> bool {
        self.members.binary_search(&peer).is_ok()
    }

    /// The member that proposes the next view: the lowest one. Nobody is appointed, so nobody's loss needs a rule.
    pub fn proposer(&self) -> PeerId {
        self.members[0]
    }

    /// How many members there are.
    pub fn world_size(&self) -> WorldSize {
        WorldSize::new(u32::try_from(self.members.len()).expect("invariant: members are bounded"))
    }

    /// Checks a view that came from another peer.
    ///
    /// # Errors
    /// [`Violation::MalformedView`] if the members are not sorted and distinct, or are none, or too many.
    pub fn validate(&self) -> Result<(), Violation> {
        let sorted = self.members.windows(2).all(|pair| pair[0] < pair[1]);
        if sorted && (1..=MAX_MEMBERS).contains(&self.members.len()) { Ok(()) } else { Err(Violation::MalformedView) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    #[test]
    fn a_view_follows_its_parent() {
        let first = View::found(RunId([1; 32]), peer(5));
        let next = first.succeed([7, 5, 6, 5].map(peer));
        assert_eq!(next.members(), [5, 6, 7].map(peer));
        assert_eq!((next.generation, next.parent), (Generation(2), Some(first.id())));
        assert_eq!((next.proposer(), next.world_size().get()), (peer(5), 3));
        assert!(next.contains(peer(6)) && !next.contains(peer(8)));
    }

    #[test]
    fn an_id_covers_everything() {
        let first = View::found(RunId([1; 32]), peer(5));
        let next = first.succeed([5, 6].map(peer));
        let others = [
            View { run: RunId([2; 32]), ..next.clone() },
            View { generation: Generation(3), ..next.clone() },
            View { parent: None, ..next.clone() },
            first.succeed([5, 7].map(peer)),
        ];
        assert!(others.iter().all(|other| other.id() != next.id()));
        assert_eq!(first.succeed([6, 5].map(peer)).id(), next.id());
    }

    #[test]
    fn members_must_be_sorted_distinct_and_within_bounds() {
        let view = |members: Vec<PeerId>| View { members, ..View::found(RunId([1; 32]), peer(5)) };
        assert_eq!(view([1, 2, 9].map(peer).to_vec()).validate(), Ok(()));
        for wrong in [vec![], vec![peer(2), peer(1)], vec![peer(1), peer(1)]] {
            assert_eq!(view(wrong).validate(), Err(Violation::MalformedView));
        }
    }
}
