//! A network that breaks in two and heals.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::chaos::experiments::churn::conclude;
use crate::chaos::{Fleet, Plan, Verdict};

/// Steps that a side must take on its own before the network heals.
const STEPS_ALONE: u64 = 20;
/// The place whose process founds the run.
const FOUNDER: usize = 0;
/// How long anything may take. Generous: nothing is measured by it.
const LIMIT: Duration = Duration::from_secs(120);

/// Two sides that can't reach each other for a while. Promised: one side goes on, the other pauses (or forks, where the
/// policy says so); when the network heals, all are members again with the same state, and no step counts twice.
#[derive(Debug, Clone)]
pub struct Partition {
    /// How many processes on each side.
    pub sides: [usize; 2],
    /// When a side without a quorum goes on as a fork; `None` is never.
    pub fork_after: Option<Duration>,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// Seed of who is on which side.
    pub seed: u64,
    /// Flags of the run besides.
    pub run: String,
    /// Where to keep logs.
    pub logs: Option<PathBuf>,
}

impl Partition {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("partition", self.seed);
        let peers = self.sides[0] + self.sides[1];
        let fork_after = self.fork_after.map_or_else(|| "never".to_owned(), |time| format!("{}ms", time.as_millis()));
        let mut fleet = Fleet::found(Plan {
            peers,
            run: format!("--max-stall-ms {} {}", self.max_stall.as_millis(), self.run),
            machine: format!("--fork-after {fork_after}"),
            seed: self.seed,
            hosts: true,
            logs: self.logs.clone(),
        })?;
        let mut order: Vec<usize> = (0..peers).collect();
        crate::chaos::Rng::new(self.seed).shuffle(&mut order);
        let (one, other) = order.split_at(self.sides[0]);
        let sides = [one.to_vec(), other.to_vec()];
        let goer = self.expected(&sides);
        let (going, pausing) = (&sides[goer], &sides[1 - goer]);

        fleet.say(&format!("split {:?} from {:?}; {going:?} should go on", sides[0], sides[1]));
        let views: Vec<u64> = fleet.slots().iter().map(|slot| slot.said().views).collect();
        fleet.lan()?.split(&sides[0], &sides[1])?;
        if self.fork_after.is_some() {
            fleet.expect_forks();
        }
        let cut = Instant::now();
        let at_cut = fleet.progress_probe().step();
        let goes_on = |fleet: &Fleet| {
            going.iter().all(|slot| {
                let said = fleet.slots()[*slot].said();
                let is_alone = said.view.as_ref().is_some_and(|(_, members)| members.len() == going.len());
                is_alone && said.views > views[*slot] && said.step >= at_cut + STEPS_ALONE
            })
        };
        let has_stopped = |fleet: &Fleet| {
            pausing.iter().all(|slot| {
                let said = fleet.slots()[*slot].said();
                if self.fork_after.is_some() { said.has_forked } else { said.pauses > 0 }
            })
        };
        fleet.wait("side that goes on alone", LIMIT, goes_on)?;
        verdict.decimal("went_on_after_s", cut.elapsed().as_secs_f64());
        fleet.wait(if self.fork_after.is_some() { "fork" } else { "pause of the other side" }, LIMIT, has_stopped)?;
        let newest = |fleet: &Fleet, side: &[usize]| {
            side.iter().map(|slot| fleet.slots()[*slot].said().step).max().unwrap_or_default()
        };
        let (ahead, behind) = (newest(&fleet, going), newest(&fleet, pausing));
        if self.fork_after.is_none() {
            verdict.promise(
                behind <= ahead.saturating_sub(STEPS_ALONE) + 1
                    && pausing.iter().all(|slot| !fleet.slots()[*slot].said().has_forked),
                format!("the side that should have paused is at step {behind}, the other at {ahead}"),
            );
        }
        verdict.figure("sides", self.sides.to_vec());
        verdict.figure("forked", self.fork_after.is_some());
        verdict.figure("cut_at_step", at_cut);
        verdict.figure("steps_of_the_side_that_went_on", ahead - at_cut);
        verdict.figure("step_of_the_other_side", behind);
        fleet.say("heal");
        let healed = Instant::now();
        let joins: Vec<u64> = fleet.slots().iter().map(|slot| slot.said().evictions).collect();
        fleet.lan()?.heal(&sides[0], &sides[1])?;
        fleet.wait("all members after healing", LIMIT, |fleet| fleet.are_full(peers))?;
        verdict.decimal("together_after_s", healed.elapsed().as_secs_f64());
        let rejoined = (0..peers).filter(|slot| fleet.slots()[*slot].said().evictions > joins[*slot]).count();
        verdict.figure("rejoined", rejoined);
        if self.fork_after.is_none() {
            let wrong = going.iter().filter(|slot| fleet.slots()[**slot].said().evictions > joins[**slot]).count();
            verdict.promise(wrong == 0, format!("{wrong} of the side that went on had to join again"));
        }
        conclude(&mut fleet, LIMIT, &mut verdict);
        Ok(verdict)
    }

    /// Which side has a quorum: the majority, or the half with the casting vote. The founder has that while it is a member.
    fn expected(&self, sides: &[Vec<usize>; 2]) -> usize {
        if self.sides[0] == self.sides[1] {
            usize::from(sides[1].contains(&FOUNDER))
        } else {
            usize::from(self.sides[1] > self.sides[0])
        }
    }
}
