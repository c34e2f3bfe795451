//! A link over which nothing comes any more: of all who wait, only who should have got something over it has nobody to wait for
//! who waits itself.

use std::collections::BTreeSet;

use starling_topology::Rank;

use super::cluster::{Cluster, Order, Rng, layout_for, plans};
use crate::{Codec, Operation, Workspace};

#[test]
fn the_first_missing_segment_leads_to_the_link_that_lost_it() {
    let mut rng = Rng::new(11);
    for world in [2, 3, 5, 8] {
        for plan in plans(world) {
            let layout = layout_for(&plan, 120, world, (30, 3), false);
            for in_flight in [1, 3] {
                let fresh = || {
                    Cluster::over(&plan, Operation::AllReduce, layout.clone(), in_flight, |rank| {
                        let values = vec![rank.0 as f32; layout.elements()];
                        Workspace::new(layout.clone(), Codec::F32, values, 1.0)
                    })
                };
                let links = fresh();
                let links: Vec<(Rank, Rank)> = layout
                    .world_size()
                    .ranks()
                    .flat_map(|from| {
                        let receivers = links.executions[from.0 as usize].schedule().receivers().to_vec();
                        receivers.into_iter().map(move |to| (from, to))
                    })
                    .collect();
                for (from, to) in links {
                    let mut cluster = fresh();
                    cluster.lost = Some((from, to, rng.below(4)));
                    cluster.run(&mut rng, Order::Shuffled, 100_000);
                    let missing: Vec<Option<(u64, BTreeSet<Rank>)>> =
                        cluster.executions.iter().map(crate::Execution::missing).collect();
                    // Who is done misses nothing of this operation.
                    let place = |rank: Rank| missing[rank.0 as usize].as_ref().map_or(u64::MAX, |(place, _)| *place);
                    let owed: Vec<(Rank, Rank)> = layout
                        .world_size()
                        .ranks()
                        .flat_map(|at| {
                            let (here, from) = missing[at.0 as usize].clone().unwrap_or_default();
                            from.into_iter().filter(move |from| place(*from) > here).map(move |from| (from, at))
                        })
                        .collect();
                    let all_done = missing.iter().all(Option::is_none);
                    let expected = if all_done { vec![] } else { vec![(from, to)] };
                    assert_eq!(owed, expected, "{plan}, {world} ranks, {in_flight} in flight, {missing:?}");
                }
            }
        }
    }
}
