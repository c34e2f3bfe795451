//! What the member asks for: messages, timers, holds, records, new views, searches.

use starling_engine::Output;
use starling_topology::{BlockReason as Lack, Envelope, Event, Evidence, Input, LostState, PeerId, Reason, Record};

use super::{Change, End, EventLoop};
use crate::credentials::identity::to_libp2p;
use crate::error::NodeError;
use crate::member::shared_steps::CarrierInput;
use crate::member::twin;
use crate::net::control::Link;
use crate::observe::report::{MissingState, Report};
use crate::store::record_file::SavedMembership;

impl EventLoop {
    pub(super) fn execute_all(&mut self) -> Option<End> {
        while let Some(output) = self.next_output() {
            match output {
                Output::Send { to, envelope } => self.send(to, &envelope),
                Output::Learn(contact) => self.network.learn(&contact),
                Output::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                }
                Output::Hold(hold) => self.hold(hold),
                Output::Persist(record) => self.persist(record),
                Output::Keep(record) => {
                    self.books.guide.note(&record);
                    self.keep_guide();
                }
                Output::Resume(resumption) => self.resume(&resumption),
                Output::Event(event) => {
                    if let Some(end) = self.tell(event) {
                        return Some(end);
                    }
                }
                Output::Sign(head) => self.sign(head),
                Output::Announce { head, signature } => self.announce(&head, &signature),
                Output::Stable(proof) => self.writer_handle.sign(proof),
                Output::Differs { peer, step, ours, theirs } => self.on_difference(peer, step, [ours, theirs]),
                Output::Search(terms) => self.search(terms),
                Output::GiveUpSearch => self.quorum_search.give_up(),
                Output::ComeBack => return Some(End::ComesBack),
                Output::NoPlace => return Some(End::NoPlace),
                // They are looked at each time that all else is.
                Output::LookOut(_) => {}
                Output::Settle(at) if at > self.now() => {}
                Output::Settle(_) => self.settle(),
                Output::AskKeepers(keepers) => keepers.into_iter().for_each(|keeper| self.ask_keeper(keeper)),
                Output::AwaitsKeepers(keepers) => self.tell_of_keepers(keepers),
                Output::End(event) => return Some(End::Event(event)),
            }
        }
        self.show_view();
        None
    }

    /// What the machine asks next. When it asks for nothing more, it hears of peers to whom not all has gone that it said.
    fn next_output(&mut self) -> Option<Output> {
        loop {
            let now = self.now();
            if let Some(output) = self.member.poll(now) {
                return Some(output);
            }
            let peer = self.unsent.pop_first()?;
            self.suspect(peer, Evidence::Closed);
        }
    }

    pub(super) fn send(&mut self, to: PeerId, envelope: &Envelope) {
        if self.unsent.contains(&to) {
            return; // Nothing goes there before the machine has heard of what did not.
        }
        let peer = to_libp2p(to);
        self.network.connect(peer);
        // A peer that is lost may come back, but not many are worth waiting for.
        let limit = if self.members.contains(&to) { self.config.max_stall / 2 } else { self.config.max_stall / 8 };
        let link = self.links.entry(to).or_insert_with(|| {
            self.link_number += 1;
            Link::open(
                self.network.control(),
                self.network.protocols.control.clone(),
                to,
                self.link_number,
                limit,
                self.incoming.events_in.clone(),
            )
        });
        if !link.send(envelope) {
            // The task has ended or the peer does not read. What came later would have a gap before it.
            self.links.remove(&to);
            self.unsent.insert(to);
        }
    }

    /// Has it stored. The machine asks for nothing that follows from it before it hears what came of that, so that the loop
    /// goes on meanwhile.
    fn persist(&mut self, record: Record) {
        let contacts = self.member.membership().contacts().cloned().collect();
        let listened = self.network.swarm.listeners().map(ToString::to_string).collect();
        let kept = SavedMembership { record, contacts, min_members: self.config.min_members, listened };
        let file = self.books.record.clone();
        // What one peer alone has told is kept for no longer than this machine is where that led it.
        if !self.member.membership().came_by_word() {
            self.books.guide.note(&kept.record);
        }
        self.storing.begin(move || file.store(kept));
    }

    /// Writes down which views there were. No vote waits for these: what is lost of them is in the record, or others tell it again.
    fn keep_guide(&self) {
        let guide = self.books.guide.clone();
        drop(tokio::task::spawn_blocking(move || guide.keep()));
    }

    /// A store has come to its end.
    pub(super) fn on_stored(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                self.keep_guide();
                self.handle(Input::Persisted);
            }
            Err(reason) => {
                // The user hears of the first one; what comes of it, they hear anyway.
                if let Some(reason) = self.storing.fail(reason) {
                    let message =
                        format!("{reason}; this member says nothing until its vote is stored, and tries again");
                    self.observer.report(&Report::Warning { message });
                }
                self.handle(Input::NotPersisted);
            }
        }
    }

    /// Tells the user; `Some` if the event ends the run here.
    fn tell(&mut self, event: Event) -> Option<End> {
        let name = |peer| to_libp2p(peer).to_string();
        match event {
            Event::Waiting { present, needed } => self.observer.report(&Report::Waiting { present, needed }),
            Event::Joining(peer) => self.observer.report(&Report::Joining { peer: name(peer) }),
            Event::JoinerLost(peer) => self.observer.report(&Report::JoinerLost { peer: name(peer) }),
            Event::Stale { from } => tracing::debug!(peer = name(from), "message of an older view dropped"),
            Event::Suspected { peer, evidence, reporter } => {
                let (peer, evidence, seen_by) = (name(peer), evidence.to_string(), reporter.map(name));
                let step = self.shared_steps.progress().step;
                self.observer.report(&Report::Suspected { peer, evidence, seen_by, step });
            }
            Event::Changed { reasons, promised, of, took, .. } => {
                self.join_wait.enter();
                for reason in &reasons {
                    if let Reason::Left(peer) = reason {
                        self.network.forget(to_libp2p(*peer));
                    }
                }
                // Several may come before the steps go on.
                let change = Change::new(&reasons, promised, of, took);
                self.change = Some(change.after(self.change.take()));
                // Also where the new view waits for members: what happens to the old links means nothing any more.
                self.reducer = None;
                if let Some(view) = self.member.view().cloned() {
                    self.note_members(&view);
                    self.note_guests(&view);
                }
            }
            Event::Paused { present, needed, missed } => {
                let missed = missed.map(|missed| match missed {
                    Lack::State => MissingState::State,
                    Lack::Lost(LostState::Step(step)) => MissingState::Step(step),
                    Lack::Lost(LostState::Nothing | LostState::Unknown) => MissingState::Unknown,
                });
                self.observer.report(&Report::Paused { present, needed, missed });
            }
            Event::Evicted { by } => {
                let member = &mut self.member;
                self.shared_steps.act(|steps| member.leave(steps));
                self.drop_view();
                self.observer.report(&Report::Evicted { by: name(by) });
            }
            Event::SetBack { by } => self.observer.report(&Report::SetBack { by: name(by) }),
            Event::Differs { peer, step, ours, theirs } => {
                let what = format!(
                    "holds another state than most members after step {step} (digest {theirs}, most {ours}); it computes \
                     wrongly or says what is not so, and is left out"
                );
                self.observer.report(&Report::Misbehaved { peer: name(peer), what });
            }
            Event::Outvoted { peer, step, ours, theirs } => {
                let peer = name(peer);
                let message = format!(
                    "most members, {peer} among them, hold another state than this one after step {step} (digest {theirs}, \
                     ours {ours}); this machine may compute wrongly: check its memory and its starling release. It joins \
                     anew with their state"
                );
                self.observer.report(&Report::Warning { message });
            }
            Event::NotStored => {
                let (path, limit) = (self.books.record.path().to_owned(), self.config.max_stall);
                return Some(End::Failed(NodeError::NotStored { path, limit, reason: self.storing.reason() }));
            }
            Event::Twin { by } => {
                tracing::info!(by = name(by), "another process has taken this machine's seat");
                return Some(End::Failed(twin::error(self.me, self.data_dir())));
            }
            // It takes no part any more: whoever comes back and asks must not wait for it.
            Event::Complete { step, digest, .. } => {
                self.chunk_providers.checkpoints.tell(false, false);
                self.shared_steps.carry(CarrierInput::Ended { step, digest });
            }
            // It ends so, once all else is done.
            Event::Left { .. } | Event::Refused { .. } | Event::Diverged { .. } | Event::NoState => {}
        }
        None
    }
}
