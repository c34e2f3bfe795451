//! Operations that members choose for each step: what they have chosen, and over which schedule that runs.
//!
//! What each member calls is in its slot at the end of the buffer, so in the last bucket, of which there is always an all-reduce. Who
//! calls an all-reduce brings everything at once, as if there were nothing else. All others bring the last bucket alone. Once that is
//! back they know what all have called:
//!
//! * Somebody an all-reduce: it has to come to its end, so they bring zeros to it. If others call something else, nobody uses the sums.
//! * All the same other operation: it runs over the view's links, as another try of the step.
//! * Anything else: nothing more is sent.
//!
//! So a step is complete only once all have taken part in it, whatever they call, and then all know the same.

use std::ops::Range;

use starling_collective::{self as collective, Layout, LayoutConfig, Schedule};
use starling_run::{BufferLearner, CallDecision, CallKind};
use starling_topology::plan::{self, Plan};
use starling_topology::{PeerId, Rank, Ring};

/// The operations of a view, for one of its members.
#[derive(Debug)]
pub(super) struct Operations {
    plan: Plan,
    weights: Vec<u32>,
    /// By rank.
    peers: Vec<PeerId>,
    /// Sorted.
    members: Vec<PeerId>,
}

/// What the members of a view have chosen for a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) agreed: CallDecision,
    /// Whether somebody has called an all-reduce, which is under way then.
    pub(super) is_summed: bool,
    /// Who brings something.
    contributors: Vec<PeerId>,
}

impl Operations {
    pub(super) fn new(agreed: &plan::PlanDecision, ring: &Ring) -> Self {
        let world = ring.world_size();
        let peers: Vec<PeerId> = world.ranks().map(|rank| ring.peer(rank)).collect();
        let mut members = peers.clone();
        members.sort_unstable();
        Self { plan: agreed.plan.clone(), weights: agreed.weights.clone(), peers, members }
    }

    /// How many numbers are behind what members bring.
    pub(super) fn behind(&self) -> usize {
        starling_run::BufferLayout::new(0, self.members.len()).elements()
    }

    /// What was chosen, by what is reduced of the slots.
    pub(super) fn chosen(&self, slots: &[f32]) -> Chosen {
        let told = BufferLearner::told(&self.members, slots);
        let is_summed = told.iter().any(|(_, tag)| tag.call() == Some(CallKind::AllReduce));
        let agreed = CallDecision::of(&told);
        Chosen { agreed, is_summed, contributors: told.into_iter().map(|(peer, _)| peer).collect() }
    }

    /// The part of a rank in what was chosen over `elements` elements, and where they lie; `None` if nothing more is to be done. It
    /// goes over the `links` of that rank's all-reduce. Who brings nothing has no part of the result either.
    pub(super) fn schedule(
        &self,
        chosen: &Chosen,
        elements: usize,
        config: LayoutConfig,
        links: &Schedule,
    ) -> Option<(Schedule, Layout)> {
        let world = links.world_size();
        let operation = match chosen.agreed {
            CallDecision::Nothing | CallDecision::AllReduce => return None,
            CallDecision::ReduceScatter => collective::Operation::ReduceScatter,
            CallDecision::AllGather => collective::Operation::AllGather,
            CallDecision::Broadcast(root) => {
                let root = self.peers.iter().position(|peer| *peer == root)?;
                collective::Operation::Broadcast { root: Rank(u32::try_from(root).ok()?) }
            }
        };
        let mut weights = self.weights.clone();
        if matches!(chosen.agreed, CallDecision::ReduceScatter | CallDecision::AllGather) {
            for (chunk, weight) in (0..).map(Rank).zip(&mut weights) {
                let owner = self.peers[self.plan.route(world, chunk).owner().0 as usize];
                if chosen.contributors.binary_search(&owner).is_err() {
                    *weight = 0;
                }
            }
            // In a tree two members own everything, and they may be those that bring nothing.
            if weights.iter().all(|weight| *weight == 0) {
                weights.clone_from(&self.weights);
            }
        }
        let layout = Layout::by_plan(elements, &self.plan, world, config, &weights);
        Some((Schedule::new(&self.plan, world, operation, links.rank()).over_links_of(links), layout))
    }
}

/// The elements that the schedule's rank owns, ascending.
pub(super) fn owned(schedule: &Schedule, layout: &Layout) -> Vec<Range<usize>> {
    let chunks = || (0..schedule.chunks()).map(Rank).filter(|chunk| schedule.owns(*chunk));
    let ranges = (0..layout.buckets()).flat_map(|bucket| chunks().map(move |chunk| layout.chunk(bucket, chunk)));
    ranges.filter(|range| !range.is_empty()).collect()
}
