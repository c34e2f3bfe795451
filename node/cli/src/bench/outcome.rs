//! What a benchmark found.

use serde::Serialize;
use starling::Transport;
use starling::parts::Codec;
use starling_node::reducer::bench::WireCost;

use super::Plan;
use super::bound::Bound;
use crate::output::format;

/// The rounds that count.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    /// Each round's slowest member, in seconds.
    seconds: Vec<f64>,
    /// Each round's processor time, all members together, in seconds.
    cpu_seconds: Vec<f64>,
}

impl Times {
    /// Takes in a round.
    pub(super) fn take(&mut self, seconds: f64, cpu_seconds: f64) {
        self.seconds.push(seconds);
        self.cpu_seconds.push(cpu_seconds);
    }

    /// What they come to, if each of `peers` members brought `bytes`.
    pub(super) fn pace(&self, peers: u32, bytes: u64) -> RoundStats {
        let seconds = || self.seconds.iter().copied();
        let median_s = median(&self.seconds);
        RoundStats {
            rounds: u32::try_from(self.seconds.len()).expect("invariant: rounds are counted by u32"),
            median_s,
            best_s: seconds().fold(f64::INFINITY, f64::min),
            worst_s: seconds().fold(0.0, f64::max),
            busbw_gbps: share(peers) * bytes as f64 / median_s / 1e9,
            cpu_s: median(&self.cpu_seconds),
        }
    }
}

/// How many times what it brings a member sends. All plans send as much; this is one member's share, on average.
pub(super) fn share(peers: u32) -> f64 {
    let n = f64::from(peers);
    2.0 * (n - 1.0) / n
}

/// How fast rounds went. Times are in seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RoundStats {
    /// Rounds that count.
    pub rounds: u32,
    /// The median round; 0 without rounds.
    pub median_s: f64,
    /// The fastest round.
    pub best_s: f64,
    /// The slowest round.
    pub worst_s: f64,
    /// `2 (n - 1) / n * bytes / median_s` in 10^9 bytes per second, as if every value had 4 bytes on the wire.
    pub busbw_gbps: f64,
    /// Processor time per round; the median.
    pub cpu_s: f64,
}

/// What `starling bench` prints. Sizes are in bytes, times in seconds, rates in 10^9 bytes per second.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// How many members reduced.
    pub peers: u32,
    /// What each member brought.
    pub bytes: u64,
    /// How the reduction was scheduled.
    pub plan: String,
    /// How values were written.
    pub codec: Codec,
    /// How the bytes travelled.
    pub transport: Transport,
    /// Whether nobody could read them on the way.
    pub encrypted: bool,
    /// How fast it went: of each round the slowest member, and the processor time of all together.
    #[serde(flatten)]
    pub pace: RoundStats,
    /// What this machine could do.
    pub bound: Bound,
}

impl Outcome {
    pub(super) fn new(plan: &Plan, taken: String, transport: Transport, times: Times, floor: &WireCost) -> Self {
        let bytes = plan.bytes();
        let wire_bytes = share(plan.peers) * plan.reduction.codec.payload_bytes(plan.reduction.elements) as f64;
        Self {
            peers: plan.peers,
            bytes,
            plan: taken,
            codec: plan.reduction.codec,
            transport,
            encrypted: transport.is_encrypted(),
            pace: times.pace(plan.peers, bytes),
            bound: Bound::new(floor, transport, plan.peers, wire_bytes),
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        let Self { peers, plan, codec, bound, .. } = self;
        let RoundStats { rounds, median_s, best_s, worst_s, busbw_gbps, cpu_s } = self.pace;
        let cipher = if self.encrypted { "encrypted" } else { "NOT encrypted" };
        let size = format::bytes(self.bytes);
        format!(
            "all-reduce of {size} among {peers} members, {plan}, {codec}, {}, {cipher}\n  \
             time      {:.1} ms median of {rounds} rounds ({:.1} to {:.1})\n  \
             links     {busbw_gbps:.2} GB/s (2(n-1)/n of the size per round, as f32)\n  \
             processor {:.1} ms per round, all members\n  \
             bound     {:.1} ms on {} cores ({:.0} % of it reached): {}\n",
            self.transport,
            median_s * 1e3,
            best_s * 1e3,
            worst_s * 1e3,
            cpu_s * 1e3,
            bound.seconds * 1e3,
            bound.cores,
            bound.seconds / median_s * 100.0,
            bound.reason,
        )
    }
}

/// What `starling bench link` prints. Sizes are in bytes, times in seconds, rates in 10^9 bytes per second.
#[derive(Debug, Clone, Serialize)]
pub struct LinkOutcome {
    /// How the bytes travelled.
    pub transport: Transport,
    /// Whether nobody could read them on the way.
    pub encrypted: bool,
    /// There and back, for a message of one value: from task to task, not from wire to wire.
    pub rtt_s: f64,
    /// What went each way, both ways at once.
    pub bytes: u64,
    /// How long that took.
    pub median_s: f64,
    /// What the link carried each way per second, both ways at once, reduction included.
    pub gbps: f64,
    /// Processor time of both ends.
    pub cpu_s: f64,
    /// What this machine could do.
    pub bound: Bound,
}

impl LinkOutcome {
    /// From a reduction of one value per member, and one of many.
    pub(super) fn new(least: &Outcome, all: &Outcome) -> Self {
        Self {
            transport: all.transport,
            encrypted: all.encrypted,
            rtt_s: least.pace.median_s,
            bytes: all.bytes,
            median_s: all.pace.median_s,
            gbps: all.pace.busbw_gbps,
            cpu_s: all.pace.cpu_s,
            bound: all.bound.clone(),
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        let Self { rtt_s, median_s, gbps, bound, .. } = self;
        let cipher = if self.encrypted { "encrypted" } else { "NOT encrypted" };
        let size = format::bytes(self.bytes);
        format!(
            "link between two members on this machine, {}, {cipher}\n  \
             latency   {:.3} ms there and back\n  \
             carries   {gbps:.2} GB/s each way, both ways at once ({size} in {:.1} ms)\n  \
             bound     {:.1} ms on {} cores: {}\n",
            self.transport,
            rtt_s * 1e3,
            median_s * 1e3,
            bound.seconds * 1e3,
            bound.cores,
            bound.reason,
        )
    }
}

/// The median; the upper one of two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 3.0);
    }
}
