//! What the links of a view have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a link may bring or take nothing before it counts as broken.
#[derive(Debug, Clone, Copy)]
pub struct LinkLimit {
    /// From a record's first byte to its last: the least rate.
    pub record: Duration,
    /// Without anything taken of what is sent. A member that still computes takes nothing, so it also bounds by how much one
    /// may be slower than the one before it.
    pub send: Duration,
}

impl LinkLimit {
    /// The limits of a run whose longest stall is `max_stall`. A record that has begun takes no longer than a member may be
    /// silent; and nothing is taken for no longer than a step may take.
    pub fn new(max_stall: Duration) -> Self {
        Self { record: max_stall * 6 / 10, send: max_stall * 9 / 10 }
    }
}

/// Bytes over links of reducers, headers included, over the node's life.
#[derive(Debug, Default)]
pub struct TrafficMetrics {
    /// To others.
    pub sent: AtomicU64,
    /// From others.
    pub received: AtomicU64,
}

impl TrafficMetrics {
    /// All that has come and gone, in bytes.
    pub fn moved(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).wrapping_add(self.received.load(Ordering::Relaxed))
    }
}

/// What all links of a reducer share.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// In bytes.
    pub longest_payload: usize,
    /// When a link counts as broken.
    pub limits: LinkLimit,
    /// Where its bytes are counted.
    pub traffic: Arc<TrafficMetrics>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_given_up_as_soon_as_a_silent_member_and_a_link_before_the_stall_is_over() {
        let max_stall = Duration::from_secs(10);
        let limits = LinkLimit::new(max_stall);
        let silence = starling_topology::Config { max_stall, ..Default::default() }.silence_limit();
        assert_eq!(limits.record, silence);
        assert!(silence < limits.send && limits.send < max_stall);
    }
}
