//! What agreement costs when nothing happens.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::chaos::process::cpu_ticks;
use crate::chaos::{Fleet, Plan, Verdict};

/// Heartbeats are a twentieth of this apart: practically none.
const SILENT_STALL_MS: u64 = 3_600_000;

/// The same run with the heartbeats of a short longest stall and with practically none, in turns. Promised: heartbeats
/// and what comes with them cost little.
#[derive(Debug, Clone)]
pub struct Overhead {
    /// How many processes.
    pub peers: usize,
    /// How often each of the two is measured.
    pub rounds: usize,
    /// How long each time.
    pub length: Duration,
    /// The longest stall whose heartbeats are measured.
    pub max_stall: Duration,
    /// The share of the step time that agreement may take.
    pub limit: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Flags of the run besides.
    pub run: String,
    /// Where to keep logs.
    pub logs: Option<PathBuf>,
}

impl Overhead {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("overhead", self.seed);
        let beating = u64::try_from(self.max_stall.as_millis())?;
        let (mut beats, mut silences) = (Vec::new(), Vec::new());
        for round in 0..self.rounds {
            // Whoever comes first in a round comes last in the next, so that a machine that warms up favours nobody.
            let order = if round % 2 == 0 { [beating, SILENT_STALL_MS] } else { [SILENT_STALL_MS, beating] };
            for stall in order {
                let cost = self.measure(stall)?;
                if stall == beating {
                    beats.push(cost)
                } else {
                    silences.push(cost)
                }
                eprintln!(
                    "  round {round}: max_stall {stall} ms: {:.0} us of wall, {:.0} us of processors per step",
                    cost.wall, cost.cpu
                );
            }
        }
        let pairs = || beats.iter().zip(&silences);
        let wall = median(pairs().map(|(beat, silence)| beat.wall / silence.wall - 1.0).collect());
        let cpu = median(pairs().map(|(beat, silence)| beat.cpu / silence.cpu - 1.0).collect());
        verdict.figure("peers", self.peers);
        verdict.figure("rounds", self.rounds);
        verdict.decimal("step_us", median(beats.iter().map(|cost| cost.wall).collect()));
        verdict.decimal("step_us_without", median(silences.iter().map(|cost| cost.wall).collect()));
        verdict.decimal("overhead_percent", wall * 100.0);
        verdict.decimal("overhead_cpu_percent", cpu * 100.0);
        verdict.promise(
            wall.min(cpu) <= self.limit,
            format!("agreement takes {:.1} % of a step, and {:.1} % of its processor time", wall * 100.0, cpu * 100.0),
        );
        Ok(verdict)
    }

    fn measure(&self, max_stall_ms: u64) -> Result<Cost> {
        let mut fleet = Fleet::found(Plan {
            peers: self.peers,
            run: format!("--max-stall-ms {max_stall_ms} --seed {} {}", self.seed % (1 << 31), self.run),
            machine: "--checkpoint-every 0".to_owned(),
            seed: self.seed,
            hosts: false,
            logs: self.logs.clone(),
        })?;
        // The first steps warm things up.
        fleet.run_until(Instant::now() + self.length / 4);
        let ticks = |fleet: &Fleet| -> Result<u64> {
            let pids = fleet.slots().iter().map(|slot| slot.pid().context("a process has ended"));
            pids.map(|pid| cpu_ticks(pid?)).sum()
        };
        let (first, at, used) = (fleet.progress_probe().step(), Instant::now(), ticks(&fleet)?);
        fleet.run_until(at + self.length);
        let steps = (fleet.progress_probe().step() - first).max(1) as f64;
        let cost =
            Cost { wall: at.elapsed().as_secs_f64() * 1e6 / steps, cpu: (ticks(&fleet)? - used) as f64 * 1e4 / steps };
        fleet.leave()?;
        Ok(cost)
    }
}

/// Microseconds per step.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
