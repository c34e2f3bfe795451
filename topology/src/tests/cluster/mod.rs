//! Many machines in virtual time, over FIFO links that a seed delays.

pub(super) mod driver;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::SplitMix64Generator;
use crate::plan::{Bucket, PlanPolicy};
use crate::view::mark::MarkStatus;
use crate::{
    Body, Config, Contact, Digest, Envelope, Event, Evidence, Generation, Input, JoinRequest, Lineage, LocalIdentity,
    Membership, Output, PeerId, Progress, Record, RunId, Signer, Time, Timer, ViewId,
};
use driver::{Fate, Invariants, Peer};

pub(crate) const RUN: RunId = RunId([7; 32]);
const START: Digest = Digest([0; 32]);

/// One whom nobody but the first lets in.
pub(super) const UNINVITED: PeerId = PeerId([200; 32]);

/// One whom only the first lets in, and nobody is to blame for that.
pub(super) const DOUBTED: PeerId = PeerId([201; 32]);

/// What a seed decides.
#[derive(Debug)]
pub(super) struct Rng(SplitMix64Generator);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64Generator::new(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn within(&mut self, least: Duration, most: Duration) -> Duration {
        least + Duration::from_nanos(self.next() % ((most - least).as_nanos() as u64).max(1))
    }
}

pub(crate) fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// Of these one may vote at a time.
pub(super) const CROWD: RangeInclusive<u8> = 60..=69;

/// Signs in a way that only who breaks the rules of a test forges.
#[derive(Debug)]
pub(super) struct Signs(pub(super) PeerId);

impl Signs {
    fn of(signer: PeerId, statement: &[u8]) -> [u8; 64] {
        let mut hasher = blake3::Hasher::new_keyed(&signer.0);
        let mut signature = [0; 64];
        hasher.update(statement).finalize_xof().fill(&mut signature);
        signature
    }
}

impl Signer for Signs {
    fn sign(&self, statement: &[u8]) -> [u8; 64] {
        Self::of(self.0, statement)
    }

    fn is_signed(&self, signer: PeerId, statement: &[u8], signature: &[u8; 64]) -> bool {
        Self::of(signer, statement) == *signature
    }

    fn pass(&self) -> Vec<u8> {
        if self.0 == UNINVITED { vec![1] } else { Vec::new() }
    }

    fn is_invited(&self, joiner: &JoinRequest) -> bool {
        self.0 == peer(1) || joiner.pass.is_empty()
    }

    fn admits(&self, joiners: &[JoinRequest]) -> bool {
        self.0 == peer(1) || joiners.iter().all(|joiner| joiner.contact.peer != DOUBTED)
    }

    fn may_vote(&self, mut newcomers: Vec<PeerId>, view: &crate::View) -> Vec<PeerId> {
        let is_crowd = |peer: &PeerId| CROWD.contains(&peer.0[0]);
        let mut is_there = view.voters().any(|peer| is_crowd(&peer));
        newcomers.retain(|peer| !is_crowd(peer) || !std::mem::replace(&mut is_there, true));
        newcomers
    }
}

pub(crate) fn me(peer: PeerId) -> LocalIdentity {
    LocalIdentity { contact: contact(peer), notary: Box::new(Signs(peer)) }
}

pub(crate) fn contact(peer: PeerId) -> Contact {
    Contact { peer, addresses: vec![format!("address of {peer}")] }
}

#[derive(Debug)]
enum Happening {
    Message { from: PeerId, to: PeerId, bytes: Vec<u8> },
    Closed { from: PeerId, to: PeerId },
    Timer { of: PeerId, timer: Timer },
    Contribute { of: PeerId, activity: u64 },
    Commit { of: PeerId, activity: u64 },
    Download { of: PeerId, activity: u64 },
    Stored { of: PeerId, incarnation: u64, record: Box<Record> },
}

pub(super) struct Cluster {
    pub(super) config: Config,
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) now: Time,
    pub(super) peers: BTreeMap<PeerId, Peer>,
    pub(super) steps: u64,
    pub(super) delivered: usize,
    /// Links that carry nothing, each in its direction.
    pub(super) cut: BTreeSet<(PeerId, PeerId)>,
    /// Who brings nothing to steps because its data is on its way.
    pub(super) starved: BTreeSet<PeerId>,
    /// One that hears of nobody that contributes.
    pub(super) deaf: Option<PeerId>,
    /// Disks that store nothing.
    pub(super) failing: BTreeSet<PeerId>,
    /// Peers that don't look at what they have downloaded.
    pub(super) busy: BTreeSet<PeerId>,
    queue: BTreeMap<(Time, u64), Happening>,
    count: u64,
    incarnations: u64,
    last: BTreeMap<(PeerId, PeerId), Time>,
    contributions: BTreeSet<(ViewId, u64, PeerId)>,
    pub(super) invariants: Invariants,
    /// Build the tests with `STARLING_TRACE=1` to see all that happens.
    tracing: bool,
}

impl Cluster {
    pub(super) fn new(seed: u64, steps: u64, min_members: usize) -> Self {
        let bucket = Bucket { bytes: 64 << 20, segment_bytes: 128 << 10 };
        let config = Config { min_members, reduced: Some((PlanPolicy::Ring, bucket)), ..Config::default() };
        Self {
            config,
            seed,
            rng: Rng::new(seed),
            now: Time::ZERO,
            peers: BTreeMap::new(),
            steps,
            delivered: 0,
            cut: BTreeSet::new(),
            starved: BTreeSet::new(),
            deaf: None,
            failing: BTreeSet::new(),
            busy: BTreeSet::new(),
            queue: BTreeMap::new(),
            count: 0,
            incarnations: 0,
            last: BTreeMap::new(),
            contributions: BTreeSet::new(),
            invariants: Invariants::default(),
            tracing: option_env!("STARLING_TRACE").is_some(),
        }
    }

    // --- what a test does ---------------------------------------------------------------------------------------

    pub(super) fn found(&mut self, founder: PeerId) {
        let progress = Progress { has_state: true, ..Progress::default() };
        let machine = Membership::found(self.config.clone(), RUN, me(founder), progress, self.now);
        self.add(founder, Peer::new(machine, progress, Some(START)));
    }

    pub(super) fn join(&mut self, joiner: PeerId, members: &[PeerId]) {
        let contacts = members.iter().copied().map(contact).collect();
        self.config.incarnation += 1;
        let machine = Membership::join(self.config.clone(), RUN, me(joiner), contacts, self.now);
        self.add(joiner, Peer::new(machine, Progress { has_state: true, ..Progress::default() }, Some(START)));
    }

    /// A killed peer starts again from its record and its state as of `step`, or of now.
    pub(super) fn recover(&mut self, name: PeerId) {
        let before = self.peers.remove(&name).expect("there");
        let contacts = self.peers.keys().copied().map(contact).collect();
        let record = before.record.clone().expect("members have records");
        let state = before.state.expect("a member with a checkpoint");
        let progress = Progress { step: before.step, lineage: before.lineage, has_state: true, has_result: false };
        let now = self.now;
        self.config.incarnation += 1;
        let machine = Membership::recover(
            self.config.clone(),
            RUN,
            me(name),
            (record, MarkStatus::Nothing),
            contacts,
            progress,
            now,
        );
        let mut peer = Peer::new(machine, progress, Some(state));
        peer.record = before.record;
        peer.generation = before.generation;
        self.add(name, peer);
    }

    /// A killed peer starts again from its record alone: it had saved no state.
    pub(super) fn recover_without_state(&mut self, name: PeerId) {
        let before = self.peers.remove(&name).expect("there");
        let contacts = self.peers.keys().copied().map(contact).collect();
        let record = (before.record.clone().expect("members have records"), MarkStatus::Nothing);
        let (nothing, now) = (Progress::default(), self.now);
        self.config.incarnation += 1;
        let mut machine = Membership::recover(self.config.clone(), RUN, me(name), record, contacts, nothing, now);
        machine.allow_to_begin();
        let mut peer = Peer::new(machine, nothing, Some(START));
        (peer.record, peer.generation) = (before.record, before.generation);
        self.add(name, peer);
    }

    /// A peer that is gone starts again and goes on alone, whatever the others do.
    pub(super) fn fork(&mut self, name: PeerId) {
        let before = self.peers.remove(&name).expect("there");
        let contacts = self.peers.keys().copied().map(contact).collect();
        let parent = before.record.as_ref().map(|record| (record.view.generation, record.view.id()));
        let state = before.state.expect("a member with a checkpoint");
        let progress = Progress { step: before.step, lineage: before.lineage, has_state: true, has_result: false };
        self.config.incarnation += 1;
        let machine = Membership::fork(self.config.clone(), RUN, me(name), parent, contacts, progress, self.now);
        self.add(name, Peer::new(machine, progress, Some(state)));
    }

    /// A killed peer starts again with nothing.
    pub(super) fn restart(&mut self, name: PeerId, members: &[PeerId]) {
        self.peers.remove(&name);
        self.join(name, members);
    }

    pub(super) fn leave(&mut self, name: PeerId) {
        self.input(name, Input::Leave);
    }

    /// Ends `name` at once. What it sent last may be lost with it.
    pub(super) fn kill(&mut self, name: PeerId) {
        self.note(|| format!("KILL {name:?}"));
        self.at(name).fate = Fate::Killed;
        self.at(name).timers.clear();
        for other in self.others(name) {
            self.close(name, other);
        }
    }

    pub(super) fn hang(&mut self, name: PeerId) {
        self.note(|| format!("HANG {name:?}"));
        self.at(name).fate = Fate::Hung;
    }

    /// Loses the connection between two peers: some of what is under way is lost, both ends learn of it.
    pub(super) fn close(&mut self, a: PeerId, b: PeerId) {
        self.note(|| format!("CLOSE {a:?} {b:?}"));
        for (from, to) in [(a, b), (b, a)] {
            let arrives = self.arrival(from, to);
            let lost_after = self.rng.within(Duration::ZERO, Duration::from_millis(40));
            let deadline = self.now + lost_after;
            let dropped: Vec<_> = self
                .queue
                .iter()
                .filter(|((at, _), what)| {
                    matches!(what, Happening::Message { from: f, to: t, .. } if (*f, *t) == (from, to))
                        && *at > deadline
                })
                .map(|(key, _)| *key)
                .collect();
            for key in dropped {
                self.queue.remove(&key);
            }
            self.push(arrives, Happening::Closed { from, to });
        }
    }

    /// Cuts all links between the sides, in both directions. Half of the time the ends learn of it at once.
    pub(super) fn split(&mut self, sides: &[&[PeerId]]) {
        let loud = self.rng.below(2) == 0;
        for (at, side) in sides.iter().enumerate() {
            for other in sides[at + 1..].iter().copied().flatten() {
                for one in *side {
                    self.cut.insert((*one, *other));
                    self.cut.insert((*other, *one));
                    if loud {
                        self.close(*one, *other);
                    }
                }
            }
        }
    }

    pub(super) fn heal(&mut self) {
        self.note(|| "HEAL".into());
        self.cut.clear();
        self.failing.clear();
    }

    /// Lets the next thing happen. False if nothing can happen any more.
    pub(super) fn tick(&mut self) -> bool {
        let Some(((at, _), happening)) = self.queue.pop_first() else { return false };
        self.now = at;
        match happening {
            Happening::Message { from, to, bytes, .. } => {
                self.delivered += 1;
                if self.is_running(to) && !self.cut.contains(&(from, to)) {
                    let envelope = Envelope::decode(&bytes).expect("what was encoded");
                    if self.deaf != Some(to) || !matches!(envelope.body, Body::Contributes { .. }) {
                        self.input(to, Input::Received { from, envelope });
                    }
                }
            }
            Happening::Closed { from, to } => {
                if self.is_running(to) {
                    self.input(to, Input::Suspected { peer: from, evidence: Evidence::Closed });
                }
            }
            Happening::Timer { of, timer } => {
                if self.is_running(of) && self.peers[&of].timers.get(&timer) == Some(&at) {
                    self.at(of).timers.remove(&timer);
                    self.input(of, Input::Expired(timer));
                }
            }
            Happening::Contribute { of, activity } => self.contribute(of, activity),
            Happening::Commit { of, activity } => self.commit(of, activity),
            Happening::Download { of, activity } => self.download(of, activity),
            Happening::Stored { of, incarnation, record } => {
                if self.is_running(of) && self.peers[&of].incarnation == incarnation {
                    let fails = self.failing.contains(&of);
                    if !fails {
                        self.at(of).record = Some(*record);
                    }
                    self.input(of, if fails { Input::NotPersisted } else { Input::Persisted });
                }
            }
        }
        true
    }

    /// Ticks until `done`, or until the run has not come to it in ten virtual minutes.
    #[track_caller]
    pub(super) fn run_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(600);
        while !done(self) {
            let ticked = self.tick();
            if !ticked || self.now > limit {
                self.fail("it never came to that");
            }
        }
    }

    #[track_caller]
    pub(super) fn fail(&self, why: &str) -> ! {
        for (name, peer) in &self.peers {
            eprintln!(
                "{name:?} {:?} at {} step {} view {:?}",
                peer.fate,
                Duration::from_nanos(self.now.as_nanos()).as_secs_f32(),
                peer.step,
                peer.machine.view()
            );
        }
        panic!("seed {}: {why}", self.seed);
    }

    /// Ticks until every peer that lives has ended.
    #[track_caller]
    pub(super) fn run(&mut self) {
        self.run_until(|cluster| cluster.running().is_empty());
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.tick();
        }
        self.now = end;
    }

    // --- what a test asks ---------------------------------------------------------------------------------------

    pub(super) fn running(&self) -> Vec<PeerId> {
        self.peers.iter().filter(|(_, peer)| peer.is_running()).map(|(name, _)| *name).collect()
    }

    /// Whether the steps of these run in one view of exactly them.
    pub(super) fn is_formed(&self, members: &[PeerId]) -> bool {
        let in_view = |name: &PeerId| {
            self.peers.get(name).is_some_and(|peer| {
                peer.is_running() && peer.view.as_ref().is_some_and(|view| view.members() == members)
            })
        };
        members.iter().all(in_view)
    }

    pub(super) fn has_event(&self, of: PeerId, wanted: impl Fn(&Event) -> bool) -> bool {
        self.peers[&of].events.iter().any(wanted)
    }

    #[track_caller]
    pub(super) fn assert_complete(&self, peers: impl IntoIterator<Item = PeerId>) {
        let mut digests = BTreeSet::new();
        for name in peers {
            let Fate::Ended(Event::Complete { step, digest }) = self.peers[&name].fate else {
                self.fail(&format!("{name:?} ended with {:?}", self.peers[&name].fate));
            };
            assert_eq!(step, self.steps);
            digests.insert(digest);
        }
        if digests.len() > 1 {
            self.fail("they hold different states");
        }
    }

    // --- how it works -------------------------------------------------------------------------------------------

    pub(super) fn input(&mut self, to: PeerId, input: Input) {
        let now = self.now;
        self.note(|| format!("{to:?} <- {input:?}"));
        if let Err(violation) = self.at(to).machine.handle(now, input.clone()) {
            let is_liar = matches!(input, Input::Received { from, .. } if from == peer(1));
            if !is_liar || !self.peers.contains_key(&UNINVITED) {
                self.fail(&format!("{to:?} took {input:?} for a violation: {violation}"));
            }
            return self.input(to, Input::Suspected { peer: peer(1), evidence: Evidence::Misbehaved });
        }
        self.check(to);
        self.drain(to);
    }

    fn check(&mut self, name: PeerId) {
        if let Err(seen) = self.at(name).machine.check() {
            self.fail(&format!("{name:?}: {seen}"));
        }
    }

    /// `to` hears what `from` would never say by itself. Whether it takes that for a violation.
    pub(super) fn say(&mut self, from: PeerId, to: PeerId, body: Body) -> bool {
        let view = self.peers[&to].machine.view().expect("it is a member").clone();
        self.say_of(from, to, (view.generation, view.id()), body)
    }

    /// As [`Self::say`], of another view.
    pub(super) fn say_of(&mut self, from: PeerId, to: PeerId, of: (Generation, ViewId), body: Body) -> bool {
        let (now, (generation, view)) = (self.now, of);
        let envelope = Envelope { run: RUN, generation, view, body };
        let refused = self.at(to).machine.handle(now, Input::Received { from, envelope }).is_err();
        self.check(to);
        self.drain(to);
        refused
    }

    /// What is on its way to it, and from whom.
    pub(super) fn under_way(&self, name: PeerId) -> Vec<(PeerId, Envelope)> {
        let messages = self.queue.values().filter_map(|happening| match happening {
            Happening::Message { from, to, bytes } if *to == name => Some((*from, bytes)),
            _ => None,
        });
        messages.map(|(from, bytes)| (from, Envelope::decode(bytes).expect("what was encoded"))).collect()
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.tracing {
            eprintln!("{:>12?} {}", Duration::from_nanos(self.now.as_nanos()), line());
        }
    }

    pub(super) fn at(&mut self, name: PeerId) -> &mut Peer {
        self.peers.get_mut(&name).expect("a peer of this cluster")
    }

    fn is_running(&self, name: PeerId) -> bool {
        self.peers.get(&name).is_some_and(Peer::is_running)
    }

    fn others(&self, name: PeerId) -> Vec<PeerId> {
        self.peers.keys().copied().filter(|other| *other != name).collect()
    }

    fn add(&mut self, name: PeerId, mut peer: Peer) {
        self.incarnations += 1;
        peer.incarnation = self.incarnations;
        assert!(self.peers.insert(name, peer).is_none());
        self.drain(name);
    }

    fn push(&mut self, at: Time, happening: Happening) {
        self.count += 1;
        self.queue.insert((at, self.count), happening);
    }

    /// When something that is sent now arrives: later than all that was sent before it.
    fn arrival(&mut self, from: PeerId, to: PeerId) -> Time {
        let delay = self.rng.within(Duration::from_millis(1), Duration::from_millis(40));
        let last = self.last.get(&(from, to)).copied().unwrap_or(Time::ZERO);
        let at = (self.now + delay).max(last);
        self.last.insert((from, to), at);
        at
    }

    fn drain(&mut self, name: PeerId) {
        while let Some(output) = self.at(name).machine.poll() {
            if !matches!(output, Output::SetTimer { .. } | Output::Learn(_)) {
                self.note(|| format!("{name:?} -> {output:?}"));
            }
            match output {
                Output::Send { to, envelope } => {
                    if to == name {
                        self.fail(&format!("{name:?} sends to itself: {envelope:?}"));
                    }
                    let gone =
                        self.peers.get(&to).is_none_or(|peer| matches!(peer.fate, Fate::Killed | Fate::Ended(_)));
                    // What a dead peer has sent is read before the end of its connection.
                    let at = if gone { self.arrival(to, name) } else { self.arrival(name, to) };
                    if gone {
                        self.push(at, Happening::Closed { from: to, to: name });
                    } else if !self.cut.contains(&(name, to)) {
                        let bytes = envelope.encode();
                        self.push(at, Happening::Message { from: name, to, bytes });
                    }
                }
                Output::Learn(contact) => assert_ne!(contact.peer, name),
                Output::Keep(record) => self.at(name).led = Some(record),
                Output::SetTimer { timer, at } => {
                    self.at(name).timers.insert(timer, at);
                    self.push(at, Happening::Timer { of: name, timer });
                }
                Output::Hold(hold) => {
                    self.at(name).hold = Some(hold);
                    self.hold_if_ready(name);
                }
                Output::Persist(record) => {
                    let record = Box::new(Record::decode(&record.encode()).expect("what was encoded"));
                    let takes = self.rng.within(Duration::from_micros(100), Duration::from_millis(20));
                    let incarnation = self.peers[&name].incarnation;
                    self.push(self.now + takes, Happening::Stored { of: name, incarnation, record });
                }
                Output::Resume(resumption) => {
                    let peer = self.peers.get_mut(&name).expect("there");
                    self.invariants.enter(name, peer, &resumption);
                    peer.resume(&resumption);
                    if let (Some(state), None) = (peer.state, &peer.wants_result) {
                        self.invariants.state(name, resumption.view.id(), resumption.step, state);
                    }
                    let (step, state) = (self.peers[&name].step, self.peers[&name].state);
                    if let (Some(digest), true) = (state, step == self.steps) {
                        self.input(name, Input::Finished { step, digest });
                    }
                    self.begin(name);
                }
                Output::Event(event) => {
                    self.at(name).events.push(event.clone());
                    self.at(name).outside |= matches!(event, Event::Evicted { .. });
                    if event.is_last() {
                        self.at(name).fate = Fate::Ended(event);
                    }
                }
            }
        }
        if matches!(self.at(name).fate, Fate::Ended(_)) && !self.at(name).timers.is_empty() {
            self.at(name).timers.clear();
            for other in self.others(name) {
                let at = self.arrival(name, other);
                self.push(at, Happening::Closed { from: name, to: other });
            }
        }
    }

    /// Starts whatever the peer has to do next.
    fn begin(&mut self, name: PeerId) {
        let peer = &self.peers[&name];
        let (activity, steps) = (peer.activity, self.steps);
        let downloads = peer.wants_result.is_some() || peer.wants_state.is_some();
        let may_step = peer.view.is_some() && peer.wants_result.is_none() && peer.step < steps;
        if downloads {
            let delay = self.rng.within(Duration::from_millis(5), Duration::from_millis(400));
            self.push(self.now + delay, Happening::Download { of: name, activity });
        }
        if may_step {
            let delay = self.rng.within(Duration::from_millis(50), Duration::from_millis(150));
            self.push(self.now + delay, Happening::Contribute { of: name, activity });
        }
    }

    fn hold_if_ready(&mut self, name: PeerId) {
        if let Some(progress) = self.at(name).try_hold() {
            self.input(name, Input::Held(progress));
        }
    }

    fn contribute(&mut self, name: PeerId, activity: u64) {
        if !self.is_running(name) || self.peers[&name].activity != activity || self.peers[&name].contributed {
            return;
        }
        let peer = self.at(name);
        let step = peer.step + 1;
        let Some(view) = peer.view.clone() else { return };
        peer.contributed = true;
        self.contributions.insert((view.id(), step, name));
        let complete = |peer: &PeerId| self.contributions.contains(&(view.id(), step, *peer));
        if !view.members().iter().all(complete) {
            return;
        }
        // The ring is closed. Each member gets the last segments on its own, or does not.
        for member in view.members() {
            let delay = self.rng.within(Duration::from_millis(1), Duration::from_millis(40));
            let activity = self.peers.get(member).map_or(0, |peer| peer.activity);
            self.push(self.now + delay, Happening::Commit { of: *member, activity });
        }
    }

    fn commit(&mut self, name: PeerId, activity: u64) {
        if !self.is_running(name) || self.peers[&name].activity != activity || !self.peers[&name].contributed {
            return;
        }
        let peer = self.at(name);
        let (Some(lineage), step) = (peer.view.as_ref().map(Lineage::of), peer.step + 1) else { return };
        let view = lineage.view;
        peer.commit((step, lineage));
        self.note(|| format!("{name:?} commits {step}"));
        self.committed(name, view);
    }

    fn committed(&mut self, name: PeerId, view: ViewId) {
        let steps = self.steps;
        let peer = self.at(name);
        let (step, state) = (peer.step, peer.state);
        if self.starved.contains(&name) {
            self.input(name, Input::Starved { step });
        }
        self.input(name, Input::Reached { step, waits: None });
        if let Some(digest) = state {
            self.invariants.state(name, view, step, digest);
            if step % 8 == 0 {
                self.input(name, Input::Digest { step, digest });
            }
            if step == steps && self.is_running(name) {
                self.input(name, Input::Finished { step, digest });
            }
        }
        self.hold_if_ready(name);
        self.begin(name);
    }

    fn download(&mut self, name: PeerId, activity: u64) {
        if !self.is_running(name) {
            return;
        }
        let peer = &self.peers[&name];
        let view = peer.view.as_ref().map(|view| view.id());
        // A result is fetched before the steps go on, the state meanwhile.
        if let Some((of, from)) = peer.wants_result.clone().filter(|_| peer.activity == activity) {
            let donors: Vec<PeerId> = from.iter().copied().filter(|donor| self.reaches(name, *donor)).collect();
            let serves = |donor: &PeerId| self.peers[donor].result.filter(|(step, _)| *step == of);
            let (Some(outcome), Some(view)) = (donors.iter().find_map(serves), view) else {
                if donors.iter().all(|donor| self.peers[donor].step >= of) {
                    return self.input(name, Input::Withheld); // Whoever held it is gone or has gone on.
                }
                let again = self.now + Duration::from_millis(50);
                return self.push(again, Happening::Download { of: name, activity });
            };
            let peer = self.at(name);
            peer.wants_result = None;
            peer.commit(outcome);
            peer.keep_snapshot();
            return self.committed(name, view);
        }
        let Some((of, from)) = peer.wants_state.clone() else { return };
        if self.busy.contains(&name) {
            return self.push(self.now + Duration::from_secs(1), Happening::Download { of: name, activity });
        }
        let donors: Vec<PeerId> = from.iter().copied().filter(|donor| self.reaches(name, *donor)).collect();
        let Some(state) = donors.iter().find_map(|donor| self.peers[donor].snapshots.get(&of).copied()) else {
            if donors.is_empty() {
                return self.input(name, Input::Unable);
            }
            let again = self.now + Duration::from_millis(300);
            return self.push(again, Happening::Download { of: name, activity });
        };
        let steps = self.steps;
        let peer = self.at(name);
        peer.load(of, state);
        let (step, digest) = (peer.step, peer.state.expect("loaded"));
        if let Some(view) = view {
            self.invariants.state(name, view, step, digest);
        }
        self.input(name, Input::Synced);
        if step == steps && self.is_running(name) {
            self.input(name, Input::Finished { step, digest });
        }
    }

    fn reaches(&self, name: PeerId, other: PeerId) -> bool {
        self.is_running(other) && !self.cut.contains(&(name, other)) && !self.cut.contains(&(other, name))
    }
}
