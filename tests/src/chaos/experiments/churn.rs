//! Processes come and go all the time.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::chaos::process::resident_kib;
use crate::chaos::{Fleet, Plan, Rng, Verdict};

/// How often memory is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How much resident memory may grow from the first third to the last: the allocator keeps what a peak took.
const GROWTH_LIMIT: f64 = 1.25;
/// Growth below this is no growth. Memory is mapped in pieces.
const GROWTH_FLOOR_KIB: f64 = 16.0 * 1024.0;
/// How long the run may take to come together when nobody is killed any more.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

/// A kill or a start every so often. Promised: while a quorum lives, steps go on; all who are there at the end hold the
/// same state; no sample was lost or repeated; memory does not grow.
#[derive(Debug, Clone)]
pub struct Churn {
    /// How many processes at most.
    pub peers: usize,
    /// Time from one kill or start to the next.
    pub interval: Duration,
    /// How long.
    pub length: Duration,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// How much longer than that nobody may have committed a step.
    pub slack: Duration,
    /// Seed of who, when, and with which disk.
    pub seed: u64,
    /// Flags of the run besides.
    pub run: String,
    /// Where to keep logs.
    pub logs: Option<PathBuf>,
}

impl Churn {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("churn", self.seed);
        let mut fleet = Fleet::found(Plan {
            peers: self.peers,
            run: format!("--max-stall-ms {} {}", self.max_stall.as_millis(), self.run),
            machine: String::new(),
            seed: self.seed,
            hosts: false,
            logs: self.logs.clone(),
        })?;
        let mut rng = Rng::new(self.seed);
        // One process lives through it all: its memory shows what others' deaths leave behind.
        let witness = self.peers - 1;
        let (mut kills, mut starts, mut wipes) = (0_u64, 0_u64, 0_u64);
        let mut memory = Vec::new();
        let began = Instant::now();
        let (mut next_move, mut next_measure) = (began + self.interval, began);
        let first_step = fleet.progress_probe().step();
        fleet.progress_probe().rest();
        while began.elapsed() < self.length {
            fleet.run_until(next_move.min(next_measure));
            let now = Instant::now();
            if now >= next_measure {
                memory.extend(fleet.slots()[witness].pid().and_then(|pid| resident_kib(pid).ok()));
                next_measure += MEASURE_EVERY;
            }
            if now < next_move {
                continue;
            }
            next_move += self.interval;
            let free: Vec<usize> = (0..self.peers).filter(|slot| fleet.slots()[*slot].pid().is_none()).collect();
            let mortal: Vec<usize> = (0..self.peers)
                .filter(|slot| *slot != witness && fleet.slots()[*slot].is_awake() && fleet.can_lose(&[*slot]))
                .collect();
            // At full strength only kills are possible, at half strength only starts.
            let starts_one = free.len() * 2 >= self.peers || (!free.is_empty() && rng.below(2) == 0);
            if let (true, Some(slot)) = (starts_one, rng.pick(&free)) {
                if rng.below(2) == 0 {
                    fleet.wipe(slot)?;
                    wipes += 1;
                }
                fleet.say(&format!("start {slot}"));
                fleet.start(slot)?;
                starts += 1;
            } else if let Some(slot) = rng.pick(&mortal) {
                fleet.say(&format!("kill {slot}"));
                fleet.kill(slot);
                kills += 1;
            }
        }
        let (gap, gap_end) = fleet.progress_probe().longest_gap();
        let limit = self.max_stall + self.slack;
        verdict.promise(
            gap <= limit,
            format!(
                "no step was committed for {gap:.1?}, {:.1?} into the churn; at most {limit:?} are promised",
                gap_end.saturating_duration_since(began)
            ),
        );
        verdict.figure("peers", self.peers);
        verdict.figure("kills", kills);
        verdict.figure("starts", starts);
        verdict.figure("wiped_disks", wipes);
        verdict.figure("steps", fleet.progress_probe().step() - first_step);
        verdict.decimal("longest_gap_s", gap.as_secs_f64());
        verdict.figure("max_stall_ms", self.max_stall.as_millis() as u64);
        memory_is_flat(&memory, &mut verdict);
        for slot in 0..self.peers {
            if fleet.slots()[slot].pid().is_none() {
                fleet.start(slot)?;
            }
        }
        conclude(&mut fleet, SETTLE_LIMIT, &mut verdict);
        Ok(verdict)
    }
}

/// What every experiment ends with: all come together with equal digests, leave, and the audit is clean.
pub(in crate::chaos) fn conclude(fleet: &mut Fleet, limit: Duration, verdict: &mut Verdict) {
    let settled = fleet.settle(limit);
    verdict.figure("digests_equal", settled.is_ok() && !fleet.has_diverged());
    match settled {
        Ok(step) => {
            let digest = fleet.digest_after(step).unwrap_or_default().to_owned();
            verdict.figure("final_step", step);
            verdict.figure("digest", digest);
        }
        Err(error) => verdict.promise(false, format!("the processes did not come together: {error:#}")),
    }
    if let Err(error) = fleet.leave() {
        verdict.promise(false, format!("a process does not end: {error:#}"));
    }
    match fleet.audit() {
        Ok((is_clean, report)) => {
            verdict.promise(is_clean, format!("the audit finds offences: {report}"));
            verdict.figure("audit", report);
        }
        Err(error) => verdict.promise(false, format!("no audit: {error:#}")),
    }
    for broken in fleet.broken() {
        verdict.promise(false, broken);
    }
}

/// The median of the last third of measurements is not much above that of the first.
fn memory_is_flat(samples: &[u64], verdict: &mut Verdict) {
    let third = samples.len() / 3;
    if third == 0 {
        verdict.promise(false, "too short to measure memory");
        return;
    }
    let median = |samples: &[u64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2] as f64
    };
    let (first, last) = (median(&samples[..third]), median(&samples[samples.len() - third..]));
    verdict.decimal("resident_first_third_mib", first / 1024.0);
    verdict.decimal("resident_last_third_mib", last / 1024.0);
    verdict.promise(
        last <= first * GROWTH_LIMIT || last - first <= GROWTH_FLOOR_KIB,
        format!("resident memory of a process that lived through it grew from {first} to {last} KiB"),
    );
}
