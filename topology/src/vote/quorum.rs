//! How many of the members of a view that vote decide. The founder fixes it for the whole run.
//!
//! | rule | a quorum of n | two quorums share | may die | views with a hostile minority |
//! |---|---|---|---|---|
//! | [`Quorum::Majority`] | more than half, or half with the casting vote | a member | fewer than half | split by a double signature alone, which names its author |
//! | [`Quorum::TwoThirds`] | more than two thirds | more than a third | fewer than a third | never split |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which members of a view decide the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quorum {
    /// More than half of them, or exactly half with the casting vote.
    #[default]
    Majority,
    /// More than two thirds of them. What is proposed is echoed before it is accepted: [`crate::vote::echo`]. There are no forks but
    /// those that a user asks for.
    TwoThirds,
}

impl Quorum {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Majority, Self::TwoThirds];

    /// Whether `present` of `members` are a quorum, given whether the one with the casting vote is among them.
    pub fn is_met(self, present: usize, members: usize, casting: bool) -> bool {
        match self {
            Self::Majority => 2 * present > members || (2 * present == members && casting),
            Self::TwoThirds => 3 * present > 2 * members,
        }
    }

    /// The fewest of `members` that are a quorum, with the casting vote among them.
    pub fn needed(self, members: usize) -> usize {
        match self {
            Self::Majority => members.div_ceil(2),
            Self::TwoThirds => 2 * members / 3 + 1,
        }
    }

    /// How many of `members` may die without taking the quorum from the others.
    pub fn spare(self, members: usize) -> usize {
        members.saturating_sub(self.needed(members).max(1))
    }

    /// How many voters one decree adds where `staying` of those before stay, so that these remain a quorum with the casting vote.
    /// One in any case.
    pub(crate) fn most_added(self, staying: usize) -> usize {
        let most = match self {
            Self::Majority => staying,
            Self::TwoThirds => staying.saturating_sub(1) / 2,
        };
        most.max(1)
    }

    /// Whether members echo what is proposed before they accept it.
    pub(crate) fn echoes(self) -> bool {
        self == Self::TwoThirds
    }

    fn name(self) -> &'static str {
        match self {
            Self::Majority => "majority",
            Self::TwoThirds => "two-thirds",
        }
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Quorum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|quorum| quorum.name() == text);
        found.ok_or_else(|| format!("{text:?} is no rule: write majority or two-thirds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_quorums_share_more_members_than_may_be_hostile() {
        for members in 1..=100 {
            let (needed, hostile) = (Quorum::TwoThirds.needed(members), (members - 1) / 3);
            let is_met = |present| Quorum::TwoThirds.is_met(present, members, false);
            assert!(is_met(needed) && !is_met(needed - 1), "{members}");
            assert!(2 * needed - members > hostile, "{members}: one who is honest is in both");
            assert!(is_met(members - hostile), "{members}: those who are honest decide without the others");
            assert_eq!(Quorum::TwoThirds.spare(members), hostile);
        }
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(|members| Quorum::TwoThirds.needed(members)), [1, 2, 3, 3, 4, 5, 5]);
        assert_eq!([1, 2, 3, 4, 5].map(|members| Quorum::Majority.spare(members)), [0, 1, 1, 2, 2]);
    }

    #[test]
    fn who_stays_remains_a_quorum() {
        for quorum in Quorum::ALL {
            for staying in 3..=100 {
                let added = quorum.most_added(staying);
                assert!(quorum.is_met(staying, staying + added, true), "{quorum}: {staying} and {added}");
                assert!(!quorum.is_met(staying, staying + added + 1, true), "{quorum}: {staying} and {added}");
            }
        }
        assert_eq!([1, 2, 3, 4, 5].map(|staying| Quorum::TwoThirds.most_added(staying)), [1, 1, 1, 1, 2]);
    }

    #[test]
    fn a_rule_has_a_name() {
        for quorum in Quorum::ALL {
            assert_eq!(quorum.to_string().parse(), Ok(quorum));
        }
        assert!("Majority".parse::<Quorum>().is_err());
    }
}
