//! What this member brings to one operation, as it comes about.

use std::ops::Range;
use std::sync::Arc;

use starling_collective::codec::kernel;
use starling_collective::{Residual, ValueLimit};
use starling_run::Gradient;
use starling_run::training::contribution;
use starling_topology::ledger::GAVE_UP;
use tokio::sync::watch;

/// A contribution: all of it in a buffer of its own, or on its way into one.
#[derive(Debug)]
pub(crate) enum Brought {
    Whole(Vec<f32>),
    Coming(Contribution),
    /// Zeros, whatever the others do.
    Nothing(Vec<f32>),
}

/// What is reduced, and what is behind it, as [`starling_run::BufferLayout`] says. A reducer takes it bucket by bucket, from the end,
/// while it sends what it has.
#[derive(Debug)]
pub(crate) struct Contribution {
    source: Source,
    slots: Vec<f32>,
    /// What a lossy codec dropped of earlier steps, to be added to the first elements.
    residual: Option<Residual>,
    /// The largest number that a contribution may have.
    most: f32,
    ready: Readiness,
    /// Whether what is done with it is what all members' slots say; else it is added to the others' at once.
    pub(crate) is_agreed: bool,
}

/// What is reduced.
#[derive(Debug)]
enum Source {
    /// Times its weight. The trainer thread fills it in, from the end.
    Gradient(Arc<Gradient>),
    /// All of it is there, and was checked finite.
    Buffer(Arc<Vec<f32>>),
    /// So many zeros.
    Zeros(usize),
}

/// From which position on a contribution is there, as that changes.
pub(crate) type Readiness = watch::Receiver<usize>;

impl Contribution {
    pub(crate) fn new(gradient: Arc<Gradient>, slots: Vec<f32>, residual: Option<Residual>, ready: Readiness) -> Self {
        Self { source: Source::Gradient(gradient), slots, residual, most: f32::MAX, ready, is_agreed: false }
    }

    /// No number is larger, whatever is to be made up for.
    pub(crate) fn within(self, most: f32) -> Self {
        Self { most, ..self }
    }

    /// Of a program's own numbers, all of which are finite.
    pub(crate) fn of_buffer(buffer: Arc<Vec<f32>>, slots: Vec<f32>, residual: Option<Residual>) -> Self {
        let (_, ready) = watch::channel(0);
        Self { source: Source::Buffer(buffer), slots, residual, most: f32::MAX, ready, is_agreed: false }
    }

    /// Of a program's own numbers, all of which are finite, or of so many zeros; what is done with them is what all slots say.
    pub(crate) fn agreed(values: Result<Arc<Vec<f32>>, usize>, slots: Vec<f32>) -> Self {
        let source = values.map_or_else(Source::Zeros, Source::Buffer);
        let (_, ready) = watch::channel(0);
        Self { source, slots, residual: None, most: f32::MAX, ready, is_agreed: true }
    }

    pub(crate) fn len(&self) -> usize {
        self.elements() + self.slots.len()
    }

    /// Memory for all of it: this, if it is large enough. What is new takes room only as it is written.
    pub(crate) fn room(&self, mut memory: Vec<f32>) -> Vec<f32> {
        if memory.capacity() < self.len() {
            return vec![0.0; self.len()];
        }
        memory.resize(self.len(), 0.0);
        memory
    }

    fn has_given_up(&self) -> bool {
        match &self.source {
            Source::Gradient(gradient) => gradient.has_given_up(),
            Source::Buffer(_) | Source::Zeros(_) => false,
        }
    }

    /// How many numbers there are before the slots.
    pub(crate) fn elements(&self) -> usize {
        match &self.source {
            Source::Gradient(gradient) => gradient.elements(),
            Source::Buffer(buffer) => buffer.len(),
            Source::Zeros(elements) => *elements,
        }
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
        let border = self.elements().clamp(range.start, range.end);
        let (numbers, slots) = into.split_at_mut(border - range.start);
        if !slots.is_empty() {
            let at = border - self.elements();
            slots.copy_from_slice(&self.slots[at..at + slots.len()]);
            // They go after the loss, so that by now it is known.
            if self.has_given_up() {
                slots.iter_mut().filter(|slot| **slot > 0.0).for_each(|slot| *slot = contribution::slot(GAVE_UP));
            }
        }
        if numbers.is_empty() {
            return;
        }
        let range = range.start..border;
        match &self.source {
            Source::Gradient(gradient) => {
                gradient.contribute(range.clone(), numbers);
                // Who gives up brings zeros and nothing else: that all did is to be seen.
                self.residual
                    .iter()
                    .filter(|_| !gradient.has_given_up())
                    .for_each(|residual| residual.add_to(range.start, numbers));
            }
            Source::Buffer(buffer) => {
                let residual = self.residual.as_ref().map(|residual| &residual.values()[range.clone()]);
                let copied = kernel::copy(numbers, &buffer[range], residual, ValueLimit::FINITE);
                copied.expect("invariant: it was checked finite");
            }
            Source::Zeros(_) => numbers.fill(0.0),
        }
        if self.residual.is_some() {
            clip(numbers, self.most);
        }
    }
}

/// Cuts numbers down to this size.
pub(crate) fn clip(numbers: &mut [f32], most: f32) {
    numbers.iter_mut().for_each(|number| *number = number.clamp(-most, most));
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

    #[test]
    fn who_gives_up_says_so_in_its_slot() {
        let gradient = Arc::new(Gradient::new(2));
        let (computing, ready) = watch::channel(usize::MAX);
        let residual = Some(Residual::new(vec![1.0, 2.0]));
        let contribution = Contribution::new(gradient.clone(), vec![0.0, 8.0], residual, ready);
        assert_eq!(contribution.ready_from(), usize::MAX, "nor are the slots");
        gradient.give_up();
        computing.send_replace(0);
        let mut whole = [9.0; 5];
        contribution.fill(0..5, &mut whole);
        assert_eq!(whole, [0.0, 0.0, 0.0, 0.0, GAVE_UP as f32]);
    }

    #[test]
    fn a_buffer_goes_before_its_slots_and_has_what_was_dropped() {
        for residual in [None, Some(Residual::new(vec![0.5; 3]))] {
            let dropped = if residual.is_some() { 0.5 } else { 0.0 };
            let buffer = Arc::new(vec![1.0, 2.0, 3.0]);
            let clipped = Contribution::of_buffer(buffer.clone(), vec![7.0, 8.0], residual.clone()).within(2.0);
            let mut part = [0.0; 4];
            clipped.fill(1..5, &mut part);
            assert_eq!(part[1], if residual.is_some() { 2.0 } else { 3.0 }, "what is made up for makes none too large");
            let contribution = Contribution::of_buffer(buffer, vec![7.0, 8.0], residual);
            assert_eq!((contribution.len(), contribution.ready_from()), (5, 0));
            let whole = [1.0 + dropped, 2.0 + dropped, 3.0 + dropped, 7.0, 8.0];
            for range in [0..5, 0..2, 1..4, 2..3, 3..5, 4..5] {
                let mut part = vec![9.0; range.len()];
                contribution.fill(range.clone(), &mut part);
                assert_eq!(part, whole[range]);
            }
        }
    }
}
