//! Whether an operation has come to a standstill.

use std::time::Duration;

use starling_topology::Time;

/// The shortest time is this part of the longest.
const SHORTEST: u32 = 8;

/// Tells whether this member waits in vain: all of its contribution to an operation is there, and for some time nothing of the
/// operation has come or gone. Whether everybody does, and so nobody will ever bring it to an end, members tell each other.
///
/// A step that has stood still once is given half as much time when it is tried again, and so on: it was not slowness that
/// kept it, and each try may only find one more link over which nothing comes.
#[derive(Debug)]
pub struct StallDetector {
    longest: Duration,
    limit: Duration,
    /// The step that has stood still last.
    stood: Option<u64>,
    /// The operation, and how much had come and gone when that last changed.
    seen: Option<((u64, u64), u64)>,
    since: Time,
}

impl StallDetector {
    /// One that is told of after `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { longest: limit, limit, stood: None, seen: None, since: Time::ZERO }
    }

    /// Looks again. `operation` is that under way, if all of this member's contribution is there, and `moved` counts what has
    /// come and gone. Operations are named by the view that they are in and by their step.
    pub fn look(&mut self, now: Time, operation: Option<(u64, u64)>, moved: u64) -> bool {
        let seen = operation.map(|operation| (operation, moved));
        let named = |seen: Option<((u64, u64), u64)>| seen.map(|(operation, _)| operation);
        if let Some((_, step)) = operation
            && named(self.seen) != operation
        {
            let again = self.stood.take() == Some(step);
            self.limit = if again { (self.limit / 2).max(self.longest / SHORTEST) } else { self.longest };
        }
        if self.seen != seen {
            (self.seen, self.since) = (seen, now);
        }
        let stands = now - self.since >= self.limit;
        if let Some((_, step)) = operation.filter(|_| stands) {
            self.stood = Some(step);
        }
        operation.is_some() && stands
    }

    /// Nobody looked for a while: what was seen before says nothing.
    pub fn begin_anew(&mut self) {
        self.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_long_and_sees_nothing_move_stands_still() {
        let second = Duration::from_secs(1);
        let at = |seconds: u32| Time::ZERO + second * seconds;
        let mut detector = StallDetector::new(3 * second);
        assert!(!detector.look(at(9), None, 7), "nothing is under way");
        assert!(!detector.look(at(10), Some((1, 5)), 7));
        assert!(!detector.look(at(12), Some((1, 5)), 7) && detector.look(at(13), Some((1, 5)), 7));
        assert!(!detector.look(at(14), Some((1, 5)), 8), "a byte came");
        assert!(!detector.look(at(17), Some((1, 6)), 8), "the next step");
        detector.begin_anew();
        assert!(!detector.look(at(30), Some((1, 6)), 8), "nobody looked");
        assert!(detector.look(at(33), Some((1, 6)), 8));
        assert!(!detector.look(at(34), None, 8) && !detector.look(at(34), Some((2, 6)), 8), "held, then tried again");
        assert!(detector.look(at(36), Some((2, 6)), 8), "in half the time");
        assert!(!detector.look(at(37), Some((2, 7)), 9) && !detector.look(at(39), Some((2, 7)), 9), "it went on");
        assert!(detector.look(at(40), Some((2, 7)), 9));
    }
}
