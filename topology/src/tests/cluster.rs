//! Many machines, FIFO links, random interleavings, and a model of the steps that they hold and let run.
//!
//! Time stands still while anything else can happen, so no timer expires by accident.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    Config, Contact, Digest, Envelope, Event, Evidence, Generation, Input, Membership, Output, PeerId, Refusal, RunId,
    Time, Timer, View, ViewId,
};

pub(super) const RUN: RunId = RunId([7; 32]);

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

pub(super) fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

pub(super) fn contact(peer: PeerId) -> Contact {
    Contact { peer, addresses: vec![format!("address of {peer}")] }
}

/// The fate of one that `from` would not have.
pub(super) fn refused(from: PeerId, refusal: Refusal) -> Fate {
    Fate::Ended(Event::Refused { from, refusal })
}

/// How a machine ended, or did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Running,
    Ended(Event),
    Killed,
    /// Alive for its connections, dead for everything else.
    Hung,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) machine: Membership,
    pub(super) fate: Fate,
    pub(super) events: Vec<Event>,
    pub(super) step: u64,
    pub(super) digest: Digest,
    timers: BTreeMap<Timer, Time>,
    /// In which view the steps run; `None` while they are held.
    stepping: Option<View>,
    /// Whether the step after `step` has this peer's contribution.
    contributed: bool,
    hold_after: Option<u64>,
    fetching: Option<(PeerId, u64, Digest)>,
    /// Its downloads never end.
    pub(super) stalls: bool,
}

#[derive(Debug)]
enum Wire {
    /// An encoded envelope.
    Message(Vec<u8>),
    Closed,
}

pub(super) struct Cluster {
    pub(super) config: Config,
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) now: Time,
    pub(super) peers: BTreeMap<PeerId, Peer>,
    links: BTreeMap<(PeerId, PeerId), VecDeque<Wire>>,
    steps: u64,
    // What the invariants remember.
    views: BTreeMap<Generation, ViewId>,
    contributions: BTreeSet<(u64, ViewId, PeerId)>,
    committed: BTreeMap<u64, ViewId>,
}

impl Cluster {
    pub(super) fn new(seed: u64, steps: u64, min_members: usize) -> Self {
        let config = Config { min_members, ..Config::default() };
        Self {
            config,
            seed,
            rng: Rng(seed),
            now: Time::ZERO,
            peers: BTreeMap::new(),
            links: BTreeMap::new(),
            steps,
            views: BTreeMap::new(),
            contributions: BTreeSet::new(),
            committed: BTreeMap::new(),
        }
    }

    // --- what a test does ---------------------------------------------------------------------------------------

    pub(super) fn found(&mut self, founder: PeerId) {
        let machine = Membership::found(self.config.clone(), RUN, contact(founder), self.now);
        self.add(founder, machine);
        let digest = self.peers[&founder].digest;
        self.input(founder, Input::Held { step: 0, digest });
    }

    pub(super) fn join(&mut self, joiner: PeerId, member: PeerId) {
        // Some drivers say where their steps stand before they ask, some wait to be asked.
        let tells = self.rng.below(2) == 0;
        self.join_telling(joiner, member, tells);
    }

    /// A joiner that must load whatever state there is, and never has it.
    pub(super) fn join_stalling(&mut self, joiner: PeerId, member: PeerId) {
        self.join_telling(joiner, member, false);
        self.at(joiner).stalls = true;
    }

    fn join_telling(&mut self, joiner: PeerId, member: PeerId, tells: bool) {
        let machine = Membership::join(self.config.clone(), RUN, contact(joiner), member, self.now);
        self.add(joiner, machine);
        if tells {
            let digest = self.peers[&joiner].digest;
            self.input(joiner, Input::Held { step: 0, digest });
        }
        self.drain(joiner);
        if matches!(self.peers[&member].fate, Fate::Ended(_) | Fate::Killed) {
            self.link(member, joiner).push_back(Wire::Closed);
        }
    }

    pub(super) fn leave(&mut self, peer: PeerId) {
        self.input(peer, Input::Leave);
    }

    /// Ends `peer` at once. What it sent last may be lost with it.
    pub(super) fn kill(&mut self, peer: PeerId) {
        self.at(peer).fate = Fate::Killed;
        for ((from, _), link) in &mut self.links {
            if *from == peer && !link.is_empty() {
                link.truncate(self.rng.below(link.len() + 1));
            }
        }
        self.close(peer);
    }

    pub(super) fn hang(&mut self, peer: PeerId) {
        self.at(peer).fate = Fate::Hung;
    }

    /// Lets one random thing happen; the next timer if there is nothing else. False if nothing can happen any more.
    pub(super) fn tick(&mut self) -> bool {
        let mut choices = Vec::new();
        for ((from, to), link) in &self.links {
            if !link.is_empty() && self.peers[to].fate == Fate::Running {
                choices.push(Choice::Deliver(*from, *to));
            }
        }
        for (name, peer) in &self.peers {
            if peer.fate != Fate::Running {
                continue;
            }
            if let Some(view) = &peer.stepping {
                let step = (peer.step + 1, view.id());
                let all = |peer: &PeerId| self.contributions.contains(&(step.0, step.1, *peer));
                if !peer.contributed {
                    choices.push(Choice::Contribute(*name));
                } else if view.members().iter().all(all) {
                    choices.push(Choice::Commit(*name));
                }
            }
            if peer.fetching.is_some_and(|(donor, ..)| self.peers[&donor].fate == Fate::Running) && !peer.stalls {
                choices.push(Choice::Fetched(*name));
            }
        }
        if !choices.is_empty() {
            let choice = self.rng.pick(&choices);
            self.perform(choice);
            return true;
        }
        self.expire_next()
    }

    /// Ticks until every machine has ended.
    #[track_caller]
    pub(super) fn run(&mut self) {
        for _ in 0..200_000 {
            if !self.tick() {
                break;
            }
        }
        let running: Vec<_> = self.peers.iter().filter(|(_, peer)| peer.fate == Fate::Running).collect();
        assert!(running.is_empty(), "seed {}: still running: {running:#?}", self.seed);
    }

    /// Ticks until `done`.
    #[track_caller]
    pub(super) fn run_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..200_000 {
            if done(self) {
                return;
            }
            assert!(self.tick(), "seed {}: nothing happens any more", self.seed);
        }
        panic!("seed {}: it never came to that", self.seed);
    }

    // --- what a test asks ---------------------------------------------------------------------------------------

    pub(super) fn fates(&self) -> BTreeMap<PeerId, Fate> {
        self.peers.iter().map(|(name, peer)| (*name, peer.fate)).collect()
    }

    pub(super) fn members(&self, of: PeerId) -> Vec<PeerId> {
        self.peers[&of].machine.view().map(|view| view.members().to_vec()).unwrap_or_default()
    }

    pub(super) fn is_stepping(&self, peer: PeerId) -> bool {
        self.peers[&peer].stepping.is_some()
    }

    pub(super) fn is_fetching(&self, peer: PeerId) -> bool {
        self.peers[&peer].fetching.is_some()
    }

    /// The peers that are running and step in a view.
    pub(super) fn live_members(&self) -> Vec<PeerId> {
        let alive = |peer: &Peer| peer.fate == Fate::Running && peer.machine.view().is_some();
        self.peers.iter().filter(|(_, peer)| alive(peer)).map(|(name, _)| *name).collect()
    }

    #[track_caller]
    pub(super) fn assert_complete(&self, peers: impl IntoIterator<Item = PeerId>) {
        let mut digests = BTreeSet::new();
        for name in peers {
            let fate = self.peers[&name].fate;
            let Fate::Ended(Event::Complete { step, digest }) = fate else {
                panic!("seed {}: {name:?} ended with {fate:?}", self.seed)
            };
            assert_eq!(step, self.steps);
            digests.insert(digest);
        }
        assert!(digests.len() <= 1, "seed {}: {digests:?}", self.seed);
    }

    // --- how it works -------------------------------------------------------------------------------------------

    pub(super) fn input(&mut self, to: PeerId, input: Input) {
        let (now, seed) = (self.now, self.seed);
        if let Err(violation) = self.at(to).machine.handle(now, input.clone()) {
            panic!("seed {seed}: {to:?} took {input:?} for a violation: {violation}");
        }
        self.drain(to);
    }

    fn at(&mut self, peer: PeerId) -> &mut Peer {
        self.peers.get_mut(&peer).expect("a peer of this cluster")
    }

    fn add(&mut self, name: PeerId, machine: Membership) {
        let peer = Peer {
            machine,
            fate: Fate::Running,
            events: Vec::new(),
            step: 0,
            digest: Digest([0; 32]),
            timers: BTreeMap::new(),
            stepping: None,
            contributed: false,
            hold_after: None,
            fetching: None,
            stalls: false,
        };
        assert!(self.peers.insert(name, peer).is_none());
        self.drain(name);
    }

    fn link(&mut self, from: PeerId, to: PeerId) -> &mut VecDeque<Wire> {
        self.links.entry((from, to)).or_default()
    }

    fn close(&mut self, peer: PeerId) {
        let others: Vec<PeerId> = self.peers.keys().copied().filter(|other| *other != peer).collect();
        for other in others {
            self.link(peer, other).push_back(Wire::Closed);
        }
    }

    fn perform(&mut self, choice: Choice) {
        match choice {
            Choice::Deliver(from, to) => match self.link(from, to).pop_front().expect("not empty") {
                Wire::Message(bytes) => {
                    let envelope = Envelope::decode(&bytes).expect("what was encoded");
                    self.input(to, Input::Received { from, envelope });
                }
                Wire::Closed => self.input(to, Input::Suspected { peer: from, evidence: Evidence::Closed }),
            },
            Choice::Contribute(name) => {
                let peer = self.at(name);
                peer.contributed = true;
                let (step, view) = (peer.step + 1, peer.stepping.as_ref().expect("stepping").id());
                self.contributions.insert((step, view, name));
            }
            Choice::Commit(name) => self.commit(name),
            Choice::Fetched(name) => {
                let (donor, step, digest) = self.at(name).fetching.take().expect("fetching");
                let given = (self.peers[&donor].step, self.peers[&donor].digest);
                assert_eq!(given, (step, digest), "seed {}: the donor keeps still", self.seed);
                let peer = self.at(name);
                (peer.step, peer.digest) = (step, digest);
                self.input(name, Input::Held { step, digest });
            }
        }
    }

    fn commit(&mut self, name: PeerId) {
        let steps = self.steps;
        let peer = self.at(name);
        peer.step += 1;
        peer.contributed = false;
        let view = peer.stepping.clone().expect("stepping");
        let mut hasher = blake3::Hasher::new();
        hasher.update(&peer.digest.0).update(&view.id().0);
        peer.digest = Digest(*hasher.finalize().as_bytes());
        let (step, digest) = (peer.step, peer.digest);
        let held = peer.hold_after.is_some_and(|last| step >= last);
        let before = self.committed.insert(step, view.id());
        assert!(before.is_none_or(|before| before == view.id()), "seed {}: step {step} in two views", self.seed);
        if step == steps {
            self.at(name).stepping = None;
            self.input(name, Input::Finished { step, digest });
        } else if held {
            self.hold(name);
        }
    }

    fn hold(&mut self, name: PeerId) {
        let peer = self.at(name);
        (peer.stepping, peer.contributed, peer.hold_after) = (None, false, None);
        let (step, digest) = (peer.step, peer.digest);
        self.input(name, Input::Held { step, digest });
    }

    fn expire_next(&mut self) -> bool {
        let running = self.peers.iter().filter(|(_, peer)| peer.fate == Fate::Running);
        let timers = running.flat_map(|(name, peer)| peer.timers.iter().map(|(timer, at)| (*at, *name, *timer)));
        let Some((at, name, timer)) = timers.min() else { return false };
        self.now = self.now.max(at);
        self.at(name).timers.remove(&timer);
        self.input(name, Input::Expired(timer));
        true
    }

    fn drain(&mut self, name: PeerId) {
        while let Some(output) = self.at(name).machine.poll() {
            match output {
                Output::Send { to, envelope } => {
                    assert_ne!(to, name, "seed {}: nobody sends to itself", self.seed);
                    self.link(name, to).push_back(Wire::Message(envelope.encode()));
                }
                Output::Learn(contact) => assert_ne!(contact.peer, name),
                Output::SetTimer { timer, at } => {
                    self.at(name).timers.insert(timer, at);
                }
                Output::Hold { after } => self.ask_to_hold(name, after),
                Output::Fetch { from, step, digest } => self.at(name).fetching = Some((from, step, digest)),
                Output::Step(view) => self.enter(name, view),
                Output::Event(event) => {
                    self.at(name).events.push(event);
                    if self.at(name).machine.has_ended() {
                        self.at(name).fate = Fate::Ended(event);
                    }
                }
            }
        }
        if matches!(self.at(name).fate, Fate::Ended(_)) && !self.at(name).timers.is_empty() {
            self.at(name).timers.clear();
            self.close(name);
        }
    }

    fn ask_to_hold(&mut self, name: PeerId, after: Option<u64>) {
        let seed = self.seed;
        let peer = self.at(name);
        assert!(peer.stepping.is_some() || peer.machine.has_ended(), "seed {seed}: {name:?} was held already");
        let under_way = u64::from(peer.contributed);
        let last = after.unwrap_or(peer.step + under_way);
        assert!(last >= peer.step, "seed {seed}: step {last} is past, {name:?} committed {}", peer.step);
        peer.hold_after = Some(last);
        if last == peer.step {
            self.hold(name);
        }
    }

    fn enter(&mut self, name: PeerId, view: View) {
        let seed = self.seed;
        let id = view.id();
        assert_eq!(*self.views.entry(view.generation).or_insert(id), id, "seed {seed}: one view per generation");
        let peer = self.at(name);
        assert!(peer.stepping.is_none(), "seed {seed}: {name:?} was not held");
        assert!(peer.fetching.is_none(), "seed {seed}: {name:?} steps while it loads a state");
        assert!(view.contains(name), "seed {seed}: {name:?} steps in a view of others");
        peer.stepping = Some(view);
    }
}

#[derive(Debug, Clone, Copy)]
enum Choice {
    Deliver(PeerId, PeerId),
    Contribute(PeerId),
    Commit(PeerId),
    Fetched(PeerId),
}
