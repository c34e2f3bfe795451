//! Processor time.

use std::time::Duration;

/// What this process has used of the processors since it began, user and system; zero where this system does not tell.
pub fn process_time() -> Duration {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        // Both are never negative: the clock begins at zero.
        Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
    }
    #[cfg(not(unix))]
    Duration::ZERO
}
