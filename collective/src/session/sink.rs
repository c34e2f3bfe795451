//! What becomes of the values of a payload, and of what is lost in writing one: they are combined with what is there, take its
//! place, or are of no interest.

use crate::session::memory::{self, BLOCK, LONG, Past};

/// Takes values, block by block, as they are made.
pub(crate) trait Sink {
    /// How many values are still to come.
    fn missing(&self) -> usize;

    /// Takes the next ones, at most a block of them. Has each of them made, whatever becomes of it.
    fn take(&mut self, values: impl ExactSizeIterator<Item = f32>);

    /// All have come, or no more will.
    fn finish(self);
}

/// What is there becomes what the function makes of it and of the value that came.
pub(crate) struct Combine<'a, F>(pub(crate) &'a mut [f32], pub(crate) F);

impl<F: Fn(f32, f32) -> f32> Sink for Combine<'_, F> {
    fn missing(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn take(&mut self, values: impl ExactSizeIterator<Item = f32>) {
        memory::prefetch_ahead(self.0);
        let (block, rest) = std::mem::take(&mut self.0).split_at_mut(values.len());
        block.iter_mut().zip(values).for_each(|(mine, theirs)| *mine = (self.1)(*mine, theirs));
        self.0 = rest;
    }

    fn finish(self) {}
}

/// The values are of no interest: so many of them.
pub(crate) struct Nowhere(pub(crate) usize);

impl Sink for Nowhere {
    fn missing(&self) -> usize {
        self.0
    }

    #[inline(always)]
    fn take(&mut self, values: impl ExactSizeIterator<Item = f32>) {
        self.0 -= values.len();
        values.for_each(drop);
    }

    fn finish(self) {}
}

/// The values take the place of what is there, past the caches if they are many.
#[expect(clippy::large_enum_variant, reason = "it stands on the stack while one segment is written")]
pub(crate) enum Overwrite<'a> {
    Few(&'a mut [f32]),
    Many(Past<'a>),
}

impl<'a> Overwrite<'a> {
    #[inline(always)]
    pub(crate) fn all(into: &'a mut [f32]) -> Self {
        if into.len() < LONG { Self::Few(into) } else { Self::Many(Past::new(into)) }
    }
}

impl Sink for Overwrite<'_> {
    fn missing(&self) -> usize {
        match self {
            Self::Few(rest) => rest.len(),
            Self::Many(past) => past.missing(),
        }
    }

    #[inline(always)]
    fn take(&mut self, values: impl ExactSizeIterator<Item = f32>) {
        debug_assert!(values.len() <= BLOCK, "values come by the block");
        match self {
            Self::Few(rest) => {
                let (block, after) = std::mem::take(rest).split_at_mut(values.len());
                block.iter_mut().zip(values).for_each(|(mine, theirs)| *mine = theirs);
                *rest = after;
            }
            Self::Many(past) => past.take(values),
        }
    }

    #[inline(always)]
    fn finish(self) {
        if let Self::Many(past) = self {
            past.finish();
        }
    }
}
