//! Which plan to take, and why.

use std::fmt;

use crate::id::Rank;
use crate::plan::Plan;
use crate::plan::costs::link_costs::{CostTable, NEVER_NS};
use crate::plan::costs::weights::{WEIGHT_TOTAL, chunk_weights};
use crate::plan::estimate::{Bucket, Estimate};
use crate::plan::groups::GroupTable;
use crate::plan::hubs::{HubSet, MAX_HUBS};

/// What members agree not to exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimit {
    /// With how many others one rank exchanges segments.
    pub links: u32,
}

impl Default for PlanLimit {
    /// As many links as a rank of two binary trees can need. Each costs a handshake per view, buffers, and on a home
    /// connection a hole through a router.
    fn default() -> Self {
        Self { links: 6 }
    }
}

/// A plan that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedPlan {
    /// The plan.
    pub plan: Plan,
    /// How large its chunks are in proportion, one weight for each.
    pub weights: Vec<u32>,
    /// What it would cost.
    pub estimate: Estimate,
}

/// The best of several plans for one bucket. It says why: `{}` is one line, `{:#}` has one more for each other plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanReport {
    bucket: Bucket,
    limits: PlanLimit,
    /// Those that can be taken, the best first, then those that can't.
    candidates: Vec<RankedPlan>,
}

impl PlanReport {
    /// Looks at all plans for an all-reduce of `bucket`. `costs` are by rank, so in ring order.
    ///
    /// The least expected time wins; among equals the one named first of ring, tree, hierarchical and mesh, which is the
    /// one with fewer links. A ring is never ruled out, so there is always a choice, if no good one where links are down. Where
    /// the ring needs a link that is down, a star is looked at too, if there is a hub for it; nowhere else, as a mesh among
    /// all is never slower.
    pub fn new(costs: &CostTable, bucket: Bucket, limits: PlanLimit) -> Self {
        let sites = GroupTable::detect(costs);
        let world = costs.world_size();
        let is_up = |rank: Rank| world.get() == 1 || costs.link(rank, world.next(rank)).is_up();
        let star = if world.ranks().all(is_up) { None } else { HubSet::detect(costs, MAX_HUBS).map(Plan::Star) };
        let sited = sites.clone().map(Plan::Hierarchical);
        let plans = [Some(Plan::Ring), Some(Plan::Tree), sited, Some(Plan::Mesh), star];
        let look = |plan: Plan| {
            let equal = || vec![1; plan.chunks(world) as usize];
            let weights = match &plan {
                Plan::Mesh => chunk_weights(costs),
                Plan::Star(hubs) => hubs.weights(costs),
                Plan::Ring | Plan::Tree | Plan::Hierarchical(_) => equal(),
            };
            let estimate = Estimate::new(costs, sites.as_ref(), &plan, &weights, bucket);
            RankedPlan { plan, weights, estimate }
        };
        let mut candidates: Vec<RankedPlan> = plans.into_iter().flatten().map(look).collect();
        // Stable, so equals keep the order of `plans`.
        let is_down = |one: &RankedPlan| one.estimate.total_ns() >= NEVER_NS;
        candidates.sort_by_key(|one| (is_down(one), !is_allowed(one, limits), one.estimate.total_ns()));
        Self { bucket, limits, candidates }
    }

    /// The plan to take.
    pub fn plan(&self) -> &Plan {
        &self.best().plan
    }

    /// How large its chunks are in proportion.
    pub fn weights(&self) -> &[u32] {
        &self.best().weights
    }

    /// What it is expected to cost.
    pub fn estimate(&self) -> &Estimate {
        &self.best().estimate
    }

    /// All plans that were looked at, the best first.
    pub fn candidates(&self) -> &[RankedPlan] {
        &self.candidates
    }

    fn best(&self) -> &RankedPlan {
        self.candidates.first().expect("invariant: a ring is always looked at")
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, best) = (self.bucket.bytes, self.best());
        write!(f, "{} for {bytes} bytes: {}", best.plan, Reason(best))?;
        if let Some(next) = self.candidates.get(1) {
            let how = if is_allowed(next, self.limits) { "next best" } else { "ruled out" };
            write!(f, "; {how}: {}, {}", next.plan, Reason(next))?;
        }
        if f.alternate() {
            for other in &self.candidates {
                write!(f, "\n  {:<12} {}", other.plan.to_string(), Reason(other))?;
                if !is_allowed(other, self.limits) {
                    write!(f, " (no rank may have more than {} links)", self.limits.links)?;
                }
            }
        }
        Ok(())
    }
}

fn is_allowed(candidate: &RankedPlan, limits: PlanLimit) -> bool {
    matches!(candidate.plan, Plan::Ring | Plan::Star(_)) || candidate.estimate.links <= limits.links
}

struct Reason<'a>(&'a RankedPlan);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate { latency_ns, transfer_ns, hops, links, busiest_bytes } = self.0.estimate;
        if self.0.estimate.total_ns() >= NEVER_NS {
            return f.write_str("needs a link that is down");
        }
        write!(f, "{} (", Millis(self.0.estimate.total_ns()))?;
        write!(f, "{} over {hops} hops, {} for the busiest link; ", Millis(latency_ns), Millis(transfer_ns))?;
        write!(f, "at most {links} links and {busiest_bytes} bytes sent per rank")?;
        let (least, most) = (self.0.weights.iter().min(), self.0.weights.iter().max());
        if let (Some(least), Some(most)) = (least, most)
            && most - least > 1
        {
            let percent = |weight: u32| u64::from(weight) * 100 / u64::from(WEIGHT_TOTAL);
            write!(f, ", which own {} to {} %", percent(*least), percent(*most))?;
        }
        f.write_str(")")
    }
}

struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.div_ceil(1_000);
        write!(f, "{}.{:03} ms", micros / 1_000, micros % 1_000)
    }
}
