//! Random runs under random faults. The cluster checks its invariants at every step; here it must also come to an end once
//! the faults are over.

use std::time::Duration;

use super::cluster::driver::{Fate, Peer};
use super::cluster::{Cluster, peer};
use crate::plan::Link;
use crate::{Event, Evidence, Input, PeerId, RefusalReason};

/// Does something harmful, or something ordinary, to a random peer.
fn disturb(cluster: &mut Cluster, names: u8) {
    let name = peer(1 + cluster.rng.below(names as usize) as u8);
    let other = peer(1 + cluster.rng.below(names as usize) as u8);
    let living = cluster.running();
    let Some(fate) = cluster.peers.get(&name).map(|peer| peer.fate.clone()) else {
        return cluster.join(name, &living);
    };
    match fate {
        Fate::Running => match cluster.rng.below(14) {
            0..=2 => cluster.kill(name),
            3 => cluster.hang(name),
            4 if cluster.rng.below(3) == 0 => cluster.leave(name),
            5 | 6 if name != other && cluster.peers.contains_key(&other) => cluster.close(name, other),
            7 if name != other => drop(cluster.cut.insert((name, other))),
            8 if name != other => cluster.cut.extend([(name, other), (other, name)]),
            9 if name != other && cluster.peers.contains_key(&other) => {
                cluster.input(name, Input::Suspected { peer: other, evidence: Evidence::LinkFailed });
            }
            13 => drop(cluster.failing.insert(name)),
            12 => {
                // All at once, so that the view may be replanned in the middle of everything.
                for from in &living {
                    let others = living.iter().filter(|to| *to != from);
                    let links =
                        others.map(|to| (*to, Link::measured(Duration::ZERO, 1 << cluster.rng.below(30)))).collect();
                    cluster.input(*from, Input::Measured { links });
                }
            }
            10 => {
                let bits = cluster.rng.next();
                let (left, right): (Vec<PeerId>, Vec<PeerId>) =
                    living.iter().copied().partition(|peer| bits >> (peer.0[0] % 64) & 1 == 1);
                cluster.split(&[&left, &right]);
            }
            _ => cluster.heal(),
        },
        Fate::Hung => cluster.kill(name),
        Fate::Killed | Fate::Ended(Event::NotStored) => {
            let before = &cluster.peers[&name];
            if before.record.is_some() && before.state.is_some() && cluster.rng.below(2) == 0 {
                cluster.recover(name);
            } else {
                cluster.restart(name, &living);
            }
        }
        Fate::Ended(_) => {}
    }
}

fn explore(seed: u64, mean_pause: Duration) {
    println!("seed {seed}"); // Shown if an invariant fails that does not know it.
    let mut cluster = Cluster::new(seed, 150, 1);
    let names = 2 + cluster.rng.below(6) as u8;
    cluster.found(peer(1));
    for name in 2..=names {
        cluster.join(peer(name), &[peer(1)]);
    }
    let faults = cluster.rng.below(30);
    for _ in 0..faults {
        let pause = Duration::from_nanos(cluster.rng.next() % (2 * mean_pause.as_nanos() as u64));
        cluster.run_for(pause);
        disturb(&mut cluster, names);
    }
    cluster.heal();
    let hung: Vec<PeerId> =
        cluster.peers.iter().filter(|(_, peer)| peer.fate == Fate::Hung).map(|(name, _)| *name).collect();
    for name in hung {
        cluster.kill(name);
    }
    // Who holds no state may ask for ever, if nobody is left to answer.
    let asks_in_vain = |peer: &Peer| peer.machine.view().is_none() && (peer.generation == 0 || peer.state.is_none());
    cluster.run_until(|cluster| cluster.running().iter().all(|name| asks_in_vain(&cluster.peers[name])));
    for (name, peer) in &cluster.peers {
        match &peer.fate {
            Fate::Running | Fate::Killed | Fate::Hung => {}
            Fate::Ended(Event::Complete { .. } | Event::Left { .. } | Event::NoState | Event::NotStored) => {}
            Fate::Ended(Event::Refused { refusal: RefusalReason::RunFinished | RefusalReason::Withdrawn, .. }) => {}
            Fate::Ended(event) => cluster.fail(&format!("{name:?} ended with {event:?}")),
        }
    }
}

/// Build the tests with `STARLING_SEED=...` to see one run, or with `STARLING_EXPLORE=...` to see that many.
fn seeds(from: u64, count: u64) -> std::ops::Range<u64> {
    let given = |value: Option<&str>| value.and_then(|value| value.parse::<u64>().ok());
    match given(option_env!("STARLING_SEED")) {
        Some(seed) => seed..seed + 1,
        None => from..from + given(option_env!("STARLING_EXPLORE")).unwrap_or(count),
    }
}

#[test]
fn rare_faults() {
    for seed in seeds(1_000_000, 80) {
        explore(seed, Duration::from_secs(3));
    }
}

#[test]
fn dense_faults() {
    for seed in seeds(2_000_000, 200) {
        explore(seed, Duration::from_millis(60));
    }
}

#[test]
fn faults_at_the_pace_of_deadlines() {
    for seed in seeds(3_000_000, 100) {
        explore(seed, Duration::from_millis(700));
    }
}

/// Kills each member at each message, one after the other.
#[test]
fn a_death_at_every_message() {
    for victim in 1..=4u8 {
        for index in 0.. {
            let mut cluster = Cluster::new(u64::from(victim), 12, 1);
            cluster.found(peer(1));
            for name in 2..=4 {
                cluster.join(peer(name), &[peer(1)]);
            }
            while cluster.delivered < index * 2 && cluster.running().len() == 4 {
                cluster.tick();
            }
            if cluster.running().len() < 4 {
                break; // The run is over before so many messages.
            }
            // Its founder holds all that there is of a run, until another has joined.
            if victim == 1 && (2..=4).all(|name| cluster.peers[&peer(name)].generation == 0) {
                continue;
            }
            cluster.kill(peer(victim));
            cluster.run_until(|cluster| cluster.running().iter().all(|name| cluster.peers[name].generation == 0));
        }
    }
}
