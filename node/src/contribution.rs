//! What this member brings to one operation, as it comes about.

use std::ops::Range;
use std::sync::Arc;

use starling_collective::Residual;
use starling_train::Gradient;
use tokio::sync::watch;

/// A contribution: all of it in a buffer of its own, or on its way into one.
#[derive(Debug)]
pub(crate) enum Brought {
    Whole(Vec<f32>),
    Coming(Contribution),
}

/// A gradient times its weight, and what is behind it: `[parameters + 1 + members]`. It is filled in from the end, by the
/// trainer thread, while a reducer sends what is there.
#[derive(Debug)]
pub(crate) struct Contribution {
    gradient: Arc<Gradient>,
    slots: Vec<f32>,
    /// What a lossy codec dropped of earlier steps, to be added to the first elements.
    residual: Option<Residual>,
    ready: Readiness,
}

/// From which position on a contribution is there, as that changes.
pub(crate) type Readiness = watch::Receiver<usize>;

impl Contribution {
    pub(crate) fn new(gradient: Arc<Gradient>, slots: Vec<f32>, residual: Option<Residual>, ready: Readiness) -> Self {
        Self { gradient, slots, residual, ready }
    }

    pub(crate) fn len(&self) -> usize {
        self.gradient.elements() + self.slots.len()
    }

    /// The position from which on everything is there; 0 once it is whole.
    pub(crate) fn ready_from(&self) -> usize {
        *self.ready.borrow()
    }

    pub(crate) fn readiness(&self) -> Readiness {
        self.ready.clone()
    }

    /// Waits until more is there than when that was last waited for. Can be cancelled.
    pub(crate) async fn progressed(&mut self) {
        if self.ready.changed().await.is_err() {
            std::future::pending().await // Whoever computed it has given up, and the run with it.
        }
    }

    /// Writes the elements of `range`, which are there, into `into`.
    pub(crate) fn fill(&self, range: Range<usize>, into: &mut [f32]) {
        let border = self.gradient.elements().clamp(range.start, range.end);
        let (computed, slots) = into.split_at_mut(border - range.start);
        if !computed.is_empty() {
            self.gradient.contribute(range.start..border, computed);
        }
        if !slots.is_empty() {
            let at = border - self.gradient.elements();
            slots.copy_from_slice(&self.slots[at..at + slots.len()]);
        }
        if let Some(residual) = &self.residual {
            residual.add_to(range.start, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradient_and_slots_lie_one_behind_the_other() {
        let gradient = Arc::new(Gradient::new(3));
        gradient.set_nothing();
        let residual = Residual::new(vec![1.0, 2.0, 3.0]);
        let (_computing, ready) = watch::channel(0);
        let contribution = Contribution::new(gradient, vec![7.0, 8.0], Some(residual), ready);
        assert_eq!((contribution.len(), contribution.ready_from()), (6, 0));
        let whole = [1.0, 2.0, 3.0, 0.0, 7.0, 8.0];
        for range in [0..6, 0..2, 1..5, 2..3, 3..6, 4..6, 5..6] {
            let mut part = vec![9.0; range.len()];
            contribution.fill(range.clone(), &mut part);
            assert_eq!(part, whole[range]);
        }
    }
}
