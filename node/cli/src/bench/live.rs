//! One member of a reduction over real links: a swarm between machines, each running this.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use libp2p::Multiaddr;
use serde::Serialize;
use starling::parts::Codec;
use starling::parts::PlanPolicy;
use starling::{BufferSpec, Settings, Swarm, SwarmError, Ticket, TransportPolicy};
use starling_node::reducer::bench::process_time;

use super::error::BenchError;
use super::outcome::{RoundStats, Times, share};
use super::{WARM_UP, values};
use crate::output::{Console, format};

/// What is measured.
#[derive(Debug, Clone)]
pub struct LivePlan {
    /// Whose benchmark to join; what is reduced, and how, comes from there.
    pub join: Option<Ticket>,
    /// How many members reduce.
    pub peers: u32,
    /// Elements that each brings.
    pub elements: usize,
    /// How values are written.
    pub codec: Codec,
    /// How the reduction is scheduled.
    pub plan: PlanPolicy,
    /// Rounds that count.
    pub rounds: u32,
    /// Rounds count once all members have reduced by one plan for this long; links are measured for it. Zero: links are not
    /// measured, and rounds count at once.
    pub settle: Duration,
    /// How the bytes travel.
    pub data_plane: TransportPolicy,
    /// Where to listen; empty for anywhere.
    pub listen: Vec<Multiaddr>,
    /// What this machine's link carries each way, in millions of bits per second.
    pub mbit: Option<u32>,
}

/// What one member of `starling bench swarm` prints. Sizes are in bytes, times in seconds, rates in 10^9 bytes per second.
#[derive(Debug, Clone, Serialize)]
pub struct LiveOutcome {
    /// How many members reduced in the last round.
    pub peers: u32,
    /// What each member brought.
    pub bytes: u64,
    /// How the reduction was scheduled, and how the bytes travelled from and to this member.
    pub links: String,
    /// Why it was scheduled so.
    pub reason: String,
    /// How values were written.
    pub codec: Codec,
    /// Whether nobody could read them on the way.
    pub encrypted: bool,
    /// How fast it went for this member, and its own processor time.
    #[serde(flatten)]
    pub pace: RoundStats,
    /// The least time in which the link carries what a ring sends over it, headers left out; if its rate was given.
    pub bound_s: Option<f64>,
}

/// Takes part in the benchmark until its last round, with a bar on `console`. Whoever begins one hands its ticket to
/// `invite`. Blocks.
///
/// # Errors
/// [`BenchError`] if the swarm fails.
pub fn live<E: From<BenchError>>(
    plan: &LivePlan,
    console: &Console,
    invite: impl FnOnce(String) -> Result<(), E>,
) -> Result<LiveOutcome, E> {
    // The identity is for this benchmark alone.
    let dir = tempfile::tempdir().map_err(BenchError::io("make a folder for its identity"))?;
    let probe_links = !plan.settle.is_zero();
    let mut settings = Settings { data_plane: plan.data_plane, probe_links, ..Settings::new(dir.path().join("state")) };
    if !plan.listen.is_empty() {
        settings.listen.clone_from(&plan.listen);
    }
    let failed = |error| E::from(BenchError::Swarm(error));
    let swarm = match &plan.join {
        Some(ticket) => Swarm::join(&settings, ticket).map_err(failed)?,
        None => {
            let buffers = BufferSpec {
                min_peers: plan.peers as usize,
                codec: plan.codec,
                plan: plan.plan,
                ..BufferSpec::new(plan.elements)
            };
            let swarm = Swarm::found(&settings, &buffers).map_err(failed)?;
            invite(swarm.ticket().to_string())?;
            swarm
        }
    };
    let bar = super::bar(console, plan.rounds);
    let measured = measure(plan, swarm, &bar);
    bar.finish_and_clear();
    Ok(measured?)
}

fn measure(plan: &LivePlan, mut swarm: Swarm, bar: &ProgressBar) -> Result<LiveOutcome, BenchError> {
    let (elements, codec) = (swarm.manifest().parameters(), swarm.manifest().codec);
    // What numbers they are makes no difference to the time.
    let mut values = vec![0.0; elements];
    values::draw(&mut values, rand::random(), 0, 0);
    let mut values = Arc::new(values);
    let (mut times, mut peers) = (Times::default(), 1);
    bar.set_message("waiting for the others");
    let mut settled = plan.settle.is_zero().then_some(0);
    while settled.is_none_or(|step: u64| swarm.step() < step + WARM_UP + u64::from(plan.rounds)) {
        // Whether a member has settled is reduced with the rest, so that all know of all after the same step.
        let is_settled = swarm.linked_for().is_some_and(|time| time >= plan.settle);
        if settled.is_none() {
            Arc::make_mut(&mut values)[0] = f32::from(u8::from(is_settled));
        }
        let (began, cpu) = (Instant::now(), process_time());
        let reduced = swarm.all_reduce_shared(&values)?;
        let seconds = began.elapsed().as_secs_f64();
        let mean = reduced.mean();
        bar.set_position(settled.map_or(0, |step| mean.step - step));
        bar.set_message(format!("{:.1} ms", seconds * 1e3));
        peers = u32::try_from(mean.contributors).expect("invariant: members are counted by u32");
        if settled.is_some_and(|step| mean.step > step + WARM_UP) {
            times.take(seconds, (process_time() - cpu).as_secs_f64());
        }
        // A lossy codec makes less than one of one, but not as little as if one member were missing.
        if settled.is_none() && f64::from(reduced.sums()[0]) > f64::from(peers) - 0.5 {
            settled = Some(mean.step);
        }
    }
    let links = swarm.links();
    let encrypted = !links.is_open();
    match swarm.leave() {
        // All leave at the same time: of a star, the hubs may be gone first, and the others reach nobody. What was measured is there.
        Ok(()) | Err(SwarmError::LeftAlone { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let bytes = (elements * size_of::<f32>()) as u64;
    let on_the_wire = share(peers) * codec.payload_bytes(elements) as f64;
    Ok(LiveOutcome {
        peers,
        bytes,
        links: links.to_string(),
        reason: links.reason,
        codec,
        encrypted,
        pace: times.pace(peers, bytes),
        bound_s: plan.mbit.map(|mbit| on_the_wire * 8.0 / (f64::from(mbit) * 1e6)),
    })
}

impl LiveOutcome {
    /// For people.
    pub fn describe(&self) -> String {
        let Self { peers, links, codec, .. } = self;
        let RoundStats { rounds, median_s, best_s, worst_s, busbw_gbps, cpu_s } = self.pace;
        let cipher = if self.encrypted { "" } else { ", NOT encrypted" };
        let size = format::bytes(self.bytes);
        let bound = self.bound_s.map_or_else(String::new, |bound_s| {
            format!(
                "  bound     {:.1} ms for the link ({:.0} % of it reached)\n",
                bound_s * 1e3,
                bound_s / median_s * 100.0
            )
        });
        format!(
            "all-reduce of {size} among {peers} members, {codec}, {links}{cipher}\n  \
             time      {:.1} ms median of {rounds} rounds here ({:.1} to {:.1})\n  \
             links     {busbw_gbps:.3} GB/s (2(n-1)/n of the size per round, as f32)\n  \
             processor {:.1} ms per round, this member\n{bound}",
            median_s * 1e3,
            best_s * 1e3,
            worst_s * 1e3,
            cpu_s * 1e3,
        )
    }
}
