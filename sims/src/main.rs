//! Runs simulations: `starling-sims run --seeds 0..1000`, tells one again: `starling-sims replay --seed 17`, and runs
//! collectives alone: `starling-sims collectives --worlds 1..65 --seeds 0..4`.

use std::io::{IsTerminal as _, Write as _};
use std::ops::Range;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum as _};
use starling_sims::{Outcome, Scenario, Setup, Summary, collectives, replay, simulate};

#[derive(Debug, Parser)]
#[command(version, about = "Starling in virtual time: proves runs from their seeds")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Simulates one run per seed; ends with 1 if anything did not hold
    Run {
        /// The seeds, first..end
        #[arg(long, value_parser = parse_seeds)]
        seeds: Range<u64>,
        #[command(flatten)]
        shape: Shape,
        /// Print only the summary, as one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Simulates one run and prints all that happens, the same each time
    Replay {
        /// The seed
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        shape: Shape,
    },
    /// Runs all plans, operations and codecs of collectives; ends with 1 if anything did not hold
    Collectives(Collectives),
}

#[derive(Debug, Args)]
struct Collectives {
    /// How many ranks there are, first..end
    #[arg(long, value_parser = parse_worlds, default_value = "1..65")]
    worlds: Range<u64>,
    /// The seeds, first..end
    #[arg(long, value_parser = parse_seeds, default_value = "0..1")]
    seeds: Range<u64>,
    /// Print only the results, as one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, Args)]
struct Shape {
    /// How many peers there will be
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    peers: u32,
    /// How many steps are trained
    #[arg(long, default_value_t = 20)]
    steps: u64,
    /// What happens to the run
    #[arg(long, value_enum, default_value_t = Scenario::Mixed)]
    scenario: Scenario,
}

impl From<Shape> for Setup {
    fn from(shape: Shape) -> Self {
        Self { peers: shape.peers, steps: shape.steps, scenario: shape.scenario }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let good = match Cli::parse().verb {
        Verb::Run { seeds, shape, json } => run(seeds, shape, json)?,
        Verb::Replay { seed, shape } => tell(seed, shape)?,
        Verb::Collectives(options) => reduce(options)?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(seeds: Range<u64>, shape: Shape, json: bool) -> anyhow::Result<bool> {
    let setup = Setup::from(shape);
    let count = seeds.end - seeds.start;
    let mut summary = Summary::default();
    let watch = Watch::start();
    for seed in seeds {
        let outcome = simulate(seed, &setup);
        summary.add(&outcome);
        if !outcome.is_good() {
            explain(&outcome, shape)?;
        }
        progress(&summary, count)?;
    }
    summary.events_per_s = watch.per_second(summary.events);
    let mut out = std::io::stdout().lock();
    if !json {
        let Summary { seeds, violations, hangs, events, events_per_s, sim_seconds } = &summary;
        let (peers, steps) = (shape.peers, shape.steps);
        writeln!(out, "{seeds} seeds of {peers} peers and {steps} steps: {violations} violations, {hangs} hangs")?;
        writeln!(out, "{events} events ({events_per_s:.0} per second) in {sim_seconds:.1} simulated seconds")?;
    }
    writeln!(out, "{}", serde_json::to_string(&summary).context("the summary is plain numbers")?)?;
    Ok(summary.is_good())
}

/// Says what went wrong and how to see it again.
fn explain(outcome: &Outcome, shape: Shape) -> anyhow::Result<()> {
    let mut err = std::io::stderr().lock();
    writeln!(err, "seed {} failed:", outcome.seed)?;
    for broken in &outcome.broken {
        writeln!(err, "  {broken}")?;
    }
    if let Some(running) = &outcome.stuck {
        writeln!(err, "  hung: still running: {running:?}")?;
    }
    let scenario = shape.scenario.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let Shape { peers, steps, .. } = shape;
    let seed = outcome.seed;
    writeln!(err, "  starling-sims replay --seed {seed} --peers {peers} --steps {steps} --scenario {scenario}")?;
    Ok(())
}

/// A line that replaces itself on a terminal, now and then a new one elsewhere.
fn progress(summary: &Summary, count: u64) -> anyhow::Result<()> {
    let mut err = std::io::stderr().lock();
    let (done, last) = (summary.seeds, summary.seeds == count);
    if err.is_terminal() {
        if done.is_multiple_of(50) || last {
            write!(err, "\r{done} of {count} seeds, {} events{}", summary.events, if last { "\n" } else { "" })?;
            err.flush()?;
        }
    } else if done.is_multiple_of((count / 10).max(1_000)) {
        writeln!(err, "{done} of {count} seeds, {} events", summary.events)?;
    }
    Ok(())
}

fn tell(seed: u64, shape: Shape) -> anyhow::Result<bool> {
    let (outcome, trace) = replay(seed, &shape.into());
    std::io::stdout().lock().write_all(trace.as_bytes())?;
    if !outcome.is_good() {
        explain(&outcome, shape)?;
    }
    Ok(outcome.is_good())
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
        let collectives::Tally { runs, aborted, refused, segments, bytes, broken } = &tally;
        writeln!(out, "{runs} runs, {segments} segments, {bytes} payload bytes: {} broken", broken.len())?;
        writeln!(out, "{aborted} operations were aborted and done again, {refused} repeated segments refused")?;
    }
    Ok(tally.is_good() && cases.iter().all(collectives::cases::Case::is_good))
}

fn parse_worlds(text: &str) -> Result<Range<u64>, String> {
    let worlds = parse_seeds(text)?;
    let largest = starling_topology::message::MAX_MEMBERS as u64;
    let fits = worlds.start >= 1 && worlds.end <= largest + 1;
    if fits { Ok(worlds) } else { Err(format!("{text} is not within 1..{}", largest + 1)) }
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let (first, end) =
        text.split_once("..").ok_or("write the first seed, two dots, and the seed after the last: 0..100")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?} is no seed: {error}"));
    let (first, end) = (number(first)?, number(end)?);
    if first < end { Ok(first..end) } else { Err(format!("{first}..{end} has no seed in it")) }
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
