//! Catching up with the others: a result from a holder, a state from donors; and being one.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use starling_topology::{Input, PeerId, Resumption, Time, View, ViewId};

use super::{Effect, Peer};
use crate::canary::Sabotage;
use crate::message::{Chunk, Message, Snapshot};
use crate::state::{ResultRecord, State};

/// How long it waits for an answer before it asks the next one.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// How long it waits before it asks again somebody who is not ready.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long it goes on asking those who should have it, if none of them gives it anything.
const PATIENCE: Duration = Duration::from_secs(20);
/// Snapshots that a donor keeps at a time.
const MAX_SNAPSHOTS: usize = 2;

/// A result on its way.
#[derive(Debug)]
pub(super) struct Fetch {
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

/// A state on its way. Meanwhile the results of later steps are kept, to be applied to it.
#[derive(Debug)]
pub(super) struct Download {
    /// The snapshot that is loaded must be of this step or a later one.
    base: u64,
    kept: Vec<(Rc<ResultRecord>, ViewId)>,
    asked: Asked,
    snapshot: Option<Snapshot>,
    chunks: Vec<Chunk>,
    /// How many in a row did not have what was asked for.
    missed: usize,
}

impl Download {
    /// The last step whose result is kept.
    pub(super) fn step(&self) -> u64 {
        self.kept.last().map_or(self.base, |(record, _)| record.step)
    }

    /// Keeps the result of the next step.
    pub(super) fn keep(&mut self, record: Rc<ResultRecord>, view: ViewId) {
        self.kept.push((record, view));
    }
}

/// What it has for others.
#[derive(Debug)]
pub(super) struct Donor {
    snapshots: BTreeMap<u64, Rc<State>>,
    /// The step of which a snapshot is wanted.
    wanted: Option<u64>,
    rots: bool,
    served: u64,
}

impl Donor {
    pub(super) fn new(rots: bool) -> Self {
        Self { snapshots: BTreeMap::new(), wanted: None, rots, served: 0 }
    }

    /// Members that need the state will ask for that of the resumption's step, those that went on for an earlier one.
    pub(super) fn is_asked(&mut self, resumption: &Resumption) {
        self.wanted = (!resumption.syncing.is_empty()).then_some(resumption.step);
        if self.wanted.is_none() {
            self.snapshots.clear();
        }
    }
}

impl Peer {
    // --- a result -----------------------------------------------------------------------------------------------

    pub(super) fn fetch_result(&mut self, now: Time, step: u64, from: Vec<PeerId>) {
        self.fetch = Some(Fetch { step, asked: Asked::new(from, now) });
        self.ask(now);
    }

    pub(super) fn take_result(&mut self, now: Time, from: PeerId, record: Rc<ResultRecord>) {
        let awaited = self.fetch.take_if(|fetch| fetch.step == record.step && fetch.asked.current() == Some(from));
        let (Some(_), Some(view)) = (awaited, self.view_id()) else { return };
        self.accept(now, record, view);
        self.keep_snapshot();
        if self.download.is_some() {
            self.ask(now);
        }
        self.begin(now);
    }

    pub(super) fn give_result(&mut self, to: PeerId, step: u64) {
        let answer = match &self.result {
            Some(record) if record.step == step => Message::Result(Rc::clone(record)),
            Some(_) | None => Message::NotHeld,
        };
        self.send(to, answer);
    }

    // --- a state ------------------------------------------------------------------------------------------------

    pub(super) fn begin_download(&mut self, now: Time, step: u64, from: Vec<PeerId>) {
        self.state = None;
        self.result = None;
        self.gradient = super::Gradient::None;
        self.effects.push(Effect::Abandon);
        let asked = Asked::new(from, now);
        let (kept, chunks) = (Vec::new(), Vec::new());
        self.download = Some(Download { base: step, kept, asked, snapshot: None, chunks, missed: 0 });
        self.ask(now);
    }

    /// A view without a new state for us: those of its members that have the state may be others now.
    pub(super) fn go_on_downloading(&mut self, now: Time, view: &View, syncing: &[PeerId]) {
        let Some(download) = &mut self.download else { return };
        let has = |member: &PeerId| *member != self.name && !syncing.contains(member);
        download.asked = Asked::new(view.members().iter().copied().filter(has).collect(), now);
        if download.step() == 0 {
            (download.snapshot, download.chunks) = (None, Vec::new());
        }
        self.ask(now);
    }

    pub(super) fn take_snapshot(&mut self, now: Time, from: PeerId, offered: Snapshot) {
        let Some(download) = &mut self.download else { return };
        if download.asked.current() != Some(from) || !(download.base..=download.step()).contains(&offered.step) {
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
        if last { self.load(now) } else { self.ask(now) }
    }

    /// All chunks are there: the state is what they say, and what was kept meanwhile.
    fn load(&mut self, now: Time) {
        let Some(download) = self.download.take() else { return };
        let Some(chunk) = download.chunks.first() else { return };
        let mut state = Rc::clone(&chunk.state);
        if download.chunks.iter().any(|chunk| !chunk.intact) {
            Rc::make_mut(&mut state).digest.0[0] ^= 1;
        }
        self.effects.push(Effect::Loaded(Rc::clone(&state)));
        let first = chunk.of.step + 1;
        for (record, view) in download.kept.into_iter().filter(|(record, _)| record.step >= first) {
            state = self.apply(state, record, view);
        }
        self.effects.push(Effect::Save(Rc::clone(&state)));
        self.state = Some(state);
        self.alarm += 1;
        self.input(now, Input::Synced);
        self.begin(now);
    }

    /// Takes the snapshot that those who need the state will ask for: before the next step is applied.
    pub(super) fn keep_snapshot(&mut self) {
        let Some(state) = &self.state else { return };
        if self.donor.wanted.take_if(|wanted| *wanted == state.step).is_some() {
            self.donor.snapshots.insert(state.step, Rc::clone(state));
            while self.donor.snapshots.len() > MAX_SNAPSHOTS {
                self.donor.snapshots.pop_first();
            }
            self.effects.push(Effect::Keeps("snapshots", self.donor.snapshots.len(), MAX_SNAPSHOTS));
        }
    }

    pub(super) fn give_snapshot(&mut self, to: PeerId, step: u64) {
        let chunks = self.workload.chunks;
        let answer = match self.donor.snapshots.range(step..).next() {
            Some((step, state)) => Message::Snapshot(Snapshot { step: *step, digest: state.digest, chunks }),
            None => Message::NotHeld,
        };
        self.send(to, answer);
    }

    pub(super) fn give_chunk(&mut self, to: PeerId, of: Snapshot, index: u32) {
        let held = self.donor.snapshots.get(&of.step).filter(|state| state.digest == of.digest);
        let answer = match held {
            Some(state) => {
                self.donor.served += 1;
                let intact = !self.donor.rots || !self.donor.served.is_multiple_of(5);
                Message::Chunk(Chunk { of, index, state: Rc::clone(state), intact })
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
                    None => Message::SnapshotAsked(download.base),
                };
                (download.asked.current(), message)
            }
            (None, None) => return,
        };
        let Some(to) = asked else { return self.give_up(now) };
        self.send(to, message);
        self.set_alarm(now + ANSWER_LIMIT);
    }

    fn ask_next(&mut self, now: Time) {
        let goes_on = match (&mut self.fetch, &mut self.download) {
            (Some(fetch), _) => fetch.asked.next(now),
            (None, Some(download)) => {
                if download.chunks.is_empty() {
                    download.snapshot = None;
                }
                download.asked.next(now)
            }
            (None, None) => return,
        };
        if goes_on { self.ask(now) } else { self.give_up(now) }
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

    fn give_up(&mut self, now: Time) {
        self.fetch = None;
        self.download = None;
        self.gate = super::Gate::Held;
        self.operation = None;
        self.input(now, Input::Unable);
    }
}
