//! A small run of real machines, of which all messages and records are kept: valid encodings that follow each format by
//! themselves.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use starling_topology::{
    Config, Contact, Digest, Envelope, Input, LocalIdentity, Membership, Output, PeerId, Progress, Record, RunId,
    Signer, Time, Timer, View,
};

/// The run.
pub const RUN: RunId = RunId([7; 32]);
/// Its last step.
pub const STEPS: u64 = 9;

/// Signs as nobody should.
#[derive(Debug)]
pub struct Seal(pub PeerId);

impl Signer for Seal {
    fn sign(&self, statement: &[u8]) -> [u8; 64] {
        signature(self.0, statement)
    }

    fn is_signed(&self, signer: PeerId, statement: &[u8], given: &[u8; 64]) -> bool {
        signature(signer, statement) == *given
    }
}

fn signature(signer: PeerId, statement: &[u8]) -> [u8; 64] {
    let mut signature = [0; 64];
    blake3::Hasher::new_keyed(&signer.0).update(statement).finalize_xof().fill(&mut signature);
    signature
}

/// The peer of this name.
pub fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// How it is reached.
pub fn contact(name: u8) -> Contact {
    Contact { peer: peer(name), addresses: vec![format!("/ip4/10.0.0.{name}/tcp/4001"), String::new()] }
}

fn me(name: u8) -> LocalIdentity {
    LocalIdentity { contact: contact(name), notary: Box::new(Seal(peer(name))) }
}

/// A machine and a driver that does at once whatever it asks.
#[derive(Debug)]
pub struct Driven {
    machine: Membership,
    /// How far its steps are.
    pub progress: Progress,
    timers: BTreeMap<Timer, Time>,
    /// What it wants to say.
    pub says: VecDeque<(PeerId, Envelope)>,
    /// What it has written down.
    pub records: Vec<Record>,
    /// How many outputs there were.
    pub outputs: usize,
}

impl Driven {
    /// The founder.
    pub fn found(name: u8) -> Self {
        let progress = Progress { has_state: true, ..Progress::default() };
        Self::of(Membership::found(config(), RUN, me(name), progress, Time::ZERO), progress)
    }

    /// One that joins, and knows the founder.
    pub fn join(name: u8, now: Time) -> Self {
        let progress = Progress { has_state: true, ..Progress::default() };
        Self::of(Membership::join(config(), RUN, me(name), vec![contact(1)], now), progress)
    }

    fn of(machine: Membership, progress: Progress) -> Self {
        let (timers, says, records) = (BTreeMap::new(), VecDeque::new(), Vec::new());
        Self { machine, progress, timers, says, records, outputs: 0 }
    }

    /// The view that it is in.
    pub fn view(&self) -> Option<&View> {
        self.machine.view()
    }

    /// Hands it an input and does what it asks. Whether it was not refused.
    pub fn handle(&mut self, now: Time, input: Input) -> bool {
        let is_taken = self.machine.handle(now, input).is_ok();
        self.obey(now);
        is_taken
    }

    /// Does what it asks.
    pub fn obey(&mut self, now: Time) {
        while let Some(output) = self.machine.poll() {
            self.outputs += 1;
            let answer = match output {
                Output::Send { to, envelope } => {
                    self.says.push_back((to, envelope));
                    None
                }
                Output::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                    None
                }
                Output::Hold(_) => Some(Input::Held(self.progress)),
                Output::Persist(record) => {
                    self.records.push(record);
                    Some(Input::Persisted)
                }
                Output::Resume(resumption) => {
                    let (step, lineage) = (resumption.step, resumption.lineage);
                    self.progress = Progress { step, lineage, has_state: true, has_result: false };
                    Some(Input::Synced)
                }
                Output::Learn(_) | Output::Keep(_) | Output::Event(_) => None,
            };
            if let Some(answer) = answer {
                // What the driver says is no foreign word.
                let _ours = self.machine.handle(now, answer);
            }
        }
    }

    /// Lets time pass: all timers expire that have come to their time.
    pub fn pass(&mut self, now: Time) {
        let due: Vec<Timer> = self.timers.iter().filter(|(_, at)| **at <= now).map(|(timer, _)| *timer).collect();
        for timer in due {
            self.timers.remove(&timer);
            self.handle(now, Input::Expired(timer));
        }
    }
}

fn config() -> Config {
    Config { last_step: STEPS, ..Config::default() }
}

/// A message that was delivered: when, from whom, to whom.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// When.
    pub at: Time,
    /// From whom.
    pub from: u8,
    /// To whom.
    pub to: u8,
    /// The message.
    pub envelope: Envelope,
}

/// A run of four in which one is lost, comes back, leaves, tells a digest and finishes.
pub fn recorded() -> (Vec<Delivered>, Vec<Record>) {
    let mut peers: BTreeMap<u8, Driven> = BTreeMap::from([(1, Driven::found(1))]);
    let (mut now, mut log) = (Time::ZERO, Vec::new());
    for tick in 0..2_000u64 {
        now = now + Duration::from_millis(10);
        match tick {
            10 | 20 | 30 => drop(peers.insert((tick / 10) as u8 + 1, Driven::join((tick / 10) as u8 + 1, now))),
            200 => told(&mut peers, 2, now, &Input::Digest { step: 0, digest: Digest([3; 32]) }),
            300 => told(&mut peers, 3, now, &Input::Leave),
            600 => drop(peers.insert(3, Driven::join(3, now))),
            900 => drop(peers.remove(&4)),
            1_700 => drop(peers.insert(4, Driven::join(4, now))),
            1_900 => {
                let finished = Input::Finished { step: STEPS, digest: Digest([3; 32]) };
                [1, 2, 3, 4].into_iter().for_each(|name| told(&mut peers, name, now, &finished));
            }
            _ => {}
        }
        let names: Vec<u8> = peers.keys().copied().collect();
        for name in names {
            let Some(driven) = peers.get_mut(&name) else { continue };
            driven.pass(now);
            for (to, envelope) in std::mem::take(&mut driven.says) {
                let to = to.0[0];
                let Some(other) = peers.get_mut(&to) else { continue };
                log.push(Delivered { at: now, from: name, to, envelope: envelope.clone() });
                other.handle(now, Input::Received { from: peer(name), envelope });
            }
        }
    }
    let records = peers.into_values().flat_map(|driven| driven.records).collect();
    (log, records)
}

fn told(peers: &mut BTreeMap<u8, Driven>, name: u8, now: Time, input: &Input) {
    if let Some(driven) = peers.get_mut(&name) {
        driven.handle(now, input.clone());
    }
}
