//! Whether gradients travel while they are computed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::chaos::Verdict;
use crate::data::write_digits;
use crate::networks::lan::{Lan, PAYLOAD};
use crate::processes::peer::tied;
use crate::{Outcome, Peer, PeerOptions};

/// Steps that warm things up: memory, caches, connections.
const WARM: u64 = 3;

/// A batch that takes all samples there are.
const ALL: u64 = 1 << 16;

/// What a model of the digits reads and tells.
const PIXELS: u64 = 64;
const CLASSES: u64 = 10;

/// Training between hosts behind slow links, beside as much computing without a network. Promised: a step takes little longer
/// than the longer of computing and sending.
#[derive(Debug, Clone)]
pub struct Overlap {
    /// How many hosts.
    pub peers: usize,
    /// What each can send and receive, in millions of bits per second.
    pub mbit: u32,
    /// The widths of the hidden layers of an MLP, which reads the digits.
    pub hidden: Vec<u64>,
    /// MiB of memory for updates that begin while their step is being reduced.
    pub update_ahead_mib: u64,
    /// Rows of data for each host, all of which a step takes, but for a fifth that is held out.
    pub rows: usize,
    /// Steps that count.
    pub steps: u64,
    /// How many times the longer of the two a step may take.
    pub limit: f64,
    /// Seed of the run.
    pub seed: u64,
}

impl Overlap {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let lan = Lan::new(self.peers)?;
        (0..self.peers).try_for_each(|host| lan.shape(host, self.mbit))?;
        let dir = TempDir::with_prefix("starling-chaos-").context("can't make a directory")?;
        eprintln!("each host computes alone");
        let compute = self.alone(&lan, &self.data(&dir, 1)?)?;
        eprintln!("  {:.0} ms; all together over {} Mbit/s", compute * 1e3, self.mbit);
        let together = self.together(&lan, &self.data(&dir, self.peers)?)?;
        let peers = self.peers as f64;
        let bytes = 2.0 * (peers - 1.0) / peers * (self.parameters() * 4) as f64;
        let transfer = bytes * 8.0 / (f64::from(self.mbit) * 1e6) / PAYLOAD;
        let ratio = together / compute.max(transfer);
        let mut verdict = Verdict::new("overlap", self.seed);
        verdict.figure("peers", self.peers);
        verdict.figure("mbit", self.mbit);
        verdict.figure("parameters", self.parameters());
        verdict.decimal("compute_ms", compute * 1e3);
        verdict.decimal("transfer_ms", transfer * 1e3);
        verdict.decimal("step_ms", together * 1e3);
        verdict.figure("ratio", (ratio * 1000.0).round() / 1000.0);
        verdict.promise(ratio <= self.limit, format!("a step takes {ratio:.3} times what has to be"));
        Ok(verdict)
    }

    fn data(&self, dir: &TempDir, hosts: usize) -> Result<PathBuf> {
        let path = dir.path().join(format!("{hosts}.csv"));
        write_digits(&path, self.rows * hosts).context("can't write the data")?;
        Ok(path)
    }

    /// How many numbers have to be sent.
    fn parameters(&self) -> u64 {
        let inputs = std::iter::once(PIXELS).chain(self.hidden.iter().copied());
        inputs.zip(self.hidden.iter().copied().chain([CLASSES])).map(|(inputs, outputs)| (inputs + 1) * outputs).sum()
    }

    /// Seconds per step if each host trains for itself, all at the same time.
    fn alone(&self, lan: &Lan, data: &Path) -> Result<f64> {
        let peers: Vec<Peer> =
            (0..self.peers).map(|host| Peer::run(&self.options(lan, host).founding(self, data))).collect();
        slowest(peers)
    }

    fn together(&self, lan: &Lan, data: &Path) -> Result<f64> {
        let founder = self.options(lan, 0).founding(self, data).with("--min-peers", self.peers.to_string());
        let first = Peer::run(&founder);
        let ticket = first.ticket();
        let others = (1..self.peers).map(|host| Peer::join(&ticket, &self.options(lan, host).with("--data", data)));
        let others: Vec<Peer> = others.collect();
        slowest(std::iter::once(first).chain(others))
    }

    fn options(&self, lan: &Lan, number: usize) -> PeerOptions {
        let host = lan.host(number);
        let listen = format!("/ip4/{}/tcp/0", host.address);
        let options = PeerOptions {
            prefix: tied(host.prefix),
            listen: Some(listen),
            ..PeerOptions::flags("--checkpoint-every 0")
        };
        options.with("--update-ahead", self.update_ahead_mib.to_string())
    }
}

impl PeerOptions {
    /// The same for whoever says what is trained.
    fn founding(self, overlap: &Overlap, data: &Path) -> Self {
        let Overlap { hidden, steps, seed, .. } = overlap;
        let widths: Vec<String> = hidden.iter().map(u64::to_string).collect();
        let numbers = [("--batch-size", ALL), ("--steps", WARM + steps), ("--seed", *seed)];
        let flags = self.with("--data", data).with("--model", format!("mlp:{}", widths.join(",")));
        numbers.into_iter().fold(flags, |flags, (name, number)| flags.with(name, number.to_string()))
    }
}

/// The seconds per step of the slowest.
fn slowest(peers: impl IntoIterator<Item = Peer>) -> Result<f64> {
    let times = peers.into_iter().map(|peer| step_time(&peer.finish()));
    times.collect::<Result<Vec<f64>>>().map(|times| times.into_iter().fold(0.0, f64::max))
}

/// Seconds per step, the first few left out.
fn step_time(outcome: &Outcome) -> Result<f64> {
    ensure!(outcome.status.success(), "a peer failed: {}", outcome.stderr);
    let progress = |(at, event): &(Duration, serde_json::Value)| Some((*at, event["step"].as_u64()?));
    let events = outcome.events.iter().filter(|(_, event)| event["event"] == "progress");
    let told: Vec<(Duration, u64)> = events.filter_map(progress).filter(|(_, step)| *step >= WARM).collect();
    let ((from, first), (to, last)) = told.first().zip(told.last()).context("no progress was told")?;
    ensure!(last > first, "too few steps");
    Ok((*to - *from).as_secs_f64() / (last - first) as f64)
}
