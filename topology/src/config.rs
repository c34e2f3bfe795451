//! What a member may be told about its run.

use std::time::Duration;

use crate::message::MAX_MEMBERS;

/// Settings of the membership machine. All deadlines derive from `max_stall`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The longest that a run may stand still because of one peer.
    pub max_stall: Duration,
    /// How many members must be there before the first step.
    pub min_members: usize,
    /// How many members a view may have.
    pub max_members: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_stall: Duration::from_secs(10), min_members: 1, max_members: MAX_MEMBERS }
    }
}

impl Config {
    /// How often a member tells those who watch it that it lives: twenty times per `max_stall`.
    pub fn heartbeat_interval(&self) -> Duration {
        self.max_stall / 20
    }

    /// A watched peer that has been silent for this long is lost: six tenths of `max_stall`, so that the news
    /// reaches all others before `max_stall` is over.
    pub fn silence_limit(&self) -> Duration {
        self.max_stall * 6 / 10
    }

    /// How long a proposal waits for a joiner to load the state and accept: `max_stall`. Members stand still while a
    /// joiner loads the state, so this bounds what one that is slow, or that only says it lives, can cost them. It is
    /// left out then. A state that takes longer to load over the slowest link needs a longer `max_stall`.
    pub fn join_limit(&self) -> Duration {
        self.max_stall
    }

    /// How long a finished member waits for the others' goodbyes.
    pub fn goodbye_limit(&self) -> Duration {
        self.max_stall / 5
    }
}
