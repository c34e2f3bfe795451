//! Whether an operation has come to a standstill.

use std::time::Duration;

use starling_topology::Time;

/// Tells whether this member waits in vain: all of its contribution to an operation is there, and for some time nothing of the
/// operation has come or gone. Whether everybody does, and so nobody will ever bring it to an end, members tell each other.
#[derive(Debug)]
pub struct Standstill {
    limit: Duration,
    /// The operation, and how much had come and gone when that last changed.
    seen: Option<((u64, u64), u64)>,
    since: Time,
}

impl Standstill {
    /// One that is told of after `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { limit, seen: None, since: Time::ZERO }
    }

    /// Looks again. `operation` is that under way, if all of this member's contribution is there, and `moved` counts what has
    /// come and gone.
    pub fn look(&mut self, now: Time, operation: Option<(u64, u64)>, moved: u64) -> bool {
        let seen = operation.map(|operation| (operation, moved));
        if self.seen != seen {
            (self.seen, self.since) = (seen, now);
        }
        seen.is_some() && now - self.since >= self.limit
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
        let mut standstill = Standstill::new(3 * second);
        assert!(!standstill.look(at(9), None, 7), "nothing is under way");
        assert!(!standstill.look(at(10), Some((1, 5)), 7));
        assert!(!standstill.look(at(12), Some((1, 5)), 7) && standstill.look(at(13), Some((1, 5)), 7));
        assert!(!standstill.look(at(14), Some((1, 5)), 8), "a byte came");
        assert!(!standstill.look(at(17), Some((1, 6)), 8), "the next step");
        standstill.begin_anew();
        assert!(!standstill.look(at(30), Some((1, 6)), 8), "nobody looked");
        assert!(standstill.look(at(33), Some((1, 6)), 8));
    }
}
