//! A model of what drives a machine: steps that it holds and lets run, results, states, downloads.
//!
//! The replicated state is a hash over all results so far, so two members that applied different results differ for ever.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    CatchUpAction, Digest, Event, HoldPosition, Lineage, MemberResumePlan, Membership, PeerId, Progress, Record, Time,
    Timer, View, ViewId,
};

/// What a step came to: which view reduced it.
pub(in crate::tests) type Outcome = (u64, Lineage);

#[derive(Debug)]
pub(in crate::tests) struct Peer {
    pub(in crate::tests) machine: Membership,
    pub(in crate::tests) fate: Fate,
    pub(in crate::tests) events: Vec<Event>,
    pub(in crate::tests) timers: BTreeMap<Timer, Time>,
    /// The last step that it has committed, with or without the state.
    pub(in crate::tests) step: u64,
    /// The state after `step`; `None` while it is being downloaded.
    pub(in crate::tests) state: Option<Digest>,
    /// The view in which `step` was committed.
    pub(in crate::tests) lineage: Lineage,
    /// The averaged result of the newest step.
    pub(in crate::tests) result: Option<Outcome>,
    /// Results that wait for the state.
    pub(in crate::tests) kept: Vec<Outcome>,
    /// The states that it serves to those who sync, by step.
    pub(in crate::tests) snapshots: BTreeMap<u64, Digest>,
    pub(in crate::tests) record: Option<Record>,
    /// What it has kept apart from that.
    pub(in crate::tests) led: Option<Record>,
    /// In which view the steps run; `None` while they are held.
    pub(in crate::tests) view: Option<View>,
    pub(in crate::tests) hold: Option<HoldPosition>,
    /// Whether the step after `step` has this peer's contribution.
    pub(in crate::tests) contributed: bool,
    /// The step whose result it must fetch before it goes on, and from whom.
    pub(in crate::tests) wants_result: Option<(u64, Vec<PeerId>)>,
    /// The step whose state it downloads meanwhile, and from whom.
    pub(in crate::tests) wants_state: Option<(u64, Vec<PeerId>)>,
    /// Whether others may have gone on without it.
    pub(in crate::tests) outside: bool,
    /// Counts what it began, so that what was dropped is not taken for what replaced it.
    pub(in crate::tests) activity: u64,
    pub(in crate::tests) generation: u64,
    /// Tells its process from those before it.
    pub(in crate::tests) incarnation: u64,
}

/// How a peer ended, or did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tests) enum Fate {
    Running,
    Ended(Event),
    Killed,
    /// Alive for its connections, dead for everything else.
    Hung,
}

impl Peer {
    pub(in crate::tests) fn new(machine: Membership, progress: Progress, state: Option<Digest>) -> Self {
        Self {
            machine,
            fate: Fate::Running,
            events: Vec::new(),
            timers: BTreeMap::new(),
            step: progress.step,
            state,
            lineage: progress.lineage,
            result: None,
            kept: Vec::new(),
            snapshots: BTreeMap::new(),
            record: None,
            led: None,
            view: None,
            hold: None,
            contributed: false,
            wants_result: None,
            wants_state: None,
            outside: true,
            activity: 0,
            generation: 0,
            incarnation: 0,
        }
    }

    pub(in crate::tests) fn is_running(&self) -> bool {
        self.fate == Fate::Running
    }

    pub(in crate::tests) fn progress(&self) -> Progress {
        let has_result = self.result.is_some_and(|(step, _)| step == self.step);
        Progress { step: self.step, lineage: self.lineage, has_state: self.state.is_some(), has_result }
    }

    /// Where the steps stand if they can be held now.
    pub(in crate::tests) fn try_hold(&mut self) -> Option<Progress> {
        let ready = match self.hold? {
            HoldPosition::Now => true,
            HoldPosition::Boundary => !self.contributed,
            HoldPosition::After(step) => self.step >= step || self.view.is_none(),
        };
        ready.then(|| {
            (self.view, self.hold, self.contributed) = (None, None, false);
            self.activity += 1;
            self.progress()
        })
    }

    /// Applies a resumption. Says whether the peer may go on.
    pub(in crate::tests) fn resume(&mut self, resumption: &MemberResumePlan) {
        let step = resumption.step;
        self.hold = None;
        self.contributed = false;
        self.activity += 1;
        self.view = Some(resumption.view.clone());
        self.wants_result = None;
        match &resumption.catch_up {
            CatchUpAction::Current => {
                assert_eq!((self.step, self.lineage), (step, resumption.lineage), "current, but not there");
            }
            CatchUpAction::Result { from } => {
                assert_eq!(self.step + 1, step, "one step behind, but not there");
                self.wants_result = Some((step, from.clone()));
            }
            CatchUpAction::State { from } => {
                assert!(
                    self.outside || self.state.is_none() || self.lineage != resumption.lineage,
                    "a member has to throw its state away: {resumption:?} at {}",
                    self.step
                );
                (self.step, self.lineage, self.state, self.result) = (step, resumption.lineage, None, None);
                self.kept.clear();
                self.wants_state = Some((step, from.clone()));
            }
        }
        if !resumption.syncing.is_empty() {
            self.keep_snapshot();
        }
    }

    /// Keeps the state for those who sync.
    pub(in crate::tests) fn keep_snapshot(&mut self) {
        if let Some(state) = self.state {
            self.snapshots.insert(self.step, state);
        }
        while self.snapshots.len() > 4 {
            self.snapshots.pop_first();
        }
    }

    /// Takes the result of the next step in.
    pub(in crate::tests) fn commit(&mut self, outcome: Outcome) {
        assert_eq!(outcome.0, self.step + 1);
        self.step = outcome.0;
        self.lineage = outcome.1;
        self.outside = false;
        self.result = Some(outcome);
        self.contributed = false;
        self.activity += 1;
        match &mut self.state {
            Some(state) => *state = apply(*state, outcome),
            None => self.kept.push(outcome),
        }
    }

    /// The state of `of` has come.
    pub(in crate::tests) fn load(&mut self, of: u64, state: Digest) {
        assert_eq!(self.kept.first().map_or(self.step, |kept| kept.0 - 1), of, "nothing is missing in between");
        self.state = Some(self.kept.drain(..).fold(state, apply));
        self.wants_state = None;
    }
}

pub(in crate::tests) fn apply(state: Digest, outcome: Outcome) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&state.0).update(&outcome.0.to_le_bytes()).update(&outcome.1.view.0);
    Digest(*hasher.finalize().as_bytes())
}

/// What must be true of all peers together.
#[derive(Debug, Default)]
pub(in crate::tests) struct Invariants {
    /// The next view, by the view before it: one, if it has a quorum.
    successors: BTreeMap<ViewId, ViewId>,
    /// The state after a step that was committed in a view.
    states: BTreeMap<(ViewId, u64), Digest>,
    /// Those whose disks were set back, and who may have followed them: they decide twice.
    pub(in crate::tests) forgetful: BTreeSet<PeerId>,
}

impl Invariants {
    /// `peer` has entered a view.
    pub(in crate::tests) fn enter(&mut self, name: PeerId, peer: &mut Peer, resumption: &MemberResumePlan) {
        let view = &resumption.view;
        assert!(view.contains(name), "{name:?} entered a view that it is not in");
        if self.forgetful.contains(&name) {
            return;
        }
        assert!(view.generation.0 > peer.generation, "{name:?} went back to generation {}", view.generation);
        peer.generation = view.generation.0;
        if let Some(parent) = view.parent
            && !view.forked
        {
            let before = self.successors.insert(parent, view.id());
            assert!(before.is_none_or(|before| before == view.id()), "two views follow {parent:?}");
        }
        assert!(
            peer.outside || resumption.step >= peer.step,
            "{name:?} was put back from {} to {}",
            peer.step,
            resumption.step
        );
    }

    /// A member holds this state after a step of this view.
    pub(in crate::tests) fn state(&mut self, name: PeerId, view: ViewId, step: u64, state: Digest) {
        let before = self.states.insert((view, step), state);
        assert!(before.is_none_or(|before| before == state), "{name:?} diverged in {view:?} at step {step}");
    }
}
