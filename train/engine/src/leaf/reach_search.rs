//! Whether members can dial this peer: a few are asked to, while it is welcomed. Who can be dialled by none takes part as a leaf.
//!
//! One that reaches it is enough. One that says so though it did not costs a join in vain, and those that say that they can't reach it make it a
//! leaf, which is told how to become a member: nothing worse comes of a lie.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use starling_topology::{PeerId, Time};

/// So many members are asked to dial back.
pub const MAX_DIALERS: usize = 3;

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
    /// It is decided.
    End(PeerRole),
}

/// See the module.
#[derive(Debug)]
pub struct ReachSearch {
    /// Who has yet to answer; until when.
    asked: BTreeSet<PeerId>,
    until: Time,
    is_over: bool,
    outputs: VecDeque<Output>,
}

impl ReachSearch {
    /// Asks the first of these members, as its user chose. Who knows of none has nobody to be a leaf of.
    pub fn new(now: Time, policy: RolePolicy, members: &[PeerId], max_stall: Duration) -> Self {
        let until = now + max_stall / 4;
        let mut search = Self { asked: BTreeSet::new(), until, is_over: false, outputs: VecDeque::new() };
        match policy {
            RolePolicy::Member => search.end(PeerRole::Member),
            RolePolicy::Leaf => search.end(PeerRole::Leaf),
            RolePolicy::Auto if members.is_empty() => search.end(PeerRole::Member),
            RolePolicy::Auto => {
                for member in members {
                    if search.asked.len() < MAX_DIALERS && search.asked.insert(*member) {
                        search.outputs.push_back(Output::Ask(*member));
                    }
                }
                search.outputs.push_back(Output::SetTimer(until));
            }
        }
        search
    }

    /// What the driver does next; `None` until something happens.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Answered { peer, reached } if self.asked.remove(&peer) && reached => {
                self.end(PeerRole::Member);
            }
            Input::Answered { .. } => {}
            Input::Expired if now >= self.until => self.asked.clear(),
            Input::Expired => {}
        }
        if self.asked.is_empty() {
            self.end(PeerRole::Leaf);
        }
    }

    fn end(&mut self, role: PeerRole) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.asked.clear();
            self.outputs.push_back(Output::End(role));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(8);

    fn peers(names: &[u8]) -> Vec<PeerId> {
        names.iter().map(|name| PeerId([*name; 32])).collect()
    }

    /// What it comes to, and whom it asked, if each answers so, or not at all.
    fn decide(policy: RolePolicy, answers: &[(u8, Option<bool>)]) -> (Option<PeerRole>, usize) {
        let members = peers(&answers.iter().map(|(peer, _)| *peer).collect::<Vec<_>>());
        let mut search = ReachSearch::new(Time::ZERO, policy, &members, STALL);
        let (mut role, mut asked, mut timer) = (None, Vec::new(), None);
        let mut answer = answers.iter();
        for _ in 0..99 {
            while let Some(output) = search.poll() {
                match output {
                    Output::Ask(peer) => asked.push(peer),
                    Output::SetTimer(at) => timer = Some(at),
                    Output::End(found) => assert_eq!(role.replace(found), None, "it is decided once"),
                }
            }
            let said = answer.next().and_then(|(peer, reached)| Some((PeerId([*peer; 32]), (*reached)?)));
            match (said, timer) {
                (Some((peer, reached)), _) => search.handle(Time::ZERO, Input::Answered { peer, reached }),
                (None, Some(at)) if answer.len() == 0 => search.handle(at, Input::Expired),
                (None, _) => {}
            }
        }
        (role, asked.len())
    }

    #[test]
    fn one_that_gets_through_is_enough_and_nobody_is_waited_for_longer_than_that() {
        use PeerRole::{Leaf, Member};
        let (yes, no) = (Some(true), Some(false));
        let auto = |answers: &[(u8, Option<bool>)]| decide(RolePolicy::Auto, answers);
        assert_eq!(auto(&[(1, no), (2, yes)]), (Some(Member), 2));
        assert_eq!(auto(&[(1, None), (2, yes), (3, no)]), (Some(Member), 3));
        assert_eq!(auto(&[(1, no), (2, no), (3, no)]), (Some(Leaf), 3));
        assert_eq!(auto(&[(1, no), (2, None), (3, None)]), (Some(Leaf), 3));
        assert_eq!(auto(&[(1, no), (1, no), (2, no), (3, no), (4, yes)]), (Some(Leaf), 3), "the fourth is not asked");
        assert_eq!(auto(&[]), (Some(Member), 0), "who founds a run is a member");
        assert_eq!(decide(RolePolicy::Leaf, &[(1, yes)]), (Some(Leaf), 0));
        assert_eq!(decide(RolePolicy::Member, &[(1, no)]), (Some(Member), 0));
    }
}
