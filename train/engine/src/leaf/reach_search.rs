//! Whether members can dial this peer: a few are asked to, while it is welcomed, and again while it is a leaf.
//!
//! One that reaches it is enough for a peer that comes; all that answer have to reach one that was a member before and had no place among the
//! others. Who says that it reaches it though it does not costs a join in vain, and those that say that they can't reach it make it a leaf,
//! which is told how to become a member: nothing worse comes of a lie. Silence says nothing: they may be busy, or gone.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use starling_topology::{PeerId, Time};

/// So many members are asked to dial back.
pub const MAX_DIALERS: usize = 3;
/// And have so long to answer at least, however short the run's longest stall is.
const LEAST_LIMIT: Duration = Duration::from_secs(4);

/// How long a member that is asked may take to answer: it dials for half of it.
pub fn answer_limit(max_stall: Duration) -> Duration {
    (max_stall / 4).max(LEAST_LIMIT)
}

/// What a peer takes part as, by its user's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RolePolicy {
    /// As a member if members can dial it, else as a leaf.
    #[default]
    Auto,
    /// As a member, whoever can dial it.
    Member,
    /// As a leaf.
    Leaf,
}

impl RolePolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Member, Self::Leaf];
    /// What they are called, in the same order.
    pub const NAMES: [&str; 3] = ["auto", "member", "leaf"];
}

impl fmt::Display for RolePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Member => "member",
            Self::Leaf => "leaf",
        })
    }
}

impl FromStr for RolePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = Self::NAMES.iter().position(|name| *name == text);
        at.map(|at| Self::ALL[at]).ok_or_else(|| format!("`{text}` is none of {}", Self::NAMES.join(", ")))
    }
}

/// What a peer takes part as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRole {
    /// It asks to be let in.
    Member,
    /// It asks a member to carry it.
    Leaf,
}

impl fmt::Display for PeerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Member => "member",
            Self::Leaf => "leaf",
        })
    }
}

/// What the members that were asked have found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReachStatus {
    /// As many as have to can dial it.
    Reached,
    /// They can't.
    NotReached,
    /// None of them has said anything.
    Unknown,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A member has dialled back: whether it got through. Of one that was not asked, nothing.
    Answered {
        /// The member.
        peer: PeerId,
        /// Whether it got through.
        reached: bool,
    },
    /// A member could not be asked.
    Unasked(PeerId),
    /// The timer that was set last has come to its time.
    Expired,
}

/// What the driver does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Ask this member to dial back.
    Ask(PeerId),
    /// Say [`Input::Expired`] then.
    SetTimer(Time),
    /// It is known, as far as it will be.
    End(ReachStatus),
}

/// See the module.
#[derive(Debug)]
pub struct ReachSearch {
    /// Who has yet to answer; until when.
    asked: BTreeSet<PeerId>,
    until: Time,
    /// Whether all that answer have to reach it.
    all: bool,
    is_reached: bool,
    is_refused: bool,
    is_over: bool,
    outputs: VecDeque<Output>,
}

impl ReachSearch {
    /// Asks the first of these members. One has to reach it, or `all` of those that answer.
    pub fn new(now: Time, members: impl IntoIterator<Item = PeerId>, all: bool, max_stall: Duration) -> Self {
        let mut asked = BTreeSet::new();
        let mut outputs = VecDeque::new();
        for member in members {
            if asked.len() < MAX_DIALERS && asked.insert(member) {
                outputs.push_back(Output::Ask(member));
            }
        }
        let until = now + answer_limit(max_stall);
        outputs.push_back(Output::SetTimer(until));
        let mut search = Self { asked, until, all, is_reached: false, is_refused: false, is_over: false, outputs };
        search.look();
        search
    }

    /// What the driver does next; `None` until something happens.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Answered { peer, reached } if self.asked.remove(&peer) => {
                self.is_reached |= reached;
                self.is_refused |= !reached;
            }
            Input::Answered { .. } => {}
            Input::Unasked(peer) => _ = self.asked.remove(&peer),
            Input::Expired if now >= self.until => self.asked.clear(),
            Input::Expired => {}
        }
        self.look();
    }

    fn look(&mut self) {
        let have_all = self.asked.is_empty();
        let found = match (self.is_reached, self.is_refused) {
            (true, _) if !self.all => ReachStatus::Reached,
            (_, true) if self.all || have_all => ReachStatus::NotReached,
            (true, false) if have_all => ReachStatus::Reached,
            (false, false) if have_all => ReachStatus::Unknown,
            _ => return,
        };
        if !std::mem::replace(&mut self.is_over, true) {
            self.asked.clear();
            self.outputs.push_back(Output::End(found));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(32);

    /// What it comes to, and how many it asked, if each answers so, or not at all.
    fn find(all: bool, answers: &[(u8, Option<bool>)]) -> (ReachStatus, usize) {
        let members = answers.iter().map(|(peer, _)| PeerId([*peer; 32]));
        let mut search = ReachSearch::new(Time::ZERO, members, all, STALL);
        let (mut status, mut asked, mut timer) = (None, Vec::new(), Time::ZERO);
        for at in 0..=answers.len() {
            while let Some(output) = search.poll() {
                match output {
                    Output::Ask(peer) => asked.push(peer),
                    Output::SetTimer(at) => timer = at,
                    Output::End(found) => assert_eq!(status.replace(found), None, "it is found once"),
                }
            }
            match answers.get(at) {
                Some((peer, Some(reached))) => {
                    search.handle(Time::ZERO, Input::Answered { peer: PeerId([*peer; 32]), reached: *reached });
                }
                Some((_, None)) => search.handle(Time::ZERO, Input::Expired),
                None => search.handle(timer, Input::Expired),
            }
        }
        assert_eq!(timer, Time::ZERO + STALL / 4);
        let last = search.poll().map(|output| match output {
            Output::End(found) => found,
            Output::Ask(_) | Output::SetTimer(_) => panic!("nothing is asked at the end"),
        });
        (status.or(last).expect("it ends"), asked.len())
    }

    #[test]
    fn one_that_gets_through_is_enough_and_nobody_is_waited_for_longer_than_that() {
        use ReachStatus::{NotReached, Reached, Unknown};
        let (yes, no) = (Some(true), Some(false));
        let one = |answers: &[(u8, Option<bool>)]| find(false, answers);
        assert_eq!(one(&[(1, no), (2, yes)]), (Reached, 2));
        assert_eq!(one(&[(1, None), (2, yes), (3, no)]), (Reached, 3));
        assert_eq!(one(&[(1, no), (2, no), (3, no)]), (NotReached, 3));
        assert_eq!(one(&[(1, no), (2, None), (3, None)]), (NotReached, 3));
        assert_eq!(one(&[(1, None), (2, None)]), (Unknown, 2), "who says nothing says nothing about it");
        assert_eq!(one(&[(1, no), (1, yes), (2, no), (3, no), (4, yes)]), (NotReached, 3), "the fourth is not asked");
        assert_eq!(one(&[]), (Unknown, 0));
        let all = |answers: &[(u8, Option<bool>)]| find(true, answers);
        assert_eq!(all(&[(1, yes), (2, yes), (3, yes)]), (Reached, 3));
        assert_eq!(all(&[(1, yes), (2, no), (3, yes)]), (NotReached, 3));
        assert_eq!(all(&[(1, yes), (2, None), (3, yes)]), (Reached, 3), "who is gone stands in nobody's way");
        assert_eq!(all(&[(1, None), (2, None), (3, None)]), (Unknown, 3));
        assert_eq!(all(&[]), (Unknown, 0));
    }
}
