//! Links on which time passes.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_topology::plan::{CostTable, GroupTable};
use starling_topology::{Rank, Time};

use crate::hardware::network::queue::Queue;
use crate::hardware::network::rng::Rng;

/// What is sent waits its turn at each place that it passes: the sender's line, the link, what joins two sites, and, after
/// the delay, the receiver's line. Rates are those of the costs; a line is as fast as its fastest link.
#[derive(Debug)]
pub struct Wire<T> {
    costs: CostTable,
    sites: Option<GroupTable>,
    jitter_us: u64,
    rng: Rng,
    queue: Queue<Event<T>>,
    free: BTreeMap<Place, Time>,
    now: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Out(Rank),
    Link(Rank, Rank),
    Between(usize, usize),
    In(Rank),
}

#[derive(Debug)]
enum Event<T> {
    /// At the receiver's line.
    Arrives(Rank, u64, T),
    /// Through it.
    Delivered(Rank, T),
}

impl<T> Wire<T> {
    /// Links of these costs, on which each message is late by up to `jitter_us` microseconds more: so messages overtake each
    /// other, on one link as well. Links between `sites` share the fastest one's bandwidth.
    pub fn new(costs: CostTable, sites: Option<GroupTable>, jitter_us: u64, rng: Rng) -> Self {
        Self { costs, sites, jitter_us, rng, queue: Queue::new(), free: BTreeMap::new(), now: Time::ZERO }
    }

    /// How late it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Something happens at `to` after `delay`, without any link.
    pub fn wake(&mut self, to: Rank, delay: Duration, what: T) {
        self.queue.push(self.now + delay, Event::Delivered(to, what));
    }

    /// Sends `what`, which is `bytes` long. Returns how long the sender's line is busy from now on.
    pub fn send(&mut self, from: Rank, to: Rank, bytes: u64, what: T) -> Duration {
        let link = self.costs.link(from, to);
        let world = self.costs.world_size();
        let out = world.ranks().map(|other| self.costs.link(from, other).bytes_per_second).max();
        let sent = self.pass(Place::Out(from), self.now, bytes, out.unwrap_or_default());
        let mut at = self.pass(Place::Link(from, to), sent, bytes, link.bytes_per_second);
        let between = self.sites.as_ref().map(|sites| (sites.place(from).0, sites.place(to).0));
        if let Some((one, other)) = between.filter(|(one, other)| one != other) {
            at = self.pass(Place::Between(one, other), at, bytes, link.bytes_per_second);
        }
        let delay = Duration::from_micros(u64::from(link.delay_us)) + self.rng.micros(0, self.jitter_us);
        self.queue.push(at + delay, Event::Arrives(to, bytes, what));
        sent - self.now
    }

    /// What is delivered next, and to whom.
    pub fn deliver(&mut self) -> Option<(Rank, T)> {
        loop {
            let (now, event) = self.queue.pop()?;
            self.now = now;
            match event {
                Event::Delivered(to, what) => return Some((to, what)),
                Event::Arrives(to, bytes, what) => {
                    let ranks = self.costs.world_size().ranks();
                    let rate = ranks.map(|other| self.costs.link(other, to).bytes_per_second).max();
                    let at = self.pass(Place::In(to), now, bytes, rate.unwrap_or_default());
                    self.queue.push(at, Event::Delivered(to, what));
                }
            }
        }
    }

    /// When `bytes` that reach a place at `at` have passed it. Places stream: what passes a fast one while it comes out of a
    /// slow one is not late for it.
    fn pass(&mut self, place: Place, at: Time, bytes: u64, bytes_per_second: u64) -> Time {
        let takes = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / bytes_per_second.max(1));
        let free = self.free.entry(place).or_insert(Time::ZERO);
        // The first place has nothing before it: the bytes begin to pass when they are sent.
        let begun = if matches!(place, Place::Out(_)) { (*free).max(at) } else { *free };
        *free = (begun + takes).max(at);
        *free
    }
}
