//! `starling bench`: how fast this machine reduces, beside what it could.
//!
//! The members are processes of this binary on loopback. They have what a training run has between its members: libp2p
//! connections, admission, greeting and handshakes of all links, the reducer with its `collective::Execution`. They have
//! no trainer. Each round's result is checked: all members must hold the same bytes, and in the first round the exact
//! sum of what all have drawn.

mod bound;
mod error;
mod live;
mod member;
mod memory;
mod outcome;
mod process;
mod topologies;
mod values;
mod wire;

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use starling::Transport;
use starling_node::reducer::bench::{MemberContact, ReductionSpec, WireCost};

pub use bound::Bound;
pub use error::BenchError;
pub use live::{LiveOutcome, LivePlan, live};
pub use member::serve;
pub use memory::{MemoryOutcome, MemoryPlan, memory};
pub use outcome::{LinkOutcome, Outcome};
pub use topologies::topologies;

use crate::output::Console;
use outcome::Times;
use process::Process;
use wire::{Answer, Ask, Checked, Reduced, Setup};

/// Rounds before those that count: the first checks the sum, all of them warm caches and congestion windows.
const WARM_UP: u64 = 3;
/// How long a member may take to start, or to link.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a round may take, however little it moves.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
/// No machine that is worth a benchmark is slower, all members together.
const SLOWEST_BYTES_PER_S: u64 = 4 << 20;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many members reduce.
    pub peers: u32,
    /// What they reduce, and how.
    pub reduction: ReductionSpec,
    /// Rounds that count.
    pub rounds: u32,
    /// Seed of all values.
    pub seed: u64,
}

impl Plan {
    fn bytes(&self) -> u64 {
        (self.reduction.elements * size_of::<f32>()) as u64
    }

    fn limit(&self) -> Duration {
        ROUND_LIMIT + Duration::from_secs(self.bytes() * u64::from(self.peers) / SLOWEST_BYTES_PER_S)
    }

    fn setup(&self, index: u32) -> Setup {
        Setup { reduction: self.reduction.clone(), seed: self.seed, index, peers: self.peers }
    }
}

/// Runs the benchmark, with a bar on `console`.
///
/// # Errors
/// [`BenchError`] if a member fails or a result is wrong. No member is left behind.
pub async fn all_reduce(plan: &Plan, console: &Console) -> Result<Outcome, BenchError> {
    let bar = bar(console, plan.rounds);
    let reduced = reduce(plan, &bar).await;
    bar.finish_and_clear();
    reduced
}

/// Measures one link: the same among two members, with so little that only latency counts, and with all of `plan`.
///
/// # Errors
/// As [`all_reduce`].
pub async fn link(plan: &Plan, console: &Console) -> Result<LinkOutcome, BenchError> {
    let mut little = plan.clone();
    little.reduction.elements = plan.peers as usize;
    let least = all_reduce(&little, console).await?;
    let all = all_reduce(plan, console).await?;
    Ok(LinkOutcome::new(&least, &all))
}

/// Shows how many of the rounds are done, those of the warm-up included.
fn bar(console: &Console, rounds: u32) -> ProgressBar {
    let bar = console.bars().add(ProgressBar::new(u64::from(rounds) + WARM_UP));
    let style = ProgressStyle::with_template("{bar:30} round {pos}/{len}  {msg}");
    bar.set_style(style.expect("invariant: the template is valid"));
    bar
}

async fn reduce(plan: &Plan, bar: &ProgressBar) -> Result<Outcome, BenchError> {
    bar.set_message("measuring what this machine can do");
    let (codec, segment_elements) = (plan.reduction.codec, plan.reduction.segment_elements);
    let floor = tokio::task::spawn_blocking(move || WireCost::measure(codec, segment_elements)).await;
    let floor = floor.map_err(|_| BenchError::Talk("the measuring thread ended".to_owned()))?;
    let floor = floor.map_err(BenchError::io("measure a connection over loopback"))?;
    bar.set_message("linking");
    let mut swarm = LocalSwarm::start(plan).await?;
    let mut times = Times::default();
    for round in 0..WARM_UP + u64::from(plan.rounds) {
        let members = swarm.round(round, round == 0).await?;
        let slowest = members.iter().map(|member| member.seconds).fold(0.0, f64::max);
        bar.inc(1);
        bar.set_message(format!("{:.1} ms", slowest * 1e3));
        if round >= WARM_UP {
            times.take(slowest, members.iter().map(|member| member.cpu_seconds).sum());
        }
    }
    swarm.end().await?;
    Ok(Outcome::new(plan, swarm.plan, swarm.transport, times, &floor))
}

/// All members, as processes on this machine.
struct LocalSwarm {
    members: Vec<Process>,
    limit: Duration,
    /// What the members agreed on.
    plan: String,
    transport: Transport,
}

impl LocalSwarm {
    /// Starts and links all members.
    async fn start(plan: &Plan) -> Result<Self, BenchError> {
        let members = (0..plan.peers as usize).map(Process::start).collect::<Result<Vec<_>, _>>()?;
        let mut swarm = Self { members, limit: plan.limit(), plan: String::new(), transport: Transport::Universal };
        for (index, member) in (0..).zip(&mut swarm.members) {
            member.ask(&Ask::Setup(plan.setup(index))).await?;
        }
        let mut places: Vec<MemberContact> = Vec::new();
        for member in &mut swarm.members {
            match member.answer(START_LIMIT).await? {
                Answer::Listening(place) => places.push(place),
                other => return Err(unexpected(&other)),
            }
        }
        for member in &mut swarm.members {
            member.ask(&Ask::Link(places.clone())).await?;
        }
        for member in &mut swarm.members {
            match member.answer(START_LIMIT).await? {
                Answer::Linked { plan, transport } => (swarm.plan, swarm.transport) = (plan, transport),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(swarm)
    }

    /// One round. All members hold the same result, or it is an error.
    async fn round(&mut self, round: u64, sums: bool) -> Result<Vec<Reduced>, BenchError> {
        for answer in self.all(&Ask::Prepare(round)).await? {
            let Answer::Prepared = answer else { return Err(unexpected(&answer)) };
        }
        let mut all: Vec<Reduced> = Vec::new();
        for answer in self.all(&Ask::Reduce).await? {
            let Answer::Reduced(reduced) = answer else { return Err(unexpected(&answer)) };
            all.push(reduced);
        }
        let mut first: Option<String> = None;
        for (member, answer) in self.all(&Ask::Check { sums }).await?.into_iter().enumerate() {
            let Answer::Checked(Checked { digest, wrong: element }) = answer else { return Err(unexpected(&answer)) };
            let wrong = |what| BenchError::Wrong { member, round, what };
            if let Some(element) = element {
                return Err(wrong(format!("element {element} is not the sum")));
            }
            let first = first.get_or_insert_with(|| digest.clone());
            if *first != digest {
                return Err(wrong(format!("digest {digest} where member 0 has {first}")));
            }
        }
        Ok(all)
    }

    /// Asks all members at once, and waits for all their answers.
    async fn all(&mut self, ask: &Ask) -> Result<Vec<Answer>, BenchError> {
        for member in &mut self.members {
            member.ask(ask).await?;
        }
        let mut answers = Vec::new();
        for member in &mut self.members {
            answers.push(member.answer(self.limit).await?);
        }
        Ok(answers)
    }

    async fn end(&mut self) -> Result<(), BenchError> {
        for member in &mut self.members {
            member.ask(&Ask::End).await?;
        }
        Ok(())
    }
}

fn unexpected(answer: &Answer) -> BenchError {
    BenchError::Talk(format!("an answer out of order: {answer:?}"))
}
