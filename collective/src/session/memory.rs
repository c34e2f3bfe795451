//! What a loop over more memory than the caches hold can tell the processor.
//!
//! Members of one machine, and other programmes, share its memory. Left alone, a core waits for what it reads, and reads
//! even what it is about to overwrite. So loops prefetch what they will read, and write results past the caches, with
//! non-temporal stores: on two busy cores either is up to twice as fast. Elsewhere than on x86-64 nothing is said, and
//! nothing else changes.
#![allow(unsafe_code, reason = "such hints have no safe form")]

use std::ops::Range;

/// Elements that are worked on between two looks at whether all were finite: they fit the first-level cache.
pub(crate) const BLOCK: usize = 256;

/// How many elements before their use they are asked for: memory takes as long to answer as a few blocks take to work on.
const AHEAD: usize = 4 * BLOCK;

/// Results of at least so many elements pass by the caches. They are of operations that the caches can't hold; a shorter
/// one may well be read from there.
pub(crate) const LONG: usize = 32 * BLOCK;

/// Elements of a line: what moves between memory and the caches at once.
const LINE: usize = 64 / size_of::<f32>();

/// The blocks of `values`, each of which has been asked for when its turn comes.
#[inline(always)]
pub(crate) fn blocks(values: &[f32]) -> impl Iterator<Item = &[f32]> {
    (0..values.len()).step_by(BLOCK).map(move |start| {
        prefetch_ahead(&values[start..]);
        &values[start..values.len().min(start + BLOCK)]
    })
}

/// Asks for the block whose turn comes a while after the first one of `values`, into the second-level cache: the first one
/// can wait for fewer lines at a time.
#[inline(always)]
pub(crate) fn prefetch_ahead(values: &[f32]) {
    let values = values.get(AHEAD..).unwrap_or_default();
    for line in values[..values.len().min(BLOCK)].chunks(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: it changes nothing that a programme could see, and faults nowhere.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// Overwrites memory past the caches, by whole lines: a line that is written in parts is read first after all.
pub(crate) struct Past<'a> {
    /// Begins where a line does, but for the [`Self::skip`] elements of the first one.
    rest: &'a mut [f32],
    /// What will be written there: less than a line, between two calls.
    waiting: [f32; LINE + BLOCK],
    count: usize,
    /// Elements of the first line, and so of what waits, that come before `rest`.
    skip: usize,
}

impl<'a> Past<'a> {
    #[inline(always)]
    pub(crate) fn new(rest: &'a mut [f32]) -> Self {
        let skip = rest.as_ptr().addr() / size_of::<f32>() % LINE;
        Self { rest, waiting: [0.0; LINE + BLOCK], count: skip, skip }
    }

    /// How many values are still to come.
    pub(crate) fn missing(&self) -> usize {
        self.rest.len() + self.skip - self.count
    }

    /// Takes the next values, at most a block of them.
    #[inline(always)]
    pub(crate) fn take(&mut self, values: impl ExactSizeIterator<Item = f32>) {
        let count = self.count + values.len();
        self.waiting[self.count..count].iter_mut().zip(values).for_each(|(into, value)| *into = value);
        let (mut from, to) = (0, count - count % LINE);
        if self.skip > 0 && to > 0 {
            from = LINE;
            self.write(|into, waiting| into.copy_from_slice(waiting), self.skip..LINE);
            self.skip = 0;
        }
        self.write(stream, from..to);
        self.waiting.copy_within(to..count, 0);
        self.count = count - to;
    }

    /// Writes what still waits.
    #[inline(always)]
    pub(crate) fn finish(mut self) {
        self.write(|into, waiting| into.copy_from_slice(waiting), self.skip..self.count);
    }

    #[inline(always)]
    fn write(&mut self, write: impl FnOnce(&mut [f32], &[f32]), waiting: Range<usize>) {
        let (into, rest) = std::mem::take(&mut self.rest).split_at_mut(waiting.len());
        write(into, &self.waiting[waiting]);
        self.rest = rest;
    }
}

impl Drop for Past<'_> {
    /// Whoever may use the memory again finds what was written, on other threads too.
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies whole lines to where a line begins; for [`Past`], which orders that before all that follows.
#[inline(always)]
fn stream(into: &mut [f32], lines: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    for (into, values) in into.as_chunks_mut::<4>().0.iter_mut().zip(lines.as_chunks::<4>().0) {
        use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
        debug_assert!(into.as_ptr().addr().is_multiple_of(16), "a quarter of a line is aligned");
        // SAFETY: SSE is part of x86-64; four values are read, and written to where a quarter of a line begins.
        unsafe { _mm_stream_ps(into.as_mut_ptr(), _mm_loadu_ps(values.as_ptr())) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    into.copy_from_slice(lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_all_values_in_order() {
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, AHEAD, AHEAD + BLOCK + 7] {
            let values: Vec<f32> = (0..length).map(|index| index as f32).collect();
            let read: Vec<f32> = blocks(&values).flatten().copied().collect();
            assert_eq!(read, values);
            assert!(blocks(&values).all(|block| (1..=BLOCK).contains(&block.len())));
        }
    }

    #[test]
    fn what_is_written_past_the_caches_is_all_that_is_written() {
        let from: Vec<f32> = (0..800).map(|index| index as f32).collect();
        for start in 0..=LINE {
            for length in [0, 1, LINE - 1, LINE, LINE + 1, BLOCK, BLOCK + 1, 2 * BLOCK + 99] {
                for step in [1, 100, BLOCK] {
                    let mut into = vec![-1.0; 800];
                    let mut past = Past::new(&mut into[start..][..length]);
                    for values in from[..length].chunks(step) {
                        past.take(values.iter().copied());
                    }
                    assert_eq!(past.missing(), 0);
                    past.finish();
                    let (before, rest) = into.split_at(start);
                    let (copy, after) = rest.split_at(length);
                    assert_eq!(copy, &from[..length]);
                    assert!(before.iter().chain(after).all(|value| *value == -1.0));
                }
            }
        }
    }
}
