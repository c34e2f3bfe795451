//! What a member may be told about its run.

use std::time::Duration;

use crate::message::MAX_MEMBERS;
use crate::plan::{Bucket, PlanPolicy};
use crate::view::View;
use crate::vote::quorum::Quorum;

/// Settings of the membership machine. All deadlines but `fork_after` derive from `max_stall`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The longest that a run may stand still because of one peer.
    pub max_stall: Duration,
    /// A view with fewer members stands still until enough have joined. In a fork, which was made for want of others, one is
    /// enough.
    pub min_members: usize,
    /// The run's last step. At it, nobody waits for members any more.
    pub last_step: u64,
    /// How many members a view may have.
    pub max_members: usize,
    /// Which members of a view decide the next one. All of a run have the same rule.
    pub quorum: Quorum,
    /// A side of a split run that has had no quorum for this long goes on as a fork. `None`: it waits for ever, as it does in any
    /// case where more than two thirds decide.
    pub fork_after: Option<Duration>,
    /// Each so many steps the members save their state; 0: never, as far as is known. What was due before a view began may be
    /// stable.
    pub checkpoint_every: u64,
    /// Tells this process from others with the same identity, and is higher than that of any started before, as far as clocks are
    /// right: seconds of the wall clock, and below them a random number. A process that has forgotten what it promised must not be
    /// taken for the one that promised it, nor a run that it founds for one that was founded before.
    pub incarnation: u64,
    /// What the members reduce, and what they ask for: the view is changed if its plan is not the best any more. `None`:
    /// never for that.
    pub reduced: Option<(PlanPolicy, Bucket)>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_stall: Duration::from_secs(10),
            min_members: 1,
            last_step: u64::MAX,
            max_members: MAX_MEMBERS,
            quorum: Quorum::Majority,
            fork_after: Some(Duration::from_secs(120)),
            checkpoint_every: 0,
            incarnation: 0,
            reduced: None,
        }
    }
}

impl Config {
    /// How many members `view` needs to take steps.
    pub(crate) fn least_members(&self, view: &View) -> usize {
        if view.forked { 1 } else { self.min_members }
    }

    /// The last step up to `step` after which all save their state, and sign that they have: 0 if there is none.
    pub(crate) fn due_by(&self, step: u64) -> u64 {
        let over = step.checked_rem(self.checkpoint_every).unwrap_or(step);
        if step >= self.last_step { step } else { step - over }
    }

    /// How often a member tells those who watch it that it lives: twenty times per `max_stall`.
    pub fn heartbeat_interval(&self) -> Duration {
        self.max_stall / 20
    }

    /// A watched peer that has been silent for this long is suspected: six tenths of `max_stall`, so that a decree has
    /// the rest to leave it out.
    pub fn silence_limit(&self) -> Duration {
        self.max_stall * 6 / 10
    }

    /// How long a proposer waits for the promises, and then for the acceptances, of members that it does not suspect: a
    /// tenth of `max_stall`.
    pub fn promise_limit(&self) -> Duration {
        self.max_stall / 10
    }

    /// After how long without news a member takes a decree over from the proposer, per rank that stands before it: three
    /// twentieths of `max_stall`, longer than a proposer waits for promises.
    pub fn takeover_delay(&self) -> Duration {
        self.max_stall * 3 / 20
    }

    /// The longest time between two attempts at one decree: half of `max_stall`. The time doubles up to it.
    pub fn retry_limit(&self) -> Duration {
        self.max_stall / 2
    }

    /// How often a member looks for peers that it has lost, and how often a joiner asks again: four times per
    /// `max_stall`.
    pub fn probe_interval(&self) -> Duration {
        self.max_stall / 4
    }

    /// How long a planned change waits for the members to complete the step under way: half of `max_stall`. The change
    /// freezes them where they are then.
    pub fn boundary_limit(&self) -> Duration {
        self.max_stall / 2
    }

    /// A peer that is lost three times within this is quarantined: six times `max_stall`.
    pub fn quarantine_window(&self) -> Duration {
        self.max_stall * 6
    }

    /// The first quarantine; each further one is twice as long, up to 64 times: `max_stall`.
    pub fn quarantine(&self) -> Duration {
        self.max_stall
    }

    /// How old a view must be before it is changed for a better plan; twice as much after each such change without
    /// another one between, up to 64 times: twice `max_stall`.
    pub fn replan_interval(&self) -> Duration {
        self.max_stall * 2
    }

    /// How long a vote that is due waits for another change, which brings it too: a twentieth of `max_stall`.
    pub fn vote_delay(&self) -> Duration {
        self.max_stall / 20
    }

    /// The longest time between two ballots of a member that had no reason for the ones before, and between two reports: eight
    /// times `max_stall`.
    pub fn call_limit(&self) -> Duration {
        self.max_stall * 8
    }

    /// How long a finished member waits for the others' goodbyes.
    pub fn goodbye_limit(&self) -> Duration {
        self.max_stall / 5
    }

    /// All durations that derive from `max_stall`, by name.
    pub fn derived(&self) -> Vec<(&'static str, Duration)> {
        vec![
            ("heartbeat_interval", self.heartbeat_interval()),
            ("silence_limit", self.silence_limit()),
            ("promise_limit", self.promise_limit()),
            ("takeover_delay", self.takeover_delay()),
            ("retry_limit", self.retry_limit()),
            ("probe_interval", self.probe_interval()),
            ("boundary_limit", self.boundary_limit()),
            ("quarantine_window", self.quarantine_window()),
            ("quarantine", self.quarantine()),
            ("replan_interval", self.replan_interval()),
            ("vote_delay", self.vote_delay()),
            ("call_limit", self.call_limit()),
            ("goodbye_limit", self.goodbye_limit()),
        ]
    }
}
