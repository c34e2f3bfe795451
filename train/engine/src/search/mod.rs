//! What a machine does that comes back to a run, before it takes part: it asks all that it knows of the run what they hold, and
//! fetches the newest stable checkpoint that is newer than its own.
//!
//! ```text
//!   asks all at once --> someone is in a view: nothing is fetched but the run's last state, as nothing follows that; the members
//!                    |   bring the state up to date
//!                    \-> nobody is: of what counts here, the newest that can be had; if the run has gone on so far meanwhile that
//!                        nobody has that any more, those who had it are asked again
//! ```
//!
//! The driver dials and asks, fetches and looks at the disk, and verifies all signatures.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use starling_topology::PresenceStatus;
use starling_topology::{Digest, FlawKind, PeerId, Proof, Root, Time};

/// How many peers are asked.
pub const MAX_SOUGHT: usize = 64;
/// How often a newer checkpoint is gone after because the one that was told of is gone.
const MAX_FOLLOWED: usize = 8;
/// How many of those who had one are asked for a newer one.
const MAX_ASKED_AGAIN: usize = 8;
/// Once one is in a view, how long the others may take to say so too.
const COMPANY_PAUSE: Duration = Duration::from_millis(500);

/// Which checkpoints count, and how long answers may take.
#[derive(Debug, Clone)]
pub struct SearchConfig {
    /// Which checkpoints count, if that is known; else all that the disk has not put aside.
    pub root: Option<Root>,
    /// Whether one is fetched although members are in a view.
    pub even_if_live: bool,
    /// Whether one of a fork counts. Who comes back from a view that is none would make the fork's steps the run's, while the fork
    /// itself, if it lives, gives them up.
    pub from_forks: bool,
    /// What is not later than this step counts for nothing: it is that of the state which the one holds that asks.
    pub beyond: Option<u64>,
    /// The run's last step.
    pub last_step: u64,
    /// The run's longest stall: half of it is the time for answers.
    pub max_stall: Duration,
}

impl SearchConfig {
    /// Whether what is signed so is of the branch that counts, and of no fork unless those count.
    pub fn counts(&self, proof: &Proof) -> bool {
        let is_of_branch = self.root.is_none_or(|root| root.may_admit(proof.head.step, &proof.view));
        is_of_branch && (self.from_forks || !proof.view.forked)
    }
}

/// What a peer said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchReply {
    /// Whether it is in a view that goes on.
    pub live: bool,
    /// Whether it is in none, and looks out for the state that it lacks. Who asks to be let in for the first time does not: what others
    /// hold may be of another attempt at the run.
    pub looks_out: bool,
    /// The step of its newest stable checkpoint.
    pub stable_step: Option<u64>,
    /// Whether that was made in a fork.
    pub forked: bool,
    /// The step of the newest one of the branch that counts, none of a fork unless those count.
    pub ours: Option<u64>,
}

impl SearchReply {
    /// Whether it holds a stable state of the branch that counts after this step, or a later one.
    pub fn holds(&self, step: u64) -> bool {
        self.ours >= Some(step)
    }
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// A peer said whether it is in a view that goes on, and which stable checkpoints it holds, if any. Proven but for the files
    /// themselves.
    Answered {
        /// Who.
        from: PeerId,
        /// Whether it is in a view that goes on.
        live: bool,
        /// Whether it is in none, and looks out for the state that it lacks.
        looks_out: bool,
        /// The newest one of each branch.
        proofs: Vec<Proof>,
    },
    /// A peer can't be asked, or has not answered as it should.
    Unanswered(PeerId),
    /// The step of the newest stable checkpoint on this disk that counts, as [`Output::Look`] asked.
    Holds(Option<u64>),
    /// The checkpoint that was to be fetched is on disk, with its signatures.
    Fetched,
    /// It can't be had.
    Missed,
    /// The time that was asked for has come.
    Expired,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a few exist at a time")]
pub enum Output {
    /// Ask this peer what it holds; then [`Input::Answered`] or [`Input::Unanswered`].
    Ask(PeerId),
    /// Call back with [`Input::Expired`]. Replaces an earlier time.
    SetTimer(Time),
    /// Look which stable checkpoints this disk has; then [`Input::Holds`].
    Look,
    /// Fetch this checkpoint from these peers, the first ones first; then [`Input::Fetched`] or [`Input::Missed`].
    Fetch {
        /// What is signed.
        proof: Proof,
        /// Who should have it.
        from: Vec<PeerId>,
    },
    /// Tell the user that the checkpoint after this step, which others had, can't be had. Why, the last fetch has said.
    Lost {
        /// The step.
        step: u64,
    },
    /// It is over.
    Done,
}

/// Which checkpoint, and who holds it.
type Offer = (Proof, Vec<PeerId>);

#[derive(Debug)]
enum Stage {
    /// All are asked.
    Asking {
        offers: BTreeMap<Digest, Offer>,
    },
    /// The disk is asked.
    Looking {
        offers: BTreeMap<Digest, Offer>,
    },
    /// The first one is fetched, and the others after it, if need be.
    Fetching {
        offer: Offer,
        later: VecDeque<Offer>,
        followed: usize,
    },
    /// Those who had it are asked for a newer one.
    Following {
        offer: Offer,
        later: VecDeque<Offer>,
        followed: usize,
    },
    Over,
}

/// One search. See the module's picture.
#[derive(Debug)]
pub struct Search {
    terms: SearchConfig,
    stage: Stage,
    /// Those who have yet to answer what they were asked last.
    awaited: BTreeSet<PeerId>,
    /// What was said at first, in the order in which it came.
    answers: Vec<(PeerId, SearchReply)>,
    deadline: Time,
    outputs: VecDeque<Output>,
    flaw: Option<FlawKind>,
}

/// Whom to ask of those that are known: all but oneself, keepers first, as there may be more members than are asked.
pub fn sought(me: PeerId, keepers: impl Iterator<Item = PeerId>, members: impl Iterator<Item = PeerId>) -> Vec<PeerId> {
    let mut seen = BTreeSet::from([me]);
    keepers.chain(members).filter(|peer| seen.insert(*peer)).take(MAX_SOUGHT).collect()
}

impl Search {
    /// Asks these peers.
    pub fn new(terms: SearchConfig, peers: &[PeerId], now: Time) -> Self {
        let peers: BTreeSet<PeerId> = peers.iter().take(MAX_SOUGHT).copied().collect();
        let deadline = now + terms.max_stall / 2;
        let mut search = Self {
            terms,
            stage: Stage::Asking { offers: BTreeMap::new() },
            awaited: peers.clone(),
            answers: Vec::new(),
            deadline,
            outputs: peers.into_iter().map(Output::Ask).collect(),
            flaw: None,
        };
        search.outputs.push_back(Output::SetTimer(deadline));
        search.settle();
        search
    }

    /// What to do next; drain to `None` after every [`Self::handle`], and at first.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Those who have said what they hold, in the order in which they did.
    pub fn answers(&self) -> &[(PeerId, SearchReply)] {
        &self.answers
    }

    /// Which checkpoints count.
    pub fn terms(&self) -> &SearchConfig {
        &self.terms
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Answered { from, live, looks_out, proofs } => self.hear(now, from, (live, looks_out), proofs),
            Input::Unanswered(peer) => _ = self.awaited.remove(&peer),
            Input::Holds(step) => self.choose(step),
            Input::Fetched if matches!(self.stage, Stage::Fetching { .. }) => self.end(),
            // Of what it has given up, or is over with.
            Input::Fetched => {}
            Input::Missed => self.ask_again(now),
            Input::Expired if now >= self.deadline => self.awaited.clear(),
            Input::Expired => {}
        }
        self.settle();
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: FlawKind) {
        self.flaw = Some(flaw);
    }

    fn hear(&mut self, now: Time, from: PeerId, (live, looks_out): (bool, bool), proofs: Vec<Proof>) {
        if !self.awaited.remove(&from) {
            return;
        }
        let ours: Vec<&Proof> = proofs.iter().filter(|proof| self.is_ours(proof)).collect();
        let wanted = ours.iter().filter(|proof| self.is_beyond(proof)).max_by_key(|proof| proof.head.step);
        let wanted = wanted.map(|proof| Proof::clone(proof));
        let ours = ours.into_iter().map(|proof| proof.head.step).max();
        let newest = proofs.iter().max_by_key(|proof| proof.head.step);
        let answer = SearchReply {
            live,
            looks_out,
            stable_step: newest.map(|proof| proof.head.step),
            forked: newest.is_some_and(|proof| proof.view.forked),
            ours,
        };
        match &mut self.stage {
            Stage::Asking { offers } => {
                let is_first = live && self.answers.iter().all(|(_, answer)| !answer.live);
                self.answers.push((from, answer));
                if let Some(proof) = wanted {
                    offers.entry(proof.head.manifest).or_insert((proof, Vec::new())).1.push(from);
                }
                if is_first {
                    // The others of its view answer as fast.
                    self.deadline = self.deadline.min(now + COMPANY_PAUSE);
                    self.outputs.push_back(Output::SetTimer(self.deadline));
                }
            }
            Stage::Following { offer, .. } => {
                let Some(proof) = wanted.filter(|proof| proof.head.step > offer.0.head.step) else { return };
                // Others may hold it too by the time that they are asked.
                let others = offer.1.iter().copied().filter(|other| *other != from);
                *offer = (proof, [from].into_iter().chain(others).collect());
                self.fetch();
            }
            Stage::Looking { .. } | Stage::Fetching { .. } | Stage::Over => {}
        }
    }

    fn is_ours(&self, proof: &Proof) -> bool {
        self.terms.counts(proof) || self.flaw == Some(FlawKind::FetchesAnyBranch)
    }

    /// Whether it is later than what would be of no use here.
    fn is_beyond(&self, proof: &Proof) -> bool {
        self.terms.beyond.is_none_or(|step| proof.head.step > step)
    }

    /// Goes on once nobody is awaited any more.
    fn settle(&mut self) {
        if !self.awaited.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asking { mut offers } => {
                let is_live = self.answers.iter().any(|(_, answer)| answer.live) && !self.terms.even_if_live;
                // Who is in a view has not heard of the end, or stays to tell of it.
                offers.retain(|_, (proof, _)| !is_live || proof.head.step >= self.terms.last_step);
                if offers.is_empty() {
                    return self.end();
                }
                self.stage = Stage::Looking { offers };
                self.outputs.push_back(Output::Look);
            }
            Stage::Following { offer, later, .. } => {
                self.outputs.push_back(Output::Lost { step: offer.0.head.step });
                self.go_on(later);
            }
            stage => self.stage = stage,
        }
    }

    /// Of what is newer than `own`, the newest first.
    fn choose(&mut self, own: Option<u64>) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Looking { offers } => {
                let mut offers: Vec<Offer> = offers.into_values().collect();
                offers.retain(|(proof, _)| own.is_none_or(|own| proof.head.step > own));
                // Who names no branch wants the run's, and a fork's where there is no other.
                let is_any = self.terms.root.is_none();
                offers.sort_by_key(|(proof, _)| (is_any && proof.view.forked, Reverse(proof.head.step)));
                self.go_on(offers.into());
            }
            stage => self.stage = stage,
        }
    }

    fn go_on(&mut self, mut later: VecDeque<Offer>) {
        let Some(offer) = later.pop_front() else { return self.end() };
        self.stage = Stage::Following { offer, later, followed: 0 };
        self.fetch();
    }

    /// Fetches what is to be had next.
    fn fetch(&mut self) {
        self.awaited.clear();
        if let Stage::Following { offer, later, followed } = std::mem::replace(&mut self.stage, Stage::Over) {
            let (proof, from) = offer.clone();
            self.outputs.push_back(Output::Fetch { proof, from });
            self.stage = Stage::Fetching { offer, later, followed };
        }
    }

    /// Nobody has it any more: perhaps a newer one.
    fn ask_again(&mut self, now: Time) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let Stage::Fetching { offer, later, followed } = stage else {
            self.stage = stage;
            return;
        };
        if followed < MAX_FOLLOWED {
            self.awaited = offer.1.iter().take(MAX_ASKED_AGAIN).copied().collect();
            self.deadline = now + self.terms.max_stall / 2;
            self.outputs.extend(self.awaited.iter().copied().map(Output::Ask));
            self.outputs.push_back(Output::SetTimer(self.deadline));
        }
        self.stage = Stage::Following { offer, later, followed: followed + 1 };
    }

    fn end(&mut self) {
        self.awaited.clear();
        self.stage = Stage::Over;
        self.outputs.push_back(Output::Done);
    }
}

/// Whether a peer that goes on with nothing lacks the last state of the run, and fetches it: it looks out for it, does not hold it, and is
/// no keeper, which fetches it in its own time.
pub fn lacks(peer: PeerId, answer: &SearchReply, keepers: &[PeerId], last_step: u64) -> bool {
    answer.looks_out && !answer.live && !answer.holds(last_step) && !keepers.contains(&peer)
}

/// Who of those that answered is there. A keeper always is, and no member, but for one that is in a view by now.
pub fn presence(
    answers: impl Iterator<Item = (PeerId, SearchReply)>,
    is_keeper: impl Fn(PeerId) -> bool,
) -> PresenceStatus {
    let company = answers.filter(|(peer, answer)| answer.live || !is_keeper(*peer)).map(|(_, answer)| answer);
    let company = company.map(|answer| match (answer.live, answer.forked) {
        (true, false) => PresenceStatus::Live,
        (true, true) => PresenceStatus::Forked,
        (false, _) => PresenceStatus::There,
    });
    company.max().unwrap_or(PresenceStatus::Silent)
}

#[cfg(test)]
mod tests;
