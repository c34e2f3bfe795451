//! What becomes of the values of a payload: they are added to what is there, or take its place.

use crate::memory::{self, BLOCK, LONG};

/// Takes the values of a payload, block by block, as they are decoded.
pub(crate) trait Sink {
    /// The blocks that they go to.
    fn blocks<'a>(&self, into: &'a mut [f32]) -> impl Iterator<Item = &'a mut [f32]>;

    /// Takes the values for one block.
    fn take(&self, block: &mut [f32], values: impl Iterator<Item = f32>);

    /// All have been taken.
    fn settle(&self) {}
}

/// The values are added to what is there.
pub(crate) struct Add;

impl Sink for Add {
    #[inline(always)]
    fn blocks<'a>(&self, into: &'a mut [f32]) -> impl Iterator<Item = &'a mut [f32]> {
        memory::blocks_mut(into)
    }

    #[inline(always)]
    fn take(&self, block: &mut [f32], values: impl Iterator<Item = f32>) {
        block.iter_mut().zip(values).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// The values take the place of what is there, past the caches if they are many.
pub(crate) struct Overwrite {
    passes_by: bool,
}

impl Overwrite {
    pub(crate) fn all(into: &[f32]) -> Self {
        Self { passes_by: into.len() >= LONG }
    }
}

impl Sink for Overwrite {
    #[inline(always)]
    fn blocks<'a>(&self, into: &'a mut [f32]) -> impl Iterator<Item = &'a mut [f32]> {
        into.chunks_mut(BLOCK)
    }

    #[inline(always)]
    fn take(&self, block: &mut [f32], values: impl Iterator<Item = f32>) {
        if self.passes_by {
            let mut decoded = [0.0; BLOCK];
            let decoded = &mut decoded[..block.len()];
            decoded.iter_mut().zip(values).for_each(|(into, value)| *into = value);
            memory::copy_past(block, decoded);
        } else {
            block.iter_mut().zip(values).for_each(|(mine, theirs)| *mine = theirs);
        }
    }

    #[inline(always)]
    fn settle(&self) {
        if self.passes_by {
            memory::settle();
        }
    }
}
