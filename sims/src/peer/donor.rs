//! Handing out results and states, not always as one should.

use std::rc::Rc;
use std::time::Duration;

use starling_engine::{SnapshotStatus, UNLIMITED_AFTER};
use starling_topology::{PeerId, Time};

use super::{Effect, Peer};
use crate::hardware::network::rng::Rng;
use crate::steps::message::{Chunk, Message, Reply, Request, Snapshot};

/// How a peer hands out what it has.
#[derive(Debug)]
pub struct Manners {
    /// Whether its memory, or its disk, is bad: it mistakes what it has, serves rotten chunks, is slow, and forgets an answer.
    pub rots: bool,
    /// Whether it does so on purpose and all the time, and makes results up.
    pub lies: bool,
    /// How long a chunk takes it, unless its joiner would not arrive at all then.
    pub pace: Duration,
    /// When it does what.
    pub rng: Rng,
}

/// What it has handed out.
#[derive(Debug)]
pub(super) struct Donor {
    manners: Manners,
    /// Whether it has forgotten an answer: each may hold others up for as long as a stall.
    forgot: bool,
    /// Whether its bad memory has just cost somebody an answer.
    struck: bool,
    /// When it may hand out the next chunk.
    free: Time,
    /// Answers that take their time.
    waiting: Vec<(Time, PeerId, Message)>,
}

impl Donor {
    pub(super) fn new(manners: Manners) -> Self {
        Self { manners, forgot: false, struck: false, free: Time::ZERO, waiting: Vec::new() }
    }

    /// What becomes of an answer, and how long it takes; `None` if it is never given.
    fn distort(&mut self, reply: Reply) -> Option<(Reply, Duration)> {
        let Manners { rots, lies, rng, .. } = &mut self.manners;
        let at_once = |reply| Some((reply, Duration::ZERO));
        if *lies {
            return match rng.between(0, 7) {
                0 => None,
                1 => at_once(Reply::Later),
                2 => Some((reply, rng.spread(1_000, 12_000_000))),
                3 => at_once(Reply::Begins(3 << 20)),
                4 | 5 => at_once(made_up(reply)),
                _ => at_once(reply),
            };
        }
        if !*rots {
            return at_once(reply);
        }
        if !self.forgot && rng.one_in(30) {
            (self.forgot, self.struck) = (true, true);
            return None;
        }
        let odds = match reply {
            Reply::Chunk(_) => 5,
            Reply::Snapshot(_) => 8,
            Reply::Result(_) | Reply::Begins(_) | Reply::Later | Reply::NotHeld => 0,
        };
        if odds > 0 && rng.one_in(odds) {
            self.struck = true;
            return at_once(made_up(reply));
        }
        let takes = if rng.one_in(20) { rng.spread(1_000, 2_000_000) } else { Duration::ZERO };
        Some((reply, takes))
    }
}

/// Something else of the same kind.
fn made_up(reply: Reply) -> Reply {
    match reply {
        Reply::Result(mut record) => {
            Rc::make_mut(&mut record).lineage.branch ^= 1;
            Reply::Result(record)
        }
        Reply::Snapshot(mut snapshot) => {
            snapshot.digest.0[0] ^= 1;
            Reply::Snapshot(snapshot)
        }
        Reply::Chunk(chunk) => Reply::Chunk(Chunk { intact: false, ..chunk }),
        Reply::Begins(_) | Reply::Later | Reply::NotHeld => reply,
    }
}

impl Peer {
    /// From now on it lies about what it has, too.
    pub fn lie(&mut self) {
        self.donor.manners.lies = true;
    }

    /// Answers a question, some time.
    pub(super) fn give(&mut self, now: Time, to: PeerId, question: u64, wanted: Request) {
        let reply = self.reply(wanted);
        let distorted = self.donor.distort(reply);
        if std::mem::take(&mut self.donor.struck) {
            self.effects.push(Effect::Rotted);
        }
        let Some((reply, takes)) = distorted else { return };
        let mut at = now + takes;
        if let Reply::Chunk(chunk) = &reply
            && self.step() < chunk.of.step + UNLIMITED_AFTER
        {
            at = at.max(self.donor.free);
            self.donor.free = at + self.donor.manners.pace;
        }
        let answer = Message::Answered(question, reply);
        if at <= now {
            return self.send(to, answer);
        }
        self.donor.waiting.push((at, to, answer));
        self.effects.push(Effect::Alarm(at));
    }

    /// Gives the answers whose time has come.
    pub(super) fn hand_out(&mut self, now: Time) {
        for (_, to, answer) in self.donor.waiting.extract_if(.., |(at, ..)| *at <= now).collect::<Vec<_>>() {
            self.send(to, answer);
        }
    }

    fn reply(&self, wanted: Request) -> Reply {
        match wanted {
            Request::Result(step) => match self.steps.result_of(step) {
                SnapshotStatus::Here(record) => Reply::Result(record),
                SnapshotStatus::Later => Reply::Later,
                SnapshotStatus::Nothing => Reply::NotHeld,
            },
            Request::Snapshot(generation, step) => match self.snapshots.after(generation, step) {
                SnapshotStatus::Here(state) => {
                    let chunks = self.workload.chunks;
                    Reply::Snapshot(Snapshot { step, lineage: state.lineage, digest: state.digest, chunks })
                }
                SnapshotStatus::Later => Reply::Later,
                SnapshotStatus::Nothing => Reply::NotHeld,
            },
            Request::Chunk(of, index) => {
                // Who has named what it does not have may hand that out all the same.
                let mistakes = self.donor.manners.rots || self.donor.manners.lies;
                let is_it = |state: &&Rc<_>| {
                    let state: &crate::steps::state::State = state;
                    (state.step, state.lineage) == (of.step, of.lineage) && (mistakes || state.digest == of.digest)
                };
                let held = self.snapshots.iter().find(is_it).map(Rc::clone);
                held.map_or(Reply::NotHeld, |state| Reply::Chunk(Chunk { of, index, state, intact: true }))
            }
        }
    }
}
