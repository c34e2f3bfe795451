//! What is to be simulated.

use std::panic::AssertUnwindSafe;

use starling_topology::Quorum;

use crate::hardware::network::rng::Rng;
use crate::scenario::{Plan, Scenario, Setup};
use crate::sweep::canary::Sabotage;
use crate::sweep::fault::Fault;
use crate::verdict::invariants::Broken;
use crate::verdict::report::Outcome;
use crate::world::World;

/// What is to be simulated, and what is to be told of it.
#[derive(Debug, Clone)]
pub struct Simulation {
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    pub(crate) plan: Plan,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) told: bool,
    pub(crate) pictured: bool,
}

impl Simulation {
    /// The run that `seed` determines.
    pub fn new(seed: u64, setup: Setup) -> Self {
        // Apart from all else, so that a seed's faults are the same in both modes, as far as they may be.
        let drawn = || Rng::new(seed ^ 0x27d5).pick(&Quorum::ALL).filter(|_| setup.scenario == Scenario::Byzantine);
        let setup = Setup { quorum: setup.quorum.or_else(drawn), ..setup };
        let mut rng = Rng::new(seed ^ 0x5f_a017);
        let plan = Plan::draw(&mut rng, &setup);
        Self { seed, setup, plan, sabotage: None, told: false, pictured: false }
    }

    /// The same run with a planted fault in all its peers. Links are not measured in it: that makes steps longer, and faults
    /// that need two things at once rarer.
    pub fn with_sabotage(mut self, sabotage: Sabotage) -> Self {
        self.plan.measures = None;
        self.sabotage = Some(sabotage);
        self
    }

    /// The same run with other faults.
    pub fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.plan.faults = faults;
        self
    }

    /// The same run with those faults only that have these places in the plan. Founders come in any case.
    pub fn only(mut self, kept: &[usize]) -> Self {
        let founders = self.plan.founders - 1;
        let faults = std::mem::take(&mut self.plan.faults).into_iter().enumerate();
        self.plan.faults =
            faults.filter(|(at, _)| *at < founders || kept.contains(at)).map(|(_, fault)| fault).collect();
        self
    }

    /// Tells everything that happens.
    pub fn told(mut self) -> Self {
        self.told = true;
        self
    }

    /// Remembers what a picture shows.
    pub fn pictured(mut self) -> Self {
        self.pictured = true;
        self
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What will happen. The first ones are the founders' coming.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What it is about, with the number of its peers.
    pub fn setup(&self) -> Setup {
        Setup { peers: u32::try_from(self.plan.peers).ok(), ..self.setup }
    }

    /// The same run, with a change to its plan.
    pub fn replan(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        change(&mut self.plan);
        self
    }

    /// Runs it to its end. A machine that panics breaks an invariant too: its own.
    pub fn run(self) -> Outcome {
        let seed = self.seed;
        let setup = self.setup();
        std::panic::catch_unwind(AssertUnwindSafe(|| World::new(self).run())).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            let broken = vec![Broken::new("no_panics", said.unwrap_or_default())];
            Outcome { seed, setup, broken, ..Outcome::default() }
        })
    }
}
