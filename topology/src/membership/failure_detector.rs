//! Silence is evidence.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::PeerId;
use crate::time::Time;

/// Remembers when each watched peer was last heard, and says who has been silent for too long.
///
/// A closed connection is faster evidence and needs no detector; this one finds peers that hang with their
/// connections open.
#[derive(Debug, Clone)]
pub struct FailureDetector {
    silence_limit: Duration,
    last_heard: BTreeMap<PeerId, Time>,
}

impl FailureDetector {
    /// A detector that watches nobody yet.
    pub fn new(silence_limit: Duration) -> Self {
        Self { silence_limit, last_heard: BTreeMap::new() }
    }

    /// Watches exactly `peers` from now on. Peers that were watched before keep their time.
    pub fn watch(&mut self, now: Time, peers: impl IntoIterator<Item = PeerId>) {
        let before = std::mem::take(&mut self.last_heard);
        self.last_heard = peers.into_iter().map(|peer| (peer, before.get(&peer).copied().unwrap_or(now))).collect();
    }

    /// `peer` said something.
    pub fn heard(&mut self, now: Time, peer: PeerId) {
        if let Some(time) = self.last_heard.get_mut(&peer) {
            *time = now;
        }
    }

    /// When `peer`, if it is watched, was last heard, or when that began.
    pub fn last_heard(&self, peer: PeerId) -> Option<Time> {
        self.last_heard.get(&peer).copied()
    }

    /// The watched peers that have been silent for too long, and for how long. They are not watched any more, so each
    /// silence is told once.
    pub fn take_silent(&mut self, now: Time) -> Vec<(PeerId, Duration)> {
        let limit = self.silence_limit;
        let silent = self.last_heard.extract_if(.., |_, heard| now - *heard >= limit);
        silent.map(|(peer, heard)| (peer, now - heard)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(6);

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn each_silence_is_told_once() {
        let mut detector = FailureDetector::new(LIMIT);
        detector.watch(at(0), [peer(1), peer(2), peer(3)]);
        detector.heard(at(4), peer(2));
        assert_eq!(detector.take_silent(at(5)), []);
        assert_eq!(detector.take_silent(at(6)), [(peer(1), LIMIT), (peer(3), LIMIT)]);
        assert_eq!(detector.take_silent(at(6)), []);
        assert_eq!(detector.take_silent(at(11)), [(peer(2), Duration::from_secs(7))]);
    }

    #[test]
    fn who_is_watched_on_keeps_its_time() {
        let mut detector = FailureDetector::new(LIMIT);
        detector.watch(at(0), [peer(1), peer(2)]);
        detector.watch(at(5), [peer(2), peer(3)]);
        assert_eq!(detector.take_silent(at(6)), [(peer(2), LIMIT)]);
        assert_eq!(detector.take_silent(at(11)), [(peer(3), LIMIT)]);
    }

    #[test]
    fn strangers_are_not_watched() {
        let mut detector = FailureDetector::new(LIMIT);
        detector.heard(at(0), peer(9));
        assert_eq!(detector.take_silent(at(60)), []);
    }
}
