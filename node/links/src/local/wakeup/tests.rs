//! Two ends as threads, of which a seed says which goes on at each word: whatever the order, none sleeps for ever.
//!
//! Writes wait in a buffer of their own, as on real processors, until the seed or a fence lets them through.

use std::sync::{Condvar, Mutex};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const SENT: usize = 0;
const TAKEN: usize = 1;
const RECEIVER_WAITS: usize = 2;
const SENDER_WAITS: usize = 3;
const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// So few that each end waits for nearly each segment.
const SLOTS: u64 = 2;
const SEGMENTS: u64 = 12;
const SEEDS: u64 = 400;

struct Machine {
    state: Mutex<State>,
    turned: Condvar,
}

struct State {
    rng: StdRng,
    words: [u64; 4],
    /// What each end has written and the other can't see yet.
    written: [Vec<(usize, u64)>; 2],
    /// How often each end was rung for.
    rung: [u32; 2],
    /// How often a sleeper may still be woken up by something else.
    disturbances: u32,
    asleep: [bool; 2],
    ended: [bool; 2],
    /// Who goes on; `None` once nobody can.
    turn: Option<usize>,
}

impl State {
    fn publish(&mut self, end: usize, count: usize) {
        for (position, value) in self.written[end].drain(..count) {
            self.words[position] = value;
        }
    }

    fn publish_all(&mut self, end: usize) {
        self.publish(end, self.written[end].len());
    }

    /// Lets some writes through, and one of the ends go on.
    fn pass_turn(&mut self) {
        for end in [SENDER, RECEIVER] {
            let count = self.rng.random_range(0..=self.written[end].len());
            if self.rng.random_bool(0.3) {
                self.publish(end, count);
            }
        }
        let awake = |end: &usize| !self.ended[*end] && (!self.asleep[*end] || self.rung[*end] > 0);
        let mut ready: Vec<usize> = [SENDER, RECEIVER].into_iter().filter(awake).collect();
        // Something else ends the wait of one that sleeps, as when its ring's other link has news.
        if self.disturbances > 0 && self.rng.random_bool(0.05) {
            self.disturbances -= 1;
            ready.extend([SENDER, RECEIVER].into_iter().filter(|end| !self.ended[*end]));
        }
        self.turn = (!ready.is_empty()).then(|| ready[self.rng.random_range(0..ready.len())]);
    }
}

/// An end's view of the words.
struct End<'a> {
    machine: &'a Machine,
    me: usize,
}

/// Both sleep.
struct Stuck;

impl End<'_> {
    /// Waits for its turn, acts, and passes the turn on.
    fn act<R>(&self, action: impl FnOnce(&mut State) -> R) -> Result<R, Stuck> {
        let state = self.machine.state.lock().expect("no thread panics");
        let others = |state: &mut State| state.turn.is_some_and(|turn| turn != self.me);
        let mut state = self.machine.turned.wait_while(state, others).expect("no thread panics");
        if state.turn.is_none() {
            return Err(Stuck);
        }
        let result = action(&mut state);
        state.pass_turn();
        self.machine.turned.notify_all();
        Ok(result)
    }

    /// The same, for an end that is awake.
    fn step<R>(&self, action: impl FnOnce(&mut State) -> R) -> R {
        let Ok(result) = self.act(action) else { panic!("who is awake gets its turn") };
        result
    }

    fn ring(&self) {
        self.step(|state| state.rung[1 - self.me] += 1);
    }

    fn sleep(&self) -> Result<(), Stuck> {
        self.step(|state| state.asleep[self.me] = true);
        self.act(|state| (state.asleep[self.me], state.rung[self.me]) = (false, 0))
    }

    /// What [`super::super::End::wait`] does, until the other's count is not `old`.
    fn wait_for(&self, counter: usize, old: u64, waits: usize) -> Result<u64, Stuck> {
        loop {
            let now = self.load(counter);
            if now != old {
                return Ok(now);
            }
            arm(self, waits);
            if self.load(counter) == old {
                self.sleep()?;
            }
            disarm(self, waits);
        }
    }

    fn end(&self) {
        self.step(|state| {
            state.publish_all(self.me);
            state.ended[self.me] = true;
        });
    }
}

impl Words for End<'_> {
    fn load(&self, position: usize) -> u64 {
        self.step(|state| {
            let own = state.written[self.me].iter().rev().find(|(written, _)| *written == position);
            own.map_or(state.words[position], |(_, value)| *value)
        })
    }

    fn store(&self, position: usize, value: u64) {
        self.step(|state| state.written[self.me].push((position, value)));
    }

    fn swap(&self, position: usize, value: u64) -> u64 {
        self.step(|state| {
            state.publish_all(self.me);
            std::mem::replace(&mut state.words[position], value)
        })
    }

    fn fence(&self) {
        self.step(|state| state.publish_all(self.me));
    }
}

/// Sends all segments through two slots. How many came, unless both ends sleep before.
fn exchange(seed: u64) -> Result<u64, Stuck> {
    let state = State {
        rng: StdRng::seed_from_u64(seed),
        words: [0; 4],
        written: [Vec::new(), Vec::new()],
        rung: [0; 2],
        disturbances: 3,
        asleep: [false; 2],
        ended: [false; 2],
        turn: Some(SENDER),
    };
    let machine = Machine { state: Mutex::new(state), turned: Condvar::new() };
    let (sender, receiver) = (End { machine: &machine, me: SENDER }, End { machine: &machine, me: RECEIVER });
    let send = || {
        let mut taken = 0;
        for sent in 1..=SEGMENTS {
            if sent - taken > SLOTS {
                taken = sender.wait_for(TAKEN, taken, SENDER_WAITS)?;
            }
            if announce(&sender, SENT, sent, RECEIVER_WAITS) {
                sender.ring();
            }
        }
        sender.end();
        Ok(())
    };
    let receive = || {
        let (mut sent, mut taken) = (0, 0);
        while taken < SEGMENTS {
            if sent == taken {
                sent = receiver.wait_for(SENT, sent, RECEIVER_WAITS)?;
            }
            assert!(sent - taken <= SLOTS, "a slot is filled only once it is free");
            taken += 1;
            if announce(&receiver, TAKEN, taken, SENDER_WAITS) {
                receiver.ring();
            }
        }
        receiver.end();
        Ok(taken)
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(send);
        let received = receive();
        sending.join().expect("no thread panics").and(received)
    })
}

#[test]
fn no_order_of_events_leaves_both_ends_asleep() {
    for seed in 0..SEEDS {
        assert!(matches!(exchange(seed), Ok(SEGMENTS)), "seed {seed}: both ends sleep");
    }
}
