//! A network in which few reach all others.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::chaos::experiments::churn::conclude;
use crate::chaos::{Fleet, Plan, Rng, Verdict};

/// Steps that are taken by each plan before the next thing happens.
const STEPS_EACH: u64 = 20;
/// How long anything may take. Generous: nothing is measured by it.
const LIMIT: Duration = Duration::from_secs(120);

/// Five hosts, of which one reaches all others, and those reach nobody else; one of these dies, and a new machine comes in its
/// place; then a second one reaches all, and the first one's process is killed; then all reach all. Promised: nobody is ever left out,
/// steps go on by a star and with the other hub soon after the death, and by a ring, or whatever is fastest, in the end, all with the
/// same state.
#[derive(Debug, Clone)]
pub struct Star {
    /// How many processes, 4 at least.
    pub peers: usize,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// Whether there is a second hub, which others find after a while, and the first one is killed.
    pub with_second: bool,
    /// How soon after a hub's death the next step has to come.
    pub recovery: Duration,
    /// Seed of who the hubs are.
    pub seed: u64,
    /// Flags of the run besides.
    pub run: String,
    /// Where to keep logs.
    pub logs: Option<PathBuf>,
}

impl Star {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("star", self.seed);
        let mut fleet = Fleet::found(Plan {
            peers: self.peers,
            run: format!("--max-stall-ms {} {}", self.max_stall.as_millis(), self.run),
            machine: String::new(),
            seed: self.seed,
            hosts: true,
            logs: self.logs.clone(),
        })?;
        let mut order: Vec<usize> = (0..self.peers).collect();
        Rng::new(self.seed).shuffle(&mut order);
        let hub = order[0];
        verdict.figure("plan", fleet.slots()[hub].said().plan.clone());

        fleet.say(&format!("cut all links but those of {hub}"));
        let cut = Instant::now();
        for (at, one) in order[1..].iter().enumerate() {
            fleet.lan()?.split(&[*one], &order[1..][at + 1..])?;
        }
        self.goes_on(&mut fleet, "steps by a star of one hub", |plan| hubs(plan) == Some(1))?;
        verdict.decimal("star_after_s", cut.elapsed().as_secs_f64());

        self.is_nobody_out(&fleet, &order, &mut verdict, "while links were cut");
        self.newcomer(&mut fleet, hub, order[self.peers - 1], &mut verdict)?;
        let apart = if self.with_second { &order[2..] } else { &order[1..] };
        if self.with_second {
            self.second(&mut fleet, &order, &mut verdict)?;
        }

        fleet.say("mend all");
        let mended = Instant::now();
        for (at, one) in apart.iter().enumerate() {
            fleet.lan()?.heal(&[*one], &apart[at + 1..])?;
        }
        if self.with_second {
            fleet.start(hub)?;
        }
        self.goes_on(&mut fleet, "steps of all without a star", |plan| hubs(plan).is_none())?;
        verdict.decimal("no_star_after_s", mended.elapsed().as_secs_f64());
        // Whoever was killed finds that the others have gone on without it.
        self.is_nobody_out(&fleet, &order[1..], &mut verdict, "when links were mended");
        conclude(&mut fleet, LIMIT, &mut verdict);
        Ok(verdict)
    }

    /// A new machine comes in the place of one that dies. It reaches the hub, and nobody else.
    fn newcomer(&self, fleet: &mut Fleet, hub: usize, place: usize, verdict: &mut Verdict) -> Result<()> {
        fleet.say(&format!("kill {place}, and have a new machine come there"));
        fleet.kill(place);
        let others = self.peers - 1;
        fleet.wait("steps without it", LIMIT, |fleet| fleet.are_full(others))?;
        fleet.wipe(place)?;
        let ticket = fleet.slots()[hub].said().ticket.clone().context("a hub has a ticket")?;
        let came = Instant::now();
        fleet.join_with(place, &ticket);
        self.goes_on(fleet, "steps with a newcomer that reaches the hub alone", |plan| hubs(plan) == Some(1))?;
        verdict.decimal("newcomer_after_s", came.elapsed().as_secs_f64());
        Ok(())
    }

    /// A second one reaches all, and the first one's process is killed.
    fn second(&self, fleet: &mut Fleet, order: &[usize], verdict: &mut Verdict) -> Result<()> {
        let (hub, second, leaves) = (order[0], order[1], &order[2..]);
        fleet.say(&format!("mend those of {second}"));
        let mended = Instant::now();
        fleet.lan()?.heal(&[second], leaves)?;
        self.goes_on(fleet, "steps by a star of two hubs", |plan| hubs(plan) == Some(2))?;
        verdict.decimal("two_hubs_after_s", mended.elapsed().as_secs_f64());
        self.is_nobody_out(fleet, order, verdict, "while links were cut, but those of two");

        fleet.say(&format!("kill {hub}"));
        fleet.progress_probe().rest();
        fleet.kill(hub);
        let others = self.peers - 1;
        let at = fleet.progress_probe().step();
        fleet.wait("steps without the dead hub", LIMIT, |fleet| {
            let past = |slot: &usize| fleet.slots()[*slot].said().step >= at + STEPS_EACH;
            fleet.are_full(others) && order[1..].iter().all(past)
        })?;
        let (gap, _) = fleet.progress_probe().longest_gap();
        verdict.decimal("recovery_s", gap.as_secs_f64());
        verdict.promise(gap <= self.recovery, format!("no step for {gap:?} after the hub's death"));
        self.is_nobody_out(fleet, &order[1..], verdict, "when a hub died");
        Ok(())
    }

    /// Waits until all are members, reduce by a plan of which `is_plan` is true, and have taken steps so.
    fn goes_on(&self, fleet: &mut Fleet, what: &str, is_plan: impl Fn(&str) -> bool) -> Result<()> {
        let peers = self.peers;
        let is_so =
            |fleet: &Fleet| fleet.are_full(peers) && fleet.slots().iter().all(|slot| is_plan(&slot.said().plan));
        fleet.wait(what, LIMIT, is_so)?;
        let until = fleet.progress_probe().step() + STEPS_EACH;
        let past = |fleet: &Fleet| fleet.slots().iter().all(|slot| slot.said().step >= until);
        fleet.wait(what, LIMIT, |fleet| is_so(fleet) && past(fleet))
    }

    /// None of these has found itself left out.
    fn is_nobody_out(&self, fleet: &Fleet, of: &[usize], verdict: &mut Verdict, when: &str) {
        let out: Vec<usize> = of.iter().copied().filter(|slot| fleet.slots()[*slot].said().evictions > 0).collect();
        verdict.promise(out.is_empty(), format!("{out:?} were left out {when}"));
    }
}

/// How many hubs a plan has, if it is a star: `star {0 3}` has two.
pub(super) fn hubs(plan: &str) -> Option<usize> {
    let ranks = plan.strip_prefix("star {")?.strip_suffix('}')?;
    Some(ranks.split(' ').count())
}
