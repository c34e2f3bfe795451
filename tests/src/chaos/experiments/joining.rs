//! What a joiner costs those who are there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::chaos::experiments::churn::conclude;
use crate::chaos::{Fleet, Plan, Verdict};

/// How long anything may take. Generous: a large state travels over slow links.
const LIMIT: Duration = Duration::from_secs(1200);
/// A chunk of state, the most that may be lost with each donor.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of a parameter.
const PARAMETER_BYTES: f64 = 4.0;
/// Pixels of the digits, the inputs of the model.
const INPUTS: f64 = 64.0;

/// A peer joins a run with a large model over slow links. Promised: the members' steps take as long as before,
/// or as after where that is longer; a donor
/// that is killed half-way does not make the download begin anew.
#[derive(Debug, Clone)]
pub struct Joining {
    /// How many members before the join.
    pub members: usize,
    /// Size of the model's parameters.
    pub mib: u32,
    /// What each host can send and receive, in millions of bits per second; `None` sets no limit.
    pub mbit: Option<u32>,
    /// Whether a donor is killed when half of the state is there.
    pub kill_donor: bool,
    /// Steps that are timed before the join.
    pub steps: u64,
    /// How much longer steps may take during the join, as a factor.
    pub slower: f64,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// Seed of what happens by chance.
    pub seed: u64,
    /// Flags of every process besides.
    pub machine: String,
    /// Where to keep logs.
    pub logs: Option<PathBuf>,
}

impl Joining {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("join", self.seed);
        let joiner = self.members;
        let mut fleet = Fleet::empty(Plan {
            peers: self.members + 1,
            run: format!(
                "--max-stall-ms {} --model mlp:{} --optimizer sgd --steps 1000000",
                self.max_stall.as_millis(),
                self.widths()
            ),
            machine: format!("--checkpoint-every 5 {}", self.machine),
            seed: self.seed,
            hosts: true,
            logs: self.logs.clone(),
        })?;
        for slot in 0..self.members {
            fleet.start(slot)?;
        }
        let members = self.members;
        fleet.wait("all members", LIMIT, |fleet| fleet.are_full(members))?;
        if let Some(mbit) = self.mbit {
            for host in 0..=self.members {
                fleet.lan()?.shape(host, mbit)?;
            }
        }

        fleet.say("steps before the join");
        let before = self.time_of_steps(&mut fleet, "steps before the join", |fleet, begun| {
            fleet.slots()[0].said().step >= begun + self.steps
        })?;
        fleet.say(&format!("a step takes {before:.2} s; a peer joins"));
        let asked = Instant::now();
        let came_before = fleet.lan()?.received(joiner)?;
        fleet.start(joiner)?;
        fleet.wait("download", LIMIT, |fleet| fleet.slots()[joiner].said().synced_bytes.is_some())?;
        let mut donors_lost = 0;
        if self.kill_donor {
            let is_half = |fleet: &Fleet| {
                let said = fleet.slots()[joiner].said();
                said.syncs > 0 || said.synced_bytes.is_some_and(|(bytes, of)| bytes >= of / 2)
            };
            fleet.wait("half of the state", LIMIT, is_half)?;
            let has_synced = fleet.slots()[joiner].said().syncs > 0;
            verdict.promise(!has_synced, "the download was over before a donor could be killed; take a larger model");
            fleet.say("kill a donor");
            fleet.kill(1);
            donors_lost = 1;
        }
        let during = self.time_of_steps(&mut fleet, "the whole state", |fleet, begun| {
            fleet.slots()[joiner].said().syncs > 0 && fleet.slots()[0].said().step > begun
        })?;
        let downloaded = fleet.lan()?.received(joiner)? - came_before;
        fleet.say(&format!("a step took {during:.2} s meanwhile"));
        let (_, state) = fleet.slots()[joiner].said().synced_bytes.context("it told of a download")?;
        fleet.wait("full member", LIMIT, |fleet| fleet.slots()[joiner].said().is_full)?;
        let joined = asked.elapsed();
        let after = self.time_of_steps(&mut fleet, "steps after the join", |fleet, begun| {
            fleet.slots()[0].said().step >= begun + self.steps
        })?;

        verdict.figure("members", self.members);
        verdict.figure("mbit", self.mbit);
        verdict.decimal("state_mib", state as f64 / f64::from(1 << 20));
        verdict.decimal("join_s", joined.as_secs_f64());
        verdict.decimal("step_before_s", before);
        verdict.decimal("step_during_s", during);
        verdict.decimal("step_after_s", after);
        // A ring of one more moves more bytes over each link for ever; that is not what joining costs.
        let usual = before.max(after);
        verdict.decimal("slower", during / usual);
        verdict.figure("donors_lost", donors_lost);
        verdict.decimal("joiner_received_mib", downloaded as f64 / f64::from(1 << 20));
        if self.kill_donor {
            let restarted = self.restarted(&fleet, joiner);
            verdict.promise(!restarted, "the download began anew after a donor was lost");
        } else {
            let text = format!("a step took {during:.2} s during the join, {before:.2} s before, {after:.2} s after");
            verdict.promise(during <= usual * self.slower, text);
        }
        conclude(&mut fleet, LIMIT, &mut verdict);
        Ok(verdict)
    }

    /// The widths of two hidden layers that give the model its size.
    fn widths(&self) -> String {
        let parameters = f64::from(self.mib) * f64::from(1 << 20) / PARAMETER_BYTES;
        // width^2 + inputs * width = parameters, about.
        let width = (INPUTS * INPUTS / 4.0 + parameters).sqrt() - INPUTS / 2.0;
        format!("{0:.0},{0:.0}", width.max(1.0))
    }

    /// Seconds per step until something is so, which is told the step at which it began.
    fn time_of_steps(&self, fleet: &mut Fleet, what: &str, is_so: impl Fn(&Fleet, u64) -> bool) -> Result<f64> {
        let first = fleet.slots()[0].said().step;
        // Time counts from one told step to another.
        fleet.wait(what, LIMIT, |fleet| fleet.slots()[0].said().step > first)?;
        let (begun, at) = (fleet.slots()[0].said().step, Instant::now());
        fleet.wait(what, LIMIT, |fleet| is_so(fleet, begun))?;
        let steps = fleet.slots()[0].said().step - begun;
        Ok(at.elapsed().as_secs_f64() / steps.max(1) as f64)
    }

    /// Whether bytes that had come were gone later, but for one chunk per lost donor.
    fn restarted(&self, fleet: &Fleet, joiner: usize) -> bool {
        fleet.slots()[joiner].said().lost_bytes > CHUNK_BYTES
    }
}
