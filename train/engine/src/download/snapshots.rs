//! States that joiners download: which ones a member has ready.

use std::collections::BTreeMap;

use starling_topology::Generation;

use crate::{MIN_KEPT, StepResult};

/// Snapshots kept at a time. A joiner whose snapshot makes room for newer ones joins again.
pub const MAX_SNAPSHOTS: usize = 3;
/// So many steps after a snapshot, it is to be handed out without a limit. A joiner keeps the results of all steps since,
/// and in a fast run a slow download would never end: before it did, there would be no room for more of them.
pub const UNLIMITED_AFTER: u64 = MIN_KEPT as u64 / 2;

/// What is there of a step's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotStatus<T> {
    /// It will not come.
    Nothing,
    /// It is on its way.
    Later,
    /// All of it.
    Here(T),
}

/// The snapshots of one member. `T` is one, behind a handle that is cheap to clone.
#[derive(Debug)]
pub struct SnapshotStore<T> {
    /// By step; `None` while a snapshot is being made.
    kept: BTreeMap<u64, Option<T>>,
    /// The one for leaves, which load it from this member alone, whatever view it is in.
    lent: Option<(u64, Option<T>)>,
    /// The newest view in which this member knows which snapshots are needed.
    entered: Generation,
}

impl<T> Default for SnapshotStore<T> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), lent: None, entered: Generation(0) }
    }
}

impl<T: Clone> SnapshotStore<T> {
    /// What joiners of this view need was said by [`Self::expect`] or [`Self::clear`].
    pub fn enter(&mut self, generation: Generation) {
        self.entered = generation;
    }

    /// The state after `step` will be handed in.
    pub fn expect(&mut self, step: u64) {
        self.kept.entry(step).or_default();
        while self.kept.len() > MAX_SNAPSHOTS {
            self.kept.pop_first();
        }
    }

    /// The state after `step` will be handed in for leaves, and stays until it is [taken back](Self::release): one at a time.
    pub fn lend(&mut self, step: u64) {
        let here = self.kept.get(&step).cloned().flatten();
        self.lent = Some((step, here));
    }

    /// No leaf needs that any more.
    pub fn release(&mut self) {
        self.lent = None;
    }

    /// Takes the snapshot of the state after `step`, unless nobody wants it any more.
    pub fn put(&mut self, step: u64, snapshot: T) {
        if let Some((_, lent)) = self.lent.as_mut().filter(|(lent, _)| *lent == step) {
            *lent = Some(snapshot.clone());
        }
        self.kept.entry(step).and_modify(|kept| *kept = Some(snapshot));
    }

    /// No joiner needs any.
    pub fn clear(&mut self) {
        self.kept.clear();
    }

    /// The step of this result is applied. If all who reduced it had the state, nobody needs those of earlier steps; one of that
    /// step may have been asked for since.
    pub fn applied(&mut self, result: &impl StepResult) {
        if result.is_from_all() {
            self.kept.retain(|step, _| *step >= result.step());
        }
    }

    /// The snapshot of the state after `step`, for a joiner that entered with the view of `generation`.
    pub fn after(&self, generation: Generation, step: u64) -> SnapshotStatus<T> {
        let lent = self.lent.as_ref().filter(|(lent, _)| *lent == step).map(|(_, lent)| lent);
        match self.kept.get(&step).or(lent) {
            // The joiner is there already, and this member is not.
            None if generation > self.entered => SnapshotStatus::Later,
            None => SnapshotStatus::Nothing,
            Some(None) => SnapshotStatus::Later,
            Some(Some(snapshot)) => SnapshotStatus::Here(snapshot.clone()),
        }
    }

    /// Those that are there.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let lent = self.lent.iter().filter_map(|(_, lent)| lent.as_ref());
        self.kept.values().flatten().chain(lent)
    }

    /// How many there are for joiners, those included that are being made.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nobody wants any.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::Lineage;

    use super::*;

    #[derive(Debug, Clone)]
    struct Of {
        step: u64,
        is_from_all: bool,
    }

    impl StepResult for Of {
        fn step(&self) -> u64 {
            self.step
        }

        fn lineage(&self) -> Lineage {
            Lineage::NONE
        }

        fn after(&self) -> Lineage {
            Lineage::NONE
        }

        fn bytes(&self) -> usize {
            0
        }

        fn is_from_all(&self) -> bool {
            self.is_from_all
        }
    }

    #[test]
    fn the_oldest_make_room_and_what_nobody_expects_is_dropped() {
        let mut snapshots = SnapshotStore::default();
        (1..=4).for_each(|step| snapshots.expect(step));
        (1..=4).for_each(|step| snapshots.put(step, step));
        let early = snapshots.after(Generation(2), 1);
        assert_eq!(early, SnapshotStatus::Later, "this member does not know yet what joiners of that view need");
        snapshots.enter(Generation(2));
        let after = |snapshots: &SnapshotStore<u64>, step| snapshots.after(Generation(2), step);
        assert_eq!((after(&snapshots, 1), after(&snapshots, 2)), (SnapshotStatus::Nothing, SnapshotStatus::Here(2)));
        let applied = |step, is_from_all| Of { step, is_from_all };
        snapshots.applied(&applied(4, false));
        assert_eq!(after(&snapshots, 3), SnapshotStatus::Here(3), "a member may still be loading it");
        snapshots.applied(&applied(4, true));
        assert_eq!((after(&snapshots, 3), after(&snapshots, 4)), (SnapshotStatus::Nothing, SnapshotStatus::Here(4)));
        snapshots.expect(5);
        assert_eq!((after(&snapshots, 5), snapshots.len()), (SnapshotStatus::Later, 2));
        snapshots.clear();
        snapshots.put(5, 5);
        assert_eq!((after(&snapshots, 5), snapshots.is_empty()), (SnapshotStatus::Nothing, true));
    }

    #[test]
    fn what_is_lent_to_leaves_stays_until_it_is_taken_back() {
        let mut snapshots = SnapshotStore::default();
        snapshots.lend(7);
        let after = |snapshots: &SnapshotStore<u64>, step| snapshots.after(Generation(0), step);
        assert_eq!((after(&snapshots, 7), after(&snapshots, 6)), (SnapshotStatus::Later, SnapshotStatus::Nothing));
        snapshots.put(7, 70);
        snapshots.clear();
        snapshots.applied(&Of { step: 9, is_from_all: true });
        assert_eq!((after(&snapshots, 7), snapshots.iter().count()), (SnapshotStatus::Here(70), 1));
        snapshots.release();
        assert_eq!(after(&snapshots, 7), SnapshotStatus::Nothing);
        // What joiners have is there at once.
        snapshots.expect(8);
        snapshots.put(8, 80);
        snapshots.lend(8);
        snapshots.clear();
        assert_eq!(after(&snapshots, 8), SnapshotStatus::Here(80));
    }
}
