//! What a driver sees when it looks how far its member is, and what that means.

use std::time::Duration;

use starling_topology::{Time, ViewId};

use crate::member::hang_detector::{HangDetector, OverdueAction};
use crate::member::stall_detector::StallDetector;

/// A process that misses so many looks in a row stood still.
const LOOKS_MISSED: u32 = 8;
/// What a process that stood still gets to read what came meanwhile, before its timers ring.
const CATCH_BREATH: Duration = Duration::from_millis(200);

/// What a driver sees.
#[derive(Debug, Clone, Copy)]
pub struct StepStatus {
    /// The number of the piece of work that its device is at.
    pub work: Option<u64>,
    /// Whether others are in the view that it steps in.
    pub has_others: bool,
    /// That view, if it has links to others.
    pub view: Option<ViewId>,
    /// Whether the steps are held.
    pub is_held: bool,
    /// The operation under way, by the view that it is in and its step, if all of this member's contribution is there, and all links
    /// are.
    pub operation: Option<(u64, u64)>,
    /// Counts what has come and gone of operations.
    pub moved: u64,
}

/// What that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallStatus {
    /// What is to be done about work that takes too long.
    pub overdue: Option<OverdueAction>,
    /// Whether it waits in vain for the operation under way: say so with the next [`Input::Reached`](starling_topology::Input::Reached).
    pub stands: bool,
    /// For how long this process stood still, if it did.
    pub stood_still: Option<Duration>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Looks {
    interval: Duration,
    last: Option<Time>,
    /// Until then it reads what came while it stood still.
    reads_until: Time,
    stall_detector: StallDetector,
    hang_detector: HangDetector,
}

impl Looks {
    pub(super) fn new(max_stall: Duration, interval: Duration) -> Self {
        let (stall_detector, hang_detector) = (StallDetector::new(max_stall), HangDetector::new(max_stall, interval));
        Self { interval, last: None, reads_until: Time::ZERO, stall_detector, hang_detector }
    }

    pub(super) fn look(&mut self, now: Time, seen: StepStatus) -> StallStatus {
        let since = now - self.last.replace(now).unwrap_or(now);
        let stood_still = Some(since).filter(|since| self.is_too_long(*since));
        if stood_still.is_some() {
            self.reads_until = now + CATCH_BREATH;
            self.stall_detector.begin_anew();
        }
        let overdue = self.hang_detector.look(seen.work, since, seen.has_others);
        let stands = self.stall_detector.look(now, seen.operation, seen.moved);
        StallStatus { overdue, stands, stood_still }
    }

    /// When timers ring again, if not now.
    pub(super) fn stood_still(&self, now: Time) -> Option<Time> {
        let is_late = self.last.is_some_and(|last| self.is_too_long(now - last));
        Some(if is_late { now + CATCH_BREATH } else { self.reads_until }).filter(|until| now < *until)
    }

    /// How long a piece of work may take.
    pub(super) fn patience(&self) -> Duration {
        self.hang_detector.limit()
    }

    fn is_too_long(&self, since: Duration) -> bool {
        since > self.interval * LOOKS_MISSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stood_still_reads_before_its_timers_ring() {
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        let seen =
            StepStatus { work: None, has_others: true, view: None, is_held: false, operation: Some((1, 5)), moved: 7 };
        let mut looks = Looks::new(Duration::from_secs(4), Duration::from_millis(100));
        assert_eq!(looks.stood_still(at(5_000)), None, "it has yet to begin");
        let quiet = StallStatus { overdue: None, stands: false, stood_still: None };
        assert_eq!(looks.look(at(5_000), seen), quiet);
        assert_eq!((looks.look(at(5_800), seen), looks.stood_still(at(6_600))), (quiet, None));
        assert_eq!(looks.stood_still(at(9_900)), Some(at(10_100)), "its timers come before its look");
        let stood_still = Some(Duration::from_millis(4_100));
        assert_eq!(looks.look(at(9_900), seen), StallStatus { stood_still, ..quiet }, "nobody looked whether it moved");
        assert_eq!((looks.stood_still(at(10_099)), looks.stood_still(at(10_100))), (Some(at(10_100)), None));
        assert!(looks.look(at(13_900), StepStatus { work: None, ..seen }).stood_still.is_some());
    }
}
