//! What each member has called for that came to nothing: calls that nobody else saw a reason for cost it its turns.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::PeerId;
use crate::time::Time;

/// The time between calls doubles this often at most, from a hundredth of the longest.
const MAX_DOUBLINGS: u32 = 10;

/// How often each member may call for something. Kept across views; of members alone, so it has a bound.
#[derive(Debug)]
pub(in crate::membership) struct Allowance {
    /// So many calls are free: one may fail for no fault of its caller's.
    free: u32,
    /// How often the time between calls has doubled when the first of the others comes.
    doublings: u32,
    calls: BTreeMap<PeerId, Calls>,
}

#[derive(Debug)]
struct Calls {
    count: u32,
    last: Time,
}

impl Allowance {
    /// One that gives `free` calls, and then some that become rare.
    pub(in crate::membership) fn new(free: u32) -> Self {
        Self { free, doublings: 0, calls: BTreeMap::new() }
    }

    /// One that gives a single call, and then but rare ones.
    pub(in crate::membership) fn strict() -> Self {
        Self { doublings: MAX_DOUBLINGS, ..Self::new(1) }
    }

    /// Whether `peer` may call once more, and notes that it has. Beyond those that are free, the time between two calls doubles
    /// up to `longest`; who has not called for twice as long begins anew.
    pub(in crate::membership) fn take(&mut self, now: Time, peer: PeerId, longest: Duration) -> bool {
        let calls = self.calls.entry(peer).or_insert(Calls { count: 0, last: now });
        if now - calls.last >= longest * 2 {
            calls.count = 0;
        }
        let beyond = calls.count.saturating_sub(self.free);
        let wait = (longest / 100 * (1 << (beyond + self.doublings).min(MAX_DOUBLINGS))).min(longest);
        if beyond > 0 && now - calls.last < wait {
            return false;
        }
        *calls = Calls { count: calls.count.saturating_add(1), last: now };
        true
    }

    /// Whether `peer` has called so often of late that its next call would be none.
    pub(in crate::membership) fn is_spent(&self, now: Time, peer: PeerId, longest: Duration) -> bool {
        self.calls.get(&peer).is_some_and(|calls| {
            let beyond = calls.count.saturating_sub(self.free);
            let wait = (longest / 100 * (1 << (beyond + self.doublings).min(MAX_DOUBLINGS))).min(longest);
            beyond > 0 && now - calls.last < wait
        })
    }

    /// There was reason for what `peer` called for.
    pub(in crate::membership) fn forgive(&mut self, peer: PeerId) {
        self.calls.remove(&peer);
    }

    /// Forgets all but these.
    pub(in crate::membership) fn keep(&mut self, keep: impl Fn(PeerId) -> bool) {
        self.calls.retain(|peer, _| keep(*peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_vain_become_rare_and_others_do_not() {
        let (longest, step) = (Duration::from_secs(100), Duration::from_millis(100));
        let [liar, other] = [1, 2].map(|name| PeerId([name; 32]));
        let mut allowance = Allowance::new(4);
        let at = |tick: u32| Time::ZERO + step * tick;
        let taken = (0..10_000).filter(|tick| allowance.take(at(*tick), liar, longest)).count();
        assert!((14..30).contains(&taken), "{taken} calls in 1,000 s");
        assert!(allowance.take(at(10_000), other, longest));
        for tick in 10_000..10_100 {
            allowance.forgive(other);
            assert!(allowance.take(at(tick), other, longest), "there was reason each time");
        }
        assert!(!allowance.take(at(10_000), liar, longest) && allowance.take(at(13_000), liar, longest));
        let mut strict = Allowance::strict();
        let spent =
            (0..2).map(|tick| (strict.take(at(tick), liar, longest), strict.is_spent(at(tick + 1), liar, longest)));
        assert!(spent.eq([(true, false), (true, true)]));
        assert!(!strict.is_spent(at(1_002), liar, longest) && !strict.is_spent(at(2), other, longest));
        assert!(allowance.take(at(13_001), liar, longest), "it was quiet for long");
    }
}
