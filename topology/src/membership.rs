//! The machine that forms a run's views: founding, joining, leaving in order, finishing, and ending together when a
//! member is lost.
//!
//! A change of view, as its proposer (the view's lowest member) and the others see it:
//!
//! ```text
//!   proposer                       member                        joiner
//!      |  <------------------------------------------------ Join --|      (or Leave from a member)
//!      | Hold                         |                            |      stops at its next boundary, step s
//!      |-- Propose(view, after s) --> |                            |
//!      |-- Propose(view, after s) -------------------------------->|
//!      |                              | Hold(s)                    | Fetch(s)   completes s / loads the state of s
//!      |  <------------------- Accept-|                            |
//!      |  <------------------------------------------------Accept--|
//!      |-- Install -----------------> |-- Install ---------------->|
//!      | Step(view)                   | Step(view)                 | Step(view)
//! ```
//!
//! No step past `s` can commit without the proposer's contribution, so a member that has begun `s + 1` drops it and
//! begins it again in the new view. A joiner that dies half-way is left out of a second proposal, and so is one that has
//! not accepted within [`Config::join_limit`], for all stand still meanwhile. A *member* that is lost ends the run for
//! all: each is told who was lost and how that was seen.

mod change;
mod finish;
mod loss;
mod messages;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::config::Config;
use crate::error::Violation;
use crate::failure_detector::FailureDetector;
use crate::id::{Digest, Generation, PeerId, RunId};
use crate::message::{Body, Contact, Envelope, Evidence, MAX_MEMBERS, Refusal};
use crate::proposal::{Ballot, Proposal};
use crate::time::Time;
use crate::view::View;

/// How often a joiner follows "ask this member instead" before it gives up.
const MAX_REDIRECTS: u32 = 8;

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// A peer's message arrived.
    Received {
        /// The authenticated sender.
        from: PeerId,
        /// The message.
        envelope: Envelope,
    },
    /// A timer that was asked for has expired.
    Expired(Timer),
    /// Something was seen that speaks for the loss of a peer.
    Suspected {
        /// The peer.
        peer: PeerId,
        /// How it was seen.
        evidence: Evidence,
    },
    /// This member's steps are held at a boundary: `step` is committed and no later one is under way.
    Held {
        /// The last committed step; 0 before the first.
        step: u64,
        /// The digest of the replicated state after it.
        digest: Digest,
    },
    /// This member committed the run's last step.
    Finished {
        /// The last step.
        step: u64,
        /// The digest of the replicated state after it.
        digest: Digest,
    },
    /// The user wants to leave in order.
    Leave,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a message.
    Send {
        /// To whom.
        to: PeerId,
        /// The message.
        envelope: Envelope,
    },
    /// Remember how to reach a peer.
    Learn(Contact),
    /// Call back with [`Input::Expired`]. Replaces an earlier time for the same timer.
    SetTimer {
        /// What for.
        timer: Timer,
        /// When.
        at: Time,
    },
    /// Hold the steps at a boundary and answer with [`Input::Held`]. `Some(step)`: after that step, dropping any later
    /// one. `None`: after the step that is under way.
    Hold {
        /// The last step to complete.
        after: Option<u64>,
    },
    /// Load the replicated state of `step` from a member and answer with [`Input::Held`].
    Fetch {
        /// The member that holds it.
        from: PeerId,
        /// The step after which it was taken.
        step: u64,
        /// What it must hash to.
        digest: Digest,
    },
    /// Run the steps in this view.
    Step(View),
    /// Tell the user.
    Event(Event),
}

/// Why the machine wants to be called back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Say "I live", and look who has not.
    Heartbeat,
    /// Stop waiting for joiners that have not accepted the view on offer.
    Proposal,
    /// Stop waiting for goodbyes.
    Goodbye,
}

/// What a user wants to know. The last five end the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The run waits until this many members are there.
    Waiting {
        /// Members and joiners so far.
        present: usize,
        /// How many it takes.
        needed: usize,
    },
    /// A peer asked to join.
    Joining(PeerId),
    /// A joiner went away, or was too slow, before it was a member.
    JoinerLost(PeerId),
    /// A message of an older view was dropped.
    Stale {
        /// Its sender.
        from: PeerId,
    },
    /// We have left in order.
    Left,
    /// All members have committed the last step and hold the same state.
    Complete {
        /// The last step.
        step: u64,
        /// The digest that all members hold.
        digest: Digest,
    },
    /// We can't be a member.
    Refused {
        /// Who says so.
        from: PeerId,
        /// Why.
        refusal: Refusal,
    },
    /// A member is lost, and the run with it.
    Lost {
        /// The lost member.
        peer: PeerId,
        /// How that was seen.
        evidence: Evidence,
        /// Who saw it, if not we.
        reporter: Option<PeerId>,
    },
    /// A member holds another state than we do.
    Diverged {
        /// The member.
        peer: PeerId,
        /// The step after which the states differ.
        step: u64,
        /// Our digest.
        ours: Digest,
        /// Its digest.
        theirs: Digest,
    },
}

#[derive(Debug, Clone)]
enum Phase {
    /// Not a member yet; has asked this one.
    Asking { member: PeerId },
    /// The steps run.
    Stepping,
    /// Proposer: the steps are about to be held.
    Stopping,
    /// Proposer, before the first step: more members are needed.
    Gathering,
    /// Proposer: a view is on offer.
    Proposing(Ballot),
    /// A view was offered to us.
    Following { proposer: PeerId, proposal: Proposal, accepted: bool },
    /// We have committed the last step.
    Finishing { step: u64, digest: Digest, gone: BTreeSet<PeerId>, parting: bool },
    /// Nothing more will happen.
    Ended,
}

/// One peer's part in a run. See the module's picture.
#[derive(Debug)]
pub struct Membership {
    config: Config,
    run: RunId,
    me: Contact,
    view: Option<View>,
    phase: Phase,
    /// Where our steps stand while they are held.
    boundary: Option<(u64, Digest)>,
    contacts: BTreeMap<PeerId, Contact>,
    joiners: BTreeMap<PeerId, Contact>,
    leavers: BTreeSet<PeerId>,
    leaving: bool,
    begun: bool,
    redirects: u32,
    finished: BTreeMap<PeerId, (u64, Digest)>,
    detector: FailureDetector,
    outputs: VecDeque<Output>,
}

impl Membership {
    /// The founder of a run. Its steps are expected to be held at a boundary already (step 0, or a checkpoint's).
    pub fn found(config: Config, run: RunId, me: Contact, now: Time) -> Self {
        let view = View::found(run, me.peer);
        let mut founder = Self::new(config, run, me, Some(view), Phase::Stopping);
        founder.arm(now);
        founder
    }

    /// A peer that wants to be a member and knows one.
    pub fn join(config: Config, run: RunId, me: Contact, member: PeerId, now: Time) -> Self {
        let mut joiner = Self::new(config, run, me, None, Phase::Asking { member });
        joiner.send(member, Body::Join(joiner.me.clone()));
        joiner.arm(now);
        joiner
    }

    fn new(mut config: Config, run: RunId, me: Contact, view: Option<View>, phase: Phase) -> Self {
        config.max_members = config.max_members.min(MAX_MEMBERS);
        let detector = FailureDetector::new(config.silence_limit());
        Self {
            config,
            run,
            contacts: BTreeMap::from([(me.peer, me.clone())]),
            me,
            view,
            phase,
            boundary: None,
            joiners: BTreeMap::new(),
            leavers: BTreeSet::new(),
            leaving: false,
            begun: false,
            redirects: 0,
            finished: BTreeMap::new(),
            detector,
            outputs: VecDeque::new(),
        }
    }

    fn arm(&mut self, now: Time) {
        self.rewatch(now);
        let at = now + self.config.heartbeat_interval();
        self.outputs.push_back(Output::SetTimer { timer: Timer::Heartbeat, at });
    }

    /// The current view; `None` before the first.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// How to reach the members that we know of.
    pub fn contacts(&self) -> impl Iterator<Item = &Contact> {
        self.contacts.values()
    }

    /// Whether the machine has come to its end.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// What to do next; drain to `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// A [`Violation`] if a peer sent what no correct peer sends. The machine is unchanged then; the driver decides
    /// whether to drop the peer.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<(), Violation> {
        if self.has_ended() {
            return Ok(());
        }
        match input {
            Input::Received { from, envelope } => self.receive(now, from, envelope)?,
            Input::Expired(Timer::Heartbeat) => self.beat(now),
            Input::Expired(Timer::Proposal) => self.leave_slow_joiners_out(now),
            Input::Expired(Timer::Goodbye) => self.part(),
            Input::Suspected { peer, evidence } => self.suspect(now, peer, evidence),
            Input::Held { step, digest } => self.held(now, step, digest),
            Input::Finished { step, digest } => self.finish(now, step, digest),
            Input::Leave => self.leave(now),
        }
        Ok(())
    }

    fn held(&mut self, now: Time, step: u64, digest: Digest) {
        match self.phase {
            // A joiner's steps may stand at a boundary from the start.
            Phase::Asking { .. } => self.boundary = Some((step, digest)),
            Phase::Stopping | Phase::Gathering => {
                self.boundary = Some((step, digest));
                self.change(now);
            }
            Phase::Following { .. } => {
                self.boundary = Some((step, digest));
                self.accept_when_ready();
            }
            // Nobody asked: kept, it would be taken for the answer to the next question.
            Phase::Stepping | Phase::Proposing(_) | Phase::Finishing { .. } | Phase::Ended => {}
        }
    }

    fn send(&mut self, to: PeerId, body: Body) {
        let generation = self.view.as_ref().map_or(Generation(0), |view| view.generation);
        self.outputs.push_back(Output::Send { to, envelope: Envelope { run: self.run, generation, body } });
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn end(&mut self, event: Event) {
        self.tell(event);
        self.phase = Phase::Ended;
    }
}
