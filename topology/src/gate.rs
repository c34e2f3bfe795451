//! Which steps may run while a change of view is under way.

/// Holds a member's steps at a boundary.
///
/// A change of view takes effect after one agreed step: steps up to it still complete, later ones wait for the new
/// view. Both the step loop and the collective ask the same gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    /// `None`: every step may run. `Some(step)`: only steps up to `step`.
    last: Option<u64>,
}

impl Gate {
    /// A gate that lets every step through.
    pub fn open() -> Self {
        Self { last: None }
    }

    /// A gate that lets steps up to and including `last` through.
    pub fn closed_after(last: u64) -> Self {
        Self { last: Some(last) }
    }

    /// Whether `step` may run.
    pub fn admits(self, step: u64) -> bool {
        self.last.is_none_or(|last| step <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_admits_its_last_step_and_no_later_one() {
        assert!(Gate::open().admits(u64::MAX));
        let gate = Gate::closed_after(7);
        assert!(gate.admits(0) && gate.admits(7));
        assert!(!gate.admits(8));
    }
}
