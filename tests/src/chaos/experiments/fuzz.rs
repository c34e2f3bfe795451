//! Schedules of faults that are drawn from a seed, and a verdict on each.

mod disk;
mod findings;
mod janitor;
mod judge;
mod place;
mod round;
mod schedule;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::Builder;

pub use findings::Findings;
pub use judge::Judge;
pub use place::Circumstances;
pub use schedule::{Disk, Move, Schedule, Way};

use janitor::Janitor;
use round::Round;

/// Rounds in each of which a run of its own is ill-treated, mended, and must come together again. Promised: no stable
/// step is lost, no two members differ, nothing hangs, nobody ends for no reason, and the audit is clean.
#[derive(Debug, Clone)]
pub struct Fuzz {
    /// Seed of all rounds.
    pub seed: u64,
    /// How long rounds are begun.
    pub length: Duration,
    /// The only round, if not all.
    pub round: Option<u64>,
    /// Whether each member's disk is a file system of its own, which can be full, frozen and read-only. This program must be
    /// allowed to mount then.
    pub mounts: bool,
}

/// What all rounds came to.
#[derive(Debug)]
pub struct FuzzReport {
    seed: u64,
    rounds: u64,
    counts: BTreeMap<&'static str, usize>,
}

impl FuzzReport {
    /// How many offences there were.
    pub fn offences(&self) -> usize {
        self.counts.values().sum()
    }

    /// All figures.
    pub fn to_json(&self) -> Value {
        let mut report = json!({ "experiment": "fuzz", "seed": self.seed, "rounds": self.rounds });
        for (kind, count) in &self.counts {
            report[*kind] = json!(count);
        }
        report
    }
}

impl fmt::Display for FuzzReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} rounds", self.seed, self.rounds)?;
        self.counts.iter().try_for_each(|(kind, count)| write!(f, ", {kind} {count}"))
    }
}

impl Fuzz {
    /// Runs the rounds, and tells of each on stderr.
    ///
    /// # Errors
    /// If they could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<FuzzReport> {
        if !self.mounts {
            eprintln!("nothing can be mounted here: full, frozen and read-only disks are left out");
        }
        let counts = Findings::default().offences().map(|(kind, _)| (kind, 0));
        let mut report = FuzzReport { seed: self.seed, rounds: 0, counts: counts.into() };
        let began = Instant::now();
        for round in self.round.unwrap_or(0)..=self.round.unwrap_or(u64::MAX) {
            if began.elapsed() >= self.length && round > 0 && self.round.is_none() {
                break;
            }
            let findings = self.judge(&Schedule::draw(self.seed, round))?;
            report.rounds += 1;
            for (kind, found) in findings.offences() {
                *report.counts.entry(kind).or_default() += found.len();
            }
        }
        Ok(report)
    }

    /// Carries out a schedule, and tells what came of it.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn judge(&self, schedule: &Schedule) -> Result<Findings> {
        let Schedule { seed, round, members, .. } = schedule;
        let folder = Builder::new().prefix("starling-fuzz-").disable_cleanup(true).tempdir()?.path().to_owned();
        let janitor = Janitor::of(&folder)?;
        let began = Instant::now();
        let ended = Round::new(schedule, &folder, self.mounts).and_then(Round::run);
        drop(janitor);
        let findings = match ended {
            Ok(findings) => findings,
            Err(error) => {
                remove(&folder)?;
                bail!("round {round} of seed {seed}: {error:#}");
            }
        };
        let broken: Vec<String> = findings
            .offences()
            .into_iter()
            .flat_map(|(kind, found)| found.iter().map(move |text| format!("{kind}: {text}")))
            .collect();
        eprintln!(
            "seed {seed} round {round}: {members} members, {} events, {:.0} s, {} steps: {}",
            schedule.moves.len(),
            began.elapsed().as_secs_f64(),
            findings.step,
            if broken.is_empty() { "good" } else { "BROKEN" }
        );
        for text in &findings.unjudged {
            eprintln!("  not judged, as a disk was damaged: {text}");
        }
        if broken.is_empty() {
            remove(&folder)?;
            return Ok(findings);
        }
        for text in &broken {
            eprintln!("  {text}");
        }
        eprintln!("{schedule}\n  all of it is in {}", folder.display());
        eprintln!("  again: chaos fuzz --seed {seed} --round {round}");
        fs::write(folder.join("schedule.txt"), format!("{schedule}\n{}\n", broken.join("\n")))?;
        Ok(findings)
    }
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("can't remove {}", folder.display()))
}
