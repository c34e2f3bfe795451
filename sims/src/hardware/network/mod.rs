//! Links with a delay and a bandwidth, and connections over them that stall, break and come back.
//!
//! Nothing is lost on a connection: it is a stream, so loss is delay. What can happen is this:
//!
//! * a direction is *blocked*: what is sent in it waits, and goes on in order once the block is over. A connection that
//!   has waited for the patience of its sender's kernel closes at both ends;
//! * a connection *breaks*: each end learns it at a time of its own, and what is under way may or may not arrive;
//! * a process or a whole machine dies, with or without a farewell from its kernel;
//! * a new connection is opened, while messages of the old one are still under way, and overtakes them.

pub mod queue;
pub mod rng;

use std::collections::VecDeque;
use std::time::Duration;

use starling_topology::Time;
use starling_topology::plan::Link;

use crate::hardware::network::rng::Rng;
use crate::steps::message::{Lane, Message};

/// A machine, by the order in which the world knows them. Its peer keeps its place when it restarts.
pub type Seat = usize;

/// A message on its way over a connection.
#[derive(Debug)]
pub struct Parcel {
    /// Who sent it.
    pub from: Seat,
    /// To whom.
    pub to: Seat,
    /// The number of the connection in its lane between the two.
    pub number: u32,
    /// When its last byte left the sender.
    pub departed: Time,
    /// What is in it.
    pub message: Message,
    bytes: u64,
}

/// What comes of sending something.
#[derive(Debug)]
pub enum Sent {
    /// It will arrive then.
    Arrives(Time, Parcel),
    /// It waits for a block to end, as others before it on that connection.
    Waits,
    /// It waits as the first one of its connection: ask [`Network::is_stalled`] at that time.
    Stalls(Time, u32),
}

/// All links between all machines. Each direction of each pair has a delay and a bandwidth of its own.
#[derive(Debug)]
pub struct Network {
    rng: Rng,
    base: Duration,
    patience: Duration,
    seats: usize,
    /// From each machine to each: drawn when something first takes it.
    routes: Pairs<Route>,
    /// By lane, from the lower machine to the higher one.
    wires: [Pairs<Wire>; Lane::ALL.len()],
}

/// Something for each pair of machines that needs it. A large world has a million pairs, and most of them never meet.
#[derive(Debug)]
struct Pairs<T> {
    seats: usize,
    /// By pair: its place in `there`, counted from one; 0 if it has none.
    places: Vec<u32>,
    there: Vec<T>,
}

impl<T> Pairs<T> {
    fn new(seats: usize) -> Self {
        Self { seats, places: vec![0; seats * seats], there: Vec::new() }
    }

    fn get(&self, one: Seat, other: Seat) -> Option<&T> {
        let place = self.places[one * self.seats + other].checked_sub(1)?;
        self.there.get(place as usize)
    }

    fn get_mut(&mut self, one: Seat, other: Seat) -> Option<&mut T> {
        let place = self.places[one * self.seats + other].checked_sub(1)?;
        self.there.get_mut(place as usize)
    }

    fn get_or(&mut self, one: Seat, other: Seat, new: impl FnOnce() -> T) -> &mut T {
        let place = &mut self.places[one * self.seats + other];
        if *place == 0 {
            self.there.push(new());
            *place = u32::try_from(self.there.len()).expect("invariant: there are fewer than 2^32 pairs");
        }
        &mut self.there[*place as usize - 1]
    }
}

#[derive(Debug)]
struct Route {
    delay: Duration,
    jitter: Duration,
    bytes_per_second: u64,
    busy_until: Time,
    blocks: u32,
}

/// The connection of one lane between two machines, the lower one's end first.
#[derive(Debug, Default)]
struct Wire {
    number: u32,
    open: [bool; 2],
    /// The number of the last connection of which each end knows that it is closed.
    closed: [u32; 2],
    /// Whether both sides have greeted each other. Until then nothing passes.
    greeted: bool,
    last_arrival: [Time; 2],
    waiting: [VecDeque<Parcel>; 2],
}

impl Network {
    /// A network between `seats` machines, whose links `rng` determines, and whose kernels have `patience` with a peer that
    /// does not answer.
    pub fn new(mut rng: Rng, patience: Duration, seats: usize) -> Self {
        let base = match rng.between(0, 2) {
            0 => Duration::from_micros(50),
            1 => Duration::from_millis(2),
            _ => Duration::from_millis(25),
        };
        Self { rng, base, patience, seats, routes: Pairs::new(seats), wires: Lane::ALL.map(|_| Pairs::new(seats)) }
    }

    /// How long a kernel waits for an answer before it gives a connection up.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Puts a message of `bytes` on the connection of its lane, opening one if this end has none: it waits for what was
    /// sent before over the link, takes its time on the wire, and keeps its order within the connection.
    pub fn send(&mut self, now: Time, from: Seat, to: Seat, message: Message, bytes: u64) -> Sent {
        let lane = message.lane();
        let blocked = (self.is_blocked(from, to), self.is_blocked(to, from));
        let (me, wire) = self.wire(from, to, lane);
        if !wire.open[me] {
            wire.number += 1;
            wire.greeted = blocked == (false, false);
            wire.open = if wire.greeted { [true; 2] } else { std::array::from_fn(|end| wire.open[end] || end == me) };
            wire.last_arrival = [Time::ZERO; 2];
            wire.waiting[me].clear();
        }
        let number = wire.number;
        let parcel = Parcel { from, to, number, departed: now, message, bytes };
        if blocked.0 || !wire.greeted || !wire.waiting[me].is_empty() {
            wire.waiting[me].push_back(parcel);
            let first = wire.waiting[me].len() == 1;
            return if first { Sent::Stalls(now + self.patience, number) } else { Sent::Waits };
        }
        let (at, parcel) = self.pass(now, parcel);
        Sent::Arrives(at, parcel)
    }

    /// Opens a connection for membership messages, if there is none and nothing blocks it.
    pub fn connect(&mut self, from: Seat, to: Seat) {
        if self.is_blocked(from, to) || self.is_blocked(to, from) {
            return;
        }
        let (me, wire) = self.wire(from, to, Lane::Control);
        if !wire.open[me] {
            wire.number += 1;
            (wire.greeted, wire.open, wire.last_arrival) = (true, [true; 2], [Time::ZERO; 2]);
        }
    }

    /// Whether `from` is still waiting on the connection of that number: then its kernel gives it up.
    pub fn is_stalled(&self, from: Seat, to: Seat, lane: Lane, number: u32) -> bool {
        self.known(from, to, lane).is_some_and(|wire| {
            let me = usize::from(from > to);
            wire.number == number && wire.open[me] && !wire.waiting[me].is_empty()
        })
    }

    /// Closes one end; false if it was closed, or is the end of another connection by now. What waits at it is lost.
    pub fn close(&mut self, at: Seat, other: Seat, lane: Lane, number: u32) -> bool {
        let (me, wire) = self.wire(at, other, lane);
        let closes = wire.open[me] && wire.number == number;
        if closes {
            wire.open[me] = false;
            wire.closed[me] = number;
            wire.waiting[me].clear();
        }
        closes
    }

    /// What one end has sent over this connection is lost; false if it knows that already. Unlike with [`Self::close`] it
    /// makes no difference that the other end has opened another connection since.
    pub fn lose(&mut self, at: Seat, other: Seat, lane: Lane, number: u32) -> bool {
        let (me, wire) = self.wire(at, other, lane);
        let replaced = number < wire.number && number > wire.closed[me];
        wire.closed[me] = number.max(wire.closed[me]);
        self.close(at, other, lane, number) || replaced
    }

    /// The number of the connection between two ends, if the end of `at` is open.
    pub fn open(&self, at: Seat, other: Seat, lane: Lane) -> Option<u32> {
        let wire = self.known(at, other, lane)?;
        wire.open[usize::from(at > other)].then_some(wire.number)
    }

    /// Whether what comes over this connection still finds an open end at `at`. A new connection that has replaced it
    /// does not close it: both are there for a while.
    pub fn accepts(&self, at: Seat, other: Seat, lane: Lane, number: u32) -> bool {
        let wire = self.known(at, other, lane);
        wire.is_some_and(|wire| wire.open[usize::from(at > other)] && number <= wire.number)
    }

    /// All machines that share an open connection with `seat`.
    pub fn neighbours(&self, seat: Seat) -> Vec<(Seat, Lane, u32)> {
        let others = (0..self.seats).flat_map(|other| Lane::ALL.map(|lane| (other, lane)));
        let shared = others.filter_map(|(other, lane)| Some((other, lane, self.known(seat, other, lane)?)));
        let open = shared.filter(|(_, _, wire)| wire.open != [false; 2]);
        open.map(|(other, lane, wire)| (other, lane, wire.number)).collect()
    }

    /// When the news that this end is closed reaches the other one: after all that was sent before.
    pub fn farewell(&mut self, now: Time, at: Seat, other: Seat, lane: Lane) -> Time {
        let soonest = now + self.delay(at, other);
        let (me, wire) = self.wire(at, other, lane);
        soonest.max(wire.last_arrival[me])
    }

    /// How long a word takes from one machine to another.
    pub fn delay(&mut self, from: Seat, to: Seat) -> Duration {
        let route = self.route(from, to);
        route.delay + route.jitter
    }

    /// The link from one machine to another, if it was ever used.
    pub fn link(&self, from: Seat, to: Seat) -> Option<Link> {
        let route = self.routes.get(from, to)?;
        Some(Link::measured(route.delay + route.jitter / 2, route.bytes_per_second))
    }

    /// Whether nothing gets through in this direction.
    pub fn is_blocked(&self, from: Seat, to: Seat) -> bool {
        self.routes.get(from, to).is_some_and(|route| route.blocks > 0)
    }

    /// Whether nothing gets through in any direction at all.
    pub fn has_blocks(&self) -> bool {
        self.routes.there.iter().any(|route| route.blocks > 0)
    }

    /// Blocks a direction. Blocks add up.
    pub fn block(&mut self, from: Seat, to: Seat) {
        self.route(from, to).blocks += 1;
    }

    /// Takes one block away. What waited goes on once there is none left; both directions, for a connection that has
    /// not been established yet.
    pub fn unblock(&mut self, now: Time, from: Seat, to: Seat) -> Vec<(Time, Parcel)> {
        let route = self.route(from, to);
        route.blocks = route.blocks.saturating_sub(1);
        if route.blocks > 0 {
            return Vec::new();
        }
        let both = !self.is_blocked(to, from);
        let mut freed = Vec::new();
        for lane in Lane::ALL {
            let wire = self.wires[lane as usize].get_mut(from.min(to), from.max(to));
            let Some(wire) = wire else { continue };
            if !wire.greeted && !both {
                continue;
            }
            if !wire.greeted {
                (wire.greeted, wire.open) = (true, [true; 2]);
                freed.extend(wire.waiting.iter_mut().flat_map(std::mem::take));
            } else {
                freed.extend(std::mem::take(&mut wire.waiting[usize::from(from > to)]));
            }
        }
        freed.into_iter().map(|parcel| self.pass(now, parcel)).collect()
    }

    fn pass(&mut self, now: Time, mut parcel: Parcel) -> (Time, Parcel) {
        let (from, to, lane) = (parcel.from, parcel.to, parcel.message.lane());
        let route = self.route(from, to);
        let serialisation = Duration::from_nanos(parcel.bytes.saturating_mul(1_000_000_000) / route.bytes_per_second);
        let departs = now.max(route.busy_until) + serialisation;
        route.busy_until = departs;
        let (delay, jitter) = (route.delay, u64::try_from(route.jitter.as_nanos()).unwrap_or(u64::MAX));
        let jitter = Duration::from_nanos(self.rng.between(0, jitter));
        let (me, wire) = self.wire(from, to, lane);
        let arrives = (departs + delay + jitter).max(wire.last_arrival[me]);
        wire.last_arrival[me] = arrives;
        parcel.departed = departs;
        (arrives, parcel)
    }

    fn route(&mut self, from: Seat, to: Seat) -> &mut Route {
        let (rng, base) = (&mut self.rng, self.base);
        self.routes.get_or(from, to, || Route::draw(rng, base))
    }

    /// The connection between two machines, and which end is that of the first one.
    fn wire(&mut self, at: Seat, other: Seat, lane: Lane) -> (usize, &mut Wire) {
        let wires = &mut self.wires[lane as usize];
        (usize::from(at > other), wires.get_or(at.min(other), at.max(other), Wire::default))
    }

    /// The same, if the two have ever met on that lane.
    fn known(&self, at: Seat, other: Seat, lane: Lane) -> Option<&Wire> {
        self.wires[lane as usize].get(at.min(other), at.max(other))
    }
}

impl Route {
    fn draw(rng: &mut Rng, base: Duration) -> Self {
        let base = u64::try_from(base.as_micros()).unwrap_or(u64::MAX);
        Self {
            delay: rng.micros(base / 2, base * 3 / 2),
            jitter: rng.micros(0, base),
            bytes_per_second: rng.between(1, 100) * 1_000_000,
            busy_until: Time::ZERO,
            blocks: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use starling_topology::{Body, Envelope, Generation, RunId, ViewId};

    use super::*;
    use crate::steps::message::{Request, Sealed};

    const PATIENCE: Duration = Duration::from_secs(5);

    fn asked(step: u64) -> Message {
        Message::Asked(step, Request::Result(step))
    }

    fn arrives(sent: Sent) -> (Time, Parcel) {
        match sent {
            Sent::Arrives(at, parcel) => (at, parcel),
            Sent::Waits | Sent::Stalls(..) => panic!("nothing is blocked"),
        }
    }

    #[test]
    fn a_lane_keeps_its_order_and_the_link_its_bandwidth() {
        for seed in 0..50 {
            let mut network = Network::new(Rng::new(seed), PATIENCE, 2);
            let mut last = BTreeMap::new();
            let envelope =
                Envelope { run: RunId([1; 32]), generation: Generation(1), view: ViewId::NONE, body: Body::Leave };
            let mut departed = Time::ZERO;
            for index in 0..60 {
                let message = [asked(1), Message::Control(Sealed::new(&envelope))][index % 2].clone();
                let lane = message.lane();
                let (at, parcel) = arrives(network.send(Time::ZERO, 0, 1, message, 10_000));
                assert!(at > parcel.departed && parcel.departed > departed, "seed {seed}");
                departed = parcel.departed;
                let before = last.insert(lane, at);
                assert!(before.is_none_or(|before| before <= at), "seed {seed}");
            }
            let slowest = Duration::from_micros(60 * 10_000);
            assert!(departed - Time::ZERO <= slowest && departed - Time::ZERO >= slowest / 100, "seed {seed}");
        }
    }

    #[test]
    fn a_block_delays_one_direction_and_loses_nothing() {
        let mut network = Network::new(Rng::new(1), PATIENCE, 2);
        arrives(network.send(Time::ZERO, 0, 1, asked(1), 16));
        network.block(0, 1);
        let Sent::Stalls(at, number) = network.send(Time::ZERO, 0, 1, asked(2), 16) else { panic!("it is blocked") };
        assert_eq!(at, Time::ZERO + PATIENCE);
        assert!(matches!(network.send(Time::ZERO, 0, 1, asked(3), 16), Sent::Waits));
        arrives(network.send(Time::ZERO, 1, 0, asked(4), 16)); // The other direction is open.
        assert!(network.is_stalled(0, 1, Lane::State, number));
        let freed = network.unblock(Time::ZERO + Duration::from_secs(1), 0, 1);
        assert_eq!(freed.len(), 2);
        assert!(freed.is_sorted_by_key(|(at, _)| *at));
        assert!(!network.is_stalled(0, 1, Lane::State, number));
    }

    #[test]
    fn a_connection_needs_both_directions_to_begin() {
        let mut network = Network::new(Rng::new(1), PATIENCE, 2);
        network.block(1, 0);
        assert!(matches!(network.send(Time::ZERO, 0, 1, asked(1), 16), Sent::Stalls(..)));
        assert_eq!(network.open(1, 0, Lane::State), None);
        assert_eq!(network.unblock(Time::ZERO, 1, 0).len(), 1);
        assert!(network.open(1, 0, Lane::State).is_some());
    }

    #[test]
    fn a_new_connection_replaces_a_closed_one() {
        let mut network = Network::new(Rng::new(1), PATIENCE, 2);
        let (_, first) = arrives(network.send(Time::ZERO, 0, 1, asked(1), 16));
        assert!(network.close(0, 1, Lane::State, first.number));
        assert!(!network.close(0, 1, Lane::State, first.number));
        let (_, second) = arrives(network.send(Time::ZERO, 0, 1, asked(1), 16));
        assert!(second.number > first.number);
        assert!(network.accepts(1, 0, Lane::State, first.number), "what was under way still arrives");
        assert!(!network.close(1, 0, Lane::State, first.number), "old news close nothing");
        assert!(network.lose(1, 0, Lane::State, first.number), "but what was lost is news");
        assert!(!network.lose(1, 0, Lane::State, first.number) && !network.lose(0, 1, Lane::State, first.number));
        assert_eq!(network.neighbours(1), [(0, Lane::State, second.number)]);
    }
}
