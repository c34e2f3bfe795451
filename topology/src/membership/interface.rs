//! What goes into the membership machine and what comes out of it.

use std::time::Duration;

use crate::id::{Digest, Generation, PeerId};
use crate::message::stall_report::StallReport;
use crate::message::{Contact, Envelope, Evidence, RefusalReason};
use crate::plan::Link;
use crate::time::Time;
use crate::view::View;
use crate::view::lineage::Lineage;
use crate::view::mark::LostState;
use crate::vote::proposal::{Progress, Reason};
use crate::vote::record::Record;

/// What happened.
#[expect(clippy::large_enum_variant, reason = "nearly all inputs are messages, and none is kept")]
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
    /// The run's founder has put these peers out: all that it has, in any order.
    Revoke(Vec<PeerId>),
    /// This member's steps are held, as [`Output::Hold`] asked; none is under way until [`Output::Resume`].
    Held(Progress),
    /// This member committed the run's last step.
    Finished {
        /// The last step.
        step: u64,
        /// The digest of the replicated state after it.
        digest: Digest,
    },
    /// This member computed the digest of the replicated state after `step`: at agreed steps, the same on all members.
    Digest {
        /// The step.
        step: u64,
        /// The digest.
        digest: Digest,
    },
    /// Where this member's steps are: said again and again, and told to others with heartbeats.
    Reached {
        /// The last committed step. Says how far this branch of the run has come; decides nothing else.
        step: u64,
        /// What this member waits for in vain, if it does: all of its contribution to an operation is there, and for
        /// `max_stall` nothing of the operation has come or gone. If that is so everywhere, a new view begins it anew, without
        /// the link over which the first missing thing should have come.
        waits: Option<StallReport>,
    },
    /// This member brings nothing to a step although it holds the state: the data of its samples is on its way. It has not contributed so.
    Starved {
        /// The step, which is not committed yet.
        step: u64,
    },
    /// A peer said, proven to be its own word, how it is reached now. Its contact is bounded.
    Located(Contact),
    /// This member has measured how fast it reaches others. What is said of peers that are not members of its view, or in
    /// a view of more than [`crate::view::MAX_COSTED`], is dropped.
    Measured {
        /// By receiver.
        links: Vec<(PeerId, Link)>,
    },
    /// This member has the replicated state now: it caught up after [`CatchUpAction::State`].
    Synced,
    /// The user wants to leave in order.
    Leave,
    /// Nobody has given the result that [`Output::Resume`] goes on from, or only what can't be it. This member stands where it
    /// stood.
    Withheld,
    /// This member can't do what [`Output::Resume`] asked: nobody that was named answered. It joins anew.
    Unable,
    /// The record that [`Output::Persist`] asked for would survive this process and its machine's power.
    Persisted,
    /// It could not be stored. What was stored before is still there, or that record.
    NotPersisted,
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
    /// Hold the steps and answer with [`Input::Held`]. A newer hold replaces an older one that is not answered yet.
    Hold(HoldPosition),
    /// Write this to disk and answer with [`Input::Persisted`] or [`Input::NotPersisted`], once. Until then nothing that
    /// follows from it is asked for, so the driver need not wait: it goes on taking in what happens.
    Persist(Record),
    /// Keep what led to the view of this record, to lead others by it and to know it when this machine comes back: a step was taken
    /// there, which one alone had told. No vote waits for that.
    Keep(Record),
    /// Catch up, then run the steps in this view. If none is left, say [`Input::Finished`], again if need be.
    Resume(MemberResumePlan),
    /// Tell the user.
    Event(Event),
}

/// Where the steps are to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldPosition {
    /// At once: the operation under way is aborted.
    Now,
    /// After the operation under way, or at once if there is none.
    Boundary,
    /// Once this step is committed. A later one that has begun is aborted.
    After(u64),
}

/// How a member goes on in a new view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberResumePlan {
    /// The view.
    pub view: View,
    /// The last committed step; the next one is reduced in this view.
    pub step: u64,
    /// The lineage of the state after it: [`Progress::lineage`].
    pub lineage: Lineage,
    /// What this member does first.
    pub catch_up: CatchUpAction,
    /// Members that need the replicated state after `step`. If there are any, keep a snapshot of it to serve them.
    pub syncing: Vec<PeerId>,
}

/// What a member does before it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatchUpAction {
    /// Nothing. A member that was downloading the state goes on downloading.
    Current,
    /// It is one step behind: it fetches the averaged result of the last step and applies it.
    Result {
        /// Members that hold it, then members that will as soon as they have fetched it themselves.
        from: Vec<PeerId>,
    },
    /// It enters the ring at once with zeros of weight 0, keeps all later results, downloads the replicated state after
    /// the last step meanwhile, applies the kept results and says [`Input::Synced`].
    State {
        /// Members that hold it, or are about to.
        from: Vec<PeerId>,
    },
}

/// Why the machine wants to be called back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Say "I live", look who has not, probe those who are lost.
    Heartbeat,
    /// Stop waiting for promises or acceptances; try again.
    Round,
    /// Take a decree over that makes no progress.
    Takeover,
    /// Ask again to be let in.
    Join,
    /// Stop waiting for goodbyes.
    Goodbye,
    /// Try again to store the record, or give up.
    Store,
}

/// What keeps members that are a quorum from going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockReason {
    /// None of them holds the run's state.
    State,
    /// Some of them had saved this and have lost it: it may be stable.
    Lost(LostState),
}

/// What a user wants to know. The last seven end the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// A joiner went away before it was a member.
    JoinerLost(PeerId),
    /// A message of an older view was dropped.
    Stale {
        /// Its sender.
        from: PeerId,
    },
    /// A member may be lost.
    Suspected {
        /// The member.
        peer: PeerId,
        /// How that was seen.
        evidence: Evidence,
        /// Who saw it, if not we.
        reporter: Option<PeerId>,
    },
    /// A new view is installed.
    Changed {
        /// Its generation.
        generation: Generation,
        /// How many members it has.
        members: usize,
        /// Why it changed.
        reasons: Vec<Reason>,
        /// How many members of the view before it promised.
        promised: usize,
        /// How many members the view before it had.
        of: usize,
        /// From the first evidence or request that this peer saw to now.
        took: Duration,
        /// Whether it, or a view before it, was installed without a quorum.
        forked: bool,
    },
    /// The members that answer are no quorum, or have lost what others may hold: nothing can be decided until more are there.
    Paused {
        /// How many answer.
        present: usize,
        /// How many it takes.
        needed: usize,
        /// What they lack, if they are a quorum, and who does not answer may hold.
        missed: Option<BlockReason>,
    },
    /// The others go on without us. We join anew.
    Evicted {
        /// Who told us so; ourselves if we could not catch up.
        by: PeerId,
    },
    /// We have said what our record does not know: in a later ballot, or a later view. The disk was set back to an earlier moment,
    /// or another process has our identity. We may vote twice so.
    SetBack {
        /// Who has shown it.
        by: PeerId,
    },
    /// We have left in order.
    Left {
        /// The members of the view that goes on without us: our seat is given up. Empty if no view was decided without
        /// us: nobody else was in ours, or we had no part in any. Our record stands then, and whoever starts again goes on
        /// from it.
        stayed: Vec<PeerId>,
    },
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
        refusal: RefusalReason,
    },
    /// A member holds another state than we and most others do: it is left out.
    Differs {
        /// The member.
        peer: PeerId,
        /// The step after which the states differ.
        step: u64,
        /// Our digest.
        ours: Digest,
        /// Its digest.
        theirs: Digest,
    },
    /// Most members hold another state than we do: we join anew, with theirs.
    Outvoted {
        /// One of them.
        peer: PeerId,
        /// The step after which the states differ.
        step: u64,
        /// Our digest.
        ours: Digest,
        /// Theirs.
        theirs: Digest,
    },
    /// Members hold different states, and no state is held by a quorum.
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
    /// Nobody alive holds the replicated state: restart from a checkpoint.
    NoState,
    /// Our record could not be stored for [`crate::Config::max_stall`]. We may not say what we have promised, so the others
    /// are better off without us.
    NotStored,
    /// Another process has our identity, and has taken our seat while we were there. Of two that run, the one goes that was let in
    /// before the other: both would put each other out for ever.
    Twin {
        /// Who has shown it.
        by: PeerId,
    },
}

impl Event {
    /// Whether it ends the machine.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Self::Left { .. }
                | Self::Complete { .. }
                | Self::Refused { .. }
                | Self::Diverged { .. }
                | Self::NoState
                | Self::NotStored
                | Self::Twin { .. }
        )
    }
}
