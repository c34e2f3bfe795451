//! The machine that forms a run's views. Every change of view, whether a member is lost, joins or leaves or a link breaks,
//! takes one path: a decree of Paxos among the members of the view that ends.
//!
//! ```text
//!   proposer                        member                       joiner
//!      |  <-------------------------------------------- Join ------|    or Suspect, Leave from a member,
//!      |                               |                           |    or a loss that it sees itself
//!      | Hold                          |                           |
//!      |-- Prepare(ballot, boundary)-> |                           |
//!      |                               | Hold                      |    a promise freezes: no step commits in the
//!      |  <-- Promise(progress, ...) --|                           |    old view any more
//!      |   a quorum has promised, and all that it trusts have, or time is up
//!      |-- Propose(next view) -------> |                           |
//!      |  <------------------ Accept --|                           |
//!      |   a quorum has accepted: decided                          |
//!      |-- Install ------------------> |-- Install --------------->|
//!      | Resume                        | Resume                    | Resume: in the ring at once, the state follows
//! ```
//!
//! The lowest member that nobody has spoken against proposes; whoever hears nothing for too long takes over with a higher
//! ballot. Only members that promised are in the next view, so all of them stand still, and the highest step that one of
//! them has committed counts as committed by all ([`crate::ResumePlan`]). A side without a quorum pauses, and may go on as a
//! fork. A peer that learns that the others go on without it is an *outsider*: it votes on in its old view, so that it
//! leaves no quorum behind it short, and asks to be let in.
//!
//! What happens comes in by [`interface`]; `running` has what a member does while its view takes steps, up to where it suspects somebody;
//! `decree` how the next view is decided and entered, `outside` who is not in the view, `ending` how a member leaves and a run ends. The
//! `seat` is what a member keeps of its view, the `outbox` what waits until a vote is stored.

mod change_role;
mod decree;
mod ending;
pub mod failure_detector;
pub(crate) mod flaw;
pub mod interface;
mod outbox;
mod outside;
mod running;
mod seat;
mod soundness;

pub use change_role::{ChangeRole, Role};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ending::departing::Leaving;
use ending::digests::Digests;
use ending::finishing::Finish;
use outbox::{Next, Outbox};
use outside::join_attempt::JoinAttempt;
use outside::joining::PendingJoiner;
use outside::outsiders::{Doubts, Probe};
use outside::parted::Parted;
use running::allowance::Allowance;
use running::quarantine::Quarantine;
use running::steps::Steps;
use seat::Seat;

use crate::config::Config;
use crate::error::Violation;
use crate::id::{Generation, PeerId, RunId, ViewId};
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{CatchUpAction, Event, Input, MemberResumePlan, Output, Timer};
use crate::message::stall_report::StallReport;
use crate::message::{Body, Contact, Envelope, Evidence, MAX_MEMBERS};
use crate::plan::Link;
use crate::time::Time;
use crate::view::View;
use crate::view::lineage::{Lineage, Root};
use crate::view::mark::MarkStatus;
use crate::vote::certificate::{Chain, Signer};
use crate::vote::proposal::{JoinRequest, Progress};
use crate::vote::quorum::Quorum;

/// Who a machine speaks for.
#[derive(Debug)]
pub struct LocalIdentity {
    /// How it is reached.
    pub contact: Contact,
    /// Its key.
    pub notary: Box<dyn Signer>,
}

/// One peer's part in a run. See the module's picture.
#[derive(Debug)]
pub struct Membership {
    config: Config,
    run: RunId,
    me: Contact,
    notary: Box<dyn Signer>,
    contacts: BTreeMap<PeerId, Contact>,
    /// Our place in a view; an outsider's is the one that it had.
    seat: Option<Seat>,
    /// What led to that view.
    chain: Chain,
    /// We are an outsider that wants to be let in.
    join_attempt: Option<JoinAttempt>,
    steps: Steps,
    /// Where the steps stood when they were held.
    progress: Progress,
    /// Whether we hold the replicated state, or can compute it.
    synced: bool,
    /// Whether the driver was told to download the state, and goes on with it.
    downloading: bool,
    /// The highest step that we know we have committed.
    reached: u64,
    /// From which step on we have had the state and data to compute with, without a vote: what is reduced soon after has our contribution.
    whole_since: Option<u64>,
    /// What it waits for in vain, as it was told last.
    waits: Option<StallReport>,
    doubts: Doubts,
    leaving: Leaving,
    finished: Option<Finish>,
    joiners: BTreeMap<PeerId, PendingJoiner>,
    lost: BTreeMap<PeerId, Probe>,
    parted: Parted,
    /// Members that were put out of late: when, and whether they may be there still.
    put_out: BTreeMap<PeerId, (Time, bool)>,
    quarantine: Quarantine,
    /// Who has opened ballots: while steps were taken, and while none were.
    ballots: [Allowance; 2],
    /// Who has spoken against others.
    reports: Allowance,
    /// Who has refused ballots.
    refusals: Allowance,
    /// Whom the founder has put out.
    revoked: BTreeSet<PeerId>,
    digests: Digests,
    /// How fast we reach other members.
    measured: BTreeMap<PeerId, Link>,
    /// Messages of views that we have not heard of yet.
    early: VecDeque<(PeerId, Envelope)>,
    /// When we last told a peer of another view where we stand.
    answered: BTreeMap<PeerId, Time>,
    /// When the change that is under way became necessary, as far as we saw.
    since: Option<Time>,
    /// When our steps began to be held for a decree.
    held_since: Option<Time>,
    /// Whether this process came back from a record.
    came_back: bool,
    /// Whether it may begin with the state before the first step where nobody holds any.
    can_begin: bool,
    /// What the process before it had saved to sign it.
    noted: MarkStatus,
    /// Views that it entered by somebody's word, promised something in, and left for another one.
    bound: BTreeSet<ViewId>,
    /// Whether others have shown what we said and our record does not know.
    has_forgotten: bool,
    ended: bool,
    outbox: Outbox,
    flaw: Option<FlawKind>,
}

impl Membership {
    /// The founder of a run. Its steps are held: at step 0 or at a checkpoint's.
    pub fn found(config: Config, run: RunId, me: LocalIdentity, progress: Progress, now: Time) -> Self {
        let mut founder = Self::new(config, run, me, progress, now);
        founder.take_only_seat(View::found(run, founder.me.peer), now);
        founder
    }

    /// A member that goes on alone although others of its run may go on elsewhere: as a fork, like a side without a quorum
    /// that has waited for long. `parent` is the view that it was in last. Whatever it promised there, it never votes
    /// there again. Its steps are held, at a checkpoint's.
    pub fn fork(
        config: Config,
        run: RunId,
        me: LocalIdentity,
        parent: Option<(Generation, ViewId)>,
        contacts: Vec<Contact>,
        progress: Progress,
        now: Time,
    ) -> Self {
        let mut member = Self::new(config, run, me, progress, now);
        let view = View::fork(run, member.me.peer, parent);
        member.part_from(now, contacts, &view);
        member.take_only_seat(view, now);
        member
    }

    /// Takes the only seat of a view that nobody else has decided.
    fn take_only_seat(&mut self, view: View, now: Time) {
        let view = view.on_branch(self.config.incarnation).with_quorum(self.config.quorum);
        let mut seat = Seat::new(view.clone(), None, &self.config, now);
        seat.root = Root::new(&view, self.progress.step, self.progress.lineage);
        seat.note_ours();
        self.seat = Some(seat);
        self.persist(now);
        if self.config.least_members(&view) > 1 && self.progress.step < self.config.last_step {
            self.wait_for_members();
        } else {
            let Progress { step, lineage, .. } = self.progress;
            self.resume(MemberResumePlan {
                view,
                step,
                lineage,
                catch_up: CatchUpAction::Current,
                syncing: Vec::new(),
            });
        }
    }

    /// A peer that wants to be a member and knows some. Its steps are held, at step 0.
    pub fn join(config: Config, run: RunId, me: LocalIdentity, members: Vec<Contact>, now: Time) -> Self {
        let progress = Progress::default();
        let mut joiner = Self::new(config, run, me, progress, now);
        joiner.since = Some(now);
        joiner.join_attempt = Some(JoinAttempt::new(now));
        for contact in members {
            joiner.consider_asking(contact.peer);
            joiner.learn(contact);
        }
        joiner.ask(now);
        joiner
    }

    fn new(mut config: Config, run: RunId, me: LocalIdentity, progress: Progress, now: Time) -> Self {
        config.max_members = config.max_members.min(MAX_MEMBERS);
        config.fork_after = config.fork_after.filter(|_| config.quorum == Quorum::Majority);
        let at = now + config.heartbeat_interval();
        let mut member = Self {
            config,
            run,
            contacts: BTreeMap::from([(me.contact.peer, me.contact.clone())]),
            me: me.contact,
            notary: me.notary,
            seat: None,
            chain: Chain::default(),
            join_attempt: None,
            steps: Steps::Held,
            progress,
            synced: progress.has_state,
            downloading: false,
            reached: progress.step,
            whole_since: None,
            waits: None,
            doubts: Doubts::default(),
            leaving: Leaving::No,
            finished: None,
            joiners: BTreeMap::new(),
            lost: BTreeMap::new(),
            parted: Parted::default(),
            put_out: BTreeMap::new(),
            quarantine: Quarantine::default(),
            ballots: [4; 2].map(Allowance::new),
            reports: Allowance::new(4),
            refusals: Allowance::strict(),
            revoked: BTreeSet::new(),
            digests: Digests::default(),
            measured: BTreeMap::new(),
            early: VecDeque::new(),
            answered: BTreeMap::new(),
            since: None,
            held_since: None,
            came_back: false,
            can_begin: false,
            noted: MarkStatus::Nothing,
            bound: BTreeSet::new(),
            has_forgotten: false,
            ended: false,
            outbox: Outbox::default(),
            flaw: None,
        };
        member.set_timer(Timer::Heartbeat, at);
        member
    }

    /// This peer.
    pub fn me(&self) -> PeerId {
        self.me.peer
    }

    /// The run that it is of, or wants to be.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// How it runs.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The current view; `None` before the first, and for an outsider.
    pub fn view(&self) -> Option<&View> {
        let seat = self.member_seat();
        seat.map(|seat| &seat.view)
    }

    /// Whom the decree of the current view let in, and by what each came; nobody where there is no view.
    pub fn let_in(&self) -> &[JoinRequest] {
        let seat = self.member_seat();
        seat.and_then(|seat| seat.origin.as_ref()).map_or(&[], |origin| &origin.joiners)
    }

    /// Which of its checkpoints are of the branch that this member is on, if it is on any.
    pub fn root(&self) -> Option<Root> {
        self.seat.as_ref().map(|seat| seat.root)
    }

    /// Whether it may sign that it has saved the state after `step`, of this lineage: all are to save that, its branch admits it, and
    /// what it has promised in a decree under way does not say that it holds less. Before the first step each view assigns the samples
    /// anew: that state is another one in each, and nobody signs it.
    pub fn vouches_for(&self, step: u64, lineage: Lineage) -> bool {
        self.config.due_by(step) == step && self.vouches_for_end(step, lineage)
    }

    /// The same of a state with which the run has ended, be it before its last step: whoever holds it finds so, and all save it.
    pub fn vouches_for_end(&self, step: u64, lineage: Lineage) -> bool {
        self.seat.as_ref().is_some_and(|seat| {
            let is_told = |pledged: Progress| pledged.has_state && step <= pledged.step;
            step > 0 && seat.root.admits(step, lineage) && seat.pledged.is_none_or(is_told)
        })
    }

    /// Whether this member is still downloading the replicated state.
    pub fn is_syncing(&self) -> bool {
        !self.synced
    }

    /// Members that have yet to load the state, if nobody but this member holds it: without it, the state is gone.
    pub fn heirs(&self) -> Vec<PeerId> {
        let Some(seat) = self.member_seat().filter(|_| self.synced) else {
            return Vec::new();
        };
        let others = seat.others(self.me.peer);
        // Those who may be gone are not waited for.
        let may_come = seat.paused.is_none() && others.iter().any(|peer| !seat.suspects.contains_key(peer));
        let is_needed = may_come && others.iter().all(|peer| seat.syncing.contains(peer));
        if is_needed { others } else { Vec::new() }
    }

    /// How to reach the members that we know of.
    pub fn contacts(&self) -> impl Iterator<Item = &Contact> {
        self.contacts.values()
    }

    /// Whether this member can decide nothing: too few of its view are there, or it has been left out of the one that goes on and
    /// waits to be let in. One that has a fork of its own decides there.
    pub fn has_no_quorum(&self) -> bool {
        let is_apart = |seat: &Seat| seat.paused.is_some() || seat.recovering.is_some() || self.is_outside();
        self.seat.as_ref().is_some_and(|seat| is_apart(seat) && !seat.view.forked)
    }

    /// Whether the machine has come to its end. The event that says so may still have to wait for a record to be stored.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// What to do next; drain to `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        Some(match self.outbox.next()? {
            Next::Output(output) => output,
            Next::Store => {
                let seat = self.seat.as_ref().expect("invariant: there is a record since the first view");
                Output::Persist(seat.record(&self.chain))
            }
        })
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// A [`Violation`] if a peer sent what no correct peer sends. The machine is unchanged then; the driver decides
    /// whether to drop the peer.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<(), Violation> {
        if self.ended && !matches!(input, Input::Persisted | Input::NotPersisted | Input::Expired(Timer::Store)) {
            return Ok(());
        }
        match input {
            // It is as if it had been lost on the way.
            Input::Received { .. } if self.outbox.is_full() => {}
            Input::Received { from, envelope } => self.receive(now, from, envelope)?,
            Input::Expired(timer) => self.expire(now, timer),
            Input::Persisted => self.stored(now),
            Input::NotPersisted => self.outbox.failed(now, self.config.heartbeat_interval(), self.config.max_stall),
            Input::Located(contact) => self.locate(contact),
            Input::Measured { links } => self.measure(links),
            Input::Leave => self.leaving.begin(), // `advance` sees to it.
            // What the driver says of its steps before it has heard what came of them.
            Input::Held(_)
            | Input::Unable
            | Input::Withheld
            | Input::Suspected { evidence: Evidence::LinkFailed, .. }
                if self.outbox.moves_on() => {}
            Input::Reached { .. }
            | Input::Starved { .. }
            | Input::Finished { .. }
            | Input::Digest { .. }
            | Input::Synced
                if self.outbox.begins_anew() => {}
            Input::Suspected { peer, evidence: Evidence::Closed } if self.departs() => self.note_gone(peer),
            Input::Suspected { .. } | Input::Held(_) | Input::Unable | Input::Withheld if self.departs() => {}
            Input::Suspected { peer, evidence } => self.suspect(now, peer, evidence),
            Input::Revoke(peers) => self.revoke(now, peers),
            Input::Held(progress) => self.held(now, progress),
            Input::Withheld => self.miss_result(now),
            Input::Unable => self.give_up(now),
            Input::Reached { step, waits } => self.reach(step, waits),
            Input::Starved { step } => self.starve(step),
            Input::Finished { step, digest } => self.finish(now, step, digest),
            Input::Digest { step, digest } => self.compute_digest(now, step, digest),
            Input::Synced => self.sync(),
        }
        self.advance(now);
        Ok(())
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: FlawKind) {
        self.flaw = Some(flaw);
    }

    fn is_flawed(&self, flaw: FlawKind) -> bool {
        self.flaw == Some(flaw)
    }

    fn expire(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Heartbeat | Timer::Round | Timer::Join if self.departs() => {}
            Timer::Heartbeat => self.beat(now),
            Timer::Round if self.is_unasked() => {}
            Timer::Round => self.end_round(now),
            Timer::Takeover => {} // Noticed by `advance`.
            Timer::Join => self.ask(now),
            Timer::Goodbye if self.departs() => self.tell_those_who_stay(now),
            Timer::Goodbye => self.part_from_those_who_know(now),
            Timer::Store => self.store_again(now),
        }
    }

    /// Does what the state of things calls for, after each input: completes the run, drives a change, or calls for one.
    fn advance(&mut self, now: Time) {
        if self.ended || self.departs() {
            return;
        }
        self.complete_if_done(now);
        if !self.ended && self.leaving.is_wanted() && self.leaves_nothing_behind() {
            self.withdraw();
        }
        // Who can't say what it has promised begins nothing new.
        if !self.ended && !self.outbox.is_waiting() && self.role() == Role::Member {
            self.seek_change(now);
        }
    }

    fn set_timer(&mut self, timer: Timer, at: Time) {
        self.outbox.set_timer(timer, at);
    }

    fn tell_members(&mut self, body: &Body) {
        let others = self.seat.as_ref().map(|seat| seat.others(self.me.peer)).unwrap_or_default();
        for peer in others {
            self.send(peer, body.clone());
        }
    }

    fn send(&mut self, to: PeerId, body: Body) {
        let place = self.seat.as_ref().map(|seat| (seat.view.generation, seat.id));
        let (generation, view) = place.unwrap_or((Generation(0), ViewId::NONE));
        self.outbox.push(Output::Send { to, envelope: Envelope { run: self.run, generation, view, body } });
    }

    fn tell(&mut self, event: Event) {
        self.outbox.push(Output::Event(event));
    }

    fn end(&mut self, event: Event) {
        self.tell(event);
        self.ended = true;
    }
}
