//! Members that are hostile: each runs the shipped machine, so that it keeps its place, and says besides whatever a member can
//! say. It signs what it likes with its own key and with no other.
//!
//! What one says is drawn from a few [`Attack`]s, so that one does not hide what another would do. It begins once it is in a
//! view in which fewer than a third are hostile, and does not end before the run does.

mod attack;
mod ballots;
mod echoes;
mod guilt;
pub mod leaf;
mod mutation;
mod split;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use starling_topology::vote::certificate;
use starling_topology::{
    Ballot, Body, Envelope, Generation, PeerId, Proposal, Reason, ResumePlan, SignedPromise, Signer as _, View, ViewId,
    WireSignature,
};

pub use attack::Attack;
pub use guilt::Guilt;

use split::Split;

use crate::hardware::machine::notary::Key;
use crate::hardware::network::Seat;
use crate::hardware::network::rng::Rng;
use crate::world::RUN;

/// How many messages it remembers, of its own and of others.
const REMEMBERED: usize = 64;
/// It talks once in so many microseconds, at most and at least.
const PAUSES: (u64, u64) = (2_000, 1_000_000);

/// Who is hostile in a run, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hostility {
    /// Fewer than a third of all.
    pub seats: BTreeSet<Seat>,
    /// What they do.
    pub attacks: Vec<Attack>,
}

impl Hostility {
    /// Draws who is hostile among `peers`. Nobody among three or fewer.
    pub fn draw(rng: &mut Rng, peers: usize, attack: Option<Attack>) -> Self {
        let most = peers.saturating_sub(1) / 3;
        let count = if most == 0 { 0 } else { rng.between(1, most as u64) };
        let mut seats = BTreeSet::new();
        while (seats.len() as u64) < count {
            // The founder too.
            seats.insert(usize::try_from(rng.between(0, peers as u64 - 1)).unwrap_or(0));
        }
        let kinds = rng.between(1, 4);
        let drawn: BTreeSet<Attack> = (0..kinds).filter_map(|_| rng.pick(Attack::DRAWN)).collect();
        Self { seats, attacks: attack.map_or_else(|| drawn.into_iter().collect(), |attack| vec![attack]) }
    }
}

/// What a hostile peer knows beside its machine.
#[derive(Debug)]
pub struct Liar {
    rng: Rng,
    me: PeerId,
    key: Key,
    attacks: Vec<Attack>,
    last_step: u64,
    hostile: usize,
    /// Whether it was a member of a view that outnumbers those like it.
    begun: bool,
    /// The view that it is in.
    view: Option<View>,
    /// Views that it was in.
    before: VecDeque<View>,
    /// In which view others were last.
    places: BTreeMap<PeerId, (Generation, ViewId)>,
    /// What it has heard, and what it has said.
    heard: VecDeque<(PeerId, Envelope)>,
    said: VecDeque<(PeerId, Envelope)>,
    /// To whom it is silent.
    silent_to: BTreeSet<PeerId>,
    /// From whom it withholds its segments in this view.
    victim: Option<PeerId>,
    /// The highest attempt that it has heard of.
    attempt: u64,
    /// Its own ballot in the view that is called so.
    own: Option<Own>,
    /// What was promised in it.
    shown: BTreeMap<PeerId, SignedPromise>,
    /// What it is about to split.
    split: Option<Split>,
    step: u64,
}

/// A ballot that it opens by itself, and what came of it.
#[derive(Debug)]
struct Own {
    view: ViewId,
    ballot: Ballot,
    promised: BTreeSet<PeerId>,
    /// What it has proposed to whom, and who has signed that.
    proposals: Vec<(Proposal, BTreeMap<PeerId, WireSignature>)>,
}

/// What it says to whom.
pub type Said = Vec<(PeerId, Envelope)>;

impl Liar {
    /// One of `hostile` peers, which is called `me`.
    pub fn new(rng: Rng, me: PeerId, hostility: &Hostility, last_step: u64) -> Self {
        Self {
            rng,
            me,
            key: Key::of(me),
            attacks: hostility.attacks.clone(),
            last_step,
            hostile: hostility.seats.len(),
            begun: false,
            view: None,
            before: VecDeque::new(),
            places: BTreeMap::new(),
            heard: VecDeque::new(),
            said: VecDeque::new(),
            silent_to: BTreeSet::new(),
            victim: None,
            attempt: 0,
            own: None,
            shown: BTreeMap::new(),
            split: None,
            step: 0,
        }
    }

    /// Whether it lies by now. As long as those like it are not outnumbered, it may be the only one to have the state.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// When it talks next.
    pub fn pauses(&mut self) -> Duration {
        self.rng.spread(PAUSES.0, PAUSES.1)
    }

    /// Its machine goes on in this view after that step.
    pub fn entered(&mut self, view: &View, step: u64) {
        self.begun |= view.voter_count() > 3 * self.hostile;
        self.silent_to = view.members().iter().copied().filter(|peer| *peer != self.me).collect();
        self.silent_to.retain(|_| self.rng.one_in(3));
        self.before.extend(self.view.replace(view.clone()));
        self.before.drain(..self.before.len().saturating_sub(4));
        (self.attempt, self.step, self.victim) = (0, step, None);
    }

    /// It committed that step.
    pub fn committed(&mut self, step: u64) {
        self.step = step;
    }

    /// Something has come for its machine.
    pub fn hears(&mut self, from: PeerId, envelope: &Envelope) {
        self.places.insert(from, (envelope.generation, envelope.view));
        match &envelope.body {
            Body::Prepare { ballot, .. } | Body::Propose { ballot, .. } => {
                self.attempt = self.attempt.max(ballot.attempt)
            }
            Body::Nack { promised, .. } => self.attempt = self.attempt.max(promised.attempt),
            Body::Promise { ballot, promise, .. } => {
                if let Some(own) = self.own.as_mut().filter(|own| own.ballot == *ballot && own.view == envelope.view) {
                    own.promised.insert(from);
                    self.shown.insert(from, promise.clone());
                }
            }
            Body::Accept { ballot, seal } => self.note_accepted(from, *ballot, *seal),
            _ => {}
        }
        remember(&mut self.heard, from, envelope);
    }

    /// What it answers to that at once.
    pub fn answers(&mut self, from: PeerId, envelope: &Envelope) -> Said {
        let does = |attack| self.begun && self.attacks.contains(&attack);
        let (splits, echoes) = (does(Attack::SplitsViews), does(Attack::EchoesTwice));
        let mut said = if splits { self.go_on_splitting(from, envelope) } else { Vec::new() };
        if echoes {
            said.extend(self.echo_anything(from, envelope));
        }
        said
    }

    /// What becomes of a message of its machine.
    pub fn passes(&mut self, to: PeerId, envelope: Envelope) -> Said {
        if !self.begun {
            return vec![(to, envelope)];
        }
        remember(&mut self.said, to, &envelope);
        let mut said = vec![(to, envelope)];
        for attack in self.attacks.clone() {
            said = said.into_iter().flat_map(|(to, envelope)| self.distort(attack, to, envelope)).collect();
        }
        said
    }

    /// Whether a segment that it owes gets to `to`.
    pub fn withholds(&mut self, to: PeerId) -> bool {
        let does = |attack| self.begun && self.attacks.contains(&attack);
        let (some, in_turn) = (does(Attack::Withholds), does(Attack::WithholdsInTurn));
        (some && self.silent_to.contains(&to)) || (in_turn && *self.victim.get_or_insert(to) == to)
    }

    /// What it says of its own accord.
    pub fn talks(&mut self) -> Said {
        let decided = self.install_own();
        if !decided.is_empty() {
            self.own = None;
            return decided;
        }
        let attack = self.rng.pick(&self.attacks);
        attack.filter(|_| self.begun && self.view.is_some()).map_or_else(Vec::new, |attack| self.say(attack))
    }

    fn others(&self) -> Vec<PeerId> {
        let members = self.view.as_ref().map_or(&[][..], View::members);
        let all: BTreeSet<PeerId> = members.iter().chain(self.places.keys()).copied().collect();
        all.into_iter().filter(|peer| *peer != self.me).collect()
    }

    fn one(&mut self) -> Option<PeerId> {
        let others = self.others();
        self.rng.pick(&others)
    }

    /// A message that fits the place where `to` is, mostly.
    fn envelope(&mut self, to: PeerId, body: Body) -> Envelope {
        let own = self.view.as_ref().map(|view| (view.generation, view.id()));
        let told = self.places.get(&to).copied();
        let (generation, view) = match own.max(told) {
            Some(place) if !self.rng.one_in(16) => place,
            Some((generation, view)) => (Generation(generation.0.saturating_add(self.rng.between(0, 2))), view),
            None => (Generation(0), ViewId::NONE),
        };
        Envelope { run: RUN, generation, view, body }
    }

    /// The same to one or to all.
    fn tell(&mut self, body: &Body) -> Said {
        let others = self.others();
        let to = if self.rng.one_in(2) { others } else { self.rng.pick(&others).into_iter().collect() };
        to.into_iter().map(|peer| (peer, self.envelope(peer, body.clone()))).collect()
    }

    /// What no correct peer would propose in `view`, though it has the right form.
    fn made_up(&mut self, view: &View) -> Proposal {
        let me = self.me;
        let stays: Vec<PeerId> =
            view.members().iter().copied().filter(|peer| *peer == me || !self.rng.one_in(3)).chain([me]).collect();
        let next = view.succeed(stays);
        let step = match self.rng.between(0, 3) {
            0 => self.last_step,
            1 => 0,
            2 => self.step,
            _ => self.step.saturating_add(self.rng.between(1, 3)).min(self.last_step),
        };
        let syncing = next.members().iter().copied().filter(|peer| *peer != me).collect();
        let syncing = if self.rng.one_in(2) { syncing } else { Vec::new() };
        let lineage = starling_topology::Lineage::of(view);
        let holders = if self.rng.one_in(2) { vec![me] } else { Vec::new() };
        let resume = ResumePlan { step, lineage, holders, donors: vec![me], syncing };
        let of = u32::try_from(view.members().len()).unwrap_or(u32::MAX);
        Proposal { view: next, resume, reasons: vec![Reason::StoodStill], joiners: Vec::new(), promised: of, of }
    }

    fn seal(&self, parent: ViewId, ballot: Ballot, proposal: &Proposal) -> WireSignature {
        self.key.sign(&certificate::acceptance(parent, ballot, proposal)).into()
    }
}

fn remember(memory: &mut VecDeque<(PeerId, Envelope)>, other: PeerId, envelope: &Envelope) {
    memory.push_back((other, envelope.clone()));
    if memory.len() > REMEMBERED {
        memory.pop_front();
    }
}
