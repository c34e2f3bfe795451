//! What a loop over more memory than the caches hold can tell the processor.
//!
//! Members of one machine, and other programmes, share its memory. Left alone, a core waits for what it reads, and reads
//! even what it is about to overwrite. So loops ask early for what they will read, and write results past the caches: on
//! two busy cores either is twice as fast. Elsewhere than on x86-64 nothing is said, and nothing else changes.
#![allow(unsafe_code, reason = "such hints have no safe form")]

/// Elements that are worked on between two looks at whether all were finite: they fit the first-level cache.
pub(crate) const BLOCK: usize = 256;

/// How many elements before their use they are asked for: memory takes as long to answer as a few blocks take to work on.
const AHEAD: usize = 4 * BLOCK;

/// Results of at least so many elements pass by the caches. They are of operations that the caches can't hold; a shorter
/// one may well be read from there.
pub(crate) const LONG: usize = 32 * BLOCK;

/// The blocks of `values`, each of which has been asked for when its turn comes.
#[inline(always)]
pub(crate) fn blocks(values: &[f32]) -> impl Iterator<Item = &[f32]> {
    let starts = (0..values.len()).step_by(BLOCK);
    starts.map(move |start| {
        expect(values.get(start + AHEAD..).unwrap_or_default());
        &values[start..values.len().min(start + BLOCK)]
    })
}

/// The blocks of `values`, likewise, to be changed.
#[inline(always)]
pub(crate) fn blocks_mut(mut values: &mut [f32]) -> impl Iterator<Item = &mut [f32]> {
    std::iter::from_fn(move || {
        expect(values.get(AHEAD..).unwrap_or_default());
        let block = values.split_off_mut(..values.len().min(BLOCK))?;
        Some(block).filter(|block| !block.is_empty())
    })
}

/// Asks for the first block of `values`.
#[inline(always)]
fn expect(values: &[f32]) {
    const LINE: usize = 64 / size_of::<f32>();
    for line in values[..values.len().min(BLOCK)].chunks(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: it changes nothing that a programme could see, and faults nowhere.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// Copies `from` past the caches. [`settle`] has to follow before anything else happens to `into`.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub(crate) fn copy_past(into: &mut [f32], from: &[f32]) {
    assert_eq!(into.len(), from.len(), "a copy is as long as its source");
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128, _mm_loadu_ps, _mm_stream_ps};
        // SAFETY: four floats are what the vector consists of.
        let (head, vectors, tail) = unsafe { into.align_to_mut::<__m128>() };
        let (first, rest) = from.split_at(head.len());
        let (middle, last) = rest.split_at(rest.len() - tail.len());
        head.copy_from_slice(first);
        tail.copy_from_slice(last);
        for (vector, values) in vectors.iter_mut().zip(middle.as_chunks::<4>().0) {
            // SAFETY: SSE is part of x86-64; four values are read, and written to where a vector is aligned.
            unsafe { _mm_stream_ps(std::ptr::from_mut(vector).cast(), _mm_loadu_ps(values.as_ptr())) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    into.copy_from_slice(from);
}

/// Orders what was written past the caches before all that follows, here and for other threads.
#[inline(always)]
pub(crate) fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_all_values_in_order() {
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, AHEAD, AHEAD + BLOCK + 7] {
            let mut values: Vec<f32> = (0..length).map(|index| index as f32).collect();
            let read: Vec<f32> = blocks(&values).flatten().copied().collect();
            assert_eq!(read, values);
            assert!(blocks(&values).all(|block| (1..=BLOCK).contains(&block.len())));
            blocks_mut(&mut values).for_each(|block| block.iter_mut().for_each(|value| *value += 1.0));
            assert!(read.iter().zip(&values).all(|(before, after)| before + 1.0 == *after));
            assert_eq!(values.len(), length);
        }
    }

    #[test]
    fn a_copy_past_the_caches_is_a_copy() {
        let from: Vec<f32> = (0..70).map(|index| index as f32).collect();
        for start in 0..5 {
            for length in [0, 1, 3, 4, 5, 16, 64] {
                let mut into = vec![-1.0; 70];
                copy_past(&mut into[start..][..length], &from[1..][..length]);
                settle();
                let (before, rest) = into.split_at(start);
                let (copy, after) = rest.split_at(length);
                assert_eq!(copy, &from[1..][..length]);
                assert!(before.iter().chain(after).all(|value| *value == -1.0));
            }
        }
    }
}
