//! All plans on the same buffers.

use serde::Serialize;
use starling::parts::PlanPolicy;
use starling_topology::plan::{HubSet, Plan, loads};
use starling_topology::{Rank, WorldSize};

use super::outcome::Outcome;
use super::{BenchError, Plan as BenchPlan, all_reduce};
use crate::output::{Console, Gauge, format, table};

/// What one plan came to. Sizes are in bytes, times in seconds.
#[derive(Debug, Clone, Serialize)]
pub struct PlanOutcome {
    /// The plan.
    pub plan: String,
    /// The median round.
    pub median_s: f64,
    /// By how much longer that is than a ring's.
    pub ratio: f64,
    /// Processor time per round, all members; the median.
    pub cpu_s: f64,
    /// What the member that sends most sends in a round, as the values are written.
    pub most_sent: u64,
    /// What all send together.
    pub all_sent: u64,
    /// Links that carry something, each way counted.
    pub links: usize,
}

/// What `starling bench topologies` prints.
#[derive(Debug, Clone, Serialize)]
pub struct TopologiesOutcome {
    /// How many members reduced.
    pub peers: u32,
    /// What each member brought.
    pub bytes: u64,
    /// How the bytes travelled.
    pub transport: starling::Transport,
    /// The ring first.
    pub plans: Vec<PlanOutcome>,
}

/// Runs the benchmark once for each plan that a machine without sites has.
///
/// # Errors
/// As [`all_reduce`].
pub async fn topologies(plan: &BenchPlan, console: &Console) -> Result<TopologiesOutcome, BenchError> {
    let world = WorldSize::new(plan.peers);
    let hub = HubSet::new(world, vec![Rank(0)]).expect("invariant: one of several ranks is a hub");
    let (mut plans, mut transport) = (Vec::<PlanOutcome>::new(), starling::Transport::Universal);
    for (policy, taken) in [
        (PlanPolicy::Ring, Plan::Ring),
        (PlanPolicy::Tree, Plan::Tree),
        (PlanPolicy::Mesh, Plan::Mesh),
        (PlanPolicy::Star, Plan::Star(hub)),
    ] {
        let mut each = plan.clone();
        each.reduction.plan = policy;
        let outcome: Outcome = all_reduce(&each, console).await?;
        transport = outcome.transport;
        let wire = plan.reduction.codec.payload_bytes(plan.reduction.elements) as u64;
        let sent = loads(&taken, world, &vec![1; taken.chunks(world) as usize], wire);
        let by = |rank: Rank| sent.iter().filter(|((from, _), _)| *from == rank).map(|(_, bytes)| bytes).sum::<u64>();
        let first = plans.first().map_or(outcome.pace.median_s, |ring| ring.median_s);
        plans.push(PlanOutcome {
            plan: outcome.plan,
            median_s: outcome.pace.median_s,
            ratio: outcome.pace.median_s / first,
            cpu_s: outcome.pace.cpu_s,
            most_sent: world.ranks().map(by).max().unwrap_or_default(),
            all_sent: sent.values().sum(),
            links: sent.len(),
        });
    }
    Ok(TopologiesOutcome { peers: plan.peers, bytes: plan.bytes(), transport, plans })
}

impl TopologiesOutcome {
    /// For people.
    pub fn describe(&self) -> String {
        let row = |plan: &PlanOutcome| {
            [
                plan.plan.clone(),
                format!("{:.1}", plan.median_s * 1e3),
                format!("{:.2}", plan.ratio),
                format!("{:.1}", plan.cpu_s * 1e3),
                format::bytes(plan.most_sent),
                format::bytes(plan.all_sent),
                plan.links.to_string(),
            ]
        };
        let head = ["plan", "median ms", "of ring", "cpu ms", "most sends", "all send", "links"];
        let rows = table(head, self.plans.iter().map(row).collect(), &[0], Gauge::is_ascii());
        format!(
            "all-reduce of {} among {} members, {}\n{rows}\n",
            format::bytes(self.bytes),
            self.peers,
            self.transport
        )
    }
}
