//! How two ends that share memory never miss each other, though either may go to sleep at any time.
//!
//! ```text
//!   who counts:  count = n;  fence;  if waits { waits = 0; ring }
//!   who sleeps:  waits = 1;  fence;  if count is old { wait for the bell }
//! ```
//!
//! Each writes one word and then reads the one that the other writes (Dekker's algorithm). A processor lets reads
//! overtake writes, so that both could read too early; the fences forbid it. Hence one of the two at least sees what the
//! other wrote: who sleeps the count, or who counts the sleeper.

use std::sync::atomic::{Ordering, fence};

use crate::local::memory::Mapping;

/// Words that two ends share, by position.
pub(super) trait Words {
    /// Reads, no earlier than this and before all that follows.
    fn load(&self, position: usize) -> u64;

    /// Writes, after all that came before.
    fn store(&self, position: usize, value: u64);

    /// Writes, and tells what was there.
    fn swap(&self, position: usize, value: u64) -> u64;

    /// Keeps all that follows behind all that came before.
    fn fence(&self);
}

impl Words for Mapping {
    fn load(&self, position: usize) -> u64 {
        self.counter(position).load(Ordering::Acquire)
    }

    fn store(&self, position: usize, value: u64) {
        self.counter(position).store(value, Ordering::Release);
    }

    fn swap(&self, position: usize, value: u64) -> u64 {
        self.counter(position).swap(value, Ordering::AcqRel)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// Counts. Whether the other end waits and must be rung for.
pub(super) fn announce(words: &impl Words, counter: usize, value: u64, waits: usize) -> bool {
    words.store(counter, value);
    words.fence();
    // Most often it does not wait, and a look costs it less than a write into what it writes as well.
    words.load(waits) != 0 && words.swap(waits, 0) != 0
}

/// Says that this end waits. It must look at the other's count once more before it does.
pub(super) fn arm(words: &impl Words, waits: usize) {
    words.store(waits, 1);
    words.fence();
}

/// Says that this end does not wait any more. The bell may have been rung meanwhile, and then rings in vain.
pub(super) fn disarm(words: &impl Words, waits: usize) {
    words.store(waits, 0);
}

#[cfg(test)]
mod tests;
