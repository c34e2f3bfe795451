//! Looks for bytes that a decoder can't stand, for as long as it is told.

use std::time::{Duration, Instant};

use clap::Parser;
use starling_fuzz::{Target, corpus, fuzz, targets};

/// Looks for bytes that a decoder can't stand: ends with 1 if there are any
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// The target, or `all` of them
    target: String,
    /// For how many minutes, each
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// From which all inputs follow
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write down in `fuzz/corpus` what is found, and anew a few inputs that were taken
    #[arg(long)]
    keep: bool,
}

fn main() -> anyhow::Result<()> {
    let Cli { target, minutes, seed, keep } = Cli::parse();
    let chosen: Vec<&Target> = targets::ALL.iter().filter(|known| target == "all" || known.name == target).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = targets::ALL.iter().map(|known| known.name).collect();
        anyhow::bail!("there is no target {target:?}; there are {}", names.join(", "));
    }
    let limit = Duration::try_from_secs_f64(minutes * 60.0)?;
    let mut failed = false;
    for target in chosen {
        let begun = Instant::now();
        match fuzz(target, seed, |inputs| !inputs.is_multiple_of(64) || begun.elapsed() < limit) {
            Ok(tally) => println!(
                "{:<18} {:>10} inputs, {:>9} valid, at most {:>3} bytes of memory for a byte",
                target.name, tally.inputs, tally.taken, tally.most_per_byte
            ),
            Err(failure) => {
                println!("{failure}");
                failed = true;
                if keep {
                    println!("  kept in {}", corpus::keep_found(&failure)?.display());
                }
            }
        }
        if keep {
            corpus::keep_reached(target, seed)?;
        }
    }
    if failed {
        std::process::exit(1);
    }
    Ok(())
}
