//! Disks that come back as they were when those on them were a quorum alone: they decide anew what they have decided before.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cluster::{Cluster, peer};
use crate::{Digest, Event, Lineage, PeerId, Record};

const STEPS: u64 = 100_000;

/// A disk as it was.
struct Copy {
    record: Option<Record>,
    state: Option<Digest>,
    at: (u64, Lineage),
}

impl Copy {
    fn of(cluster: &Cluster, name: PeerId) -> Self {
        let peer = &cluster.peers[&name];
        Self { record: peer.record.clone(), state: peer.state, at: (peer.step, peer.lineage) }
    }

    fn put_back(self, cluster: &mut Cluster, name: PeerId) {
        cluster.invariants.forgetful.insert(name);
        let peer = cluster.at(name);
        (peer.record, peer.state, (peer.step, peer.lineage)) = (self.record, self.state, self.at);
    }
}

/// What happens to those whose disks are set back before the others come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// They go on.
    Nothing,
    /// They die so often, and come back.
    Dies(u32),
    /// Somebody else joins them.
    Joins,
}

/// The first `founders` of `members` found a run. Their disks are copied, the others join, all die, and the first ones come back with
/// their copies before the others do. All go on from where the others were.
fn set_back(founders: u8, members: u8, before: Before, seeds: u64) {
    for seed in 0..seeds {
        let mut cluster = Cluster::new(seed, STEPS, 1);
        let all: Vec<PeerId> = (1..=members).map(peer).collect();
        let (old, intact) = all.split_at(founders.into());
        cluster.found(old[0]);
        old[1..].iter().for_each(|name| cluster.join(*name, &[old[0]]));
        let vote = |cluster: &Cluster, names: &[PeerId]| {
            let votes = |of: &PeerId| {
                let view = cluster.peers[of].machine.view();
                view.is_some_and(|view| names.iter().all(|name| view.votes(*name)))
            };
            cluster.is_formed(names) && names.iter().all(votes)
        };
        cluster.run_until(|cluster| vote(cluster, old));
        cluster.run_for(Duration::from_millis(300));
        let copies: Vec<Copy> = old.iter().map(|name| Copy::of(&cluster, *name)).collect();
        intact.iter().for_each(|name| cluster.join(*name, &[old[0]]));
        cluster.run_until(|cluster| vote(cluster, &all));
        cluster.run_for(Duration::from_secs(1));
        all.iter().for_each(|name| cluster.kill(*name));
        cluster.run_for(Duration::from_secs(2));
        let last = intact.iter().map(|name| cluster.peers[name].step).max().expect("there are some");
        let before_all = cluster.peers[&intact[0]].record.as_ref().expect("a member").view.id();
        copies.into_iter().zip(old).for_each(|(copy, name)| copy.put_back(&mut cluster, *name));
        old.iter().for_each(|name| cluster.recover(*name));
        cluster.run_until(|cluster| cluster.is_formed(old));
        if let Before::Dies(times) = before {
            for _ in 0..times {
                cluster.run_for(Duration::from_millis(200));
                cluster.run_until(|cluster| old.iter().all(|name| cluster.peers[name].state.is_some()));
                old.iter().for_each(|name| cluster.kill(*name));
                cluster.run_for(Duration::from_millis(100));
                old.iter().for_each(|name| cluster.recover(*name));
                cluster.run_until(|cluster| cluster.is_formed(old));
            }
        }
        let mut everybody = all.clone();
        if before == Before::Joins {
            let new = peer(members + 1);
            cluster.invariants.forgetful.insert(new);
            cluster.join(new, &[old[0]]);
            everybody.push(new);
            let with_it: Vec<PeerId> = old.iter().copied().chain([new]).collect();
            cluster.run_until(|cluster| cluster.is_formed(&with_it));
        }
        let beside = (last + 100).max(cluster.peers[&old[0]].step);
        cluster.run_until(|cluster| cluster.peers[&old[0]].step >= beside);
        let gap = Duration::from_millis(cluster.rng.below(4_000) as u64);
        for name in intact {
            cluster.recover(*name);
            cluster.run_for(gap);
        }
        cluster.run_until(|cluster| cluster.is_formed(&everybody));
        cluster.run_for(Duration::from_secs(1));
        // Of two the one may have decided without the other: then that has signed nothing twice.
        let told = |name: &PeerId| cluster.has_event(*name, |event| matches!(event, Event::SetBack { .. }));
        assert!(old.iter().any(told), "seed {seed}: nobody is told");
        let record = cluster.peers[&intact[0]].record.as_ref().expect("a member");
        let mut way = record.chain.iter().map(|link| link.view.id()).chain(record.view.parent);
        assert!(way.any(|view| view == before_all), "seed {seed}: they were led away");
    }
}

/// A disk that is one view old, of one that can decide alone what follows that; of the two others one alone comes back.
#[test]
fn who_was_set_back_by_one_view_alone_comes_back_to_who_needs_it() {
    for seed in 0..40 {
        let mut cluster = Cluster::new(seed, STEPS, 1);
        let all @ [old, intact, away] = [1, 2, 3].map(peer);
        cluster.found(old);
        cluster.join(intact, &[old]);
        cluster.run_until(|cluster| cluster.is_formed(&[old, intact]));
        cluster.run_for(Duration::from_millis(300));
        cluster.join(away, &[old]);
        let mut copies = BTreeMap::new();
        while !(cluster.is_formed(&all)
            && all.iter().all(|name| cluster.peers[&old].machine.view().is_some_and(|view| view.votes(*name))))
        {
            let copy = Copy::of(&cluster, old);
            copies
                .extend(copy.record.as_ref().map(|record| record.view.generation).map(|generation| (generation, copy)));
            cluster.run_for(Duration::from_millis(1));
        }
        let last = cluster.peers[&old].machine.view().expect("a member").clone();
        cluster.run_for(Duration::from_millis(300));
        all.iter().for_each(|name| cluster.kill(*name));
        cluster.run_for(Duration::from_secs(2));
        let copy = copies.into_iter().rfind(|(generation, _)| *generation < last.generation).expect("one before").1;
        copy.put_back(&mut cluster, old);
        cluster.recover(old);
        cluster.run_for(Duration::from_secs(30));
        cluster.recover(intact);
        cluster.run_until(|cluster| cluster.is_formed(&[old, intact]));
        let record = cluster.peers[&intact].record.as_ref().expect("a member");
        let mut way =
            record.chain.iter().map(|link| link.view.id()).chain([record.view.id()]).chain(record.view.parent);
        assert!(way.any(|view| view == last.id()), "seed {seed}: it was led away");
    }
}

#[test]
fn who_has_gone_on_alone_from_an_old_disk_comes_back_to_the_others() {
    set_back(1, 3, Before::Nothing, 40);
    set_back(1, 5, Before::Nothing, 20);
}

#[test]
fn no_number_of_views_makes_an_old_disk_right() {
    set_back(1, 3, Before::Dies(8), 40);
}

#[test]
fn two_old_disks_of_five_do_not_lead_the_others_away() {
    set_back(2, 5, Before::Nothing, 20);
    set_back(2, 5, Before::Dies(8), 20);
}

#[test]
fn whom_an_old_disk_has_let_in_comes_with_it() {
    set_back(1, 3, Before::Joins, 40);
}
