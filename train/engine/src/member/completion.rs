//! What a member stays for whose run is complete: the signatures of the last state, and keepers that have yet to fetch it.
//!
//! ```text
//!   complete --> signed by a quorum? --no--> waits, `max_stall` at most
//!                    '-> held by all keepers that are there? --no--> asks them, and waits, a few `max_stall` at most
//!                            '-> ends
//! ```
//!
//! Whoever is killed now, or was away, finds by these that the run is complete, and how: once the members are gone, keepers alone
//! can tell.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use starling_topology::{Digest, Event, PeerId, Time};

/// How long keepers that are there may take to fetch the last state, in `max_stall`. One that never does costs no more.
const MAX_STALLS: u32 = 6;
/// How often keepers are asked within `max_stall`.
const ASKED: u32 = 20;
/// Keepers that are waited for.
const MAX_KEEPERS: usize = 16;

/// To whom a member gives its place up that has come to this end: those who stayed; nobody, if the run is complete. `None` if it has its
/// place still: whoever was the last, or was not answered; whose run stopped before its last step, and goes on if all are started again;
/// and whose last state no disk took.
pub fn departs(end: &Event, last_step: u64, is_saved: bool) -> Option<Vec<PeerId>> {
    match end {
        Event::Complete { step, .. } if *step >= last_step && is_saved => Some(Vec::new()),
        Event::Left { stayed } if !stayed.is_empty() => Some(stayed.clone()),
        _ => None,
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Call back with [`CompletionTracker::look`].
    SetTimer(Time),
    /// Ask these keepers what they hold; then [`CompletionTracker::holds`].
    Ask(Vec<PeerId>),
    /// These have not fetched it for long: the user hears what is waited for, once.
    Tell(Vec<PeerId>),
    /// Nothing is left to stay for.
    End,
}

/// Stays, as long as that is of use.
#[derive(Debug)]
pub struct CompletionTracker {
    max_stall: Duration,
    /// The last step whose state a quorum has signed, on this branch.
    stable: u64,
    last: Option<Last>,
    /// By mistake, set by `plant` alone.
    leaves_keepers: bool,
    outputs: VecDeque<Output>,
}

/// The run is complete here.
#[derive(Debug)]
struct Last {
    /// The step, and the digest of its state.
    end: (u64, Digest),
    since: Time,
    /// Those that said that they hold that state: with another one, made in a fork or made up, the end of this run is not kept.
    holders: BTreeSet<PeerId>,
    /// When they are asked next.
    ask_at: Time,
    is_told: bool,
}

impl CompletionTracker {
    /// Of a run with this longest stall.
    pub fn new(max_stall: Duration) -> Self {
        Self { max_stall, stable: 0, last: None, leaves_keepers: false, outputs: VecDeque::new() }
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: starling_topology::FlawKind) {
        self.leaves_keepers |= flaw == starling_topology::FlawKind::LeavesKeepers;
    }

    /// What to do next; drain to `None` after each call of the others.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether the run is complete, and something is stayed for.
    pub fn is_under_way(&self) -> bool {
        self.last.is_some()
    }

    /// The run is complete with the state of this digest after this step, which is on this machine's disk, or can't get there.
    pub fn complete(&mut self, now: Time, end: (u64, Digest), is_saved: bool) {
        if is_saved {
            self.last = Some(Last { end, since: now, holders: BTreeSet::new(), ask_at: now, is_told: false });
            self.outputs.push_back(Output::SetTimer(now));
        } else {
            self.outputs.push_back(Output::End);
        }
    }

    /// A quorum has signed the state after `step`.
    pub fn note_stable(&mut self, now: Time, step: u64) {
        self.stable = self.stable.max(step);
        if self.last.is_some() {
            self.outputs.push_back(Output::SetTimer(now));
        }
    }

    /// What was stable on the branch that is left says nothing of another one.
    pub fn forget(&mut self) {
        self.stable = 0;
    }

    /// A keeper has said which stable states are its newest ones.
    pub fn holds(&mut self, now: Time, keeper: PeerId, states: &[(u64, Digest)]) {
        if let Some(last) =
            self.last.as_mut().filter(|last| states.contains(&last.end) && last.holders.len() < MAX_KEEPERS)
        {
            last.holders.insert(keeper);
            self.outputs.push_back(Output::SetTimer(now));
        }
    }

    /// A time has come that was asked for; these keepers are there. To look more often does no harm.
    pub fn look(&mut self, now: Time, keepers: &[PeerId]) {
        let Some(last) = &mut self.last else { return };
        let (waited, is_stable) = (now - last.since, self.stable >= last.end.0);
        let lacks = |keeper: &&PeerId| !self.leaves_keepers && !last.holders.contains(keeper);
        let lacking: Vec<PeerId> = keepers.iter().take(MAX_KEEPERS).filter(lacks).copied().collect();
        let limit = self.max_stall * if is_stable { MAX_STALLS } else { 1 };
        if waited >= limit || (is_stable && lacking.is_empty()) {
            self.last = None;
            return self.outputs.push_back(Output::End);
        }
        let end_at = last.since + limit;
        if !is_stable {
            return self.outputs.push_back(Output::SetTimer(end_at));
        }
        if waited >= self.max_stall && !std::mem::replace(&mut last.is_told, true) {
            self.outputs.push_back(Output::Tell(lacking.clone()));
        }
        if now >= last.ask_at {
            last.ask_at = now + self.max_stall / ASKED;
            self.outputs.push_back(Output::Ask(lacking));
        }
        self.outputs.push_back(Output::SetTimer(last.ask_at.min(end_at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(10);
    const END: (u64, Digest) = (100, Digest([7; 32]));
    const KEEPERS: [PeerId; 2] = [PeerId([1; 32]), PeerId([2; 32])];

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn said(completion: &mut CompletionTracker) -> Vec<Output> {
        std::iter::from_fn(|| completion.poll()).filter(|output| !matches!(output, Output::SetTimer(_))).collect()
    }

    fn complete(stable: u64) -> CompletionTracker {
        let mut completion = CompletionTracker::new(STALL);
        completion.note_stable(at(0), stable);
        completion.complete(at(1), END, true);
        completion
    }

    #[test]
    fn a_place_is_given_up_only_to_those_who_stay_or_once_the_end_is_on_disk() {
        let complete = |step| Event::Complete { step, digest: END.1 };
        assert_eq!(departs(&complete(100), 100, true), Some(Vec::new()));
        assert_eq!((departs(&complete(100), 100, false), departs(&complete(60), 100, true)), (None, None));
        assert_eq!(departs(&Event::Left { stayed: KEEPERS.to_vec() }, 100, false), Some(KEEPERS.to_vec()));
        assert_eq!(departs(&Event::Left { stayed: Vec::new() }, 100, true), None);
        assert_eq!(departs(&Event::NoState, 100, true), None);
    }

    #[test]
    fn where_no_keeper_is_signatures_are_enough() {
        let mut completion = complete(90);
        completion.look(at(1), &[]);
        assert_eq!((said(&mut completion), completion.is_under_way()), (Vec::new(), true));
        completion.note_stable(at(2), 100);
        completion.look(at(2), &[]);
        assert_eq!((said(&mut completion), completion.is_under_way()), (vec![Output::End], false));
    }

    #[test]
    fn signatures_that_do_not_come_are_not_waited_for_for_long() {
        let mut completion = complete(90);
        completion.look(at(10), &KEEPERS);
        assert_eq!(said(&mut completion), []);
        completion.look(at(11), &KEEPERS);
        assert_eq!(said(&mut completion), [Output::End]);
        completion.look(at(12), &KEEPERS);
        assert_eq!(said(&mut completion), [], "once");
    }

    #[test]
    fn keepers_that_are_there_are_asked_until_they_hold_it() {
        let mut completion = complete(100);
        completion.look(at(1), &KEEPERS);
        assert_eq!(said(&mut completion), [Output::Ask(KEEPERS.to_vec())]);
        completion.holds(at(1), KEEPERS[0], &[(99, END.1), (100, Digest([8; 32]))]);
        completion.holds(at(1), KEEPERS[1], &[END, (100, Digest([8; 32]))]);
        completion.look(at(1), &KEEPERS);
        assert_eq!(said(&mut completion), [], "not so soon again");
        completion.look(at(2), &KEEPERS);
        assert_eq!(said(&mut completion), [Output::Ask(vec![KEEPERS[0]])]);
        completion.look(at(3), &KEEPERS[1..]);
        assert_eq!(said(&mut completion), [Output::End], "the other one is gone");
    }

    #[test]
    fn a_keeper_that_never_fetches_it_is_told_and_costs_a_bounded_time() {
        let mut completion = complete(100);
        completion.look(at(12), &KEEPERS[..1]);
        completion.look(at(13), &KEEPERS[..1]);
        let ask = Output::Ask(vec![KEEPERS[0]]);
        assert_eq!(said(&mut completion), [Output::Tell(vec![KEEPERS[0]]), ask.clone(), ask]);
        completion.look(at(61), &KEEPERS[..1]);
        assert_eq!(said(&mut completion), [Output::End]);
    }

    #[test]
    fn a_state_that_no_disk_took_is_waited_for_by_nobody() {
        let mut completion = CompletionTracker::new(STALL);
        completion.complete(at(1), END, false);
        assert_eq!(said(&mut completion), [Output::End]);
    }
}
