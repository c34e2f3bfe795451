//! Waiting for what no event tells of.

use std::time::{Duration, Instant};

/// How long anything may take. Nothing is measured.
const PATIENCE: Duration = Duration::from_secs(90);

/// What comes sooner or later.
///
/// # Panics
/// If it does not come.
pub fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "no {what}");
    }
}
