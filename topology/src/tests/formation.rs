//! Founding a run, waiting for enough members, finishing it.

use super::cluster::{Cluster, Fate, peer, refused};
use crate::{Digest, Event, Generation, Refusal};

#[test]
fn a_founder_alone_finishes() {
    let mut cluster = Cluster::new(0, 5, 1);
    cluster.found(peer(1));
    cluster.run();
    cluster.assert_complete([peer(1)]);
    assert_eq!(cluster.peers[&peer(1)].step, 5);
}

#[test]
fn nobody_steps_before_enough_members_are_there() {
    for size in 2..=8 {
        for seed in 0..12 {
            let mut cluster = Cluster::new(seed, 4, size);
            let founder = peer(1 + cluster.rng.below(9) as u8);
            cluster.found(founder);
            let joiners: Vec<_> = (1..=9).map(peer).filter(|name| *name != founder).take(size - 1).collect();
            for (index, joiner) in joiners.iter().enumerate() {
                for _ in 0..cluster.rng.below(30) {
                    cluster.tick();
                }
                assert_eq!(cluster.peers[&founder].step, 0, "seed {seed}: a step with {} of {size}", index + 1);
                assert!(!cluster.is_stepping(founder));
                cluster.join(*joiner, founder);
            }
            cluster.run();
            cluster.assert_complete(joiners.iter().copied().chain([founder]));
            let view = cluster.peers[&founder].machine.view().expect("a member");
            assert_eq!((view.members().len(), view.generation), (size, Generation(2)), "seed {seed}");
        }
    }
}

#[test]
fn a_founder_says_whom_it_waits_for() {
    let mut cluster = Cluster::new(3, 2, 3);
    cluster.found(peer(1));
    cluster.join(peer(2), peer(1));
    cluster.run_until(|cluster| cluster.peers[&peer(1)].events.len() == 3);
    let events = &cluster.peers[&peer(1)].events;
    let waiting = |present| Event::Waiting { present, needed: 3 };
    assert_eq!(*events, [waiting(1), Event::Joining(peer(2)), waiting(2)]);
}

#[test]
fn a_founder_that_gives_up_waiting_says_so() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(seed, 2, 4);
        cluster.found(peer(1));
        cluster.join(peer(2), peer(1));
        cluster.join(peer(3), peer(1));
        cluster.run_until(|cluster| cluster.peers[&peer(1)].events.len() == 5);
        cluster.leave(peer(1));
        cluster.run();
        assert_eq!(cluster.peers[&peer(1)].fate, Fate::Ended(Event::Left));
        for joiner in [peer(2), peer(3)] {
            assert_eq!(cluster.peers[&joiner].fate, refused(peer(1), Refusal::Withdrawn));
        }
    }
}

#[test]
fn a_full_run_refuses() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(seed, 50, 1);
        cluster.config.max_members = 2;
        cluster.found(peer(1));
        cluster.join(peer(2), peer(1));
        cluster.run_until(|cluster| cluster.is_stepping(peer(2)));
        cluster.join(peer(3), peer(2));
        cluster.run();
        assert_eq!(cluster.peers[&peer(3)].fate, refused(peer(1), Refusal::Full { max_members: 2 }));
        cluster.assert_complete([peer(1), peer(2)]);
    }
}

#[test]
fn members_that_hold_different_states_say_so() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(seed, 6, 4);
        cluster.found(peer(1));
        for name in 2..=4 {
            cluster.join(peer(name), peer(1));
        }
        cluster.run_until(|cluster| cluster.is_stepping(peer(3)) && cluster.peers[&peer(3)].step == 2);
        cluster.peers.get_mut(&peer(3)).expect("there").digest = Digest([9; 32]);
        cluster.run();
        for (name, fate) in cluster.fates() {
            let Fate::Ended(Event::Diverged { peer: other, step, ours, theirs }) = fate else {
                panic!("seed {seed}: {name:?} ended with {fate:?}")
            };
            assert_eq!(step, 6);
            assert_ne!(ours, theirs);
            assert!((name == peer(3)) != (other == peer(3)), "seed {seed}: {name:?} differs from {other:?}");
        }
    }
}

#[test]
fn a_late_joiner_is_told_that_the_run_has_finished() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(seed, 3, 2);
        cluster.found(peer(1));
        cluster.join(peer(2), peer(1));
        cluster.run_until(|cluster| cluster.peers[&peer(1)].step == 3);
        if cluster.peers[&peer(1)].fate == Fate::Running {
            cluster.join(peer(3), peer(1));
        }
        cluster.run();
        cluster.assert_complete([peer(1), peer(2)]);
        if let Some(late) = cluster.peers.get(&peer(3)) {
            let lost = matches!(late.fate, Fate::Ended(Event::Lost { peer: lost, .. }) if lost == peer(1));
            assert!(lost || late.fate == refused(peer(1), Refusal::RunFinished), "{:?}", late.fate);
        }
    }
}
