//! How much of the time this process is kept from running: by a limit on its processor time, a stopped process, a host
//! that has no processor for its guest.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long the thread that watches sleeps.
const NAP: Duration = Duration::from_millis(10);
/// A thread that sleeps is woken this late at most, on a machine that is merely busy.
const BUSY: Duration = Duration::from_millis(25);
/// So much time is looked at before anything is told, and forgotten by half from then on.
const WINDOW: Duration = Duration::from_millis(500);

/// A thread that sleeps and looks how late it wakes. It ends with this.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// The part, as the bits of an `f32`.
    part: Arc<AtomicU32>,
}

impl Stalls {
    pub(super) fn watch() -> io::Result<Self> {
        let stalls = Self::default();
        let part = Arc::downgrade(&stalls.part);
        crate::start::host::thread("stalls", move || watch(&part))?;
        Ok(stalls)
    }

    /// The part of the last second in which no thread of this process ran, 0 to 1.
    pub(super) fn part(&self) -> f32 {
        f32::from_bits(self.part.load(Ordering::Relaxed))
    }
}

fn watch(part: &Weak<AtomicU32>) {
    let mut window = Window::default();
    while let Some(part) = part.upgrade() {
        part.store(window.part().to_bits(), Ordering::Relaxed);
        drop(part);
        let began = Instant::now();
        thread::sleep(NAP);
        window.count(began.elapsed());
    }
}

#[derive(Debug, Default)]
struct Window {
    passed: Duration,
    stalled: Duration,
    told: f32,
}

impl Window {
    /// Takes in that a nap took this long.
    fn count(&mut self, nap: Duration) {
        let late = nap.saturating_sub(NAP);
        self.passed += nap;
        self.stalled += if late > BUSY { late } else { Duration::ZERO };
        if self.passed >= WINDOW {
            self.told = self.stalled.as_secs_f32() / self.passed.as_secs_f32();
            (self.passed, self.stalled) = (self.passed / 2, self.stalled / 2);
        }
    }

    fn part(&self) -> f32 {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_a_fifth_of_the_time_is_told_from_a_busy_one() {
        let mut window = Window::default();
        (0..100).for_each(|_| window.count(NAP + BUSY));
        assert_eq!(window.part(), 0.0);
        for _ in 0..20 {
            // A fifth of each tenth of a second.
            window.count(NAP);
            window.count(NAP + Duration::from_millis(80));
        }
        assert!((window.part() - 0.8).abs() < 0.05, "{}", window.part());
        (0..200).for_each(|_| window.count(NAP));
        assert!(window.part() < 0.05, "{}", window.part());
    }
}
