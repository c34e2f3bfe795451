//! One member: its machines, and what each of them has to say to the others.
//!
//! ```text
//!   messages, timers ----> membership ---- holds, resumptions ----> entry, steps
//!                            |  ^  ^                                  |
//!               root, views  |  |  '---- held, synced, finished ------'
//!                            v  '- looks: standstill, failed links
//!   saved, heads ---------> heads ---- stable ----> completion --> the end
//!                            no quorum -----------> quorum search -> comes back
//! ```
//!
//! A driver hands it what happens, and then does what [`Member::poll`] asks, to the last. The steps and the snapshots are the driver's,
//! as threads share them: they are lent for a moment.

pub mod completion;
pub(crate) mod entry;
pub(crate) mod failed_links;
pub(crate) mod hang_detector;
mod leaving;
mod looks;
mod output;
mod place_watch;
pub mod quorum_search;
pub(crate) mod stall_detector;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use starling_topology::heads;
use starling_topology::{
    Config, Digest, Event, Evidence, Head, HeadTracker, HoldPosition, Input, Lineage, MemberResumePlan, Membership,
    PeerId, Progress, Time, View, ViewId, Violation,
};

use crate::member::completion::{CompletionTracker, departs};
use crate::member::entry::{Action, EntryState};
use crate::member::failed_links::FailedLinkTracker;
use crate::member::hang_detector::OverdueAction;
use crate::member::quorum_search::{AbsenceReason, QuorumSearch, SearchResult, apart, goes_on};
use crate::steps::{StepEngine, StepEvent, StepResult};
use crate::{SnapshotStore, look_interval};
pub use leaving::LeaveAction;
use leaving::Leaving;
use looks::Looks;
pub use looks::{StallStatus, StepStatus};
pub use output::Output;
use place_watch::PlaceWatch;

/// See the module.
#[derive(Debug)]
pub struct Member {
    membership: Membership,
    entry: EntryState,
    /// Which checkpoints are stable.
    heads: HeadTracker,
    completion: CompletionTracker,
    quorum_search: QuorumSearch,
    looks: Looks,
    failed_links: FailedLinkTracker,
    place_watch: PlaceWatch,
    leaving: Leaving,
    /// What its disk says of it, until it has a seat.
    outside: Option<AbsenceReason>,
    /// Whether the state after the last step is on its disk.
    is_saved: bool,
    /// How the run ended, while it stays for others.
    complete: Option<Event>,
    /// What the membership has yet to hear of the others.
    inputs: VecDeque<Input>,
    /// The last event has been told.
    end: Option<Event>,
    is_flawed: bool,
}

impl Member {
    /// One that begins as `membership` does. `outside` is what its disk says of it, if it was a member and asks to be let in, or waits.
    pub fn new(membership: Membership, outside: Option<AbsenceReason>) -> Self {
        let (me, run) = (membership.me(), membership.run());
        let Config { max_stall, last_step, .. } = *membership.config();
        Self {
            membership,
            entry: EntryState::new(me),
            heads: HeadTracker::new(run, me),
            completion: CompletionTracker::new(max_stall),
            quorum_search: QuorumSearch::new(last_step, max_stall),
            looks: Looks::new(max_stall, look_interval(max_stall)),
            failed_links: FailedLinkTracker::new(max_stall),
            place_watch: PlaceWatch::new(max_stall),
            leaving: Leaving::new(max_stall),
            outside,
            is_saved: false,
            complete: None,
            inputs: VecDeque::new(),
            end: None,
            is_flawed: false,
        }
    }

    /// Has it say [`Output::NoPlace`] where the others can't have it as a member: it can take part as a leaf.
    pub fn allow_leaf(&mut self) {
        self.place_watch.begin();
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: starling_topology::FlawKind) {
        self.membership.plant(flaw);
        self.completion.plant(flaw);
        self.is_flawed = flaw == starling_topology::FlawKind::HoldsAhead;
    }

    /// Who is in the run.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Whether it waits for the result that its view goes on from.
    pub fn is_waiting(&self) -> bool {
        self.entry.is_waiting()
    }

    /// Whether the state after the last step is on its disk.
    pub fn is_saved(&self) -> bool {
        self.is_saved
    }

    /// Whether the run is complete, and this process stays for others.
    pub fn has_completed(&self) -> bool {
        self.complete.is_some()
    }

    /// Takes in what happened to the membership.
    ///
    /// # Errors
    ///
    /// If it is a message that no correct peer sends.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<(), Violation> {
        self.pass_on(now);
        self.membership.handle(now, input)
    }

    /// What to do next; drain to `None` after each call of the others.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        self.pass_on(now);
        if let Some(output) = self.heads.poll() {
            return Some(self.on_heads(now, output));
        }
        if let Some(output) = self.membership.poll() {
            return Some(self.on_membership(now, output));
        }
        while let Some(output) = self.completion.poll() {
            return Some(match output {
                completion::Output::SetTimer(at) => Output::Settle(at),
                completion::Output::Ask(keepers) => Output::AskKeepers(keepers),
                completion::Output::Tell(keepers) => Output::AwaitsKeepers(keepers),
                completion::Output::End => match self.complete.take() {
                    Some(event) => Output::End(event),
                    None => continue,
                },
            });
        }
        if let Some(event) = self.end.take() {
            return Some(Output::End(event));
        }
        if self.membership.view().is_some() {
            self.outside = None;
        }
        let is_succeeded = self.membership.is_succeeded();
        if self.place_watch.has_none(now, is_succeeded) {
            return Some(Output::NoPlace);
        }
        let apart = self.apart();
        self.quorum_search.note(now, apart);
        Some(match self.quorum_search.poll()? {
            quorum_search::Output::SetTimer(at) => Output::LookOut(at),
            quorum_search::Output::Search(terms) => Output::Search(terms),
            quorum_search::Output::GiveUp => Output::GiveUpSearch,
            quorum_search::Output::ComeBack => Output::ComeBack,
        })
    }

    fn pass_on(&mut self, now: Time) {
        while let Some(input) = self.inputs.pop_front() {
            // None of them came from a peer.
            let _never_wrong = self.membership.handle(now, input);
        }
    }

    fn on_heads(&mut self, now: Time, output: heads::Output) -> Output {
        match output {
            heads::Output::Sign(head) => Output::Sign(head),
            heads::Output::Announce { head, signature } => Output::Announce { head, signature },
            heads::Output::Stable(proof) => {
                self.completion.note_stable(now, proof.head.step);
                Output::Stable(proof)
            }
            heads::Output::Differs { peer, step, ours, theirs } => Output::Differs { peer, step, ours, theirs },
        }
    }

    fn on_membership(&mut self, now: Time, output: starling_topology::Output) -> Output {
        use starling_topology::Output as Told;
        match output {
            Told::Send { to, envelope } => Output::Send { to, envelope },
            Told::Learn(contact) => Output::Learn(contact),
            Told::SetTimer { timer, at } => Output::SetTimer { timer, at },
            Told::Hold(hold) => Output::Hold(hold),
            Told::Persist(record) => Output::Persist(record),
            Told::Keep(record) => Output::Keep(record),
            Told::Resume(resumption) => Output::Resume(resumption),
            Told::Event(event) => {
                match &event {
                    Event::Evicted { .. } => self.place_watch.evicted(now),
                    Event::Changed { reasons, .. } => {
                        self.place_watch.returned(now);
                        self.entry.changed(reasons);
                    }
                    Event::Complete { step, digest } => {
                        self.complete = Some(event.clone());
                        self.completion.complete(now, (*step, *digest), self.is_saved);
                    }
                    last if last.is_last() => self.end = Some(event.clone()),
                    _ => {}
                }
                Output::Event(event)
            }
        }
    }

    // --- its way through views ----------------------------------------------------------------------------------

    /// Holds the steps, as [`Output::Hold`] asked. `is_whole` says whether all of this member's contribution to the operation under way
    /// is there. Returns what is told of it, if they stand at once.
    pub fn hold<R: StepResult, S>(
        &mut self,
        steps: &mut StepEngine<R, S>,
        hold: HoldPosition,
        is_whole: bool,
    ) -> Option<Progress> {
        let held = self.entry.hold(steps, hold, is_whole);
        held.into_iter().for_each(|progress| self.tell_held(progress));
        held
    }

    fn tell_held(&mut self, mut progress: Progress) {
        progress.step += u64::from(self.is_flawed && progress.has_state);
        self.inputs.push_back(Input::Held(progress));
    }

    /// Goes on in a view, as [`Output::Resume`] asked, once all is ready for it. Does what the [`Action`] says to the membership; what is
    /// left to the driver is to fetch, and to give up what is being fetched, but for [`Action::Wait`].
    pub fn enter<R: StepResult, S, K: Clone>(
        &mut self,
        steps: &mut StepEngine<R, S>,
        snapshots: &mut SnapshotStore<K>,
        resumption: &MemberResumePlan,
    ) -> Action {
        let entered = Some(resumption.view.clone()).zip(self.membership.root());
        let _never_wrong = self.heads.handle(heads::Input::View(entered));
        let action = self.entry.enter(steps, snapshots, resumption);
        self.follow(steps, action)
    }

    /// The result that was fetched as `number` is here, or nobody handed it out: as [`EntryState::fetched`].
    pub fn fetched<R: StepResult, S>(
        &mut self,
        steps: &mut StepEngine<R, S>,
        number: u64,
        result: Result<R, String>,
    ) -> Option<Action> {
        let action = self.entry.fetched(steps, number, result)?;
        Some(self.follow(steps, action))
    }

    /// The state that was fetched as `number` is here, or nobody handed it out: as [`EntryState::arrived`].
    pub fn arrived<R: StepResult, S>(
        &mut self,
        steps: &mut StepEngine<R, S>,
        number: u64,
        state: Result<S, String>,
    ) -> Option<Action> {
        let action = self.entry.arrived(steps, number, state)?;
        Some(self.follow(steps, action))
    }

    fn follow<R: StepResult, S>(&mut self, steps: &mut StepEngine<R, S>, action: Action) -> Action {
        match &action {
            Action::GoOn | Action::Wait | Action::FetchResult { .. } | Action::FetchState { .. } => {}
            Action::GoOnFromInitial => self.inputs.push_back(Input::Synced),
            Action::Withheld(_) => self.inputs.push_back(Input::Withheld),
            Action::Unable(_) => self.unable(steps),
        }
        action
    }

    /// It is no member any more, as far as it knows.
    pub fn leave<R: StepResult, S>(&mut self, steps: &mut StepEngine<R, S>) {
        self.entry.leave(steps);
        self.completion.forget();
        self.vouch_no_more();
    }

    /// It signs nothing in its view.
    pub fn vouch_no_more(&mut self) {
        let _never_wrong = self.heads.handle(heads::Input::View(None));
    }

    /// Takes in what the steps have to say. After [`StepEvent::TooFarBehind`] it is in no view any more.
    pub fn notice<R: StepResult, S>(&mut self, steps: &mut StepEngine<R, S>, notice: StepEvent) {
        match notice {
            StepEvent::Synced => self.inputs.push_back(Input::Synced),
            StepEvent::TooFarBehind => self.unable(steps),
            StepEvent::Starved { step } => self.inputs.push_back(Input::Starved { step }),
            StepEvent::Held(progress) => self.tell_held(progress),
            StepEvent::Digest { step, digest } => self.inputs.push_back(Input::Digest { step, digest }),
            StepEvent::Finished { step, digest, is_saved } => {
                self.is_saved = is_saved;
                self.inputs.push_back(Input::Finished { step, digest });
            }
        }
    }

    fn unable<R: StepResult, S>(&mut self, steps: &mut StepEngine<R, S>) {
        self.leave(steps);
        self.inputs.push_back(Input::Unable);
    }

    // --- what it looks at regularly -----------------------------------------------------------------------------

    /// A link of `view` to this neighbour, for segments, has failed.
    pub fn link_failed(&mut self, now: Time, peer: PeerId, view: ViewId) {
        self.failed_links.note(now, peer, view);
    }

    /// Looks how far it is, as its driver does at each [`look_interval`]. After that the driver says [`Input::Reached`].
    pub fn look(&mut self, now: Time, seen: StepStatus) -> StallStatus {
        // Nobody waits for one that has completed the run.
        let looked = self.looks.look(now, seen);
        let looked = StallStatus { overdue: looked.overdue.filter(|_| self.complete.is_none()), ..looked };
        if looked.overdue == Some(OverdueAction::End) {
            return looked;
        }
        let is_held = seen.is_held && !self.entry.is_waiting();
        let suspects = self.failed_links.look(now, seen.view, is_held);
        if !suspects.is_empty() {
            self.place_watch.link_failed(now);
        }
        let suspected = |peer| Input::Suspected { peer, evidence: Evidence::LinkFailed };
        self.inputs.extend(suspects.into_iter().map(suspected));
        looked
    }

    /// Whether this process stood still, or has only just gone on: its timers ring at the time returned, once it has read what came
    /// meanwhile.
    pub fn stood_still(&self, now: Time) -> Option<Time> {
        self.looks.stood_still(now)
    }

    /// How long its own work may take.
    pub fn patience(&self) -> Duration {
        self.looks.patience()
    }

    // --- which checkpoints are stable ---------------------------------------------------------------------------

    /// A whole, verified checkpoint is on its disk. It may have been on its way when its branch was left.
    pub fn saved(&mut self, step: u64, lineage: Lineage, digest: Digest, manifest: Digest) {
        if self.membership.vouches_for(step, lineage) {
            let _never_wrong = self.heads.handle(heads::Input::Saved { step, lineage, digest, manifest });
        }
    }

    /// The same of the state with which the run has ended, as the steps say.
    pub fn saved_end(&mut self, step: u64, lineage: Lineage, digest: Digest, manifest: Digest) {
        if self.membership.vouches_for_end(step, lineage) {
            let _never_wrong = self.heads.handle(heads::Input::Saved { step, lineage, digest, manifest });
        }
    }

    /// This member's signature of a head, as [`Output::Sign`] asked.
    pub fn signed(&mut self, head: Head, signature: [u8; 64]) {
        let _never_wrong = self.heads.handle(heads::Input::Signed { head, signature });
    }

    /// A peer has signed a head; the driver has verified that.
    ///
    /// # Errors
    ///
    /// If no correct peer signs such a one.
    pub fn heard(&mut self, from: PeerId, head: Head, signature: [u8; 64]) -> Result<(), Violation> {
        self.heads.handle(heads::Input::Received { from, head, signature })
    }

    /// Tells again what it has signed and may not have got through, as its driver does now and then.
    pub fn repeat_heads(&mut self) {
        let _never_wrong = self.heads.handle(heads::Input::Repeat);
    }

    // --- whether the run has gone on without it -----------------------------------------------------------------

    /// What keeps it from taking part.
    pub fn apart(&self) -> Option<AbsenceReason> {
        apart(&self.membership, self.outside)
    }

    /// Whether others are told that it goes on.
    pub fn goes_on(&self) -> bool {
        goes_on(&self.membership, self.outside, self.has_completed())
    }

    /// Whether it has a seat, and a quorum.
    pub fn takes_part(&self) -> bool {
        self.membership.view().is_some() && !self.membership.has_no_quorum()
    }

    /// The time may have come to ask others whether the run has gone on without it. It holds the state after `step`, of a run that ends
    /// with `last_step`, as far as it knows.
    pub fn look_out(&mut self, now: Time, step: u64, last_step: u64) {
        self.quorum_search.end_with(last_step);
        if let Some(apart) = self.apart() {
            self.quorum_search.expired(now, step, apart);
        }
    }

    /// They have been asked.
    pub fn searched(&mut self, now: Time, came_to: SearchResult<'_>) {
        self.quorum_search.searched(now, came_to);
    }

    // --- how it ends --------------------------------------------------------------------------------------------

    /// Looks whether it has to stay, while the run is complete and these keepers are there.
    pub fn settle(&mut self, now: Time, keepers: &[PeerId]) {
        self.completion.look(now, keepers);
    }

    /// A keeper has said which stable states it holds.
    pub fn keeper_holds(&mut self, now: Time, keeper: PeerId, states: &[(u64, Digest)]) {
        self.completion.holds(now, keeper, states);
    }

    /// Its user wants it to leave. It ends once the others let it go, or with [`Self::leaves_at`] in vain.
    pub fn ask_to_leave(&mut self, now: Time) {
        match self.complete.take() {
            Some(event) => self.end = Some(event),
            None => {
                self.leaving.begin(now);
                self.inputs.push_back(Input::Leave);
            }
        }
    }

    /// When it has waited for long to be let go: call [`Self::leave_in_vain`].
    pub fn leaves_at(&self) -> Option<Time> {
        self.leaving.until()
    }

    /// Nobody has let it go for long.
    pub fn leave_in_vain(&mut self, now: Time) -> LeaveAction {
        match self.complete.take() {
            Some(event) => {
                self.end = Some(event);
                LeaveAction::Departs
            }
            None => self.leaving.expired(now, &self.membership),
        }
    }

    /// To whom it gives its place up that ends so, after `last_step`: as [`departs`].
    pub fn departs(&self, end: &Event, last_step: u64) -> Option<Vec<PeerId>> {
        departs(end, last_step, self.is_saved)
    }

    /// The view that it has a seat in.
    pub fn view(&self) -> Option<&View> {
        self.membership.view()
    }
}
