//! A member that is lost ends the run for all, by name.

use super::cluster::{Cluster, Fate, peer};
use crate::{Digest, Event, Evidence, Input, PeerId};

fn formed(seed: u64, size: u8) -> Cluster {
    let mut cluster = Cluster::new(seed, 1_000, usize::from(size));
    cluster.found(peer(10));
    for name in 1..size {
        cluster.join(peer(10 + name), peer(10));
    }
    // Beyond the first step, so that every joiner has something to load.
    cluster.run_until(|cluster| (0..size).all(|name| cluster.peers[&peer(10 + name)].step > 0));
    cluster
}

#[track_caller]
fn assert_all_name(cluster: &Cluster, victim: PeerId, members: &[PeerId]) {
    for (name, peer) in &cluster.peers {
        let member = members.contains(name);
        match peer.fate {
            Fate::Killed | Fate::Hung => assert_eq!(*name, victim),
            Fate::Ended(Event::Lost { peer, .. }) if member => {
                // One that was entering may be seen to go before it could speak as a member.
                let right = peer == victim || !members.contains(&peer);
                assert!(right, "seed {}: {name:?} names {peer:?}, not {victim:?}", cluster.seed);
            }
            // One that entered only then may name whom it knew.
            Fate::Ended(Event::Lost { .. }) => {}
            Fate::Ended(_) | Fate::Running => panic!("seed {}: {name:?} ended with {:?}", cluster.seed, peer.fate),
        }
    }
}

#[test]
fn a_closed_connection_ends_the_run_for_all() {
    for seed in 0..100 {
        let size = 2 + (seed % 6) as u8;
        let mut cluster = formed(seed, size);
        for _ in 0..cluster.rng.below(100) {
            cluster.tick();
        }
        let victim = peer(10 + cluster.rng.below(usize::from(size)) as u8);
        let members = cluster.live_members();
        cluster.kill(victim);
        cluster.run();
        assert_all_name(&cluster, victim, &members);
    }
}

#[test]
fn a_member_lost_during_a_change_ends_the_run_for_all() {
    for seed in 0..200 {
        let size = 2 + (seed % 4) as u8;
        let mut cluster = formed(seed, size);
        let founder = peer(10);
        cluster.join(peer(3), founder);
        cluster.join(peer(30), founder);
        for _ in 0..cluster.rng.below(120) {
            cluster.tick();
        }
        let victim = peer(10 + cluster.rng.below(usize::from(size)) as u8);
        let members = cluster.live_members();
        cluster.kill(victim);
        cluster.run();
        assert_all_name(&cluster, victim, &members);
    }
}

#[test]
fn silence_ends_the_run_for_all_within_the_longest_stall() {
    for seed in 0..50 {
        let size = 2 + (seed % 6) as u8;
        let mut cluster = formed(seed, size);
        for _ in 0..cluster.rng.below(100) {
            cluster.tick();
        }
        let victim = peer(10 + cluster.rng.below(usize::from(size)) as u8);
        let hung = cluster.now;
        let members = cluster.live_members();
        cluster.hang(victim);
        cluster.run();
        assert_all_name(&cluster, victim, &members);
        assert!(cluster.now - hung <= cluster.config.max_stall, "seed {seed}: took {:?}", cluster.now - hung);
        let silent = |event: &Event| matches!(event, Event::Lost { evidence: Evidence::Silent(_), .. });
        assert!(cluster.peers.values().any(|peer| peer.events.iter().any(silent)));
    }
}

#[test]
fn one_that_has_finished_and_gone_does_not_hide_one_that_hangs() {
    let mut cluster = Cluster::new(5, 3, 3);
    cluster.found(peer(10));
    cluster.join(peer(11), peer(10));
    cluster.join(peer(12), peer(10));
    cluster.run_until(|cluster| cluster.is_stepping(peer(10)));
    let finished = |cluster: &Cluster, name| cluster.peers[&peer(name)].step == 3;
    cluster.run_until(|cluster| finished(cluster, 10) || finished(cluster, 11) || cluster.peers[&peer(12)].step == 2);
    cluster.hang(peer(12));
    // By hand, so that the order is this one: the proposer finishes and crashes; peer 12 never finishes.
    let (step, digest) = (3, Digest([1; 32]));
    let machine = &mut cluster.peers.get_mut(&peer(11)).expect("there").machine;
    machine.handle(cluster.now, Input::Finished { step, digest }).expect("our own input");
    let generation = machine.view().expect("a member").generation;
    let body = crate::Body::Finished { step, digest };
    let envelope = crate::Envelope { run: super::cluster::RUN, generation, body };
    machine.handle(cluster.now, Input::Received { from: peer(10), envelope }).expect("correct");
    let closed = Input::Suspected { peer: peer(10), evidence: Evidence::Closed };
    machine.handle(cluster.now, closed).expect("evidence");
    let mut lost = None;
    let mut now = cluster.now;
    for _ in 0..40 {
        now = now + cluster.config.heartbeat_interval();
        machine.handle(now, Input::Expired(crate::Timer::Heartbeat)).expect("a timer");
        while let Some(output) = machine.poll() {
            if let crate::Output::Event(Event::Lost { peer, .. }) = output {
                lost = Some(peer);
            }
        }
    }
    assert_eq!(lost, Some(peer(12)));
}

#[test]
fn a_joiner_cannot_end_the_run() {
    for seed in 0..60 {
        let mut cluster = formed(seed, 3);
        cluster.join(peer(30), peer(10));
        cluster.peers.get_mut(&peer(30)).expect("it joins").stalls = true;
        cluster.run_until(|cluster| cluster.is_fetching(peer(30)));
        // The joiner alone loses sight of the proposer.
        cluster.input(peer(30), Input::Suspected { peer: peer(10), evidence: Evidence::LinkFailed });
        assert!(matches!(cluster.peers[&peer(30)].fate, Fate::Ended(Event::Lost { .. })));
        cluster.run();
        cluster.assert_complete([10, 11, 12].map(peer));
    }
}
