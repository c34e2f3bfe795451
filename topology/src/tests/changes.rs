//! Founding, joining, leaving, finishing.

use std::time::Duration;

use super::cluster::{Cluster, RUN, contact, peer};
use super::driver::Fate;
use crate::{Contact, Event, Input, Membership, PeerId, Reason, Refusal, Time};

/// A run of `names`, all of which hold the state. The first one founded it.
pub(super) fn formed(seed: u64, steps: u64, names: &[u8]) -> Cluster {
    let mut cluster = Cluster::new(seed, steps, 1);
    gather(&mut cluster, names);
    cluster
}

fn gather(cluster: &mut Cluster, names: &[u8]) {
    let mut members: Vec<PeerId> = names.iter().copied().map(peer).collect();
    cluster.found(members[0]);
    for joiner in &members[1..] {
        cluster.join(*joiner, &members[..1]);
    }
    members.sort_unstable();
    cluster.run_until(|cluster| cluster.is_formed(&members));
    cluster.run_until(|cluster| members.iter().all(|name| cluster.peers[name].state.is_some()));
}

#[test]
fn a_founder_alone_steps_and_completes() {
    let mut cluster = Cluster::new(1, 5, 1);
    cluster.found(peer(5));
    cluster.run();
    cluster.assert_complete([peer(5)]);
}

#[test]
fn a_run_begins_when_enough_are_there() {
    for seed in 0..100 {
        let names = [4, 7, 2, 9, 1];
        let mut cluster = Cluster::new(seed, 10, 5);
        gather(&mut cluster, &names);
        assert!(cluster.has_event(peer(4), |event| matches!(event, Event::Waiting { needed: 5, .. })));
        cluster.run();
        cluster.assert_complete(names.map(peer));
    }
}

#[test]
fn joiners_are_taken_in_together_and_stop_nobody() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 60, &[4, 7, 2]);
        cluster.run_for(Duration::from_secs(1));
        let asked = [4, 7, 2].map(peer);
        for name in [1, 5, 9] {
            let member = cluster.rng.pick(&asked);
            cluster.join(peer(name), &[member]);
        }
        cluster.run();
        cluster.assert_complete([1, 2, 4, 5, 7, 9].map(peer));
        let joins = |event: &Event| match event {
            Event::Changed { reasons, .. } => reasons.iter().filter(|r| matches!(r, Reason::Joined(_))).count(),
            _ => 0,
        };
        let lost = |event: &Event| matches!(event, Event::Suspected { .. } | Event::Evicted { .. });
        for name in [2, 4, 7] {
            if cluster.has_event(peer(name), lost) {
                cluster.fail("somebody was suspected");
            }
        }
        let changes = cluster.peers[&peer(4)].events.iter().filter(|event| joins(event) > 0).count();
        assert!((2..=5).contains(&changes), "seed {seed}: {changes}"); // Some of them formed the run.
    }
}

#[test]
fn members_leave_in_order_and_the_others_go_on() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 40, &[1, 2, 3, 4]);
        cluster.run_for(Duration::from_secs(1));
        let leaver = peer(1 + (seed % 4) as u8);
        cluster.leave(leaver);
        cluster.run();
        assert_eq!(cluster.peers[&leaver].fate, Fate::Ended(Event::Left), "seed {seed}");
        cluster.assert_complete([1, 2, 3, 4].map(peer).into_iter().filter(|peer| *peer != leaver));
    }
}

#[test]
fn all_leave_at_once() {
    for seed in 0..50 {
        let mut cluster = formed(seed, 1_000_000, &[1, 2, 3]);
        for name in [1, 2, 3] {
            cluster.leave(peer(name));
        }
        cluster.run();
        for name in [1, 2, 3] {
            assert_eq!(cluster.peers[&peer(name)].fate, Fate::Ended(Event::Left), "seed {seed}");
        }
    }
}

#[test]
fn a_founder_that_leaves_before_the_first_step_withdraws_the_run() {
    let mut cluster = Cluster::new(1, 5, 3);
    cluster.found(peer(5));
    cluster.leave(peer(5));
    assert_eq!(cluster.peers[&peer(5)].fate, Fate::Ended(Event::Left));
}

#[test]
fn a_view_below_its_minimum_waits_for_joiners() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(seed, 40, 3);
        cluster.found(peer(1));
        cluster.join(peer(2), &[peer(1)]);
        cluster.join(peer(3), &[peer(1)]);
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3].map(peer)));
        cluster.run_for(Duration::from_secs(1));
        cluster.kill(peer(1 + (seed % 3) as u8));
        cluster.run_for(Duration::from_secs(20));
        let living = cluster.running();
        assert_eq!(living.len(), 2);
        assert!(living.iter().all(|name| cluster.peers[name].view.is_none()), "seed {seed}: they wait");
        assert!(cluster.has_event(living[0], |event| matches!(event, Event::Waiting { present: 2, needed: 3 })));
        cluster.join(peer(9), &living);
        cluster.run();
        cluster.assert_complete(living.into_iter().chain([peer(9)]));
    }
}

#[test]
fn a_full_run_refuses_and_so_does_a_finished_one() {
    let mut cluster = Cluster::new(2, 40, 1);
    cluster.config.max_members = 2;
    cluster.found(peer(1));
    cluster.join(peer(2), &[peer(1)]);
    cluster.run_until(|cluster| cluster.is_formed(&[1, 2].map(peer)));
    cluster.join(peer(3), &[peer(2)]);
    cluster.run_until(|cluster| cluster.peers[&peer(3)].fate != Fate::Running);
    let refusal = Refusal::Full { max_members: 2 };
    assert_eq!(cluster.peers[&peer(3)].fate, Fate::Ended(Event::Refused { from: peer(2), refusal }));
    cluster.run();
    cluster.assert_complete([1, 2].map(peer));
}

#[test]
fn a_peer_that_listens_elsewhere_is_looked_for_there() {
    let elsewhere = |name| Contact { peer: peer(name), addresses: vec!["elsewhere".to_owned()] };
    let config = Cluster::new(1, 5, 1).config.clone();
    let mut joiner = Membership::join(config, RUN, contact(peer(1)), vec![contact(peer(2))], Time::ZERO);
    for name in 1..=3 {
        joiner.handle(Time::ZERO, Input::Located(elsewhere(name))).expect("no peer's fault");
    }
    // Where we are we know best, and of others we know nothing else.
    assert_eq!(joiner.contacts().cloned().collect::<Vec<_>>(), [contact(peer(1)), elsewhere(2)]);
}
