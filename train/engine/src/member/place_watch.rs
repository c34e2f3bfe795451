//! Whether a member has a place among the others.
//!
//! Where no ring and no star leads around links that are down, the others go on without who stands in the way. It asks to be let in again, in
//! vain, or its link fails again, and each time costs all of them a change of view. Such a one takes part as a leaf of a member that it reaches.

use std::time::Duration;

use starling_topology::Time;

/// Put out for a link so often, it has no place.
const MOST: usize = 2;
/// As far as that was within so many of the longest stalls.
const WINDOW_STALLS: u32 = 16;
/// Who is not let in again for so many of them has none either.
const WAIT_STALLS: u32 = 4;
/// It was for a link if one of its own failed not more than so many of the longest stalls before.
const FRESH_STALLS: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct PlaceWatch {
    max_stall: Duration,
    /// Whether it can be a leaf at all.
    is_on: bool,
    /// When a link of its own failed last.
    failed: Option<Time>,
    /// Whether it was put out for that, as somebody says.
    is_told: bool,
    /// When it was.
    put_out: Vec<Time>,
    /// Since when it waits to be let in again.
    waits: Option<Time>,
}

impl PlaceWatch {
    pub(super) fn new(max_stall: Duration) -> Self {
        Self { max_stall, is_on: false, failed: None, is_told: false, put_out: Vec::new(), waits: None }
    }

    /// It can take part as a leaf.
    pub(super) fn begin(&mut self) {
        self.is_on = true;
    }

    /// A link of its own has failed.
    pub(super) fn link_failed(&mut self, now: Time) {
        self.failed = Some(now);
    }

    /// Somebody says that the others go on without it.
    pub(super) fn evicted(&mut self, now: Time) {
        let is_fresh = |failed: Time| now - failed <= self.max_stall * FRESH_STALLS;
        self.is_told = self.failed.take().is_some_and(is_fresh);
    }

    /// A view is installed that it has a seat in.
    pub(super) fn returned(&mut self, now: Time) {
        // Who was let in again at once was put out.
        if std::mem::take(&mut self.is_told) {
            self.note(now);
        }
        self.waits = None;
    }

    fn note(&mut self, now: Time) {
        self.put_out.retain(|at| now - *at <= self.max_stall * WINDOW_STALLS);
        self.put_out.push(now);
    }

    /// Whether it has no place, once it is proven that they do. That is said once.
    pub(super) fn has_none(&mut self, now: Time, is_proven: bool) -> bool {
        if !self.is_on || !is_proven {
            return false;
        }
        if std::mem::take(&mut self.is_told) {
            self.note(now);
            self.waits = Some(now);
        }
        let waits_in_vain = |since: Time| now - since >= self.max_stall * WAIT_STALLS;
        let has_none = self.waits.is_some_and(|since| self.put_out.len() >= MOST || waits_in_vain(since));
        self.is_on &= !has_none;
        has_none
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(8);

    /// Whether one that is put out then, in stalls, has no place in the end; its links fail so long before.
    fn has_none(times: &[u32], before: u32, is_proven: bool) -> bool {
        let mut places = PlaceWatch::new(STALL);
        places.begin();
        times.iter().any(|at| {
            places.link_failed(Time::ZERO + STALL * (at - before));
            places.evicted(Time::ZERO + STALL * *at);
            places.has_none(Time::ZERO + STALL * *at, is_proven)
        })
    }

    #[test]
    fn who_is_put_out_for_its_links_again_has_no_place() {
        assert!(!has_none(&[5], 0, true), "once is no rule");
        assert!(has_none(&[5, 12], 1, true));
        assert!(!has_none(&[5, 22], 1, true), "that is long ago");
        assert!(has_none(&[5, 22, 30], 1, true));
        assert!(!has_none(&[5, 12, 14], 3, true), "it was for something else");
        assert!(!has_none(&[5, 12, 14], 1, false), "one peer's word proves nothing");
    }

    #[test]
    fn who_is_not_let_in_again_has_no_place() {
        let mut places = PlaceWatch::new(STALL);
        places.begin();
        let at = |stalls: u32| Time::ZERO + STALL * stalls;
        places.link_failed(at(1));
        places.evicted(at(2));
        assert!(!places.has_none(at(2), true) && !places.has_none(at(5), true));
        assert!(places.has_none(at(6), true));
        places.returned(at(6));
        assert!(!places.has_none(at(7), true));
    }

    #[test]
    fn who_is_let_in_again_at_once_was_put_out_too() {
        let mut places = PlaceWatch::new(STALL);
        places.begin();
        for at in [1, 2] {
            let now = Time::ZERO + STALL * at;
            places.link_failed(now);
            places.evicted(now);
            places.returned(now);
            assert!(!places.has_none(now, true), "it has a seat");
        }
        let now = Time::ZERO + STALL * 3;
        places.link_failed(now);
        places.evicted(now);
        assert!(places.has_none(now, true));
    }

    #[test]
    fn who_can_be_no_leaf_stays_what_it_is() {
        let mut places = PlaceWatch::new(STALL);
        for at in [1, 2, 3] {
            let now = Time::ZERO + STALL * at;
            places.link_failed(now);
            places.evicted(now);
            assert!(!places.has_none(now, true));
        }
    }
}
