//! Founding, joining, leaving, finishing.

use std::time::Duration;

use super::cluster::driver::Fate;
use super::cluster::{Cluster, RUN, contact, me, peer};
use crate::{
    BlockReason, Config, Contact, Event, Input, Membership, Output, PeerId, Progress, Reason, RefusalReason, Time,
};

/// A run of `names`, all of which hold the state. The first one founded it.
pub(super) fn formed(seed: u64, steps: u64, names: &[u8]) -> Cluster {
    let mut cluster = Cluster::new(seed, steps, 1);
    gather(&mut cluster, names);
    cluster
}

pub(super) fn gather(cluster: &mut Cluster, names: &[u8]) {
    let mut members: Vec<PeerId> = names.iter().copied().map(peer).collect();
    cluster.found(members[0]);
    for joiner in &members[1..] {
        cluster.join(*joiner, &members[..1]);
    }
    members.sort_unstable();
    cluster.run_until(|cluster| cluster.is_formed(&members));
    cluster.run_until(|cluster| members.iter().all(|name| cluster.peers[name].state.is_some()));
}

/// Nobody else can say of the last view that it was one of the run's.
#[test]
fn who_takes_a_step_in_a_view_that_one_alone_has_told_keeps_what_led_there() {
    let (founder, joiner) = (peer(1), peer(2));
    let mut cluster = Cluster::new(1, 50, 1);
    cluster.found(founder);
    cluster.join(joiner, &[founder]);
    cluster.run_until(|cluster| cluster.is_formed(&[founder, joiner]));
    assert!(cluster.peers[&joiner].machine.came_by_word() && cluster.peers[&joiner].led.is_none());
    cluster.run();
    cluster.assert_complete([founder, joiner]);
    let kept = |name| cluster.peers[&name].led.as_ref().map(|record| record.view.members().to_vec());
    assert_eq!((kept(founder), kept(joiner)), (None, Some(vec![founder, joiner])));
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
fn a_member_that_does_not_look_at_its_state_keeps_no_joiner_out() {
    for seed in 0..30 {
        let mut cluster = formed(seed, 100_000, &[4, 7, 2]);
        cluster.run_for(Duration::from_secs(1));
        cluster.busy.insert(peer(5));
        cluster.join(peer(5), &[peer(4)]);
        cluster.run_for(Duration::from_secs(2));
        for name in [1, 9] {
            cluster.join(peer(name), &[peer(2)]);
        }
        let limit = cluster.config.max_stall * 4;
        cluster.run_for(limit);
        let members = [1, 2, 4, 5, 7, 9].map(peer);
        if !cluster.is_formed(&members) {
            cluster.fail("the joiners are still out");
        }
        let synced = members.map(|name| cluster.peers[&name].state.is_some());
        assert_eq!(synced, [true, true, true, false, true, true], "seed {seed}");
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
        let stayed: Vec<_> = [1, 2, 3, 4].map(peer).into_iter().filter(|peer| *peer != leaver).collect();
        assert_eq!(cluster.peers[&leaver].fate, Fate::Ended(Event::Left { stayed }), "seed {seed}");
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
        // One is the last, and its seat stands; the others know of one at least that stayed.
        let mut last = Vec::new();
        for name in [1, 2, 3].map(peer) {
            match &cluster.peers[&name].fate {
                Fate::Ended(Event::Left { stayed }) if stayed.is_empty() => last.push(name),
                Fate::Ended(Event::Left { stayed }) => assert!(!stayed.contains(&name), "seed {seed}"),
                fate => panic!("seed {seed}: {fate:?}"),
            }
        }
        assert_eq!(last.len(), 1, "seed {seed}: {last:?}");
        let record = cluster.peers[&last[0]].record.as_ref().expect("a member keeps one");
        assert_eq!(record.view.members(), last, "seed {seed}");
        for peer in cluster.peers.values() {
            let stayed = match &peer.fate {
                Fate::Ended(Event::Left { stayed }) => stayed,
                fate => panic!("seed {seed}: {fate:?}"),
            };
            assert!(stayed.is_empty() || stayed.contains(&last[0]), "seed {seed}: {stayed:?}");
        }
    }
}

/// The last to leave goes on from its seat, and no view is a fork; those who had left before wait, and join it.
#[test]
fn the_last_to_leave_goes_on_and_those_who_left_before_join_it() {
    for seed in 0..50 {
        let mut cluster = formed(seed, 400, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        let order = [[1, 2, 3], [2, 3, 1], [3, 1, 2]][(seed % 3) as usize].map(peer);
        for name in order {
            cluster.leave(name);
            cluster.run_until(|cluster| !cluster.peers[&name].is_running());
        }
        let [first, second, last] = order;
        cluster.restart(first, &[second, last]);
        cluster.run_for(Duration::from_secs(60));
        assert!(cluster.peers[&first].view.is_none(), "seed {seed}: nobody goes on yet");
        cluster.recover(last);
        cluster.restart(second, &[last]);
        cluster.run();
        cluster.assert_complete(order);
        let forked = |event: &Event| matches!(event, Event::Changed { forked: true, .. });
        assert!(order.iter().all(|name| !cluster.has_event(*name, forked)), "seed {seed}");
    }
}

/// All are killed before the first checkpoint, and come back with nothing but their votes.
#[test]
fn where_nobody_holds_the_state_any_more_all_begin_anew() {
    for seed in 0..50 {
        let mut cluster = formed(seed, 400, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        let all = [1, 2, 3].map(peer);
        assert!(all.iter().all(|name| cluster.peers[name].step > 0), "seed {seed}");
        all.iter().for_each(|name| cluster.kill(*name));
        cluster.run_for(Duration::from_secs(1));
        all.iter().for_each(|name| cluster.recover_without_state(*name));
        cluster.run_until(|cluster| cluster.is_formed(&all));
        assert!(all.iter().all(|name| cluster.peers[name].step < 3), "seed {seed}");
        cluster.run();
        cluster.assert_complete(all);
    }
}

#[test]
fn nobody_begins_anew_where_somebody_holds_the_state() {
    for seed in 0..50 {
        let mut cluster = formed(seed, 400, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        let all = [1, 2, 3].map(peer);
        let (holder, others) = (peer(1 + (seed % 3) as u8), all.into_iter());
        let others: Vec<PeerId> = others.filter(|name| *name != peer(1 + (seed % 3) as u8)).collect();
        all.iter().for_each(|name| cluster.kill(*name));
        let reached = cluster.peers[&holder].step;
        cluster.run_for(Duration::from_secs(1));
        others.iter().for_each(|name| cluster.recover_without_state(*name));
        // They are a quorum, and wait for the third.
        cluster.run_for(cluster.config.fork_after.expect("there is a limit") / 2);
        let missed = Some(BlockReason::State);
        let waits =
            |event: &Event| matches!(event, Event::Paused { present: 2, needed: 2, missed: it } if *it == missed);
        assert!(others.iter().any(|name| cluster.has_event(*name, waits)), "seed {seed}");
        assert!(others.iter().all(|name| cluster.peers[name].view.is_none()), "seed {seed}");
        cluster.recover(holder);
        cluster.run_until(|cluster| cluster.is_formed(&all));
        assert!(all.iter().all(|name| cluster.peers[name].step >= reached), "seed {seed}");
        cluster.run();
        cluster.assert_complete(all);
    }
}

#[test]
fn where_who_may_hold_the_state_does_not_come_the_others_begin_anew_as_a_fork() {
    let mut cluster = formed(1, 400, &[1, 2, 3]);
    cluster.run_for(Duration::from_secs(1));
    let here = [1, 2].map(peer);
    [1, 2, 3].map(peer).into_iter().for_each(|name| cluster.kill(name));
    cluster.run_for(Duration::from_secs(1));
    here.iter().for_each(|name| cluster.recover_without_state(*name));
    let since = cluster.now;
    cluster.run_until(|cluster| cluster.is_formed(&here));
    assert!(Some(cluster.now - since) >= cluster.config.fork_after);
    let is_fork = |name: &PeerId| cluster.peers[name].view.as_ref().is_some_and(|view| view.forked);
    assert!(here.iter().all(is_fork));
    cluster.run();
    cluster.assert_complete(here);
}

/// Who goes on alone by force is a fork, and gives up its branch for the one with more steps.
#[test]
fn a_fork_by_force_meets_the_run_again() {
    for seed in 0..50 {
        let mut cluster = formed(seed, 1_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        let (alone, others) = (peer(1 + (seed % 3) as u8), [1, 2, 3].map(peer));
        cluster.leave(alone);
        cluster.run_until(|cluster| !cluster.peers[&alone].is_running());
        cluster.fork(alone);
        cluster.run_until(|cluster| cluster.peers[&alone].view.as_ref().is_some_and(|view| view.members().len() == 3));
        cluster.run();
        cluster.assert_complete(others);
    }
}

/// However far its views have counted meanwhile: those of the run count on from there.
#[test]
fn a_fork_that_has_counted_further_meets_the_run_again() {
    for seed in 0..20 {
        let mut cluster = formed(seed, 3_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        let all = [1, 2, 3].map(peer);
        let alone = peer(1 + (seed % 3) as u8);
        let others: Vec<PeerId> = all.into_iter().filter(|name| *name != alone).collect();
        cluster.split(&[&[alone], &others]);
        cluster.kill(alone);
        cluster.fork(alone);
        cluster.run_until(|cluster| cluster.is_formed(&others));
        // Each time that it comes back it decides another view.
        for _ in 0..20 {
            cluster.run_for(Duration::from_millis(100));
            cluster.kill(alone);
            cluster.recover(alone);
            cluster.run_until(|cluster| cluster.is_formed(&[alone]));
        }
        let counted = |of: PeerId| cluster.peers[&of].view.as_ref().map(|view| view.generation.0);
        assert!(counted(alone) > counted(others[0]).map(|counted| counted + 10), "seed {seed}");
        cluster.heal();
        cluster.run_until(|cluster| cluster.is_formed(&all));
        cluster.run();
        cluster.assert_complete(all);
        let forked = |event: &Event| matches!(event, Event::Changed { forked: true, .. });
        assert!(others.iter().all(|name| !cluster.has_event(*name, forked)), "seed {seed}");
    }
}

#[test]
fn a_founder_that_leaves_before_the_first_step_withdraws_the_run() {
    let mut cluster = Cluster::new(1, 5, 3);
    cluster.found(peer(5));
    cluster.leave(peer(5));
    cluster.run();
    assert_eq!(cluster.peers[&peer(5)].fate, Fate::Ended(Event::Left { stayed: Vec::new() }));
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
    let refusal = RefusalReason::Full { max_members: 2 };
    assert_eq!(cluster.peers[&peer(3)].fate, Fate::Ended(Event::Refused { from: peer(2), refusal }));
    cluster.run();
    cluster.assert_complete([1, 2].map(peer));
}

#[test]
fn a_peer_that_listens_elsewhere_is_looked_for_there() {
    let elsewhere = |name| Contact { peer: peer(name), addresses: vec!["elsewhere".to_owned()] };
    let config = Cluster::new(1, 5, 1).config.clone();
    let mut joiner = Membership::join(config, RUN, me(peer(1)), vec![contact(peer(2))], Time::ZERO);
    for name in 1..=3 {
        joiner.handle(Time::ZERO, Input::Located(elsewhere(name))).expect("no peer's fault");
    }
    // Where we are we know best, and of others we know nothing else.
    assert_eq!(joiner.contacts().cloned().collect::<Vec<_>>(), [contact(peer(1)), elsewhere(2)]);
}

#[test]
fn at_the_last_step_nobody_waits_for_members() {
    let waits = |step| {
        let config = Config { min_members: 2, last_step: 5, ..Config::default() };
        let progress = Progress { step, lineage: crate::Lineage::NONE, has_state: true, has_result: false };
        let mut founder = Membership::found(config, RUN, me(peer(1)), progress, Time::ZERO);
        let mut outputs: Vec<Output> = std::iter::from_fn(|| founder.poll()).collect();
        founder.handle(Time::ZERO, Input::Persisted).expect("its own");
        outputs.extend(std::iter::from_fn(|| founder.poll()));
        outputs.iter().any(|output| matches!(output, Output::Event(Event::Waiting { .. })))
    };
    assert!(waits(4) && !waits(5));
}
