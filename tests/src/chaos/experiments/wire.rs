//! How near reductions over slow links come to what the links carry.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::star;
use crate::chaos::Verdict;
use crate::networks::lan::{Host, Lan, PAYLOAD};
use crate::networks::wan::{FarLink, Wan};
use crate::processes::owned_child::OwnedChild;
use crate::processes::peer::{starling_behind, tied};

/// A swarm of hosts behind slow links reduces buffers, as f32 and as int8. Promised: f32 comes near to what the plan's busiest
/// link carries, and int8 is as much faster as it is shorter.
#[derive(Debug, Clone)]
pub struct Wire {
    /// How many hosts.
    pub peers: usize,
    /// What each can send and receive, in millions of bits per second.
    pub mbit: u32,
    /// There and back between two hosts; zero for the time that a switch takes.
    pub rtt: Duration,
    /// The share of frames that are lost.
    pub loss: f64,
    /// How much each brings, in KiB.
    pub kib: u32,
    /// Rounds that count, for each codec.
    pub rounds: u32,
    /// How the reductions are scheduled.
    pub plan: String,
    /// How many hosts all reach; all links between the others are cut. Zero: all reach all.
    pub hubs: usize,
    /// The share of the link's rate that f32 must reach.
    pub reach: f64,
    /// How many times as fast as f32 at the link's rate int8 must be; int8 is left out if it is 0.
    pub int8: f64,
    /// What the last host can send and receive, if that is less. Then it is measured what it helps to know that.
    pub slow_mbit: Option<u32>,
    /// Whether hosts with even and odd numbers are at two sites, joined by a link with a tenth of the rate of each host's. Then it
    /// is measured what it helps to know that.
    pub sites: bool,
    /// How many times as fast it must be then.
    pub gain: f64,
    /// How many times as long as the best there is it may take then.
    pub near: f64,
    /// For how long the plan must have been the same before rounds count that know what links cost.
    pub settle: Duration,
    /// Seed of what is lost.
    pub seed: u64,
}

/// How many times slower than a host's link the one is that joins two sites.
const APART: u32 = 10;

enum Network {
    Near(Lan),
    Far(Wan),
}

impl Wire {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("wire", self.seed);
        let network = self.network()?;
        verdict.figure("rtt_ms", self.rtt.as_millis() as u64);
        verdict.figure("loss", self.loss);
        for (name, value) in [("peers", self.peers as u64), ("mbit", self.mbit.into()), ("kib", self.kib.into())] {
            verdict.figure(name, value);
        }
        if self.slow_mbit.is_some() || self.sites {
            self.know(&network, &mut verdict)?;
            return Ok(verdict);
        }
        let (f32_s, bound_s) = self.reduce(&network, "f32", Duration::ZERO)?;
        verdict.figure("bound_s", bound_s);
        verdict.figure("f32_s", f32_s);
        let reached = bound_s / f32_s;
        verdict.figure("f32_of_bound", (reached * 1000.0).round() / 1000.0);
        verdict.promise(reached >= self.reach, format!("f32 reached only {reached:.3} of what the links carry"));
        if self.int8 > 0.0 {
            let (int8_s, _) = self.reduce(&network, "int8", Duration::ZERO)?;
            let faster = bound_s / int8_s;
            verdict.figure("int8_s", int8_s);
            verdict.decimal("int8_of_f32_bound", faster);
            verdict.promise(faster >= self.int8, format!("int8 was only {faster:.2} times as fast as f32 could be"));
        }
        Ok(verdict)
    }

    fn network(&self) -> Result<Network> {
        if self.rtt > Duration::ZERO || self.loss > 0.0 || self.sites {
            let joint_mbit = self.sites.then_some((self.mbit / APART).max(1));
            let link = FarLink { mbit: self.mbit, delay: self.rtt / 2, loss: self.loss, joint_mbit };
            return Ok(Network::Far(Wan::new(self.peers, link, self.seed)?));
        }
        let lan = Lan::new(self.peers)?;
        (0..self.peers).try_for_each(|host| lan.shape(host, self.rate(host)))?;
        if self.hubs > 0 {
            let others: Vec<usize> = (self.hubs..self.peers).collect();
            (0..others.len()).try_for_each(|at| lan.split(&others[at..=at], &others[at + 1..]))?;
        }
        Ok(Network::Near(lan))
    }

    /// What a host can send and receive, in millions of bits per second.
    fn rate(&self, host: usize) -> u32 {
        self.slow_mbit.filter(|_| host + 1 == self.peers).unwrap_or(self.mbit)
    }

    /// Reduces without and with knowledge of what links cost. What is best is known.
    fn know(&self, network: &Network, verdict: &mut Verdict) -> Result<()> {
        let bytes_per_s = |mbit: u32| f64::from(mbit) * 1e6 / 8.0 * PAYLOAD;
        let best = match self.slow_mbit {
            Some(slow) => {
                verdict.figure("slow_mbit", u64::from(slow));
                least(&(0..self.peers).map(|host| bytes_per_s(self.rate(host))).collect::<Vec<_>>())
            }
            // Each site's sum of what the other owns goes over, and the result of what it owns itself.
            None => 1.0 / bytes_per_s(self.mbit / APART),
        };
        let best_s = f64::from(self.kib) * 1024.0 * best;
        let (blind_s, _) = self.reduce(network, "f32", Duration::ZERO)?;
        let (known_s, _) = self.reduce(network, "f32", self.settle)?;
        let faster = blind_s / known_s;
        for (name, value) in [("blind_s", blind_s), ("known_s", known_s), ("best_s", best_s)] {
            verdict.figure(name, value);
        }
        verdict.decimal("faster", faster);
        verdict.decimal("of_best", known_s / best_s);
        verdict.promise(faster >= self.gain, format!("to know the links made it only {faster:.2} times as fast"));
        verdict.promise(known_s <= best_s * self.near, format!("{known_s:.3} s, and {best_s:.3} s would be best"));
        Ok(())
    }

    /// The slowest member's median round, and the least time for f32, in seconds.
    fn reduce(&self, network: &Network, codec: &str, settle: Duration) -> Result<(f64, f64)> {
        let dir = TempDir::with_prefix("starling-chaos-").context("can't make a directory")?;
        let start = |host: usize, flags: &str| -> Result<(OwnedChild, BufReader<ChildStdout>)> {
            let host = network.host(host);
            let mut command = starling_behind(&tied(host.prefix), dir.path());
            command.args(["bench", "swarm", "--json", "--listen", &format!("/ip4/{}/tcp/0", host.address)]);
            command.args(["--settle", &settle.as_secs().to_string()]);
            command.args(["--mbit", &self.mbit.to_string(), "--rounds", &self.rounds.to_string()]);
            let mut child = command.args(flags.split_whitespace()).stdout(Stdio::piped()).spawn()?;
            let stdout = child.stdout.take().context("it is piped")?;
            Ok((child.into(), BufReader::new(stdout)))
        };
        eprintln!("{codec} over links of {} Mbit/s", self.mbit);
        let founding = format!("--peers {} --kib {} --plan {} --codec {codec}", self.peers, self.kib, self.plan);
        let mut first = start(0, &founding)?;
        let mut line = String::new();
        first.1.read_line(&mut line)?;
        let invitation: Value = serde_json::from_str(&line).with_context(|| format!("no ticket in `{line}`"))?;
        let ticket = invitation["ticket"].as_str().context("no ticket")?;
        let others = (1..self.peers).map(|host| start(host, &format!("--join {ticket}")));
        let mut members: Vec<_> = std::iter::once(Ok(first)).chain(others).collect::<Result<_>>()?;
        let (mut slowest, mut bound) = (0.0f64, 0.0);
        for (number, (member, stdout)) in members.iter_mut().enumerate() {
            let mut said = String::new();
            stdout.read_to_string(&mut said)?;
            ensure!(member.wait()?.success(), "the benchmark on host {number} failed");
            let outcome: Value = serde_json::from_str(&said).with_context(|| format!("no outcome in `{said}`"))?;
            let Some(median_s) = outcome["median_s"].as_f64() else { bail!("no time in `{said}`") };
            eprintln!("  host {number}: {:.1} ms, {}, {}", median_s * 1e3, outcome["links"], outcome["reason"]);
            slowest = slowest.max(median_s);
            let of_ring = outcome["bound_s"].as_f64().context("no bound")?;
            bound = of_ring * self.busiest(outcome["links"].as_str().context("no links")?)?;
        }
        Ok((slowest, bound / PAYLOAD))
    }
}

impl Wire {
    /// How many times as much as over a ring's links goes over the busiest one of the plan that `links` name. A star's hub
    /// receives its share of the buffer from each of the others, and the results of what other hubs own.
    fn busiest(&self, links: &str) -> Result<f64> {
        let hubs = links.split_once(" over ").and_then(|(plan, _)| star::hubs(plan));
        ensure!(self.hubs == 0 || hubs == Some(self.hubs), "{} hosts reach all, and the plan is `{links}`", self.hubs);
        let (peers, of_ring) = (self.peers as f64, 2.0 * (1.0 - 1.0 / self.peers as f64));
        Ok(hubs.map_or(1.0, |hubs| (peers + hubs as f64 - 2.0) / hubs as f64 / of_ring))
    }
}

impl Network {
    fn host(&self, number: usize) -> Host {
        match self {
            Self::Near(lan) => lan.host(number),
            Self::Far(wan) => wan.host(number),
        }
    }
}

/// The least time in which a mesh of hosts with these rates reduces one byte of each. Who owns the share `w` of it sends, and
/// receives, `1 + (n - 2) w`; shares are as large as the time allows, and together they are all of it.
fn least(rates: &[f64]) -> f64 {
    let others = rates.len() as f64 - 2.0;
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let share = |time: f64| rates.iter().map(|rate| ((time * rate - 1.0) / others).max(0.0)).sum::<f64>();
    // Half of it is too little for anybody, and for all of it the slowest alone could be the owner.
    let (mut low, mut high) = (0.0, rates.len() as f64 / slowest);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if share(middle) >= 1.0 { high = middle } else { low = middle }
    }
    high.max(1.0 / slowest)
}
