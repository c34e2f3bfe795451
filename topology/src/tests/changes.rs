//! Joins and leaves, alone and on top of each other, before and between steps.

use super::cluster::{Cluster, Fate, peer, refused};
use crate::{Event, PeerId, Refusal};

/// A run of `names`, the first one its founder, that is stepping.
fn formed(seed: u64, steps: u64, names: &[u8]) -> Cluster {
    let mut cluster = Cluster::new(seed, steps, names.len());
    cluster.found(peer(names[0]));
    for name in &names[1..] {
        cluster.join(peer(*name), peer(names[0]));
    }
    // Beyond the first step, so that every joiner has something to load.
    cluster.run_until(|cluster| names.iter().all(|name| cluster.peers[&peer(*name)].step > 0));
    cluster
}

fn ticks(cluster: &mut Cluster, most: usize) {
    for _ in 0..cluster.rng.below(most) {
        cluster.tick();
    }
}

#[test]
fn several_join_at_once_between_steps() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 12, &[5, 6, 9]);
        ticks(&mut cluster, 60);
        // One below the proposer, one between, one above; each asks anyone, most are sent to the proposer.
        for name in [2, 7, 12] {
            let asked = [peer(5), peer(6), peer(9)][cluster.rng.below(3)];
            if cluster.peers[&asked].fate == Fate::Running && cluster.peers[&asked].step < 6 {
                cluster.join(peer(name), asked);
            }
            ticks(&mut cluster, 20);
        }
        cluster.run();
        let everyone: Vec<PeerId> = cluster.peers.keys().copied().collect();
        cluster.assert_complete(everyone);
    }
}

#[test]
fn a_joiner_below_the_proposer_proposes_next() {
    for seed in 0..50 {
        let mut cluster = formed(seed, 400, &[5, 6]);
        cluster.join(peer(1), peer(6));
        cluster.run_until(|cluster| cluster.members(peer(6)).contains(&peer(1)));
        let mut proposer = cluster.peers[&peer(6)].machine.view().expect("a member").proposer();
        assert_eq!(proposer, peer(1));
        cluster.join(peer(8), peer(5));
        cluster.run_until(|cluster| cluster.members(peer(5)).contains(&peer(8)));
        proposer = cluster.peers[&peer(5)].machine.view().expect("a member").proposer();
        assert_eq!(proposer, peer(1));
        assert!(cluster.peers[&peer(1)].events.contains(&Event::Joining(peer(8))), "the new proposer was asked");
        cluster.run();
        cluster.assert_complete([1, 5, 6, 8].map(peer));
    }
}

#[test]
fn members_leave_in_order() {
    for seed in 0..30 {
        for leavers in [&[2][..], &[1], &[1, 2], &[2, 3], &[1, 2, 3]] {
            let mut cluster = formed(seed, 200, &[1, 2, 3, 4]);
            ticks(&mut cluster, 60);
            for leaver in leavers {
                cluster.leave(peer(*leaver));
                ticks(&mut cluster, 15);
            }
            cluster.run();
            for (name, fate) in cluster.fates() {
                if leavers.iter().any(|leaver| peer(*leaver) == name) {
                    assert_eq!(fate, Fate::Ended(Event::Left), "seed {seed}, leaving {leavers:?}: {name:?}");
                } else {
                    cluster.assert_complete([name]);
                }
            }
        }
    }
}

#[test]
fn all_leave() {
    for seed in 0..60 {
        let mut cluster = formed(seed, 1_000, &[4, 1, 3, 2]);
        let mut names: Vec<u8> = (1..=4).collect();
        while !names.is_empty() {
            let name = names.remove(cluster.rng.below(names.len()));
            ticks(&mut cluster, 25);
            cluster.leave(peer(name));
        }
        cluster.run();
        for (name, fate) in cluster.fates() {
            assert_eq!(fate, Fate::Ended(Event::Left), "seed {seed}: {name:?}");
        }
    }
}

#[test]
fn a_proposer_hands_over_to_those_that_queue() {
    for seed in 0..60 {
        let mut cluster = formed(seed, 300, &[1]);
        for name in [3, 4] {
            cluster.join(peer(name), peer(1));
            ticks(&mut cluster, 6);
        }
        cluster.leave(peer(1));
        ticks(&mut cluster, 6);
        if cluster.peers[&peer(1)].fate == Fate::Running {
            cluster.join(peer(5), peer(1));
        }
        cluster.run();
        assert_eq!(cluster.peers[&peer(1)].fate, Fate::Ended(Event::Left), "seed {seed}");
        let mut complete = 0;
        for name in [3, 4, 5] {
            match cluster.peers.get(&peer(name)).map(|peer| peer.fate) {
                None => {}
                // It asked a peer that was about to go.
                Some(Fate::Ended(Event::Lost { peer: asked, .. })) => assert_eq!(asked, peer(1)),
                Some(_) => {
                    cluster.assert_complete([peer(name)]);
                    complete += 1;
                }
            }
        }
        let asked = cluster.peers[&peer(1)].events.iter().any(|event| matches!(event, Event::Joining(_)));
        assert!(complete > 0 || !asked, "seed {seed}: those that asked in time go on");
    }
}

#[test]
fn a_joiner_that_dies_half_way_costs_nobody_a_step() {
    for seed in 0..100 {
        let names: &[u8] = if seed % 2 == 0 { &[5] } else { &[5, 6, 7] };
        let mut cluster = formed(seed, 60, names);
        cluster.join(peer(3), peer(names[names.len() - 1]));
        cluster.join(peer(8), peer(5));
        let victim = if seed % 4 < 2 { peer(3) } else { peer(8) };
        cluster.peers.get_mut(&victim).expect("it joins").stalls = true;
        // Its state is never there, so it can die, or hang, before it accepts.
        cluster.run_until(|cluster| cluster.is_fetching(victim));
        ticks(&mut cluster, 40);
        if seed % 3 == 0 {
            cluster.hang(victim)
        } else {
            cluster.kill(victim)
        }
        cluster.run();
        for (name, fate) in cluster.fates() {
            if name == victim {
                assert!(matches!(fate, Fate::Killed | Fate::Hung));
            } else {
                cluster.assert_complete([name]);
            }
        }
        let told = |events: &[Event]| events.contains(&Event::JoinerLost(victim));
        assert!(cluster.peers.values().any(|peer| told(&peer.events)), "seed {seed}");
        assert!(!cluster.members(peer(5)).contains(&victim));
    }
}

#[test]
fn a_joiner_that_is_restarted_is_offered_the_view_again() {
    for seed in 0..40 {
        let mut cluster = formed(seed, 60, &[5, 6]);
        cluster.join(peer(3), peer(5));
        cluster.peers.get_mut(&peer(3)).expect("it joins").stalls = true;
        cluster.run_until(|cluster| cluster.is_fetching(peer(3)));
        // The new process asks before anybody has noticed that the old one is gone.
        cluster.peers.remove(&peer(3));
        cluster.join(peer(3), peer(5));
        cluster.run();
        cluster.assert_complete([3, 5, 6].map(peer));
    }
}

#[test]
fn a_joiner_that_never_accepts_is_left_out_after_the_limit() {
    for seed in 0..60 {
        let names: &[u8] = if seed % 2 == 0 { &[5] } else { &[5, 6, 7] };
        let mut cluster = formed(seed, 60, names);
        let (slow, quick) = (if seed % 4 < 2 { peer(3) } else { peer(8) }, peer(9));
        cluster.join_stalling(slow, peer(5));
        cluster.run_until(|cluster| cluster.is_fetching(slow));
        let stands_still = cluster.now;
        // It queues behind the one that is slow.
        cluster.join(quick, peer(5));
        cluster.run_until(|cluster| cluster.peers[&slow].fate != Fate::Running);
        let limit = cluster.config.join_limit();
        let limit_ms = limit.as_millis() as u64;
        assert_eq!(cluster.peers[&slow].fate, refused(peer(5), Refusal::TooSlow { limit_ms }), "seed {seed}");
        let stood_still = cluster.now - stands_still;
        assert!(stood_still <= limit, "seed {seed}: {stood_still:?}");
        cluster.run();
        cluster.assert_complete(names.iter().copied().map(peer).chain([quick]));
        for name in names {
            assert!(!cluster.members(peer(*name)).contains(&slow));
            let told = cluster.peers[&peer(*name)].events.contains(&Event::JoinerLost(slow));
            assert_eq!(told, *name == 5, "seed {seed}: {name} is told of {slow:?}");
        }
    }
}

#[test]
fn a_founder_whose_joiner_is_too_slow_waits_for_another() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(seed, 5, 3);
        cluster.found(peer(5));
        cluster.join(peer(6), peer(5));
        cluster.join_stalling(peer(7), peer(5));
        cluster.run_until(|cluster| cluster.peers[&peer(7)].fate != Fate::Running);
        let limit_ms = cluster.config.join_limit().as_millis() as u64;
        assert_eq!(cluster.peers[&peer(7)].fate, refused(peer(5), Refusal::TooSlow { limit_ms }));
        assert!(!cluster.is_stepping(peer(5)) && !cluster.is_stepping(peer(6)));
        assert_eq!(cluster.peers[&peer(5)].events.last(), Some(&Event::Waiting { present: 2, needed: 3 }));
        cluster.join(peer(8), peer(5));
        cluster.run();
        cluster.assert_complete([5, 6, 8].map(peer));
    }
}

#[test]
fn who_is_a_member_already_is_refused() {
    let mut cluster = formed(1, 60, &[5, 6]);
    cluster.peers.remove(&peer(6));
    cluster.join(peer(6), peer(5));
    cluster.run_until(|cluster| cluster.peers[&peer(6)].fate != Fate::Running);
    assert_eq!(cluster.peers[&peer(6)].fate, refused(peer(5), Refusal::AlreadyMember));
}

#[test]
fn any_mixture_of_changes_ends_well() {
    for seed in 0..150 {
        let mut cluster = formed(seed, 150, &[10, 20, 30]);
        let (mut names, mut left): (Vec<u8>, Vec<PeerId>) = ((1..=40).collect(), Vec::new());
        for _ in 0..cluster.rng.below(12) {
            ticks(&mut cluster, 50);
            let members = cluster.live_members();
            if members.len() < 2 {
                break;
            }
            let member = cluster.rng.pick(&members);
            if cluster.rng.below(3) == 0 {
                cluster.leave(member);
                left.push(member);
            } else {
                let joiner = peer(names.remove(cluster.rng.below(names.len())));
                if !cluster.peers.contains_key(&joiner) {
                    cluster.join(joiner, member);
                }
            }
        }
        cluster.run();
        for (name, fate) in cluster.fates() {
            match fate {
                Fate::Ended(Event::Left) => assert!(left.contains(&name), "seed {seed}: {name:?} did not leave"),
                // It asked a member that went before it could answer, or that had finished.
                Fate::Ended(Event::Lost { peer: asked, .. }) => {
                    assert!(cluster.peers[&name].machine.view().is_none(), "seed {seed}: {name:?} lost {asked:?}");
                }
                Fate::Ended(Event::Refused { refusal, .. }) => assert_eq!(refusal, Refusal::RunFinished),
                Fate::Ended(_) | Fate::Running | Fate::Killed | Fate::Hung => cluster.assert_complete([name]),
            }
        }
    }
}
