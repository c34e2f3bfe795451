//! What a step comes to.

use std::rc::Rc;
use std::sync::Arc;

use starling_run::ResultRecord;
use starling_topology::Lineage;
use starling_topology::ledger::SYNCING;

/// What all members of a view have after a reduction, behind a handle that is cheap to clone.
pub trait StepResult: Clone {
    /// The step that it is of.
    fn step(&self) -> u64;
    /// That of the state after it: of the view that reduced it.
    fn lineage(&self) -> Lineage;
    /// That of the state that it is applied to.
    fn after(&self) -> Lineage;
    /// How much memory it takes, in bytes.
    fn bytes(&self) -> usize;
    /// Whether no member of its view was still without the state.
    fn is_from_all(&self) -> bool;
}

impl StepResult for ResultRecord {
    fn step(&self) -> u64 {
        self.step
    }

    fn lineage(&self) -> Lineage {
        self.lineage
    }

    fn after(&self) -> Lineage {
        self.after
    }

    fn bytes(&self) -> usize {
        size_of_val(self.mean.as_slice())
    }

    fn is_from_all(&self) -> bool {
        self.slots().iter().all(|slot| *slot > SYNCING as f32)
    }
}

impl<T: StepResult> StepResult for Arc<T> {
    fn step(&self) -> u64 {
        T::step(self)
    }

    fn lineage(&self) -> Lineage {
        T::lineage(self)
    }

    fn after(&self) -> Lineage {
        T::after(self)
    }

    fn bytes(&self) -> usize {
        T::bytes(self)
    }

    fn is_from_all(&self) -> bool {
        T::is_from_all(self)
    }
}

impl<T: StepResult> StepResult for Rc<T> {
    fn step(&self) -> u64 {
        T::step(self)
    }

    fn lineage(&self) -> Lineage {
        T::lineage(self)
    }

    fn after(&self) -> Lineage {
        T::after(self)
    }

    fn bytes(&self) -> usize {
        T::bytes(self)
    }

    fn is_from_all(&self) -> bool {
        T::is_from_all(self)
    }
}
