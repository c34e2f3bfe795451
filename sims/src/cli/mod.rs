//! The command line.

pub(crate) mod verbs;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum as _};
use starling_sims::hostile::Attack;
use starling_sims::sweep::{Blow, Kill};
use starling_sims::{Scenario, Setup};
use starling_topology::Quorum;

#[derive(Debug, Parser)]
#[command(version, about = "Starling in virtual time: proves runs from their seeds")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Simulates one run per seed; ends with 1 if anything did not hold
    Run {
        /// The seeds, first..end
        #[arg(long, value_parser = parse_seeds)]
        seeds: Range<u64>,
        /// With each seed, every scenario with 2 to 5 peers, and one in a world of up to 64 whose size is drawn
        #[arg(long, conflicts_with_all = ["peers", "steps", "scenario", "attack", "quorum"])]
        all: bool,
        #[command(flatten)]
        shape: Shape,
        /// Print only the summary, as one line of JSON
        #[arg(long)]
        json: bool,
        /// Run on so many threads; what comes out does not depend on it
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
        threads: u8,
    },
    /// Simulates one run and prints all that happens, the same each time
    Replay {
        #[command(flatten)]
        one: One,
        /// Draw a picture of it into this file, as SVG
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Print nothing but what did not hold
        #[arg(long)]
        quiet: bool,
    },
    /// Leaves faults out of a failing run until each one that is left is needed
    Shrink {
        #[command(flatten)]
        one: One,
        /// How many runs it may take
        #[arg(long, default_value_t = 400)]
        runs: u32,
    },
    /// Plants faults into the simulated peers and looks whether the invariants find them; ends with 1 if one gets by
    Canary {
        /// In how many runs each is looked for
        #[arg(long, default_value_t = 2_000)]
        seeds: u64,
    },
    /// Runs all plans, operations and codecs of collectives; ends with 1 if anything did not hold
    Collectives(Collectives),
    /// Kills each peer, and pairs of peers, at each message of a short run, and has every other fault strike every member in
    /// every phase; ends with 1 if anything did not hold
    Sweep {
        /// The largest world
        #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=16))]
        peers: u32,
        /// Kill pairs at each so many messages
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
        pairs_every: u64,
        /// Show one of the runs instead: PEERS:DELIVERY:VICTIM or PEERS:DELIVERY:VICTIM:OTHER
        #[arg(long, value_name = "KILL")]
        show: Option<Kill>,
        /// Or one of those that strike in a phase: PEERS:UNREST:SEAT:FAULT:PHASE
        #[arg(long, value_name = "BLOW", conflicts_with = "show")]
        blow: Option<Blow>,
        /// The largest world in which every kind of fault strikes every member in every phase
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=16))]
        blows: u32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Collectives {
    /// How many ranks there are, first..end
    #[arg(long, value_parser = parse_worlds, default_value = "1..65")]
    pub(crate) worlds: Range<u64>,
    /// The seeds, first..end
    #[arg(long, value_parser = parse_seeds, default_value = "0..1")]
    pub(crate) seeds: Range<u64>,
    /// Print only the results, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct One {
    /// The seed
    #[arg(long)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) shape: Shape,
    /// Of the plan's faults, only these, by their places; the founders come in any case
    #[arg(long, value_delimiter = ',', value_name = "FAULTS")]
    pub(crate) only: Option<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Shape {
    /// How many peers there will be; if not given, the seed says it: 3 to 8
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) peers: Option<u32>,
    /// How many steps are trained
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) steps: u64,
    /// What happens to the run
    #[arg(long, value_enum, default_value_t = Scenario::Mixed)]
    pub(crate) scenario: Scenario,
    /// What hostile members do in a byzantine run; if not given, the seed says it
    #[arg(long, value_enum)]
    pub(crate) attack: Option<Attack>,
    /// Which members of a view decide, majority or two-thirds; if not given, majorities, and in a byzantine run what the seed says
    #[arg(long)]
    pub(crate) quorum: Option<Quorum>,
}

impl From<Shape> for Setup {
    fn from(shape: Shape) -> Self {
        let Shape { peers, steps, scenario, attack, quorum } = shape;
        Self { peers, steps, scenario, attack, quorum }
    }
}

impl From<Setup> for Shape {
    fn from(setup: Setup) -> Self {
        let Setup { peers, steps, scenario, attack, quorum } = setup;
        Self { peers, steps, scenario, attack, quorum }
    }
}

impl fmt::Display for Shape {
    /// As it is written on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(peers) = self.peers {
            write!(f, "--peers {peers} ")?;
        }
        let scenario = self.scenario.to_possible_value();
        let scenario = scenario.as_ref().map_or("mixed", |value| value.get_name());
        write!(f, "--steps {} --scenario {scenario}", self.steps)?;
        let attack = self.attack.and_then(|attack| attack.to_possible_value());
        attack.map_or(Ok(()), |attack| write!(f, " --attack {}", attack.get_name()))?;
        self.quorum.map_or(Ok(()), |quorum| write!(f, " --quorum {quorum}"))
    }
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
