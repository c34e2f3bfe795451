//! Catching up with the others: a result from a holder, a state from donors; and being one.

use std::rc::Rc;
use std::time::Duration;

use starling_engine::Found;
use starling_topology::{Generation, Lineage, PeerId, Time};

use super::{Effect, Peer};
use crate::canary::Sabotage;
use crate::message::{Chunk, Message, Snapshot};
use crate::state::ResultRecord;

/// How long it waits for an answer before it asks the next one.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// How long it waits before it asks again somebody who is not ready.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long it goes on asking those who should have it, if none of them gives it anything.
const PATIENCE: Duration = Duration::from_secs(20);
/// A result on its way.
#[derive(Debug)]
pub(super) struct Fetch {
    number: u64,
    step: u64,
    asked: Asked,
}

/// Whom it asks, in turn.
#[derive(Debug)]
struct Asked {
    from: Vec<PeerId>,
    turn: usize,
    /// When it last got something.
    since: Time,
}

impl Asked {
    fn new(from: Vec<PeerId>, since: Time) -> Self {
        Self { from, turn: 0, since }
    }

    fn current(&self) -> Option<PeerId> {
        self.from.get(self.turn % self.from.len().max(1)).copied()
    }

    /// Whether to go on asking.
    fn next(&mut self, now: Time) -> bool {
        self.turn += 1;
        now - self.since < PATIENCE
    }
}

/// A state on its way.
#[derive(Debug)]
pub(super) struct Download {
    number: u64,
    generation: Generation,
    step: u64,
    lineage: Lineage,
    asked: Asked,
    snapshot: Option<Snapshot>,
    chunks: Vec<Chunk>,
    /// How many in a row did not have what was asked for.
    missed: usize,
}

/// How it hands out what it has.
#[derive(Debug)]
pub(super) struct Donor {
    rots: bool,
    served: u64,
}

impl Donor {
    pub(super) fn new(rots: bool) -> Self {
        Self { rots, served: 0 }
    }
}

impl Peer {
    // --- a result -----------------------------------------------------------------------------------------------

    pub(super) fn fetch_result(&mut self, now: Time, number: u64, step: u64, from: Vec<PeerId>) {
        self.fetch = Some(Fetch { number, step, asked: Asked::new(from, now) });
        self.ask(now);
    }

    pub(super) fn take_result(&mut self, now: Time, from: PeerId, record: Rc<ResultRecord>) {
        let awaited = self.fetch.take_if(|fetch| fetch.step == record.step && fetch.asked.current() == Some(from));
        let (Some(fetch), Some(view)) = (awaited, self.view_id()) else { return };
        if record.step == self.step() + 1 {
            self.committed(&record, view);
        }
        let action = self.entry.fetched(&mut self.steps, fetch.number, Ok(record));
        action.into_iter().for_each(|action| self.follow(now, action));
        if self.download.is_some() {
            self.ask(now);
        }
        self.go_on(now);
    }

    pub(super) fn give_result(&mut self, to: PeerId, step: u64) {
        let answer = match self.steps.result() {
            Some(record) if record.step == step => Message::Result(Rc::clone(record)),
            Some(_) | None => Message::NotHeld,
        };
        self.send(to, answer);
    }

    // --- a state ------------------------------------------------------------------------------------------------

    pub(super) fn begin_download(
        &mut self,
        now: Time,
        number: u64,
        generation: Generation,
        (step, lineage): (u64, Lineage),
        from: Vec<PeerId>,
    ) {
        self.reached = None;
        self.syncs = Some(number);
        let asked = Asked::new(from, now);
        let chunks = Vec::new();
        self.download = Some(Download { number, generation, step, lineage, asked, snapshot: None, chunks, missed: 0 });
        self.ask(now);
    }

    pub(super) fn take_snapshot(&mut self, now: Time, from: PeerId, offered: Snapshot) {
        let Some(download) = &mut self.download else { return };
        if download.asked.current() != Some(from)
            || (offered.step, offered.lineage) != (download.step, download.lineage)
        {
            return;
        }
        if download.snapshot != Some(offered) {
            download.snapshot = Some(offered);
            download.chunks.clear();
        }
        self.ask(now);
    }

    pub(super) fn take_chunk(&mut self, now: Time, from: PeerId, chunk: Chunk) {
        let verifies = self.sabotage != Some(Sabotage::LoadsUnverified);
        let Some(download) = &mut self.download else { return };
        let next = u32::try_from(download.chunks.len()).unwrap_or(u32::MAX);
        if download.snapshot != Some(chunk.of) || chunk.index != next || download.asked.current() != Some(from) {
            return;
        }
        if verifies && !chunk.intact {
            return self.ask_next(now);
        }
        self.effects.push(Effect::Downloads);
        let last = chunk.of.chunks == next + 1;
        download.chunks.push(chunk);
        download.missed = 0;
        download.asked.since = now;
        if last { self.arrive(now) } else { self.ask(now) }
    }

    /// All chunks are there: the state is what they say.
    fn arrive(&mut self, now: Time) {
        let Some(download) = self.download.take() else { return };
        let Some(chunk) = download.chunks.first() else { return };
        let mut state = Rc::clone(&chunk.state);
        if download.chunks.iter().any(|chunk| !chunk.intact) {
            Rc::make_mut(&mut state).digest.0[0] ^= 1;
        }
        self.alarm += 1;
        let action = self.entry.arrived(&mut self.steps, download.number, Ok(state));
        action.into_iter().for_each(|action| self.follow(now, action));
        self.go_on(now);
    }

    pub(super) fn give_snapshot(&mut self, to: PeerId, generation: Generation, step: u64) {
        let chunks = self.workload.chunks;
        let answer = match self.snapshots.after(generation, step) {
            Found::Here(state) => {
                Message::Snapshot(Snapshot { step, lineage: state.lineage, digest: state.digest, chunks })
            }
            // Later it may be there.
            Found::Later | Found::Nothing => Message::NotHeld,
        };
        self.send(to, answer);
    }

    pub(super) fn give_chunk(&mut self, to: PeerId, of: Snapshot, index: u32) {
        let held = self
            .snapshots
            .iter()
            .find(|state| (state.step, state.lineage, state.digest) == (of.step, of.lineage, of.digest))
            .map(Rc::clone);
        let answer = match held {
            Some(state) => {
                self.donor.served += 1;
                let intact = !self.donor.rots || !self.donor.served.is_multiple_of(5);
                Message::Chunk(Chunk { of, index, state, intact })
            }
            None => Message::NotHeld,
        };
        self.send(to, answer);
    }

    // --- asking -------------------------------------------------------------------------------------------------

    /// Asks for what is missing next.
    fn ask(&mut self, now: Time) {
        let (asked, message) = match (&self.fetch, &self.download) {
            (Some(fetch), _) => (fetch.asked.current(), Message::ResultAsked(fetch.step)),
            (None, Some(download)) => {
                let next = u32::try_from(download.chunks.len()).unwrap_or(u32::MAX);
                let message = match download.snapshot {
                    Some(snapshot) => Message::ChunkAsked(snapshot, next),
                    None => Message::SnapshotAsked(download.generation, download.step),
                };
                (download.asked.current(), message)
            }
            (None, None) => return,
        };
        let Some(to) = asked else { return self.end_in_vain(now) };
        self.send(to, message);
        self.set_alarm(now + ANSWER_LIMIT);
    }

    fn ask_next(&mut self, now: Time) {
        let goes_on = match (&mut self.fetch, &mut self.download) {
            (Some(fetch), _) => fetch.asked.next(now) && fetch.asked.turn < fetch.asked.from.len(),
            (None, Some(download)) => {
                if download.chunks.is_empty() {
                    download.snapshot = None;
                }
                download.asked.next(now)
            }
            (None, None) => return,
        };
        if goes_on { self.ask(now) } else { self.end_in_vain(now) }
    }

    /// Nobody answered in time.
    pub(super) fn ask_again(&mut self, now: Time) {
        self.ask_next(now);
    }

    pub(super) fn asked_is_gone(&mut self, now: Time, peer: PeerId) {
        if self.is_awaiting(peer) {
            self.set_alarm(now + AGAIN_AFTER);
        }
    }

    pub(super) fn take_no(&mut self, now: Time, from: PeerId) {
        if !self.is_awaiting(from) {
            return;
        }
        // When nobody has this snapshot any more, there may be another one; chunks of two don't mix.
        if let (None, Some(download)) = (&self.fetch, &mut self.download) {
            download.missed += 1;
            if download.missed > download.asked.from.len() {
                (download.snapshot, download.missed) = (None, 0);
                download.chunks.clear();
            }
        }
        self.set_alarm(now + AGAIN_AFTER);
    }

    fn is_awaiting(&self, peer: PeerId) -> bool {
        match (&self.fetch, &self.download) {
            (Some(fetch), _) => fetch.asked.current() == Some(peer),
            (None, Some(download)) => download.asked.current() == Some(peer),
            (None, None) => false,
        }
    }

    fn set_alarm(&mut self, at: Time) {
        self.alarm += 1;
        self.effects.push(Effect::Alarm(self.alarm, at));
    }

    /// Nobody handed out what was asked for.
    fn end_in_vain(&mut self, now: Time) {
        let nobody = || "nobody that was asked has it".to_owned();
        let action = match (self.fetch.take(), self.download.take()) {
            (Some(fetch), download) => {
                self.download = download;
                self.entry.fetched(&mut self.steps, fetch.number, Err(nobody()))
            }
            (None, Some(download)) => self.entry.arrived(&mut self.steps, download.number, Err(nobody())),
            (None, None) => None,
        };
        action.into_iter().for_each(|action| self.follow(now, action));
    }
}
