//! What the machine wants done, in order, and the one rule that makes its word good: what follows from a record leaves
//! once that record is stored.
//!
//! ```text
//!   queue:   Send  Send | Send  Hold  Send | Send  Resume
//!                       ^ the record is being stored: nothing after it leaves
//!                                          ^ it changed again: stored next, as it is when its turn comes
//! ```
//!
//! A newer record may be stored in an older one's place: it promises at least as much. So at most one is being stored and
//! at most one waits, however often the record changes meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::membership::interface::{CatchUpAction, Event, Output, Timer};
use crate::message::MAX_MEMBERS;
use crate::time::Time;

/// So many outputs wait for a record before messages are dropped that would make more of them.
const MAX_WAITING: usize = 4 * MAX_MEMBERS;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// They say nothing to anybody, and so wait for nothing.
    timers: BTreeMap<Timer, Time>,
    /// `None`: the record is stored here.
    queue: VecDeque<Option<Output>>,
    store: Store,
    /// Since when no store has succeeded that was called for.
    since: Option<Time>,
}

/// What comes next.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "none is kept")]
pub(super) enum Next {
    Output(Output),
    /// The record as it is now is to be stored.
    Store,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Store {
    #[default]
    Idle,
    /// The driver is at it.
    Asked,
    /// It failed, and is asked for again after a pause.
    Failed,
    Due,
}

impl Outbox {
    pub(super) fn push(&mut self, output: Output) {
        self.queue.push_back(Some(output));
    }

    pub(super) fn set_timer(&mut self, timer: Timer, at: Time) {
        self.timers.insert(timer, at);
    }

    /// Nothing that is pushed from now on leaves before the record is stored.
    pub(super) fn store(&mut self, now: Time, limit: Duration) {
        if !self.queue.contains(&None) {
            self.queue.push_back(None);
        }
        if self.since.is_none() {
            self.wait_from(now, limit);
        }
    }

    fn wait_from(&mut self, now: Time, limit: Duration) {
        self.since = Some(now);
        self.set_timer(Timer::Store, now + limit);
    }

    pub(super) fn next(&mut self) -> Option<Next> {
        if let Some((timer, at)) = self.timers.pop_first() {
            return Some(Next::Output(Output::SetTimer { timer, at }));
        }
        match self.store {
            Store::Asked | Store::Failed => return None,
            Store::Due => self.queue.retain(Option::is_some), // What is stored now is the newest.
            Store::Idle => {
                if let Some(output) = self.queue.pop_front()? {
                    return Some(Next::Output(output));
                }
            }
        }
        self.store = Store::Asked;
        Some(Next::Store)
    }

    /// Whether something has to be stored before anything new can be said.
    pub(super) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Whether no more can wait.
    pub(super) fn is_full(&self) -> bool {
        self.is_waiting() && self.queue.len() >= MAX_WAITING
    }

    /// What was asked to be stored is.
    pub(super) fn stored(&mut self, now: Time, limit: Duration) {
        if self.store != Store::Asked {
            return;
        }
        self.store = Store::Idle;
        self.since = None;
        if self.queue.contains(&None) {
            self.wait_from(now, limit);
        }
    }

    /// It could not be stored: the next try comes after `pause`.
    pub(super) fn failed(&mut self, now: Time, pause: Duration, limit: Duration) {
        if let (Store::Asked, Some(since)) = (self.store, self.since) {
            self.store = Store::Failed;
            self.set_timer(Timer::Store, (now + pause).min(since + limit));
        }
    }

    /// Time for another try. False if it has been in vain for too long.
    pub(super) fn try_again(&mut self, now: Time, limit: Duration) -> bool {
        let Some(since) = self.since else { return true };
        if now - since >= limit {
            return false;
        }
        if self.store == Store::Failed {
            self.store = Store::Due;
        }
        self.set_timer(Timer::Store, since + limit);
        true
    }

    /// Nothing is stored any more, and nothing said but `event`, or the one that has ended the machine.
    pub(super) fn end(&mut self, event: Event) {
        let last =
            self.queue.drain(..).flatten().find(|output| matches!(output, Output::Event(event) if event.is_last()));
        *self = Self::default();
        self.push(last.unwrap_or(Output::Event(event)));
    }

    /// Whether the driver has yet to hear that it goes on elsewhere: then what it says of its steps is not of where we are.
    pub(super) fn moves_on(&self) -> bool {
        let moves = |output: &Output| matches!(output, Output::Resume(_) | Output::Event(Event::Evicted { .. }));
        self.queue.iter().flatten().any(moves)
    }

    /// Whether the driver has yet to hear that the state that it has, or downloads, is not the one to go on from.
    pub(super) fn begins_anew(&self) -> bool {
        self.queue.iter().flatten().any(|output| match output {
            Output::Resume(resumption) => matches!(resumption.catch_up, CatchUpAction::State { .. }),
            output => matches!(output, Output::Event(Event::Evicted { .. })),
        })
    }

    /// The steps are held already.
    pub(super) fn drop_holds(&mut self) {
        self.queue.retain(|output| !matches!(output, Some(Output::Hold(_))));
    }
}
