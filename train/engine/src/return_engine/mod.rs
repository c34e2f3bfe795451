//! What a machine does when it is started, from what its disk holds and what its user says to how it takes part.
//!
//! ```text
//!   new here --> found, or join by the ticket
//!   else     --> is the run over? --> search: all that are known are asked --> look: what can be loaded here?
//!                                       ^                                       |
//!                                       | after a pause, until `max_stall`      |- over: it holds the last state, and nobody answers
//!                                       '------- others may be ahead of it -----|- `way_back`: found, recover, join, fork
//!                                                                               '- nobody but its user can know
//! ```
//!
//! What a disk holds is what can be **loaded** from it, never what its files are called: a checkpoint that is torn has the name of a
//! state that is not there.

pub(crate) mod returning;
pub mod twin;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use starling_topology::way_back;
use starling_topology::{
    self as topology, FlawKind, MarkStatus, PeerId, PresenceStatus, Record, ReturnAction, Root, Time,
};

use crate::member::quorum_search::AbsenceReason;
use crate::return_engine::returning::{ReturningMember, SeatDecision};
use crate::search::{self, SearchReply};

/// From one time that those are asked who may be ahead to the next.
pub const PAUSE: Duration = Duration::from_secs(1);

/// So many others it knows: those of its view, then those that were members before.
pub const MAX_KNOWN: usize = 64;
/// So many keepers.
pub const MAX_KEEPERS: usize = 16;

/// What a machine has of a run besides checkpoints.
#[derive(Debug, Clone)]
pub struct SavedState {
    /// Who it is.
    pub me: PeerId,
    /// Whether it has taken part before, as far as it knows.
    pub was_here: bool,
    /// Its seat in a view, if it has not given it up.
    pub seat: Option<Record>,
    /// What it had saved to sign it.
    pub noted: MarkStatus,
    /// Whether it has lost its seat: the file is there, and can't be read.
    pub has_lost_its_seat: bool,
    /// Whether it has lost whom it knows.
    pub has_lost_its_contacts: bool,
    /// Others that were members, those who were there last first, and those whom its user names before them.
    pub members: Vec<PeerId>,
    /// Who keeps checkpoints.
    pub keepers: Vec<PeerId>,
    /// How it has given its seat up, if it has.
    pub left: Option<LeaveRecord>,
}

/// What a machine notes that gives its seat up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveRecord {
    /// To whom: those who stayed; nobody, if the run was complete.
    pub stayed: Vec<PeerId>,
    /// Which checkpoints are of the branch that it was on: only the end of that one is the end of its run.
    pub root: Root,
    /// Whether that was a fork.
    pub forked: bool,
}

impl LeaveRecord {
    /// What it waits for when it is back, and nobody lets it in.
    pub fn apart(&self) -> AbsenceReason {
        AbsenceReason::Waits { root: self.root, forked: self.forked }
    }
}

/// What its user says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReturnOptions {
    /// It is to join others, whatever it has.
    pub joins: bool,
    /// It is to go on alone where nobody else does, as a fork.
    pub alone: bool,
    /// It is to begin with a step that its user names, whatever others do.
    pub goes_back: bool,
}

/// What is the run's.
#[derive(Debug, Clone, Copy)]
pub struct ReturnConfig {
    /// The last step.
    pub last_step: u64,
    /// A state is saved after each so many steps; 0 for none but the last.
    pub stride: u64,
    /// The run's longest stall: for so long those are asked who may be ahead. After a power cut all come back at once, and none
    /// knows who is first.
    pub max_stall: Duration,
}

/// What can be loaded from this disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskSummary {
    /// The step of the best checkpoint.
    pub loadable: Option<u64>,
    /// Whether the state before the first step can be computed, and nothing is damaged that may have been a later one.
    pub can_begin: bool,
    /// The step of the newest one that a quorum has signed. Where the last state is not there, it need not be known.
    pub stable: Option<u64>,
    /// If the run has ended early with the best checkpoint, its step: it is the last one.
    pub ended: Option<u64>,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// The search is over: what was answered, and whether a checkpoint was fetched.
    Searched {
        /// Who has said what.
        answers: Vec<(PeerId, SearchReply)>,
        /// Whether the disk holds another checkpoint now.
        fetched: bool,
    },
    /// What the disk holds.
    Holds(DiskSummary),
    /// The time that was asked for has come.
    Expired,
}

/// What to do next.
#[derive(Debug, Clone)]
pub enum Output {
    /// Ask these peers, by a [`Search`](crate::Search); then [`Input::Searched`].
    Search {
        /// Whom.
        peers: Vec<PeerId>,
        /// Which checkpoints count.
        terms: search::SearchConfig,
    },
    /// Look what can be loaded, of what this root admits; without one, of what was not put aside. Then [`Input::Holds`].
    Look {
        /// What counts, if that is known.
        root: Option<Root>,
    },
    /// Call back with [`Input::Expired`].
    SetTimer(Time),
    /// That is it.
    Done(Decision),
}

/// How it takes part, or why it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// As the first member of the run. A seat that it has is given up.
    Found,
    /// From its record.
    Recover {
        /// Whether it may say that it holds the state.
        has_state: bool,
        /// Whether it may begin with the state before the first step where nobody holds any.
        can_begin: bool,
    },
    /// By asking to be let in.
    Join {
        /// Whom, in this order.
        members: Vec<PeerId>,
        /// Whom it waits for.
        awaited: WaitStatus,
    },
    /// Alone, as a fork.
    Fork,
    /// Not: the run is over, and it holds the last state.
    Over,
    /// Not: others were members, none of these answers, and nothing says whether they go on. Only its user can know.
    Unknown,
    /// Not: others, none of whom answers, may hold what this machine should have saved. It would go back behind that.
    Behind(Vec<PeerId>),
    /// Not: its user wants it to begin with another step than the run's, and it is not alone in the run.
    OthersBranch,
}

/// Whom a machine waits for that is in no view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitStatus {
    /// Those.
    pub peers: Vec<PeerId>,
    /// What for.
    pub why: WaitKind,
}

impl WaitStatus {
    /// What keeps one from taking part that waits so and has this seat on its disk, with what counts for it.
    pub fn apart(&self, seat: &Record) -> Option<AbsenceReason> {
        match self.why {
            WaitKind::Live => Some(AbsenceReason::Outside(seat.root)),
            // Its seat is of no use to anybody: it stays until nobody lacks what it holds.
            WaitKind::Lacking => Some(AbsenceReason::Waits { root: seat.root, forked: seat.view.forked }),
            WaitKind::Stayed | WaitKind::Known => None,
        }
    }
}

/// What a machine waits for that is in no view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WaitKind {
    /// They said that they go on: they will let it in.
    Live,
    /// They stayed when it left: one of them may come back and let it in.
    Stayed,
    /// They were members: one of them may come back and let it in.
    #[default]
    Known,
    /// They lack the last state of the run, which it holds: they fetch it.
    Lacking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before others are asked.
    Begins,
    Searches,
    Looks,
    Pauses,
    Over,
}

/// One machine that is started. See the module's picture.
#[derive(Debug)]
pub struct ReturnEngine {
    past: SavedState,
    choice: ReturnOptions,
    terms: ReturnConfig,
    stage: Stage,
    /// What was answered last.
    answers: Vec<(PeerId, SearchReply)>,
    /// Who has ever said what it holds, and handed over what is stable of it.
    heard: BTreeSet<PeerId>,
    holdings: Option<DiskSummary>,
    /// Until when those are asked again who may be ahead.
    until: Time,
    outputs: VecDeque<Output>,
    flaw: Option<FlawKind>,
}

impl ReturnEngine {
    /// A machine with this past is started with this word.
    pub fn new(past: SavedState, choice: ReturnOptions, terms: ReturnConfig, now: Time) -> Self {
        let mut engine = Self {
            past,
            choice,
            terms,
            stage: Stage::Begins,
            answers: Vec::new(),
            heard: BTreeSet::new(),
            holdings: None,
            until: now + terms.max_stall,
            outputs: VecDeque::new(),
            flaw: None,
        };
        // Whoever knows nobody has nobody to ask who may lack the last state.
        if engine.is_settled() && engine.past.members.is_empty() && !choice.joins && !choice.goes_back {
            engine.look();
        } else {
            engine.begin();
        }
        engine
    }

    /// What to do next; drain to `None` after every [`Self::handle`], and at first.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        match (self.stage, input) {
            (Stage::Begins, Input::Holds(holdings)) => {
                self.holdings = Some(holdings);
                if self.is_over() { self.end(Decision::Over) } else { self.begin() }
            }
            (Stage::Searches, Input::Searched { answers, fetched }) => self.take_answers(now, answers, fetched),
            (Stage::Looks, Input::Holds(holdings)) => {
                self.holdings = Some(holdings);
                self.decide(now);
            }
            (Stage::Pauses, Input::Expired) => self.search(),
            _ => {}
        }
    }

    /// Those who said that they go on, when they were asked last.
    pub fn live(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.answers.iter().filter(|(_, answer)| answer.live).map(|(peer, _)| *peer)
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: FlawKind) {
        self.flaw = Some(flaw);
    }

    /// Whether it neither has a place in the run nor has given one up to others.
    fn is_settled(&self) -> bool {
        self.past.seat.is_none() && !self.past.has_lost_its_seat && self.stayed().is_empty()
    }

    /// Those to whom it has given its place up.
    fn stayed(&self) -> &[PeerId] {
        self.past.left.as_ref().map_or(&[], |left| &left.stayed)
    }

    /// Which checkpoints are of its branch, if it knows that.
    fn root(&self) -> Option<Root> {
        let SavedState { seat, left, .. } = &self.past;
        seat.as_ref().map(|seat| seat.root).or_else(|| left.as_ref().map(|left| left.root))
    }

    fn begin(&mut self) {
        match (self.past.was_here, self.choice.joins) {
            (true, _) => self.search(),
            // By the ticket: the one that answered comes first.
            (false, true) => {
                let first = self.past.members.first().copied();
                let awaited = WaitStatus { peers: first.into_iter().collect(), why: WaitKind::Live };
                self.end(Decision::Join { members: self.past.members.clone(), awaited });
            }
            (false, false) => self.end(Decision::Found),
        }
    }

    fn search(&mut self) {
        let SavedState { me, members, keepers, seat, left, .. } = &self.past;
        let peers = search::sought(*me, keepers.iter().copied(), members.iter().copied());
        let of_fork = |left: &LeaveRecord| seat.is_none() && left.forked;
        let from_forks = seat.as_ref().is_some_and(|seat| seat.view.forked) || left.as_ref().is_some_and(of_fork);
        let (root, last_step, max_stall) = (self.root(), self.last_step(), self.terms.max_stall);
        let terms = search::SearchConfig { root, even_if_live: false, from_forks, beyond: None, last_step, max_stall };
        self.stage = Stage::Searches;
        self.outputs.push_back(Output::Search { peers, terms });
    }

    fn look(&mut self) {
        let root = self.root();
        self.outputs.push_back(Output::Look { root });
    }

    fn take_answers(&mut self, now: Time, answers: Vec<(PeerId, SearchReply)>, fetched: bool) {
        self.heard.extend(answers.iter().map(|(peer, _)| *peer));
        self.answers = answers;
        // Without a seat, what it holds counts only where it may be the last state, and is of its branch for sure.
        let is_ours = self.past.left.is_some() || self.is_settled();
        let counts = self.past.seat.is_some() || (is_ours && !self.choice.goes_back);
        if counts && (fetched || self.holdings.is_none()) {
            self.stage = Stage::Looks;
            self.look();
        } else {
            self.decide(now);
        }
    }

    /// The run's last step, as far as this machine knows.
    fn last_step(&self) -> u64 {
        self.holdings.and_then(|holdings| holdings.ended).unwrap_or(self.terms.last_step)
    }

    /// Whether the run is over: it holds the last state, and nobody who is there wants anything of it; or its user does not want it to
    /// wait for those.
    fn is_over(&self) -> bool {
        // Who has not heard of the end gets the last state from whoever else holds it; or else from this machine.
        let is_elsewhere = || self.answers.iter().any(|(_, answer)| answer.holds(self.last_step()));
        self.holds_the_end() && (self.choice.alone || is_elsewhere() || self.wanting().next().is_none())
    }

    /// Whether it holds the last state of its run. It may have been killed before it heard that the others had finished too: then it
    /// has its seat still, and a quorum has signed that state.
    fn holds_the_end(&self) -> bool {
        let Some(DiskSummary { loadable, stable, .. }) = self.holdings else { return false };
        let is_last = |step: Option<u64>| step >= Some(self.last_step());
        is_last(loadable) && (is_last(stable) || self.is_settled())
    }

    /// Of those who are there, who goes on, where it is a member or is to join; and who lacks the last state. Nobody can fetch one that
    /// no quorum has signed.
    fn wanting(&self) -> impl Iterator<Item = PeerId> + '_ {
        let (last, keepers) = (self.last_step(), &self.past.keepers);
        let is_signed = self.holdings.is_some_and(|holdings| holdings.stable >= Some(last));
        let joins = self.past.seat.is_some() || self.choice.joins;
        let wants = move |(peer, answer): &&(PeerId, SearchReply)| match answer.live {
            true => joins,
            false => is_signed && search::lacks(*peer, answer, keepers, last),
        };
        self.answers.iter().filter(wants).map(|(peer, _)| *peer)
    }

    /// Whether all that those who are there may want of it is the last state: none of them goes on, or needs its vote.
    fn is_wanted_for_the_end(&self) -> bool {
        let votes = |peer| self.past.seat.as_ref().is_some_and(|seat| seat.view.contains(peer));
        self.holds_the_end() && self.presence() == PresenceStatus::There && !self.wanting().any(votes)
    }

    fn decide(&mut self, now: Time) {
        let is_over = self.is_over();
        if is_over && !self.choice.goes_back {
            return self.end(Decision::Over);
        }
        let presence = self.presence();
        let way = match is_over {
            true => Some(ReturnAction::Found),
            false if self.is_wanted_for_the_end() => Some(ReturnAction::Join),
            false => way_back(self.known(), presence, self.choice.alone),
        };
        match way {
            None => self.end(Decision::Unknown),
            Some(way) if self.choice.goes_back => self.go_back(way),
            // Whoever has a ticket to a run does not begin it.
            Some(ReturnAction::Found) if self.choice.joins => self.end(self.join()),
            Some(ReturnAction::Found) => self.end(Decision::Found),
            Some(ReturnAction::Fork) => self.end(Decision::Fork),
            Some(ReturnAction::Join) => self.end(self.join()),
            Some(ReturnAction::Recover) => self.recover(now),
        }
    }

    /// Who of those who were asked last is there.
    fn presence(&self) -> PresenceStatus {
        search::presence(self.answers.iter().copied(), |peer| self.past.keepers.contains(&peer))
    }

    /// Whether somebody goes on, be it as a fork.
    fn is_gone_on(&self) -> bool {
        matches!(self.presence(), PresenceStatus::Live | PresenceStatus::Forked)
    }

    fn known(&self) -> topology::LocalState<'_> {
        let SavedState { me, seat, has_lost_its_seat, has_lost_its_contacts, members, .. } = &self.past;
        let had_others = *has_lost_its_contacts || *has_lost_its_seat || !members.is_empty();
        let (record, left) = (seat.as_ref(), !self.stayed().is_empty());
        let joins = self.choice.joins;
        topology::LocalState { me: *me, record, left, had_others, joins }
    }

    /// Whoever names a step wants to begin there, whatever the others do. That is their run too, if there are others.
    fn go_back(&mut self, way: ReturnAction) {
        let outcome = match way {
            ReturnAction::Fork => Decision::Fork,
            ReturnAction::Found | ReturnAction::Recover if self.past.members.is_empty() => Decision::Found,
            ReturnAction::Found | ReturnAction::Recover if self.choice.alone && !self.is_gone_on() => Decision::Fork,
            ReturnAction::Found | ReturnAction::Recover | ReturnAction::Join => Decision::OthersBranch,
        };
        self.end(outcome);
    }

    /// Those who go on come first; else it waits for those who lack what it holds, or who stayed when it left; else for all.
    fn join(&self) -> Decision {
        let live: Vec<PeerId> = self.live().collect();
        let mut members = self.past.members.clone();
        members.sort_by_key(|peer| !live.contains(peer));
        let awaited = match self.stayed() {
            _ if !live.is_empty() => WaitStatus { peers: live, why: WaitKind::Live },
            _ if self.holds_the_end() => WaitStatus { peers: self.wanting().collect(), why: WaitKind::Lacking },
            [] => WaitStatus { peers: self.past.members.clone(), why: WaitKind::Known },
            stayed => WaitStatus { peers: stayed.to_vec(), why: WaitKind::Stayed },
        };
        Decision::Join { members, awaited }
    }

    fn recover(&mut self, now: Time) {
        let record = self.past.seat.as_ref().expect("invariant: nobody else recovers");
        let DiskSummary { loadable, can_begin, .. } = self.holdings.expect("invariant: whoever has a seat looks first");
        let (me, noted, stride, heard) = (self.past.me, self.past.noted, self.terms.stride, &self.heard);
        let outcome = ReturningMember { me, record, found: loadable, noted, can_begin, stride, heard }.outcome();
        match outcome {
            // What it had is lost, and its user does not want it to wait for who may hold that.
            SeatDecision::Seat { has_state: false, .. } if self.choice.alone && !self.is_gone_on() => {
                self.end(Decision::Fork)
            }
            SeatDecision::Seat { has_state, can_begin } => {
                let has_state = has_state || self.flaw == Some(FlawKind::ClaimsState);
                self.end(Decision::Recover { has_state, can_begin });
            }
            // Who goes on alone waits for nobody.
            SeatDecision::Behind(_) if self.choice.alone => self.end(Decision::Fork),
            SeatDecision::Behind(_) if now + PAUSE <= self.until && self.flaw != Some(FlawKind::AsksOnce) => {
                self.stage = Stage::Pauses;
                self.outputs.push_back(Output::SetTimer(now + PAUSE));
            }
            SeatDecision::Behind(ahead) => self.end(Decision::Behind(ahead)),
        }
    }

    fn end(&mut self, outcome: Decision) {
        self.stage = Stage::Over;
        self.outputs.push_back(Output::Done(outcome));
    }
}

#[cfg(test)]
mod tests;
