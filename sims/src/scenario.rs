//! What happens to a run besides training.

use std::time::Duration;

use crate::rng::Rng;

/// A kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// All found the run together and finish it.
    Steady,
    /// Half of the peers join while the others train.
    Join,
    /// Some peers leave in order, perhaps all.
    Leave,
    /// One member dies or hangs, and the run with it.
    Crash,
    /// All of these, at once and on top of each other.
    Mixed,
}

/// What one simulation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// How many peers there will be.
    pub peers: u32,
    /// The last step.
    pub steps: u64,
    /// What happens to them.
    pub scenario: Scenario,
}

/// Something that happens to a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A new peer asks some peer of the run.
    Join,
    /// Some member leaves in order.
    Leave,
    /// Some member dies; its connections close.
    Kill,
    /// Some member stops doing anything; its connections stay open.
    Hang,
}

/// When an action happens: so long after the first peer has committed that step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// The step; zero is the start.
    pub after_step: u64,
    /// The time after it.
    pub delay: Duration,
    /// The action.
    pub action: Action,
}

/// How a run begins, and what comes after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How many members the founder waits for.
    pub min_members: u32,
    /// What happens.
    pub actions: Vec<Planned>,
}

impl Plan {
    /// Draws what happens in `setup`.
    pub fn draw(rng: &mut Rng, setup: &Setup) -> Self {
        let peers = setup.peers.max(1);
        let mut plan = Self { min_members: peers, actions: Vec::new() };
        match setup.scenario {
            Scenario::Steady => plan.found_with(rng, peers),
            Scenario::Join => {
                plan.found_with(rng, peers.div_ceil(2));
                plan.add(rng, setup, Action::Join, peers / 2);
            }
            Scenario::Leave => {
                plan.found_with(rng, peers);
                plan.add_some(rng, setup, Action::Leave, peers);
            }
            Scenario::Crash => {
                plan.found_with(rng, peers);
                plan.add_crash(rng, setup);
            }
            Scenario::Mixed => {
                let founders = u32::try_from(rng.between(1, u64::from(peers))).unwrap_or(1);
                plan.found_with(rng, founders);
                plan.add(rng, setup, Action::Join, peers - founders);
                plan.add_some(rng, setup, Action::Leave, peers);
                if rng.one_in(3) {
                    plan.add_crash(rng, setup);
                }
            }
        }
        plan
    }

    /// Members that come before the first step.
    fn found_with(&mut self, rng: &mut Rng, members: u32) {
        self.min_members = members;
        for _ in 1..members {
            let delay = rng.micros(1, 300_000);
            self.actions.push(Planned { after_step: 0, delay, action: Action::Join });
        }
    }

    fn add(&mut self, rng: &mut Rng, setup: &Setup, action: Action, times: u32) {
        // Often together, so that one change finds another under way.
        let mut after_step = rng.between(1, setup.steps.max(1));
        for _ in 0..times {
            if rng.one_in(2) {
                after_step = rng.between(1, setup.steps.max(1));
            }
            let delay = rng.micros(0, 50_000);
            self.actions.push(Planned { after_step, delay, action });
        }
    }

    fn add_some(&mut self, rng: &mut Rng, setup: &Setup, action: Action, most: u32) {
        let times = u32::try_from(rng.between(0, u64::from(most))).unwrap_or(0);
        self.add(rng, setup, action, times);
    }

    fn add_crash(&mut self, rng: &mut Rng, setup: &Setup) {
        let action = if rng.one_in(2) { Action::Kill } else { Action::Hang };
        self.add(rng, setup, action, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_never_has_more_peers_than_its_setup() {
        for scenario in [Scenario::Steady, Scenario::Join, Scenario::Leave, Scenario::Crash, Scenario::Mixed] {
            for seed in 0..200 {
                let setup = Setup { peers: 1 + (seed % 7) as u32, steps: 10, scenario };
                let plan = Plan::draw(&mut Rng::new(seed), &setup);
                let count = |action| plan.actions.iter().filter(|planned| planned.action == action).count();
                assert_eq!(1 + count(Action::Join), setup.peers as usize, "{scenario:?}, seed {seed}");
                assert!(count(Action::Kill) + count(Action::Hang) <= 1);
                let before = plan.actions.iter().filter(|planned| planned.after_step == 0).count();
                assert_eq!(before + 1, plan.min_members as usize, "the run can begin");
            }
        }
    }
}
