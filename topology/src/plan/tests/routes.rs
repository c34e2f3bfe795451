//! Every plan's trees reach everybody, once.

use std::collections::BTreeSet;

use super::two_sites;
use crate::id::{Rank, WorldSize};
use crate::plan::{GroupTable, HubSet, MAX_HUBS, Plan};

/// All plans for a world, with several ways to group it.
fn plans(world: WorldSize) -> Vec<Plan> {
    let grouped = |groups: u32| {
        let labels: Vec<u32> = world.ranks().map(|rank| rank.0 * rank.0 % groups).collect();
        Plan::Hierarchical(GroupTable::from_labels(&labels))
    };
    // One hub, every third one, and as many as there may be.
    let star = |every: usize| {
        let last = world.get() as usize - 1;
        let hubs = (last % every..=last).step_by(every).take(MAX_HUBS).map(|rank| Rank(rank as u32));
        Plan::Star(HubSet::new(world, hubs.collect()).expect("hubs that can be"))
    };
    let plain = [Plan::Ring, Plan::Tree, Plan::Mesh].into_iter();
    plain.chain([1, 2, 3, 5, 97].map(grouped)).chain([1, 3, 64].map(star)).collect()
}

#[test]
fn every_rank_contributes_to_every_chunk_once_and_gets_it_once() {
    for world in (1..=24).map(WorldSize::new) {
        for plan in plans(world) {
            for chunk in (0..plan.chunks(world)).map(Rank) {
                let route = plan.route(world, chunk);
                let mut heard: Vec<Rank> = world.ranks().flat_map(|rank| route.contributors(rank)).collect();
                let mut told: Vec<Rank> = world.ranks().flat_map(|rank| route.receivers(rank)).collect();
                heard.sort_unstable();
                told.sort_unstable();
                let others: Vec<Rank> = world.ranks().filter(|rank| *rank != route.owner()).collect();
                assert_eq!((&heard, &told), (&others, &others), "{plan} of {world:?}");
                assert_eq!(route.hops().count(), 2 * others.len());
            }
        }
    }
}

#[test]
fn a_broadcast_goes_from_its_root_to_everybody() {
    for world in (1..=16).map(WorldSize::new) {
        for plan in plans(world) {
            let routes = (0..plan.chunks(world)).map(|chunk| plan.route(world, Rank(chunk)));
            let links: BTreeSet<(Rank, Rank)> = routes.flat_map(|route| route.hops().collect::<Vec<_>>()).collect();
            for root in world.ranks() {
                let mut sent = 0;
                for chunk in (0..plan.chunks(world)).map(Rank) {
                    let route = plan.broadcast(world, root, chunk);
                    assert_eq!(route.owner(), root);
                    let mut told: Vec<Rank> = world.ranks().flat_map(|rank| route.receivers(rank)).collect();
                    told.sort_unstable();
                    assert!(told.into_iter().eq(world.ranks().filter(|rank| *rank != root)), "{plan} of {world:?}");
                    sent += route.receivers(root).len();
                    let taken = |from: Rank| route.receivers(from).into_iter().map(move |to| (from, to));
                    assert!(world.ranks().flat_map(taken).all(|link| links.contains(&link)), "{plan} of {world:?}");
                }
                // The root sends each chunk once, besides the chunks that it owns and so must send itself.
                if plan == Plan::Mesh {
                    assert_eq!(sent as u32, 2 * (world.get() - 1));
                }
            }
        }
    }
}

#[test]
fn owners_share_the_work() {
    for world in (1..=24).map(WorldSize::new) {
        for plan in plans(world) {
            let mut owners: Vec<Rank> =
                (0..plan.chunks(world)).map(|chunk| plan.route(world, Rank(chunk)).owner()).collect();
            owners.sort_unstable();
            owners.dedup();
            assert_eq!(owners.len() as u32, plan.chunks(world), "{plan} of {world:?}");
        }
    }
}

#[test]
fn a_star_needs_links_of_its_hubs_alone() {
    for world in (1..=24).map(WorldSize::new) {
        for plan in plans(world) {
            let Plan::Star(hubs) = &plan else { continue };
            assert_eq!(hubs.count(), plan.chunks(world));
            let is_hub = |rank: &Rank| hubs.ranks().contains(rank);
            for (chunk, hub) in (0..).map(Rank).zip(hubs.ranks()) {
                let route = plan.route(world, chunk);
                assert_eq!(route.owner(), *hub, "{plan} of {world:?}");
                assert!(route.is_direct() && route.hops().all(|(from, to)| is_hub(&from) || is_hub(&to)));
                for root in world.ranks() {
                    let route = plan.broadcast(world, root, chunk);
                    assert!(route.hops().all(|(from, to)| is_hub(&from) || is_hub(&to)), "{plan} of {world:?}");
                }
            }
        }
    }
}

#[test]
fn a_hierarchy_crosses_between_two_sites_once_each_way() {
    let costs = two_sites(6);
    let groups = GroupTable::detect(&costs).expect("two sites");
    let world = costs.world_size();
    let plan = Plan::Hierarchical(groups.clone());
    for chunk in world.ranks() {
        let crosses = |(from, to): &(Rank, Rank)| groups.place(*from).0 != groups.place(*to).0;
        let crossings: Vec<(usize, usize)> = plan
            .route(world, chunk)
            .hops()
            .filter(crosses)
            .map(|(from, to)| (groups.place(from).0, groups.place(to).0))
            .collect();
        let home = groups.place(chunk).0;
        assert_eq!(crossings, [(1 - home, home), (home, 1 - home)]);
    }
}
