//! Runs simulations: `starling-sims run --seeds 0..1000`, and tells one again: `starling-sims replay --seed 17`.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> anyhow::Result<ExitCode> {
    let good = cli::verbs::carry_out(cli::Cli::parse().verb)?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
