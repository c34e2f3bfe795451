//! All processes are gone at once, and come back.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::chaos::experiments::churn::conclude;
use crate::chaos::{Fleet, Plan, Rng, Verdict};
use crate::starling;

/// How long anything may take. Generous: nothing is measured by it.
const LIMIT: Duration = Duration::from_secs(120);

/// All are killed and started again in another order, one of them with an empty disk. Promised: the run goes on from the
/// newest checkpoint that is safe, with the digest that it had, and the one that lost its disk has it too.
#[derive(Debug, Clone)]
pub struct Restart {
    /// How many processes.
    pub peers: usize,
    /// How many steps after a checkpoint of all of them they are killed.
    pub more_steps: u64,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// Seed of the order and of whose disk is lost.
    pub seed: u64,
    /// Flags of the run besides.
    pub run: String,
    /// Where to keep logs.
    pub logs: Option<PathBuf>,
}

impl Restart {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("restart", self.seed);
        let run = format!("--max-stall-ms {} {}", self.max_stall.as_millis(), self.run);
        let machine = format!("--checkpoint-every {}", self.checkpoint_every);
        let mut fleet = Fleet::found(Plan {
            peers: self.peers,
            run,
            machine,
            seed: self.seed,
            hosts: false,
            logs: self.logs.clone(),
        })?;
        let tickets: Vec<String> = fleet.slots().iter().filter_map(|slot| slot.said().ticket.clone()).collect();
        ensure!(tickets.len() == self.peers, "a member has no ticket");
        // Each of them has something to go on from, and steps behind it that will be lost.
        let saved = fleet.settle(LIMIT)?;
        let kill_at = saved + self.more_steps;
        fleet.wait(&format!("step {kill_at}"), LIMIT, |fleet| {
            fleet.slots().iter().all(|slot| slot.said().step >= kill_at)
        })?;
        fleet.say("kill all");
        (0..self.peers).for_each(|slot| fleet.kill(slot));

        let mut rng = Rng::new(self.seed);
        let mut order: Vec<usize> = (0..self.peers).collect();
        rng.shuffle(&mut order);
        // The founder's own command founds; another's disk is lost.
        let wiped = 1 + rng.below(self.peers - 1);
        fleet.wipe(wiped)?;
        let mut checkpoints = Vec::new();
        for slot in (0..self.peers).filter(|slot| *slot != wiped) {
            checkpoints.push(brought_checkpoint(&fleet, slot)?);
        }
        // Whoever holds the newest one, all can have it: it was loaded and its hashes are right.
        let (step, digest) = checkpoints.iter().max().context("somebody kept a disk")?.clone();
        fleet.say(&format!("newest checkpoint is of step {step}; start {order:?}, {wiped} without its disk"));
        fleet.go_back(step, &[wiped]);
        for slot in order.into_iter().filter(|slot| *slot != wiped) {
            if slot == 0 {
                fleet.found_with(0, "--resume")?;
            } else {
                fleet.join_with(slot, &tickets[0]);
            }
        }
        // Without a disk it needs somebody to ask.
        fleet.start(wiped)?;
        let all = self.peers;
        let resumed = |fleet: &Fleet| {
            fleet.slots().iter().filter_map(|slot| slot.said().started).max().filter(|_| fleet.are_full(all))
        };
        fleet.wait("all members after the restart", LIMIT, |fleet| resumed(fleet).is_some())?;
        let from = resumed(&fleet).context("it was there just now")?;
        verdict.promise(from == step, format!("the newest checkpoint is of step {step}; the run went on from {from}"));
        let before = fleet.digest_after(step).map(str::to_owned);
        verdict.promise(
            before.as_ref().is_none_or(|before| *before == digest),
            format!("the checkpoint of step {step} has digest {digest}, but {before:?} was told"),
        );
        verdict.figure("peers", self.peers);
        verdict.figure("killed_at_step", kill_at);
        verdict.figure("resumed_at_step", from);
        verdict.figure("resumed_digest", digest);
        verdict.figure("wiped", wiped);
        conclude(&mut fleet, LIMIT, &mut verdict);
        Ok(verdict)
    }
}

/// The step and digest of the checkpoint that a place brings: its newest, and of equal steps the stable one. Only those count
/// whose hashes are right.
fn brought_checkpoint(fleet: &Fleet, slot: usize) -> Result<(u64, String)> {
    let dir = fleet.slots()[slot].dir.path();
    let output = starling(dir).args(["checkpoint", "verify", "--json", "--data-dir", "state"]).output()?;
    ensure!(output.status.success(), "checkpoint verify: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))?;
    let found = report["checkpoints"].as_array().into_iter().flatten();
    let ranked = found.filter_map(|one| {
        let (step, digest) = (one["step"].as_u64()?, one["digest"].as_str()?.to_owned());
        Some((step, one["stable"].as_bool()?, digest))
    });
    let (step, _, digest) = ranked.max().with_context(|| format!("{slot} has no checkpoint: {text}"))?;
    Ok((step, digest))
}
