//! What the verbs do.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Context as _;
use starling_sims::scenario::SEARCHED;
use starling_sims::sweep::canary::PLANTS;
use starling_sims::sweep::coverage::{Coverage, PHASES};
use starling_sims::sweep::fault::Kind;
use starling_sims::sweep::shrink;
use starling_sims::verdict::report::picture;
use starling_sims::{Outcome, Setup, Simulation, Summary, collectives, sweep};

use crate::cli::{Collectives, One, Shape, Verb};

/// Sweeps run on so many threads. What comes out does not depend on it.
const THREADS: usize = 2;
/// How many runs it may take to shrink the first failure that a `run` finds.
const SHRINKING: u32 = 200;
/// Runs with more events than this are not cut down unasked: that would take hours.
const SHORT: u64 = 1_000_000;
/// How many failures are told one by one.
const EXPLAINED: u32 = 20;
/// From so many runs on it is told which faults have struck when.
const COVERING: u64 = 100;

/// Returns whether everything held.
pub(crate) fn carry_out(verb: Verb) -> anyhow::Result<bool> {
    match verb {
        Verb::Run { seeds, all, shape, json, threads } => run(seeds, (!all).then_some(shape), json, threads),
        Verb::Replay { one, svg, quiet } => replay(&one, svg.as_deref(), quiet),
        Verb::Shrink { one, runs } => shrink_one(&one, runs),
        Verb::Canary { seeds } => canary(seeds),
        Verb::Collectives(options) => reduce(options),
        Verb::Sweep { show: Some(kill), .. } => show(sweep::prepare(&kill)),
        Verb::Sweep { blow: Some(blow), .. } => show(sweep::blows::prepare(&blow)),
        Verb::Sweep { peers, pairs_every, blows, .. } => sweep_all(peers, pairs_every, blows),
    }
}

/// One run per seed if there is a shape, else all that a search tries with it.
fn run(seeds: Range<u64>, shape: Option<Shape>, json: bool, threads: u8) -> anyhow::Result<bool> {
    let each = if shape.is_some() { 1 } else { SEARCHED };
    let runs = seeds.start * each..seeds.end * each;
    let count = runs.end - runs.start;
    let of = |run: u64| {
        let setup = match shape {
            Some(shape) => Some(Setup::from(shape)),
            None => usize::try_from(run % each).ok().and_then(|place| Setup::search(run / each).nth(place)),
        };
        Simulation::new(run / each, setup.expect("invariant: a search has as many setups as it says"))
    };
    let mut summary = Summary::default();
    let (mut failed, mut failures) = (None, 0);
    let watch = Watch::start();
    let next = AtomicU64::new(runs.start);
    thread::scope(|scope| -> anyhow::Result<()> {
        let (done, outcomes) = mpsc::sync_channel::<(u64, Outcome)>(64);
        for _ in 0..threads {
            let (done, next, of, end) = (done.clone(), &next, &of, runs.end);
            scope.spawn(move || {
                loop {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= end || done.send((run, of(run).run())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        // Taken in by ascending place, so that sums of fractions are the same each time.
        let mut early = BTreeMap::new();
        let mut expected = runs.start;
        for (run, outcome) in outcomes {
            early.insert(run, outcome);
            while let Some(outcome) = early.remove(&expected) {
                summary.add(&outcome);
                if !outcome.is_good() {
                    failures += 1;
                    if failures <= EXPLAINED {
                        explain(&outcome)?;
                    }
                    failed.get_or_insert((expected, outcome.events));
                }
                expected += 1;
                progress(&summary, count)?;
            }
        }
        Ok(())
    })?;
    summary.finish();
    summary.events_per_s = watch.per_second(summary.events);
    if let Some((run, _)) = failed.filter(|(_, events)| *events <= SHORT) {
        let simulation = of(run);
        tell_shrunk(&simulation, shrink::shrink(&simulation, SHRINKING))?;
    }
    let mut out = std::io::stdout().lock();
    if !json {
        let Summary { runs, violations, hangs, events, events_per_s, sim_hours, .. } = &summary;
        let Summary { steps, views, replans, stars, unsteady, faults, longest_stall_s, .. } = &summary;
        let what = shape.map_or_else(|| "all scenarios".to_owned(), |shape| shape.to_string());
        writeln!(out, "{runs} runs ({what}): {violations} violations, {hangs} hangs")?;
        writeln!(
            out,
            "{steps} steps in {views} views, {replans} for a better plan, {stars} by a star, {unsteady} unsteady, under {faults} faults; {longest_stall_s:.0} s to heal at most"
        )?;
        writeln!(out, "{events} events ({events_per_s:.0} per second) in {sim_hours:.1} simulated hours")?;
        // Of a few runs it says nothing.
        if *runs >= COVERING {
            tell_coverage(&mut out, &summary.coverage)?;
        }
    } else {
        writeln!(out, "{}", serde_json::to_string(&summary).context("the summary is plain numbers")?)?;
    }
    Ok(summary.is_good())
}

/// How often faults have struck members in each phase.
fn tell_coverage(out: &mut impl std::io::Write, coverage: &Coverage) -> anyhow::Result<()> {
    write!(out, "{:<21}", "struck while it")?;
    PHASES.iter().try_for_each(|phase| write!(out, " {phase:>8}"))?;
    for fault in Kind::NAMES {
        write!(out, "\n{fault:<21}")?;
        PHASES.iter().try_for_each(|phase| write!(out, " {:>8}", coverage.of(fault, phase)))?;
    }
    writeln!(out)?;
    Ok(())
}

/// Says what went wrong and how to see it again.
fn explain(outcome: &Outcome) -> anyhow::Result<()> {
    let mut err = std::io::stderr().lock();
    let (seed, shape) = (outcome.seed, Shape::from(outcome.setup));
    writeln!(err, "seed {seed} failed after step {}:", outcome.steps)?;
    for broken in &outcome.broken {
        writeln!(err, "  {broken}")?;
    }
    if let Some(running) = &outcome.stuck {
        writeln!(err, "  progress: hung, and these still run: {running:?}")?;
    }
    writeln!(err, "  starling-sims replay --seed {seed} {shape}")?;
    Ok(())
}

/// A line that replaces itself on a terminal, now and then a new one elsewhere.
fn progress(summary: &Summary, count: u64) -> anyhow::Result<()> {
    let mut err = std::io::stderr().lock();
    let (done, last) = (summary.runs, summary.runs == count);
    if err.is_terminal() {
        if done.is_multiple_of(50) || last {
            write!(err, "\r{done} of {count} runs, {} events{}", summary.events, if last { "\n" } else { "" })?;
            err.flush()?;
        }
    } else if done.is_multiple_of((count / 10).max(1_000)) {
        writeln!(err, "{done} of {count} runs, {} events", summary.events)?;
    }
    Ok(())
}

fn chosen(one: &One) -> Simulation {
    let simulation = Simulation::new(one.seed, one.shape.into());
    match &one.only {
        Some(kept) => simulation.only(kept),
        None => simulation,
    }
}

fn replay(one: &One, svg: Option<&Path>, quiet: bool) -> anyhow::Result<bool> {
    let simulation = chosen(one);
    let mut out = std::io::stdout().lock();
    if !quiet {
        let plan = simulation.plan();
        writeln!(out, "{} peers, {} of them from the start", plan.peers, plan.founders)?;
        for (place, fault) in plan.faults.iter().enumerate() {
            writeln!(out, "fault {place}: {fault}")?;
        }
    }
    let peers = simulation.plan().peers;
    let simulation = if svg.is_some() { simulation.pictured() } else { simulation };
    let simulation = if quiet { simulation } else { simulation.told() };
    let outcome = simulation.run();
    out.write_all(outcome.trace.as_bytes())?;
    if let Some(file) = svg {
        let title = format!("seed {} {}", one.seed, one.shape);
        let drawn = picture::draw(&title, peers, &outcome.marks);
        std::fs::write(file, drawn).with_context(|| format!("can't write the picture to {}", file.display()))?;
    }
    if !outcome.is_good() {
        explain(&outcome)?;
    }
    Ok(outcome.is_good())
}

fn shrink_one(one: &One, runs: u32) -> anyhow::Result<bool> {
    let simulation = chosen(one);
    let shrunk = shrink::shrink(&simulation, runs);
    let fails = shrunk.is_some();
    tell_shrunk(&simulation, shrunk)?;
    Ok(!fails)
}

fn tell_shrunk(simulation: &Simulation, shrunk: Option<shrink::Shrunk>) -> anyhow::Result<()> {
    let mut out = std::io::stderr().lock();
    let (seed, shape) = (simulation.seed(), Shape::from(simulation.setup()));
    let Some(shrunk) = shrunk else {
        writeln!(out, "seed {seed} holds: there is nothing to shrink")?;
        return Ok(());
    };
    let (kept, runs, failure) = (shrunk.kept.len(), shrunk.runs, shrunk.failure);
    writeln!(out, "seed {seed}, {failure}: {kept} of {} faults are needed ({runs} runs):", shrunk.of)?;
    for place in &shrunk.kept {
        writeln!(out, "  fault {place}: {}", simulation.plan().faults[*place])?;
    }
    let places: Vec<String> = shrunk.kept.iter().map(ToString::to_string).collect();
    let places = if places.is_empty() { usize::MAX.to_string() } else { places.join(",") };
    writeln!(out, "  starling-sims replay --seed {seed} {shape} --only {places}")?;
    Ok(())
}

fn canary(seeds: u64) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    let mut all = true;
    writeln!(out, "{:<24} {:<22} {:>6}  seen", "planted", "found by", "seeds")?;
    for plant in PLANTS {
        let catch = plant.find(seeds);
        let found = catch.caught.map_or("NOTHING", |(_, invariant)| invariant);
        all &= catch.caught.is_some();
        let seen: String = catch.seen.chars().take(110).collect();
        writeln!(out, "{:<24} {found:<22} {:>6}  {seen}", format!("{:?}", catch.sabotage), catch.seeds)?;
    }
    writeln!(out, "{}", if all { "all were caught" } else { "NOT all were caught" })?;
    Ok(all)
}

fn sweep_all(peers: u32, pairs_every: u64, blows: u32) -> anyhow::Result<bool> {
    let mut total = sweep::Swept::default();
    for size in 2..=peers {
        let swept = in_parts(&sweep::kills(size, Some(pairs_every)), sweep::sweep);
        tell_swept(&format!("{size} peers"), &swept)?;
        total.add(swept);
    }
    for size in 2..=blows {
        let swept = in_parts(&sweep::blows(size), sweep::blows::strike);
        tell_swept(&format!("{size} peers, struck in each phase"), &swept)?;
        total.add(swept);
    }
    let mut out = std::io::stdout().lock();
    tell_coverage(&mut out, &total.coverage)?;
    let (runs, failures, missed) = (total.runs, total.failures.len(), total.coverage.missing());
    let told = serde_json::json!({ "runs": runs, "failures": failures, "phases_struck": total.coverage.seen(), "phases_missed": missed });
    writeln!(out, "{told}")?;
    Ok(failures == 0)
}

fn in_parts<T: Sync>(all: &[T], sweep: fn(&[T]) -> sweep::Swept) -> sweep::Swept {
    let mut swept = sweep::Swept::default();
    let parts: Vec<sweep::Swept> = thread::scope(|scope| {
        let parts = all.chunks(all.len().div_ceil(THREADS).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || sweep(part))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    parts.into_iter().for_each(|part| swept.add(part));
    swept
}

fn tell_swept(what: &str, swept: &sweep::Swept) -> anyhow::Result<()> {
    let mut err = std::io::stderr().lock();
    writeln!(err, "{what}: {} runs, {} failures", swept.runs, swept.failures.len())?;
    swept.failures.iter().take(5).try_for_each(|failure| writeln!(err, "  {failure}"))?;
    Ok(())
}

fn show(simulation: Simulation) -> anyhow::Result<bool> {
    let outcome = simulation.told().run();
    std::io::stdout().lock().write_all(outcome.trace.as_bytes())?;
    Ok(outcome.is_good())
}

#[expect(clippy::disallowed_types, reason = "how fast the simulator itself is, is no part of any run")]
#[derive(Debug)]
struct Watch(std::time::Instant);

#[expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "as above")]
impl Watch {
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn per_second(&self, events: u64) -> f64 {
        events as f64 / self.0.elapsed().as_secs_f64().max(f64::EPSILON)
    }
}

fn reduce(Collectives { worlds, seeds, json }: Collectives) -> anyhow::Result<bool> {
    let mut tally = collectives::Tally::default();
    let mut err = std::io::stderr().lock();
    for world in worlds {
        for seed in seeds.clone() {
            collectives::check(u32::try_from(world).context("worlds are parsed small")?, seed, &mut tally);
        }
        if err.is_terminal() {
            write!(err, "\r{world} ranks, {} runs, {} segments", tally.runs, tally.segments)?;
        }
    }
    if err.is_terminal() {
        writeln!(err)?;
    }
    let cases = collectives::cases::all();
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::json!({ "runs": tally, "cases": cases }))?;
    } else {
        for case in &cases {
            let verdict = if case.is_good() { "holds" } else { "BROKEN" };
            writeln!(out, "{verdict}: {}: {:.3}, at most {:.3}", case.name, case.measured, case.bound)?;
            writeln!(out, "  {}", case.why.replace('\n', "\n  "))?;
        }
        tally.broken.iter().try_for_each(|broken| writeln!(out, "BROKEN: {broken}"))?;
        let collectives::Tally { runs, aborted, refused, segments, passed_on, bytes, broken } = &tally;
        writeln!(out, "{runs} runs, {segments} segments, {bytes} payload bytes: {} broken", broken.len())?;
        writeln!(out, "{aborted} operations were aborted and done again, {refused} repeated segments refused")?;
        writeln!(out, "{passed_on} segments went on from where they lay")?;
    }
    Ok(tally.is_good() && cases.iter().all(collectives::cases::Case::is_good))
}
