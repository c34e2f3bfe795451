//! What a machine does first of all when it starts: it looks for a twin, which is another process with its identity. Somebody has
//! copied its data directory, or its key, or has brought it to another machine while the first one runs.
//!
//! It dials itself at the places where its identity was last heard of, before it listens anywhere. Nobody else can prove to be
//! it. Who is cut off, stopped or down does not answer: then both may run one day, and [`starling_topology::Event::Twin`] ends
//! one of them.

use std::collections::VecDeque;
use std::time::Duration;

#[cfg(feature = "flaws")]
use starling_topology::Flaw;
use starling_topology::Time;

/// How long it may take to answer. On the network of the machine that was copied it does at once.
pub const LIMIT: Duration = Duration::from_secs(1);

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Somebody answers there, and has proven to be this machine.
    Answered,
    /// Nobody does, at none of the places.
    Unanswered,
    /// The time that was asked for has come.
    Expired,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Dial this machine's identity at all places where it was last heard of, its own listeners aside.
    Dial,
    /// Call back with [`Input::Expired`].
    SetTimer(Time),
    /// This process may take part: no twin was found.
    GoOn,
    /// It must not, and its user is told why.
    Refuse,
}

/// One look for a twin.
#[derive(Debug)]
pub struct TwinSearch {
    deadline: Time,
    is_over: bool,
    outputs: VecDeque<Output>,
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl TwinSearch {
    /// Looks at so many places.
    pub fn new(places: usize, now: Time) -> Self {
        let (deadline, is_over) = (now + LIMIT, places == 0);
        let outputs = if is_over { vec![Output::GoOn] } else { vec![Output::SetTimer(deadline), Output::Dial] };
        Self {
            deadline,
            is_over,
            outputs: outputs.into(),
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }

    /// What to do next; drain to `None` after every [`Self::handle`], and at first.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        let outcome = match input {
            _ if self.is_over => return,
            Input::Answered if self.overlooks_it() => Output::GoOn,
            Input::Answered => Output::Refuse,
            Input::Expired if now < self.deadline => return,
            Input::Unanswered | Input::Expired => Output::GoOn,
        };
        self.is_over = true;
        self.outputs.push_back(outcome);
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: Flaw) {
        self.flaw = Some(flaw);
    }

    #[cfg(feature = "flaws")]
    fn overlooks_it(&self) -> bool {
        self.flaw == Some(Flaw::OverlooksTwin)
    }

    #[cfg(not(feature = "flaws"))]
    fn overlooks_it(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(search: &mut TwinSearch) -> Vec<Output> {
        std::iter::from_fn(|| search.poll()).collect()
    }

    #[test]
    fn only_whoever_answers_as_this_machine_keeps_it_from_taking_part() {
        let late = Time::ZERO + LIMIT;
        assert_eq!(drain(&mut TwinSearch::new(0, Time::ZERO)), [Output::GoOn], "it was nowhere");
        for (input, outcome) in
            [(Input::Answered, Output::Refuse), (Input::Unanswered, Output::GoOn), (Input::Expired, Output::GoOn)]
        {
            let mut search = TwinSearch::new(2, Time::ZERO);
            assert_eq!(drain(&mut search), [Output::SetTimer(late), Output::Dial]);
            search.handle(Time::ZERO, Input::Expired);
            assert_eq!(drain(&mut search), [], "it is not over yet");
            search.handle(late, input);
            assert_eq!(drain(&mut search), [outcome]);
            search.handle(late, Input::Answered);
            assert_eq!(drain(&mut search), [], "it says so once");
        }
    }
}
