//! Numbers beyond what a run allows: who sends them is named, and nobody else, whatever the plan and the codec.

use starling_topology::plan::Plan;
use starling_topology::{Rank, WorldSize};

use super::cluster::{Cluster, Order, Rng, layout_for, plans};
use crate::{Codec, Layout, Operation, PayloadViolation, SumLimit, Violation, Workspace};

const BOUND: f32 = 1024.0;

/// Reduces what `contribution` says each rank brings to all elements, with these limits, and returns who is named.
fn named(
    plan: &Plan,
    layout: &Layout,
    codec: Codec,
    rng: &mut Rng,
    contribution: impl Fn(Rank) -> f32,
) -> Vec<(Rank, Violation)> {
    let world = layout.world_size();
    let limits = SumLimit::new(BOUND, codec, world.get());
    let mut cluster = Cluster::over(plan, Operation::AllReduce, layout.clone(), 2, |rank| {
        let values = vec![contribution(rank); layout.elements()];
        Workspace::new(layout.clone(), codec, values, world.get() as f32).within(limits.clone())
    });
    cluster.blamed = Some(Vec::new());
    cluster.run(rng, Order::Fifo, 100_000);
    let blamed = cluster.blamed.take().expect("kept");
    if blamed.is_empty() {
        cluster.assert_done();
        assert!(cluster.buffers().all(|buffer| buffer.is_finite()));
    }
    blamed
}

fn all(mut check: impl FnMut(&Plan, &Layout, Codec)) {
    for world in [2, 3, 5, 8] {
        for plan in plans(world) {
            let layout = layout_for(&plan, 40, world, (16, 3), false);
            Codec::ALL.into_iter().for_each(|codec| check(&plan, &layout, codec));
        }
    }
}

#[test]
fn who_brings_as_much_as_is_allowed_is_never_named_and_sums_stay_finite() {
    let mut rng = Rng::new(5);
    all(|plan, layout, codec| {
        for sign in [1.0, -1.0] {
            let blamed = named(plan, layout, codec, &mut rng, |_| sign * BOUND);
            assert_eq!(blamed, [], "{plan}, {codec}");
        }
    });
}

#[test]
fn who_brings_more_is_named_by_whoever_gets_it_first() {
    let mut rng = Rng::new(6);
    all(|plan, layout, codec| {
        for culprit in layout.world_size().ranks() {
            for times in [1.3, 30.0, 1e30] {
                if codec == Codec::F16 && times > 60.0 {
                    continue; // It can't be written.
                }
                // What the only hub brings reaches nobody but in the mean.
                let owns_all = matches!(plan, Plan::Star(hubs) if hubs.ranks() == [culprit]);
                if owns_all && times < f32::from(u8::MAX) {
                    continue;
                }
                // The others bring as much as they may.
                let bring = |rank: Rank| if rank == culprit { BOUND * times } else { BOUND };
                let blamed = named(plan, layout, codec, &mut rng, bring);
                let (first, violation) = *blamed.first().expect("noticed");
                assert_eq!(first, culprit, "{plan}, {codec}, {times}: {violation}");
                let is_beyond = matches!(violation, Violation::BadSegment(bad)
                    if matches!(bad.source, PayloadViolation::Beyond { .. } | PayloadViolation::NonFinite(_)));
                assert!(is_beyond, "{violation}");
            }
        }
    });
}

/// Without limits, two numbers that are finite have a sum that is not, and whoever added them would be to blame.
#[test]
fn two_that_overflow_together_do_not_get_that_far() {
    let layout = layout_for(&Plan::Mesh, 9, 3, (9, 9), false);
    let mut rng = Rng::new(7);
    let bring = |rank: Rank| if rank == Rank(1) { 0.0 } else { f32::MAX };
    for codec in [Codec::F32, Codec::Bf16, Codec::Int8] {
        let blamed = named(&Plan::Mesh, &layout, codec, &mut rng, bring);
        assert!(!blamed.is_empty() && blamed.iter().all(|(rank, _)| *rank != Rank(1)), "{blamed:?}");
    }
    assert_eq!(layout.world_size(), WorldSize::new(3));
}
