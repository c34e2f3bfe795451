//! Links with a delay and a bandwidth.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_topology::{PeerId, Time};

use crate::rng::Rng;

/// What travels beside each other on one link: each lane keeps its order, like a stream; all share the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Membership messages, and the news that a connection has closed.
    Control,
    /// Segments.
    Ring,
    /// Replicated state for joiners.
    State,
}

/// All links between all peers. Each direction of each pair has a delay and a bandwidth of its own, drawn from the seed.
#[derive(Debug)]
pub struct Network {
    rng: Rng,
    /// The base delay of the whole network: a rack or a continent.
    base: Duration,
    links: BTreeMap<(PeerId, PeerId), Link>,
}

/// When a message has left its sender, and when it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// The last byte is on the wire.
    pub departs: Time,
    /// The last byte is there.
    pub arrives: Time,
}

#[derive(Debug)]
struct Link {
    delay: Duration,
    jitter: Duration,
    bytes_per_second: u64,
    busy_until: Time,
    last_arrival: BTreeMap<Lane, Time>,
}

impl Network {
    /// A network whose links `rng` determines.
    pub fn new(mut rng: Rng) -> Self {
        let base = match rng.between(0, 2) {
            0 => Duration::from_micros(50),
            1 => Duration::from_millis(2),
            _ => Duration::from_millis(25),
        };
        Self { rng, base, links: BTreeMap::new() }
    }

    /// Puts `bytes` on the link: they wait for what was sent before, take their time on the wire, and keep their order
    /// within the lane.
    pub fn send(&mut self, now: Time, from: PeerId, to: PeerId, lane: Lane, bytes: u64) -> Passage {
        let (rng, base) = (&mut self.rng, self.base);
        let link = self.links.entry((from, to)).or_insert_with(|| Link::draw(rng, base));
        let serialisation = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / link.bytes_per_second);
        let departs = now.max(link.busy_until) + serialisation;
        link.busy_until = departs;
        let jitter = Duration::from_nanos(rng.between(0, u64::try_from(link.jitter.as_nanos()).unwrap_or(u64::MAX)));
        let last = link.last_arrival.entry(lane).or_default();
        let arrives = (departs + link.delay + jitter).max(*last);
        *last = arrives;
        Passage { departs, arrives }
    }
}

impl Link {
    fn draw(rng: &mut Rng, base: Duration) -> Self {
        let base = u64::try_from(base.as_micros()).unwrap_or(u64::MAX);
        Self {
            delay: rng.micros(base / 2, base * 3 / 2),
            jitter: rng.micros(0, base),
            bytes_per_second: rng.between(1, 100) * 1_000_000,
            busy_until: Time::ZERO,
            last_arrival: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_keeps_its_order_and_the_link_its_bandwidth() {
        for seed in 0..50 {
            let mut network = Network::new(Rng::new(seed));
            let (a, b) = (PeerId([1; 32]), PeerId([2; 32]));
            let mut last = BTreeMap::new();
            let mut departs = Time::ZERO;
            for index in 0..60 {
                let lane = [Lane::Control, Lane::Ring, Lane::State][index % 3];
                let passage = network.send(Time::ZERO, a, b, lane, 10_000);
                assert!(passage.arrives > passage.departs && passage.departs > departs, "seed {seed}");
                departs = passage.departs;
                let before = last.insert(lane, passage.arrives);
                assert!(before.is_none_or(|before| before <= passage.arrives), "seed {seed}");
            }
            let slowest = Duration::from_micros(60 * 10_000);
            assert!(departs - Time::ZERO <= slowest && departs - Time::ZERO >= slowest / 100, "seed {seed}");
        }
    }
}
