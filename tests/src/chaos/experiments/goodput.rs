//! What faults cost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::chaos::experiments::churn::conclude;
use crate::chaos::{Fleet, Plan, Rng, Verdict};

/// How long the run may take to come together at the end.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// How long a killed process stays away.
const AWAY: Duration = Duration::from_secs(2);
/// Times with faults; a time without is before each and after the last, since the machine may be faster at one time than
/// at another.
const BOUTS: u32 = 5;
/// The most hosts that a partition cuts off.
const MAX_CUT_OFF: usize = 3;

/// A fault every so often, in turns with times without any. Promised: nearly all of the fault-free samples per
/// second are kept, and all hold the same state at the end.
#[derive(Debug, Clone)]
pub struct Goodput {
    /// How many processes.
    pub peers: usize,
    /// How long without faults, in all.
    pub calm: Duration,
    /// How long with faults, in all.
    pub chaos: Duration,
    /// Time from one fault to the next.
    pub interval: Duration,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// The share of the fault-free samples per second that must be kept.
    pub keep: f64,
    /// Seed of which, whom and how long.
    pub seed: u64,
    /// Flags of the run besides.
    pub run: String,
    /// Where to keep logs.
    pub logs: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    Stop,
    Cut,
}

/// Half of the faults are kills, a quarter are stops, a quarter are partitions.
const MIX: [Fault; 4] = [Fault::Kill, Fault::Kill, Fault::Stop, Fault::Cut];

/// The time from one fault to the next.
#[derive(Debug)]
struct Spell {
    fault: Fault,
    time: Duration,
    steps: u64,
}

/// What ends a fault.
#[derive(Debug)]
enum Remedy {
    Start(usize),
    Cont(usize),
    Heal(Vec<usize>, Vec<usize>),
}

impl Goodput {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("goodput", self.seed);
        let mut fleet = Fleet::found(Plan {
            peers: self.peers,
            run: format!("--max-stall-ms {} {}", self.max_stall.as_millis(), self.run),
            machine: "--fork-after never".to_owned(),
            seed: self.seed,
            hosts: true,
            logs: self.logs.clone(),
        })?;
        let mut rng = Rng::new(self.seed);
        let mut calm_steps = vec![self.calm(&mut fleet)];
        let (mut steps, mut spells) = (0, Vec::new());
        for _ in 0..BOUTS {
            let (more, struck) = self.chaos(&mut fleet, &mut rng)?;
            steps += more;
            spells.extend(struck);
            fleet.wait("all members after the faults", SETTLE_LIMIT, |fleet| fleet.are_full(self.peers))?;
            calm_steps.push(self.calm(&mut fleet));
        }

        let per_second = |steps: u64, time: Duration| steps as f64 / time.as_secs_f64();
        let (calm, chaos) = (per_second(calm_steps.iter().sum(), self.calm), per_second(steps, self.chaos));
        let ratio = chaos / calm.max(f64::MIN_POSITIVE);
        verdict.figure("peers", self.peers);
        for (name, fault) in [("kill", Fault::Kill), ("stop", Fault::Stop), ("partition", Fault::Cut)] {
            let lost = spells.iter().filter(|spell| spell.fault == fault).map(|spell| {
                let kept = per_second(spell.steps, spell.time) / calm.max(f64::MIN_POSITIVE);
                spell.time.as_secs_f64() * (1.0 - kept)
            });
            let count = lost.clone().count();
            verdict.figure(&format!("{name}s"), count);
            verdict.decimal(&format!("{name}_costs_s"), lost.sum::<f64>() / count.max(1) as f64);
        }
        verdict.figure("max_stall_ms", self.max_stall.as_millis() as u64);
        verdict.figure("ratio", (ratio * 1000.0).round() / 1000.0);
        verdict.decimal("longest_gap_s", fleet.progress_probe().longest_gap().0.as_secs_f64());
        verdict.promise(ratio >= self.keep, format!("only {ratio:.3} of the samples per second were kept"));
        conclude(&mut fleet, SETTLE_LIMIT, &mut verdict);
        // The last step of an epoch takes what is left: only the audit knows how many samples the steps had.
        let of_audit = |name| verdict.get("audit")[name].as_f64().unwrap_or_default();
        let samples_per_step = of_audit("samples") / of_audit("steps").max(1.0);
        let calms = calm_steps.iter().map(|steps| per_second(*steps, self.calm_bout()) * samples_per_step);
        verdict.figure("calms_samples_per_s", calms.map(f64::round).collect::<Vec<f64>>());
        verdict.decimal("samples_per_step", samples_per_step);
        verdict.decimal("calm_samples_per_s", calm * samples_per_step);
        verdict.decimal("chaos_samples_per_s", chaos * samples_per_step);
        Ok(verdict)
    }

    fn calm_bout(&self) -> Duration {
        self.calm / (BOUTS + 1)
    }

    /// A time without faults; returns the steps.
    fn calm(&self, fleet: &mut Fleet) -> u64 {
        fleet.say("without faults");
        let first = fleet.progress_probe().step();
        fleet.run_until(Instant::now() + self.calm_bout());
        fleet.progress_probe().step() - first
    }

    /// A time with faults; returns the steps, and what became of each fault.
    fn chaos(&self, fleet: &mut Fleet, rng: &mut Rng) -> Result<(u64, Vec<Spell>)> {
        let length = self.chaos / BOUTS;
        let (mut struck, mut coming) = (Vec::new(), Vec::new());
        let mut remedies: Vec<(Instant, Remedy)> = Vec::new();
        let first = fleet.progress_probe().step();
        let began = Instant::now();
        let mut next_fault = began;
        while began.elapsed() < length {
            let until = remedies.iter().map(|(at, _)| *at).chain([next_fault, began + length]).min();
            fleet.run_until(until.unwrap_or(next_fault));
            let now = Instant::now();
            let (due, later) = remedies.into_iter().partition(|(at, _)| *at <= now);
            remedies = later;
            for (_, remedy) in due {
                self.apply(fleet, remedy)?;
            }
            if now < next_fault || now >= began + length {
                continue;
            }
            next_fault += self.interval;
            if coming.is_empty() {
                coming = MIX.into();
                rng.shuffle(&mut coming);
            }
            if let Some(fault) = coming.pop()
                && let Some((after, remedy)) = self.strike(fleet, fault, rng)?
            {
                struck.push((fault, now, fleet.progress_probe().step()));
                remedies.push((now + after, remedy));
            }
        }
        let (last, ended) = (fleet.progress_probe().step(), Instant::now());
        for (_, remedy) in remedies {
            self.apply(fleet, remedy)?;
        }
        let next = struck.iter().skip(1).map(|(_, at, step)| (*at, *step)).chain([(ended, last)]);
        let spells = struck.iter().zip(next);
        let spells =
            spells.map(|((fault, at, step), (until, to))| Spell { fault: *fault, time: until - *at, steps: to - step });
        Ok((last - first, spells.collect()))
    }

    /// Makes a fault happen to somebody whom the run can lose; returns what ends it, and when.
    fn strike(&self, fleet: &mut Fleet, fault: Fault, rng: &mut Rng) -> Result<Option<(Duration, Remedy)>> {
        let mut victims: Vec<usize> = (0..self.peers).filter(|slot| fleet.slots()[*slot].is_awake()).collect();
        rng.shuffle(&mut victims);
        let count = if fault == Fault::Cut { 1 + rng.below(MAX_CUT_OFF.min(self.peers / 3).max(1)) } else { 1 };
        victims.truncate(count);
        victims.sort_unstable();
        if !fleet.can_lose(&victims) {
            fleet.say(&format!("no {fault:?}: the run can't lose {victims:?} now"));
            return Ok(None);
        }
        let victim = victims[0];
        Ok(Some(match fault {
            Fault::Kill => {
                fleet.say(&format!("kill {victim}"));
                fleet.kill(victim);
                (AWAY, Remedy::Start(victim))
            }
            Fault::Stop => {
                // Some of them are too short to be noticed.
                let pause = rng.between(self.max_stall / 4, self.max_stall * 3);
                fleet.say(&format!("stop {victim} for {pause:?}"));
                fleet.stop(victim);
                (pause, Remedy::Cont(victim))
            }
            Fault::Cut => {
                let pause = rng.between(self.max_stall, self.max_stall * 3);
                let others: Vec<usize> = (0..self.peers).filter(|slot| !victims.contains(slot)).collect();
                fleet.say(&format!("cut off {victims:?} for {pause:?}"));
                fleet.lan()?.split(&victims, &others)?;
                (pause, Remedy::Heal(victims, others))
            }
        }))
    }

    fn apply(&self, fleet: &mut Fleet, remedy: Remedy) -> Result<()> {
        match remedy {
            Remedy::Start(slot) => {
                fleet.say(&format!("start {slot}"));
                fleet.start(slot)?;
            }
            Remedy::Cont(slot) => {
                fleet.say(&format!("{slot} goes on"));
                fleet.cont(slot);
            }
            Remedy::Heal(one, other) => {
                fleet.say(&format!("heal {one:?}"));
                fleet.lan()?.heal(&one, &other)?;
            }
        }
        Ok(())
    }
}
