//! Which plan a run asks for, and which one a view takes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::Rank;
use crate::plan::Plan;
use crate::plan::costs::view_costs::view_costs;
use crate::plan::costs::weights::chunk_weights;
use crate::plan::estimate::Bucket;
use crate::plan::groups::GroupTable;
use crate::plan::hubs::{HubSet, MAX_HUBS};
use crate::plan::ranking::{PlanLimit, PlanReport};
use crate::view::View;
use crate::view::ring::Ring;

/// How many hubs an unsteady view takes, around whose severed pairs a ring leads. Each has a link to all others that may fail too, and a
/// lone one brings what nobody else sees.
const STEADY_HUBS: usize = 2;

/// What a run asks for. As text: `ring`, `tree`, `mesh`, `auto`, `hierarchical` or `star`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanPolicy {
    /// [`Plan::Ring`].
    #[default]
    Ring,
    /// [`Plan::Tree`].
    Tree,
    /// [`Plan::Mesh`], with chunks as large as the members' links allow, where those were measured.
    Mesh,
    /// The one that is expected to be fastest.
    Auto,
    /// [`Plan::Hierarchical`] over the sites that the costs of the links show; where they show none, a ring.
    Hierarchical,
    /// [`Plan::Star`] with one hub, the member with the fastest links: what is central in other systems, to compare with.
    Star,
}

/// A text that is no policy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is no plan; write ring, tree, mesh, auto, hierarchical or star")]
pub struct PlanPolicyError {
    /// The text.
    pub text: String,
}

/// What the members of a view take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanDecision {
    /// The plan, over ranks in the order of the view's [`Ring`].
    pub plan: Plan,
    /// How large its chunks are in proportion, one weight for each.
    pub weights: Vec<u32>,
    /// Why, for people.
    pub reason: String,
}

impl PlanPolicy {
    /// All policies.
    pub const ALL: [Self; 6] = [Self::Ring, Self::Tree, Self::Mesh, Self::Auto, Self::Hierarchical, Self::Star];

    /// The plan by which the members of `view` reduce buffers like `bucket`. A pure function of its arguments, so all
    /// members that hold one view take one plan.
    ///
    /// A plan that needs a pair of members that is severed is not taken, whatever was asked for; what is taken instead
    /// is the best of the others. Where no ring leads around the severed pairs, the view takes a star of all members that are
    /// severed from nobody, or the fastest [`MAX_HUBS`] of them. A view is only decided if there is a ring or a hub. An unsteady view
    /// takes such a star also where a ring leads around, if it has a hub, of two hubs at most.
    pub fn agree(self, view: &View, bucket: Bucket) -> PlanDecision {
        self.agree_over(&Ring::plan(view), view, bucket)
    }

    /// The same for those who have planned the view's ring already.
    pub fn agree_over(self, ring: &Ring, view: &View, bucket: Bucket) -> PlanDecision {
        let world = ring.world_size();
        let costs = view.costs().map(|_| ring.arrange(&view_costs(view)));
        let leads_around = ring.leads_around(view);
        if (!leads_around || view.is_unsteady())
            && let Some(hubs) =
                HubSet::of(ring, view, costs.as_ref(), if leads_around { STEADY_HUBS } else { MAX_HUBS })
        {
            let weights = costs.as_ref().map_or_else(|| vec![1; hubs.ranks().len()], |costs| hubs.weights(costs));
            let plan = Plan::Star(hubs);
            let reason = match leads_around {
                true => format!("{plan}, as links of its members have failed again and again"),
                false => format!("{plan}, as no ring leads around members that can't reach each other"),
            };
            return PlanDecision { plan, weights, reason };
        }
        let is_severed = |from: Rank, to: Rank| view.is_severed(ring.peer(from), ring.peer(to));
        let sites = costs.as_ref().filter(|_| self == Self::Hierarchical).and_then(GroupTable::detect);
        let asked = match (self, sites) {
            (Self::Ring, _) | (Self::Hierarchical, None) => Some(Plan::Ring),
            (Self::Tree, _) => Some(Plan::Tree),
            (Self::Mesh, _) => Some(Plan::Mesh),
            (Self::Hierarchical, Some(sites)) => Some(Plan::Hierarchical(sites)),
            (Self::Star, _) => HubSet::of(ring, view, costs.as_ref(), 1).map(Plan::Star),
            (Self::Auto, _) => None,
        };
        if let Some(plan) = asked {
            let chunks = plan.chunks(world);
            let needs = |chunk: u32| plan.route(world, Rank(chunk)).hops().any(|(from, to)| is_severed(from, to));
            if plan == Plan::Ring || view.severed().is_empty() || !(0..chunks).any(needs) {
                let weights = match &costs {
                    Some(costs) if plan == Plan::Mesh => chunk_weights(costs),
                    Some(_) | None => vec![1; chunks as usize],
                };
                let basis = if costs.is_some() {
                    "over links that were measured"
                } else {
                    "over links that nobody has measured"
                };
                let reason = match (self, &plan) {
                    (Self::Hierarchical, Plan::Ring) => format!("ring, as no sites are seen {basis}"),
                    _ => format!("{plan}, as the run asks, {basis}"),
                };
                return PlanDecision { plan, weights, reason };
            }
        }
        let costs = costs.unwrap_or_else(|| ring.arrange(&view_costs(view)));
        let choice = PlanReport::new(&costs, bucket, PlanLimit::default());
        let reason = match self {
            Self::Auto => choice.to_string(),
            Self::Ring | Self::Tree | Self::Mesh | Self::Hierarchical | Self::Star => {
                format!("{self} needs members that can't reach each other: {choice}")
            }
        };
        PlanDecision { plan: choice.plan().clone(), weights: choice.weights().to_vec(), reason }
    }
}

impl FromStr for PlanPolicy {
    type Err = PlanPolicyError;

    fn from_str(text: &str) -> Result<Self, PlanPolicyError> {
        let found = Self::ALL.into_iter().find(|policy| policy.to_string() == text.trim());
        found.ok_or_else(|| PlanPolicyError { text: text.to_owned() })
    }
}

impl fmt::Display for PlanPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Mesh => "mesh",
            Self::Auto => "auto",
            Self::Hierarchical => "hierarchical",
            Self::Star => "star",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{PeerId, RunId, WorldSize};

    const SMALL: Bucket = Bucket { bytes: 16 << 10, segment_bytes: 16 << 10 };
    const LARGE: Bucket = Bucket { bytes: 64 << 20, segment_bytes: 128 << 10 };

    fn view(members: u8) -> View {
        let peers = (1..=members).map(|name| PeerId([name; 32]));
        View::found(RunId([0; 32]), PeerId([1; 32])).succeed(peers)
    }

    #[test]
    fn a_policy_is_read_and_written_as_text() {
        for policy in PlanPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let message = "wheel".parse::<PlanPolicy>().expect_err("no plan").to_string();
        assert!(message.contains("`wheel`") && message.contains("mesh, auto, hierarchical or star"), "{message}");
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        for (policy, plan) in
            [(PlanPolicy::Ring, Plan::Ring), (PlanPolicy::Tree, Plan::Tree), (PlanPolicy::Mesh, Plan::Mesh)]
        {
            for members in 2..9 {
                let agreed = policy.agree(&view(members), LARGE);
                assert_eq!(agreed.plan, plan);
                assert_eq!(agreed.weights.len(), plan.chunks(view(members).world_size()) as usize);
            }
        }
    }

    #[test]
    fn a_star_that_is_asked_for_has_one_hub() {
        for members in 1..9 {
            let agreed = PlanPolicy::Star.agree(&view(members), LARGE);
            assert_eq!((agreed.plan.to_string(), agreed.weights), ("star {0}".to_owned(), vec![1]));
        }
    }

    #[test]
    fn where_no_ring_leads_around_all_take_a_star_of_those_who_reach_all() {
        let severed = |members: u8, pairs: &[(u8, u8)]| {
            let pairs = pairs.iter().map(|(a, b)| (PeerId([*a; 32]), PeerId([*b; 32])));
            view(members).with_severed(pairs)
        };
        for policy in PlanPolicy::ALL {
            let plan = |view: &View| policy.agree(view, SMALL).plan.to_string();
            assert_eq!(plan(&severed(3, &[(1, 2)])), "star {2}", "{policy}");
            assert_eq!(plan(&severed(4, &[(1, 3), (1, 4)])), "star {1}", "{policy}");
            assert_eq!(plan(&severed(5, &[(1, 3), (1, 4), (3, 4)])), "star {1 4}", "{policy}");
            // A ring leads around these, and all reach all there.
            for view in [severed(4, &[(1, 3)]), severed(5, &[(1, 3), (1, 4)]), view(3)] {
                assert!(policy == PlanPolicy::Star || !plan(&view).starts_with("star"), "{policy}");
            }
        }
        // Twenty-one of forty can't reach each other, and no more than sixteen of the others are hubs.
        let apart = (1..=21).flat_map(|a| (a + 1..=21).map(move |b| (a, b)));
        let large = PlanPolicy::Ring.agree(&severed(40, &apart.collect::<Vec<_>>()), LARGE);
        assert!(matches!(&large.plan, Plan::Star(hubs) if hubs.ranks().len() == MAX_HUBS), "{}", large.reason);
        assert!(large.reason.ends_with("no ring leads around members that can't reach each other"), "{}", large.reason);
    }

    #[test]
    fn an_unsteady_view_takes_a_star_of_those_whose_links_are_steady() {
        let severed = |members: u8, pairs: &[(u8, u8)]| {
            let pairs = pairs.iter().map(|(a, b)| (PeerId([*a; 32]), PeerId([*b; 32])));
            view(members).with_severed(pairs).with_unsteady(true)
        };
        for policy in PlanPolicy::ALL {
            let agreed = policy.agree(&severed(5, &[(1, 3)]), SMALL);
            assert_eq!(
                (agreed.plan.chunks(WorldSize::new(5)), agreed.weights.len()),
                (2, 2),
                "{policy}: {}",
                agreed.reason
            );
            assert!(
                agreed.reason.ends_with("as links of its members have failed again and again"),
                "{}",
                agreed.reason
            );
            let plan = |view: &View| policy.agree(view, SMALL).plan.to_string();
            assert_eq!(plan(&severed(3, &[(1, 2)])), "star {2}", "{policy}");
            // Nobody is in no pair, and a ring leads around.
            assert!(!plan(&severed(4, &[(1, 2), (3, 4)])).starts_with("star"), "{policy}");
            // Nothing has failed.
            assert!(policy == PlanPolicy::Star || !plan(&severed(4, &[])).starts_with("star"), "{policy}");
        }
    }

    #[test]
    fn auto_takes_few_hops_for_small_buffers_and_few_links_among_many() {
        assert_eq!(PlanPolicy::Auto.agree(&view(4), SMALL).plan, Plan::Mesh);
        assert_eq!(PlanPolicy::Auto.agree(&view(16), SMALL).plan, Plan::Tree);
        let large = PlanPolicy::Auto.agree(&view(16), LARGE);
        assert_eq!(large.plan, Plan::Ring);
        assert!(large.reason.starts_with("ring for 67108864 bytes: "), "{}", large.reason);
    }

    #[test]
    fn no_plan_needs_a_pair_that_is_severed() {
        for members in 4..9 {
            let whole = view(members);
            let peers = whole.members().to_vec();
            for (a, b) in (0..peers.len()).flat_map(|a| (a + 1..peers.len()).map(move |b| (a, b))) {
                let view = whole.clone().with_severed([(peers[a], peers[b])]);
                let ring = Ring::plan(&view);
                let unsteady = view.clone().with_unsteady(true);
                for (policy, view) in
                    PlanPolicy::ALL.into_iter().flat_map(|policy| [(policy, &view), (policy, &unsteady)])
                {
                    let PlanDecision { plan, reason, .. } = policy.agree(view, SMALL);
                    let world = ring.world_size();
                    for chunk in (0..plan.chunks(world)).map(Rank) {
                        for (from, to) in plan.route(world, chunk).hops() {
                            assert!(!view.is_severed(ring.peer(from), ring.peer(to)), "{policy}: {reason}");
                        }
                    }
                    let falls_back = policy == PlanPolicy::Mesh && !view.is_unsteady();
                    assert!(!falls_back || reason.starts_with("mesh needs members"), "{reason}");
                }
            }
        }
    }
}
