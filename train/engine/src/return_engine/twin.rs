//! A machine looks for a twin, which is another process with its identity: somebody has copied its data directory, or its key, or has
//! brought it to another machine while the first one runs. It does so first of all when it starts.
//!
//! It dials itself at the places where its identity was last heard of. Nobody else can prove to be it. Who is cut off, stopped or
//! down does not answer, so it looks again each half of `max_stall` as long as it takes no part, also where others say that it is: that
//! may be because of the twin, which takes what others say to both. Two that take part put each other out by turns; then
//! [`starling_topology::Event::Twin`] ends one of them.

use std::collections::VecDeque;
use std::time::Duration;

use starling_topology::{FlawKind, Time};

/// How long it may take to answer at the start. On the network of the machine that was copied it does at once; later looks have half
/// of `max_stall`.
const LIMIT: Duration = Duration::from_secs(1);

/// So many others are asked where this machine is, each time that it looks.
pub const MAX_ASKED: usize = 4;

/// So often is one heard that has no seat either and would give way, if it finds this one: then it does not.
const MAX_HEARD: u32 = 3;

/// One of the processes of an identity: of two, the lesser one gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Whether it has a seat and a quorum.
    pub takes_part: bool,
    /// What tells it apart.
    pub incarnation: u64,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Somebody answers there who has proven to be this machine, before this process listens anywhere.
    Found,
    /// Another process answers there that has proven to be this machine.
    Answered {
        /// This process's incarnation.
        ours: u64,
        /// The other one.
        theirs: Process,
    },
    /// Nobody does, at none of the places, but perhaps this process itself.
    Unanswered,
    /// The time that was asked for has come.
    Expired,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Dial this machine's identity at all places where it was last heard of, and, once this process takes part, where others say that
    /// it is.
    Dial,
    /// Call back with [`Input::Expired`].
    SetTimer(Time),
    /// This process may take part: no twin was found. Said once, at the start.
    GoOn,
    /// It must not, and its user is told why.
    Refuse,
}

/// Looks for a twin.
#[derive(Debug)]
pub struct TwinSearch {
    max_stall: Duration,
    stage: Stage,
    /// How often one has answered that would give way.
    heard: u32,
    outputs: VecDeque<Output>,
    flaw: Option<FlawKind>,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// It dials.
    Looks { until: Time, is_first: bool },
    /// It takes part, as far as it has said.
    Idle,
    /// It takes no part, and looks again then.
    Waits { until: Time },
    /// There is a twin.
    Over,
}

impl TwinSearch {
    /// Looks at so many places, in a run with this longest stall.
    pub fn new(places: usize, max_stall: Duration, now: Time) -> Self {
        let mut search = Self { max_stall, stage: Stage::Idle, heard: 0, outputs: VecDeque::new(), flaw: None };
        match places {
            0 => search.outputs.push_back(Output::GoOn),
            _ => search.look(now, true),
        }
        search
    }

    /// What to do next; drain to `None` after each call of the others, and at first.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether an answer counts now.
    pub fn is_looking(&self) -> bool {
        matches!(self.stage, Stage::Looks { .. })
    }

    /// Something has happened to this process, or a time has come that was asked for. Whether it has a seat and a quorum: who has
    /// none may be kept from it by a twin.
    pub fn note(&mut self, now: Time, takes_part: bool) {
        match self.stage {
            Stage::Idle if !takes_part => {
                let until = now + self.max_stall / 2;
                self.stage = Stage::Waits { until };
                self.outputs.push_back(Output::SetTimer(until));
            }
            Stage::Waits { .. } | Stage::Looks { is_first: false, .. } if takes_part => {
                (self.stage, self.heard) = (Stage::Idle, 0);
            }
            Stage::Waits { until } if now >= until => self.look(now, false),
            _ => {}
        }
    }

    /// Takes in what dialing came to.
    pub fn handle(&mut self, now: Time, input: Input) {
        let Stage::Looks { until, is_first } = self.stage else { return };
        match input {
            Input::Found | Input::Answered { .. } if self.gives_way(input) => {
                self.stage = Stage::Over;
                self.outputs.push_back(Output::Refuse);
            }
            Input::Expired if now < until => {}
            Input::Found | Input::Answered { .. } | Input::Unanswered | Input::Expired => {
                self.stage = Stage::Idle;
                self.outputs.extend(is_first.then_some(Output::GoOn));
            }
        }
    }

    /// Whether it is this process that ends. Where both look at one time, it is one of them.
    fn gives_way(&mut self, input: Input) -> bool {
        let is_lesser = match input {
            Input::Answered { .. } if self.flaw == Some(FlawKind::IgnoresTwin) => return false,
            Input::Answered { ours, theirs } => theirs > Process { takes_part: false, incarnation: ours },
            _ => true,
        };
        self.heard += u32::from(!is_lesser);
        (is_lesser || self.heard >= MAX_HEARD) && self.flaw != Some(FlawKind::OverlooksTwin)
    }

    fn look(&mut self, now: Time, is_first: bool) {
        let until = now + if is_first { LIMIT } else { self.max_stall / 2 };
        self.stage = Stage::Looks { until, is_first };
        self.outputs.extend([Output::SetTimer(until), Output::Dial]);
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: FlawKind) {
        self.flaw = Some(flaw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(search: &mut TwinSearch) -> Vec<Output> {
        std::iter::from_fn(|| search.poll()).collect()
    }

    const STALL: Duration = Duration::from_secs(20);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn only_whoever_answers_as_this_machine_keeps_it_from_taking_part() {
        let late = Time::ZERO + LIMIT;
        assert_eq!(drain(&mut TwinSearch::new(0, STALL, Time::ZERO)), [Output::GoOn], "it was nowhere");
        for (input, outcome) in
            [(Input::Found, Output::Refuse), (Input::Unanswered, Output::GoOn), (Input::Expired, Output::GoOn)]
        {
            let mut search = TwinSearch::new(2, STALL, Time::ZERO);
            assert_eq!(drain(&mut search), [Output::SetTimer(late), Output::Dial]);
            search.handle(Time::ZERO, Input::Expired);
            assert_eq!(drain(&mut search), [], "it is not over yet");
            search.handle(late, input);
            assert_eq!(drain(&mut search), [outcome]);
            search.handle(late, Input::Found);
            assert_eq!(drain(&mut search), [], "it says so once");
        }
    }

    fn answered(takes_part: bool, incarnation: u64) -> Input {
        Input::Answered { ours: 5, theirs: Process { takes_part, incarnation } }
    }

    #[test]
    fn of_two_that_find_each_other_one_ends() {
        let outcome = |input: Input, times: u64| {
            let mut search = TwinSearch::new(0, STALL, at(0));
            (0..times).for_each(|time| {
                search.note(at(30 * time), false);
                search.note(at(30 * time + 10), false);
                search.handle(at(30 * time + 11), input);
            });
            drain(&mut search).contains(&Output::Refuse)
        };
        assert!(outcome(answered(true, 1), 1), "who has no seat gives way to who has one");
        assert!(outcome(answered(false, 9), 1) && !outcome(answered(false, 1), 2));
        assert!(outcome(answered(false, 1), 3), "the other one does not find this one");
    }

    #[test]
    fn who_takes_no_part_looks_again() {
        let mut search = TwinSearch::new(2, STALL, at(0));
        drain(&mut search);
        search.handle(at(1), Input::Unanswered);
        assert_eq!(drain(&mut search), [Output::GoOn]);
        search.note(at(1), false);
        assert_eq!(drain(&mut search), [Output::SetTimer(at(11))]);
        search.note(at(10), false);
        assert_eq!(drain(&mut search), []);
        search.note(at(11), false);
        assert_eq!(drain(&mut search), [Output::SetTimer(at(21)), Output::Dial]);
        search.handle(at(12), Input::Expired);
        search.note(at(12), false);
        assert_eq!(drain(&mut search), [], "it may take longer than at the start");
        search.handle(at(21), Input::Expired);
        search.note(at(21), false);
        assert_eq!(drain(&mut search), [Output::SetTimer(at(31))], "nothing new, and it asks again");
        search.note(at(31), false);
        search.note(at(32), true);
        search.handle(at(33), answered(true, 9));
        assert_eq!(drain(&mut search), [Output::SetTimer(at(41)), Output::Dial], "it was let in meanwhile");
        search.note(at(30), true);
        assert_eq!(drain(&mut search), [], "it takes part");
        search.note(at(40), false);
        search.note(at(50), false);
        search.handle(at(51), answered(true, 1));
        assert_eq!(
            drain(&mut search),
            [Output::SetTimer(at(50)), Output::SetTimer(at(60)), Output::Dial, Output::Refuse]
        );
        search.note(at(90), false);
        assert_eq!(drain(&mut search), []);
    }
}
