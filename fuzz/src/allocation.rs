//! How much memory something takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts per thread.
#[derive(Debug)]
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(change: isize) {
    // Without them at a thread's end, nothing is counted any more.
    let _ = LIVE.try_with(|live| {
        let now = live.get().saturating_add(change);
        live.set(now);
        let _ = MOST.try_with(|most| most.set(most.get().max(now)));
    });
}

fn size(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

#[expect(unsafe_code, reason = "an allocator can't be written without")]
// SAFETY: all is done by the system's allocator, as it is asked; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-size(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // Old and new are there at once while it is copied.
        count(size(new));
        count(-size(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, new) }
    }
}

/// What `work` comes to, and how much memory it took beyond what there was, at the worst moment, in bytes.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    MOST.with(|most| most.set(before));
    let result = work();
    let most = MOST.with(Cell::get);
    (result, usize::try_from(most - before).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_counted_and_what_is_given_back_too() {
        let (held, taken) = measure(|| {
            drop(vec![1u8; 1_000_000]);
            vec![1u8; 10_000]
        });
        assert!((1_000_000..1_020_000).contains(&taken), "{taken}");
        let (_, taken) = measure(|| held.len());
        assert_eq!(taken, 0);
    }
}
