//! Members die, hang, lose links, and come back.

use std::time::Duration;

use super::changes::{formed, gather};
use super::cluster::driver::Fate;
use super::cluster::{Cluster, RUN, peer};
use crate::plan::{Bucket, Plan, PlanPolicy};
use crate::{Ballot, Body, BranchPosition, Digest, Envelope, Event, Evidence, Input, PeerId, Reason};

fn everybody(cluster: &Cluster) -> Vec<PeerId> {
    cluster.peers.keys().copied().collect()
}

#[test]
fn any_member_may_die_at_any_moment() {
    for seed in 0..200 {
        let mut cluster = formed(seed, 50, &[1, 2, 3, 4]);
        let time = Duration::from_millis(cluster.rng.below(2_500) as u64);
        cluster.run_for(time);
        let victim = peer(1 + cluster.rng.below(4) as u8);
        cluster.kill(victim);
        let died = cluster.now;
        let rest: Vec<PeerId> = everybody(&cluster).into_iter().filter(|name| *name != victim).collect();
        let formed = |cluster: &Cluster| cluster.is_formed(&rest) || cluster.running().is_empty();
        cluster.run_until(formed);
        let took = cluster.now - died;
        if took > cluster.config.promise_limit() * 3 {
            cluster.fail(&format!("it took {took:?}"));
        }
        cluster.run();
        cluster.assert_complete(rest);
    }
}

/// Two go on by turns; then the disk of the one that the other can't decide without is set back to where it was before.
#[test]
fn members_meet_although_the_disk_of_one_was_set_back() {
    for seed in 0..60 {
        let mut cluster = formed(seed, 100_000, &[4, 2]);
        let (first, second) = (peer(4), peer(2));
        cluster.run_for(Duration::from_secs(1));
        let old = cluster.peers[&second].record.clone();
        cluster.kill(first);
        cluster.run_for(Duration::from_secs(5));
        cluster.recover(first);
        // The second goes on without the first, has the casting vote, and takes it in again.
        cluster.run_until(|cluster| cluster.is_formed(&[second, first]));
        let has_vote = |cluster: &Cluster| cluster.peers[&first].machine.view().is_some_and(|view| view.votes(first));
        cluster.run_until(has_vote);
        cluster.run_for(Duration::from_secs(1));
        let newest = cluster.peers[&first].machine.view().map(|view| view.generation);
        assert!(old.as_ref().map(|record| record.view.generation) < newest, "seed {seed}");
        cluster.kill(second);
        cluster.kill(first);
        cluster.run_for(Duration::from_secs(2));
        let reached = cluster.peers[&first].step;
        cluster.recover(first);
        let between = Duration::from_millis(cluster.rng.below(20_000) as u64);
        cluster.run_for(between);
        cluster.at(second).record = old;
        cluster.recover(second);
        let died = cluster.now;
        cluster.run_until(|cluster| cluster.is_formed(&[second, first]));
        if cluster.now - died > cluster.config.max_stall * 4 {
            cluster.fail("they met too late");
        }
        assert!(cluster.peers[&first].step >= reached, "seed {seed}");
        let told = |name| cluster.has_event(name, |event| matches!(event, Event::SetBack { .. }));
        assert!(told(second) && !told(first), "seed {seed}");
    }
}

#[test]
fn two_die_at_once_and_more_while_the_view_changes() {
    for seed in 0..200 {
        let mut cluster = formed(seed, 50, &[1, 2, 3, 4, 5, 6, 7]);
        let time = Duration::from_millis(cluster.rng.below(2_000) as u64);
        cluster.run_for(time);
        for _ in 0..3 {
            let living = cluster.running();
            let victim = cluster.rng.pick(&living);
            cluster.kill(victim);
            let time = Duration::from_millis(cluster.rng.below(120) as u64);
            cluster.run_for(time);
        }
        let living = cluster.running();
        cluster.run();
        cluster.assert_complete(living);
    }
}

#[test]
fn a_hung_member_is_left_out_within_max_stall() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 50, &[1, 2, 3, 4, 5]);
        cluster.run_for(Duration::from_millis(500));
        let victim = peer(1 + (seed % 5) as u8);
        cluster.hang(victim);
        let hung = cluster.now;
        let rest: Vec<PeerId> = everybody(&cluster).into_iter().filter(|name| *name != victim).collect();
        cluster.run_until(|cluster| cluster.is_formed(&rest));
        assert!(cluster.now - hung <= cluster.config.max_stall, "seed {seed}: {:?}", cluster.now - hung);
        cluster.run();
        cluster.assert_complete(rest);
    }
}

#[test]
fn of_two_members_the_lower_goes_on_and_the_higher_forks() {
    for seed in 0..30 {
        for (victim, other) in [(2, 1), (1, 2)] {
            let mut cluster = formed(seed, 50, &[1, 2]);
            cluster.run_for(Duration::from_millis(700));
            cluster.kill(peer(victim));
            cluster.run();
            cluster.assert_complete([peer(other)]);
            let forked = cluster.has_event(peer(other), |event| matches!(event, Event::Changed { forked: true, .. }));
            let paused = cluster.has_event(peer(other), |event| matches!(event, Event::Paused { .. }));
            assert_eq!((forked, paused), (other == 2, other == 2), "seed {seed}");
        }
    }
}

/// Breaks the link between two members, as their drivers would see it.
fn sever(cluster: &mut Cluster, a: PeerId, b: PeerId) {
    cluster.cut.extend([(a, b), (b, a)]);
    cluster.close(a, b);
}

#[test]
fn a_broken_link_evicts_nobody() {
    for seed in 0..150 {
        let mut cluster = formed(seed, 50, &[1, 2, 3, 4, 5]);
        cluster.run_for(Duration::from_millis(500));
        let (a, b) = (peer(1 + cluster.rng.below(5) as u8), peer(1 + cluster.rng.below(5) as u8));
        if a == b {
            continue;
        }
        sever(&mut cluster, a, b);
        cluster.run();
        cluster.assert_complete([1, 2, 3, 4, 5].map(peer));
        for name in everybody(&cluster) {
            if cluster.has_event(name, |event| matches!(event, Event::Evicted { .. })) {
                cluster.fail("somebody was evicted");
            }
            let severed = Reason::Severed(a.min(b), a.max(b));
            let told = |event: &Event| matches!(event, Event::Changed { reasons, .. } if reasons.contains(&severed));
            assert!(cluster.has_event(name, told), "seed {seed}");
        }
    }
}

/// No ring leads around a broken link of three, and the third one reaches both. When the link is back, there is a ring again.
#[test]
fn whom_a_hub_reaches_stays_and_a_ring_comes_back_with_the_link() {
    for seed in 0..30 {
        let mut cluster = formed(seed, 1_000_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_millis(500));
        let (a, b) = [(1, 2), (1, 3), (2, 3)].map(|(a, b)| (peer(a), peer(b)))[seed as usize % 3];
        sever(&mut cluster, a, b);
        let plans = |cluster: &Cluster, is_star: bool| {
            everybody(cluster).into_iter().all(|name| {
                let view = cluster.peers[&name].machine.view().filter(|view| view.members().len() == 3);
                view.is_some_and(|view| {
                    let plan = PlanPolicy::Ring.agree(view, Bucket { bytes: 1 << 20, segment_bytes: 1 << 16 }).plan;
                    matches!(plan, Plan::Star(_)) == is_star && view.is_severed(a, b) == is_star
                })
            })
        };
        cluster.run_until(|cluster| plans(cluster, true));
        let before = cluster.peers[&a].step;
        // Tried in vain, and more and more rarely.
        cluster.run_for(cluster.config.max_stall * 20);
        assert!(plans(&cluster, true) && cluster.peers[&a].step > before, "seed {seed}");
        cluster.heal();
        let healed = cluster.now;
        cluster.run_until(|cluster| plans(cluster, false));
        assert!(cluster.now - healed <= cluster.config.max_stall * 18, "seed {seed}: {:?}", cluster.now - healed);
        for name in everybody(&cluster) {
            assert!(!cluster.has_event(name, |event| matches!(event, Event::Evicted { .. })), "seed {seed}");
        }
    }
}

/// Whoever comes reaches one member and nobody else, be that the proposer, the next one or the last.
#[test]
fn who_reaches_a_hub_alone_is_let_in() {
    for seed in 0..30 {
        let (members, hub): (&[u8], u8) = [(&[1, 2][..], 1), (&[1, 2], 2), (&[1, 2, 3, 4, 5], 5)][seed as usize % 3];
        let mut cluster = formed(seed, 1_000_000, members);
        cluster.run_for(Duration::from_millis(500));
        for name in [6, 7, 8] {
            let name = peer(name);
            let others: Vec<PeerId> = everybody(&cluster).into_iter().filter(|other| *other != peer(hub)).collect();
            cluster.cut.extend(others.iter().flat_map(|other| [(name, *other), (*other, name)]));
            cluster.join(name, &[peer(hub)]);
            let asked = cluster.now;
            cluster.run_until(|cluster| cluster.peers[&name].machine.view().is_some());
            assert!(cluster.now - asked <= cluster.config.max_stall * 3, "seed {seed}: {:?}", cluster.now - asked);
            let mut members = [others, vec![peer(hub), name]].concat();
            members.sort_unstable();
            let step = cluster.peers[&peer(hub)].step;
            cluster.run_until(|cluster| cluster.is_formed(&members) && cluster.peers[&name].step > step + 3);
        }
        for name in everybody(&cluster) {
            assert!(!cluster.has_event(name, |event| matches!(event, Event::Evicted { .. })), "seed {seed}");
        }
    }
}

/// Where no plan would go with whoever comes, nobody takes it in for the proposer, and nobody stands still for it.
#[test]
fn who_reaches_no_hub_waits_outside() {
    for seed in 0..10 {
        let mut cluster = formed(seed, 1_000_000, &[1, 2, 3, 4]);
        cluster.run_for(Duration::from_millis(500));
        sever(&mut cluster, peer(3), peer(4));
        cluster.run_for(cluster.config.max_stall * 3);
        let joiner = peer(6);
        cluster.cut.extend([1, 2, 3].map(peer).iter().flat_map(|other| [(joiner, *other), (*other, joiner)]));
        let generation = generation(&cluster, peer(1));
        cluster.join(joiner, &[peer(4)]);
        cluster.run_for(cluster.config.max_stall * 8);
        let view = cluster.peers[&peer(1)].machine.view().expect("it is there");
        assert_eq!(view.members(), [1, 2, 3, 4].map(peer), "seed {seed}");
        assert!(view.generation.0 <= generation + 2, "seed {seed}: {} after {generation}", view.generation.0);
    }
}

/// The link between these fails after some step, and is there again at once.
fn fail_once(cluster: &mut Cluster, a: PeerId, b: PeerId) {
    let step = |cluster: &Cluster| cluster.peers[&a].step;
    let (before, generation) = (step(cluster), generation(cluster, a));
    cluster.run_until(|cluster| step(cluster) > before);
    cluster.input(a, Input::Suspected { peer: b, evidence: Evidence::LinkFailed });
    let is_over =
        |cluster: &Cluster| everybody(cluster).iter().all(|name| self::generation(cluster, *name) > generation);
    cluster.run_until(|cluster| is_over(cluster) && step(cluster) > before + 1);
}

fn generation(cluster: &Cluster, of: PeerId) -> u64 {
    cluster.peers[&of].machine.view().map_or(0, |view| view.generation.0)
}

/// Whether all are in a view in which these two, and no others, are severed, since it is unsteady; or none are, and it is not.
fn damps(cluster: &Cluster, (a, b): (PeerId, PeerId), is_damped: bool) -> bool {
    let names = everybody(cluster);
    let pairs = if is_damped { vec![(a, b)] } else { Vec::new() };
    names.iter().all(|name| {
        let view = cluster.peers[name].machine.view().filter(|view| view.members() == names);
        view.is_some_and(|view| (view.is_unsteady(), view.severed()) == (is_damped, &pairs))
    })
}

/// Each time costs a broken step, but not for ever: the link is used no more for a while, then tried again, and for longer the next time.
#[test]
fn a_link_that_fails_again_and_again_is_damped() {
    for seed in 0..40 {
        let size = 3 + (seed % 4) as u8;
        let mut cluster = formed(seed, 1_000_000, &(1..=size).collect::<Vec<u8>>());
        cluster.run_for(Duration::from_secs(30));
        let a = 1 + cluster.rng.below(size as usize - 1) as u8;
        let pair = (peer(a), peer(a + 1 + cluster.rng.below((size - a) as usize) as u8));
        for times in 0..3 {
            assert!(damps(&cluster, pair, false), "seed {seed}, after {times}");
            fail_once(&mut cluster, pair.0, pair.1);
        }
        for times in [1, 2, 4, 8, 8] {
            assert!(damps(&cluster, pair, true), "seed {seed}, for {times}");
            let view = cluster.peers[&pair.0].machine.view().expect("a member");
            let agreed = PlanPolicy::Ring.agree(view, Bucket { bytes: 1 << 20, segment_bytes: 1 << 16 });
            assert!(
                matches!(&agreed.plan, Plan::Star(hubs) if hubs.count() == (u32::from(size) - 2).min(2)),
                "{}",
                agreed.reason
            );
            let interval = cluster.config.replan_interval() * times;
            cluster.run_for(interval - Duration::from_secs(2));
            assert!(damps(&cluster, pair, true), "seed {seed}, for {times}");
            cluster.run_for(Duration::from_secs(5));
            assert!(damps(&cluster, pair, false), "seed {seed}, for {times}");
            fail_once(&mut cluster, pair.1, pair.0);
        }
        cluster.run_for(Duration::from_secs(1));
        for name in everybody(&cluster) {
            assert!(!cluster.has_event(name, |event| matches!(event, Event::Evicted { .. })), "seed {seed}");
            let told = |reason: Reason| {
                let events = cluster.peers[&name].events.iter();
                events
                    .filter(|event| matches!(event, Event::Changed { reasons, .. } if reasons.contains(&reason)))
                    .count()
            };
            assert_eq!((told(Reason::Unsteady), told(Reason::Steady)), (6, 5), "seed {seed}");
        }
    }
}

#[test]
fn between_two_members_no_link_is_damped() {
    let mut cluster = formed(4, 1_000_000, &[1, 2]);
    for _ in 0..8 {
        fail_once(&mut cluster, peer(1), peer(2));
        assert!(damps(&cluster, (peer(1), peer(2)), false), "there is no other way");
    }
}

/// Those whose link is damped hear each other, and are tried again where there is no other way: nobody goes for that.
#[test]
fn where_the_hub_goes_a_damped_link_is_used() {
    for seed in 0..40 {
        let mut cluster = formed(seed, 1_000_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_millis(500));
        for _ in 0..3 {
            fail_once(&mut cluster, peer(1), peer(2));
        }
        assert!(damps(&cluster, (peer(1), peer(2)), true), "seed {seed}");
        let time = Duration::from_millis(cluster.rng.below(3_000) as u64);
        cluster.run_for(time);
        cluster.kill(peer(3));
        let killed = cluster.now;
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2].map(peer)));
        assert!(cluster.now - killed <= cluster.config.max_stall, "seed {seed}");
        for name in [1, 2].map(peer) {
            assert!(!cluster.has_event(name, |event| matches!(event, Event::Evicted { .. })), "seed {seed}");
            assert!(!cluster.peers[&name].machine.view().is_some_and(|view| view.is_unsteady()), "seed {seed}");
        }
    }
}

/// In a star of one hub each of the others would outbid it by ballots that decide nothing.
#[test]
fn who_reaches_a_quorum_promises_nobody_who_reaches_none() {
    let promises = |unreachable: &[u8]| {
        let mut cluster = formed(5, 1_000_000, &[1, 2, 3, 4, 5]);
        cluster.run_for(Duration::from_millis(500));
        let ballot = Ballot { attempt: 1, proposer: peer(2) };
        let unreachable = unreachable.iter().map(|name| peer(*name)).collect();
        assert!(!cluster.say(peer(2), peer(1), Body::Prepare { ballot, boundary: None, unreachable }));
        let is_promise = |(from, envelope): &(PeerId, Envelope)| {
            *from == peer(1) && matches!(&envelope.body, Body::Promise { ballot: of, .. } if *of == ballot)
        };
        let until = cluster.now + cluster.config.promise_limit();
        while cluster.now < until && cluster.tick() {
            if cluster.under_way(peer(2)).iter().any(is_promise) {
                return true;
            }
        }
        false
    };
    assert!(promises(&[4, 5]), "three of five are a quorum");
    assert!(!promises(&[3, 4, 5]));
}

/// One after the other sees that a member breaks the rules, and drops it.
#[test]
fn nobody_goes_for_one_that_misbehaved() {
    for seed in 0..100 {
        let size = 4 + (seed % 4) as u8;
        let names: Vec<u8> = (1..=size).collect();
        let mut cluster = formed(seed, 1_000_000, &names);
        let time = Duration::from_millis(500 + cluster.rng.below(3_000) as u64);
        cluster.run_for(time);
        let liar = peer(1 + cluster.rng.below(size as usize) as u8);
        let honest: Vec<PeerId> = everybody(&cluster).into_iter().filter(|name| *name != liar).collect();
        let most = [2, 50, 400, 3_000][cluster.rng.below(4)];
        let mut seen: Vec<(u64, PeerId)> = honest.iter().map(|name| (cluster.rng.below(most) as u64, *name)).collect();
        seen.sort_unstable();
        let began = cluster.now;
        for (after, name) in seen {
            let at = began + Duration::from_millis(after);
            cluster.run_for(at - cluster.now);
            cluster.input(name, Input::Suspected { peer: liar, evidence: Evidence::Misbehaved });
            cluster.cut.extend([(name, liar), (liar, name)]);
            cluster.close(name, liar);
        }
        cluster.run_for(cluster.config.max_stall * 4);
        for name in &honest {
            if cluster.has_event(*name, |event| matches!(event, Event::Evicted { .. }))
                || !cluster.peers[name].is_running()
            {
                cluster.fail(&format!("{name:?} was put out"));
            }
        }
        if !cluster.is_formed(&honest) {
            cluster.fail("not without it");
        }
    }
}

/// Whom it saw break the rules a member promises nothing: it would leave out whoever has a ballot of its own.
#[test]
fn who_is_to_go_gets_no_promise() {
    for (accused, promises) in [(2, false), (3, true)] {
        let mut cluster = formed(5, 1_000_000, &[1, 2, 3, 4]);
        cluster.run_for(Duration::from_millis(500));
        cluster.input(peer(4), Input::Suspected { peer: peer(accused), evidence: Evidence::Misbehaved });
        let ballot = Ballot { attempt: 9, proposer: peer(2) };
        assert!(!cluster.say(peer(2), peer(4), Body::Prepare { ballot, boundary: None, unreachable: Vec::new() }));
        let is_promise = |(from, envelope): &(PeerId, Envelope)| {
            *from == peer(4) && matches!(&envelope.body, Body::Promise { ballot: of, .. } if *of == ballot)
        };
        let (until, mut promised) = (cluster.now + cluster.config.promise_limit(), false);
        while !promised && cluster.now < until && cluster.tick() {
            promised = cluster.under_way(peer(2)).iter().any(is_promise);
        }
        assert_eq!(promised, promises, "{accused} is accused");
    }
}

/// A network that heals delivers late what was sent while it was broken.
#[test]
fn what_a_member_said_views_ago_evicts_nobody() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 50, &[1, 2, 3]);
        let old = cluster.at(peer(3)).machine.view().expect("it is a member").clone();
        for joiner in [4, 5] {
            cluster.join(peer(joiner), &[peer(1)]);
            let members: Vec<PeerId> = (1..=joiner).map(peer).collect();
            cluster.run_until(|cluster| cluster.is_formed(&members));
        }
        let branch_position =
            BranchPosition { step: 1, branch: 0, parent: old.parent, forked: false, paused: true, recovering: false };
        let (run, generation, view) = (RUN, old.generation, old.id());
        let envelope = Envelope { run, generation, view, body: Body::Hello(branch_position) };
        cluster.input(peer(1), Input::Received { from: peer(3), envelope });
        cluster.run();
        cluster.assert_complete([1, 2, 3, 4, 5].map(peer));
        let suspected = |event: &Event| matches!(event, Event::Suspected { evidence: Evidence::Elsewhere, .. });
        assert!(!cluster.has_event(peer(1), suspected), "seed {seed}");
        assert!(!cluster.has_event(peer(3), |event| matches!(event, Event::Evicted { .. })), "seed {seed}");
    }
}

#[test]
fn a_broken_ring_link_evicts_nobody() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 50, &[1, 2, 3, 4]);
        cluster.run_for(Duration::from_millis(500));
        let a = 1 + cluster.rng.below(4) as u8;
        let b = 1 + a % 4;
        cluster.input(peer(a), Input::Suspected { peer: peer(b), evidence: Evidence::LinkFailed });
        cluster.run();
        cluster.assert_complete([1, 2, 3, 4].map(peer));
        assert!(!cluster.has_event(peer(a), |event| matches!(event, Event::Evicted { .. })), "seed {seed}");
    }
}

#[test]
fn a_link_that_is_cut_in_one_direction_evicts_nobody() {
    for seed in 0..30 {
        let mut cluster = formed(seed, 300, &[1, 2, 3, 4, 5]);
        cluster.run_for(Duration::from_millis(500));
        let (a, b) = (peer(1 + cluster.rng.below(5) as u8), peer(1 + cluster.rng.below(5) as u8));
        if a != b {
            cluster.cut.insert((a, b));
            cluster.run();
            cluster.assert_complete([1, 2, 3, 4, 5].map(peer));
        }
    }
}

#[test]
fn the_side_with_a_quorum_goes_on_and_the_other_comes_back_when_the_split_heals() {
    for seed in 0..12 {
        for sides in [&[&[1, 2, 3][..], &[4, 5][..]], &[&[3, 4, 5][..], &[1, 2][..]], &[&[1, 2][..], &[3, 4][..]]] {
            let names: Vec<u8> = sides.concat();
            let mut cluster = formed(seed, 600, &names);
            cluster.run_for(Duration::from_millis(500));
            let sides: Vec<Vec<PeerId>> = sides.iter().map(|side| side.iter().copied().map(peer).collect()).collect();
            cluster.split(&[&sides[0], &sides[1]]);
            cluster.run_for(Duration::from_secs(30));
            assert!(cluster.is_formed(&sides[0]), "seed {seed}: {:?}", sides[0]);
            for name in &sides[1] {
                assert!(cluster.peers[name].view.is_none(), "seed {seed}: no split brain");
                assert!(cluster.has_event(*name, |event| matches!(event, Event::Paused { .. })));
            }
            cluster.heal();
            let mut all = sides.concat();
            all.sort_unstable();
            cluster.run_until(|cluster| cluster.is_formed(&all));
            cluster.run();
            cluster.assert_complete(all);
            for name in &sides[1] {
                assert!(cluster.has_event(*name, |event| matches!(event, Event::Evicted { .. })), "seed {seed}");
            }
        }
    }
}

#[test]
fn a_side_without_a_quorum_forks_in_time_and_the_branches_become_one() {
    for seed in 0..6 {
        let mut cluster = formed(seed, 3_000, &[1, 2, 3, 4, 5]);
        let (left, right) = ([1, 2].map(peer), [3, 4, 5].map(peer));
        cluster.run_for(Duration::from_millis(500));
        cluster.split(&[&left, &right]);
        cluster.run_for(Duration::from_secs(150));
        assert!(cluster.is_formed(&right), "seed {seed}");
        if !cluster.is_formed(&left) {
            cluster.fail("it did not fork");
        }
        let forked = |event: &Event| matches!(event, Event::Changed { forked: true, .. });
        assert!(cluster.has_event(peer(1), forked) && !cluster.has_event(peer(3), forked), "seed {seed}");
        cluster.heal();
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 4, 5].map(peer)));
        cluster.run();
        cluster.assert_complete([1, 2, 3, 4, 5].map(peer));
    }
}

#[test]
fn who_was_put_out_and_finds_nobody_any_more_says_so_before_it_forks() {
    let stall = crate::Config::default().max_stall;
    for seed in 0..20 {
        let mut cluster = formed(seed, 100_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_millis(500));
        let (others, alone) = ([1, 2].map(peer), peer(3));
        cluster.split(&[&others, &[alone]]);
        // Without a quorum it would fork at any moment.
        cluster.run_for(Duration::from_secs(100));
        cluster.heal();
        cluster.run_until(|cluster| cluster.has_event(alone, |event| matches!(event, Event::Evicted { .. })));
        others.iter().for_each(|name| cluster.kill(*name));
        let told = |cluster: &Cluster| {
            let events = &cluster.peers[&alone].events;
            let put_out = events.iter().rposition(|event| matches!(event, Event::Evicted { .. })).unwrap_or(0);
            events[put_out..].iter().filter(|event| matches!(event, Event::Paused { .. })).count()
        };
        cluster.run_until(|cluster| told(cluster) > 0);
        let since = cluster.now;
        let is_fork = |cluster: &Cluster| cluster.peers[&alone].view.as_ref().is_some_and(|view| view.forked);
        assert!(!is_fork(&cluster), "seed {seed}");
        cluster.run_until(is_fork);
        let waited = cluster.now - since;
        assert!(waited >= stall && told(&cluster) == 1, "seed {seed}: {waited:?}");
    }
}

/// As after a power cut: each asks the other what it holds before either listens, and takes its seat.
#[test]
fn branches_of_one_member_each_meet_though_both_were_started_again_at_once() {
    for seed in 0..20 {
        let mut cluster = formed(seed, 100_000, &[1, 2]);
        cluster.run_for(Duration::from_millis(500));
        let names = [1, 2].map(peer);
        cluster.split(&[&names[..1], &names[1..]]);
        cluster.run_until(|cluster| names.iter().all(|name| cluster.is_formed(&[*name])));
        names.iter().for_each(|name| cluster.kill(*name));
        cluster.heal();
        cluster.run_for(Duration::from_secs(30));
        names.iter().for_each(|name| cluster.recover(*name));
        cluster.run_until(|cluster| cluster.is_formed(&names));
    }
}

/// Those it knew when it died: they are in no view of its own any more, and it had none that was a fork.
#[test]
fn who_forks_after_it_came_back_follows_those_whom_it_had_lost_before() {
    for seed in 0..20 {
        let mut cluster = formed(seed, 100_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_millis(500));
        let (ahead, behind, gone) = (peer(1), peer(3), peer(2));
        cluster.split(&[&[ahead], &[gone, behind]]);
        cluster.run_until(|cluster| cluster.is_formed(&[gone, behind]));
        [ahead, behind, gone].iter().for_each(|name| cluster.kill(*name));
        for name in [ahead, behind] {
            cluster.recover(name);
            cluster.run_until(|cluster| cluster.is_formed(&[name]));
            assert!(cluster.peers[&name].view.as_ref().is_some_and(|view| view.forked), "seed {seed}");
        }
        assert!(cluster.peers[&ahead].step > cluster.peers[&behind].step, "seed {seed}");
        cluster.heal();
        cluster.run_until(|cluster| cluster.is_formed(&[ahead, behind]));
    }
}

#[test]
fn a_restarted_process_is_evicted_and_let_in_again() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 100, &[1, 2, 3, 4]);
        cluster.run_for(Duration::from_millis(500));
        let victim = peer(1 + cluster.rng.below(4) as u8);
        let rest: Vec<PeerId> = everybody(&cluster).into_iter().filter(|name| *name != victim).collect();
        cluster.kill(victim);
        // Sometimes it is back before the others have seen that it was gone.
        let pause = Duration::from_millis(cluster.rng.below(100) as u64);
        cluster.run_for(pause);
        cluster.restart(victim, &rest);
        cluster.run();
        cluster.assert_complete([1, 2, 3, 4].map(peer));
    }
}

#[test]
fn a_peer_that_is_lost_again_and_again_waits() {
    let mut cluster = formed(3, 2_000, &[1, 2, 3]);
    for _ in 0..3 {
        cluster.run_for(Duration::from_secs(2));
        cluster.kill(peer(3));
        cluster.run_for(Duration::from_secs(2));
        assert!(cluster.is_formed(&[1, 2].map(peer)));
        cluster.restart(peer(3), &[1, 2].map(peer));
    }
    cluster.run_for(Duration::from_secs(3));
    assert!(cluster.is_formed(&[1, 2].map(peer)), "it is in quarantine");
    cluster.run_for(Duration::from_secs(15));
    assert!(cluster.is_formed(&[1, 2, 3].map(peer)), "it is let in by itself afterwards");
}

#[test]
fn a_peer_that_all_wait_for_is_let_in_soon_however_often_it_is_lost() {
    let mut cluster = Cluster::new(3, 20_000, 3);
    gather(&mut cluster, &[1, 2, 3]);
    for times in 1..10 {
        cluster.run_for(Duration::from_secs(2));
        cluster.kill(peer(3));
        cluster.run_for(Duration::from_secs(2));
        cluster.restart(peer(3), &[1, 2].map(peer));
        cluster.run_for(Duration::from_secs(15));
        assert!(cluster.is_formed(&[1, 2, 3].map(peer)), "lost {times} times");
    }
}

#[test]
fn all_are_killed_and_go_on_from_their_records() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 40, &[1, 2, 3, 4]);
        let time = Duration::from_millis(200 + cluster.rng.below(2_000) as u64);
        cluster.run_for(time);
        let names = everybody(&cluster);
        for name in &names {
            cluster.kill(*name);
            let time = Duration::from_millis(cluster.rng.below(60) as u64);
            cluster.run_for(time);
        }
        if names.iter().any(|name| cluster.peers[name].state.is_none()) {
            continue;
        }
        for name in &names {
            cluster.recover(*name);
            let time = Duration::from_millis(cluster.rng.below(500) as u64);
            cluster.run_for(time);
        }
        cluster.run();
        cluster.assert_complete(names);
    }
}

#[test]
fn some_of_them_come_back_from_their_records() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 40, &[1, 2, 3, 4, 5]);
        cluster.run_for(Duration::from_millis(500));
        let names = everybody(&cluster);
        for name in &names {
            cluster.kill(*name);
        }
        let back: Vec<PeerId> = names.iter().copied().filter(|_| cluster.rng.below(4) > 0).collect();
        if back.len() < 3 {
            continue;
        }
        for name in &back {
            cluster.recover(*name);
        }
        cluster.run();
        cluster.assert_complete(back);
    }
}

#[test]
fn a_member_that_comes_back_from_its_record_finds_the_others_alive() {
    for seed in 0..100 {
        let mut cluster = formed(seed, 60, &[1, 2, 3]);
        cluster.run_for(Duration::from_millis(500));
        let victims: Vec<PeerId> = if seed % 2 == 0 { vec![peer(1)] } else { vec![peer(1), peer(3)] };
        for victim in &victims {
            cluster.kill(*victim);
        }
        let pause = Duration::from_millis(cluster.rng.below(1_000) as u64);
        cluster.run_for(pause);
        for victim in &victims {
            cluster.recover(*victim);
        }
        cluster.run();
        cluster.assert_complete([1, 2, 3].map(peer));
    }
}

#[test]
fn a_member_dies_while_all_finish() {
    for seed in 0..150 {
        let mut cluster = formed(seed, 30, &[1, 2, 3, 4]);
        let last = |cluster: &Cluster| cluster.peers.values().any(|peer| peer.step == 30);
        cluster.run_until(last);
        let victim = peer(1 + cluster.rng.below(4) as u8);
        if cluster.peers[&victim].fate == Fate::Running {
            cluster.kill(victim);
        }
        cluster.run();
        cluster.assert_complete(everybody(&cluster).into_iter().filter(|name| *name != victim));
    }
}

#[test]
fn a_founder_that_dies_as_it_decides_takes_the_others_along_when_it_is_back() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(seed, 40, 1);
        cluster.config.fork_after = None;
        cluster.found(peer(1));
        cluster.join(peer(2), &[peer(1)]);
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2].map(peer)));
        cluster.join(peer(3), &[peer(1)]);
        let decided = |cluster: &Cluster| {
            let view = cluster.peers[&peer(1)].machine.view();
            view.is_some_and(|view| view.members().len() == 3)
        };
        cluster.run_until(decided);
        cluster.split(&[&[peer(1)], &[peer(2), peer(3)]]); // What it has said is lost.
        cluster.kill(peer(1));
        cluster.run_for(Duration::from_secs(seed % 20));
        assert!(!cluster.is_formed(&[2, 3].map(peer)), "seed {seed}: they can't go on without it");
        cluster.heal();
        cluster.recover(peer(1));
        cluster.run();
        cluster.assert_complete([1, 2, 3].map(peer));
    }
}

#[test]
fn who_never_comes_to_the_end_holds_nobody_there_for_long() {
    let mut cluster = formed(1, 1_000, &[1, 2, 3]);
    for name in [1, 2] {
        cluster.input(peer(name), Input::Finished { step: 1_000, digest: Digest([1; 32]) });
    }
    let complete = |event: &Event| matches!(event, Event::Complete { .. });
    let are_complete = |cluster: &Cluster| [1, 2].iter().all(|name| cluster.has_event(peer(*name), complete));
    cluster.run_for(cluster.config.max_stall * 3);
    assert!(!are_complete(&cluster), "it may need the last state");
    cluster.run_for(cluster.config.max_stall * 2);
    assert!(are_complete(&cluster));
}

#[test]
fn a_run_is_finished_when_a_quorum_says_so() {
    let mut cluster = Cluster::new(1, 1_000, 1);
    cluster.config.fork_after = None;
    cluster.found(peer(1));
    for name in [2, 3] {
        cluster.join(peer(name), &[peer(1)]);
    }
    cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3].map(peer)));
    cluster.split(&[&[peer(1)], &[peer(2), peer(3)]]);
    cluster.input(peer(1), Input::Finished { step: 1_000, digest: Digest([1; 32]) });
    cluster.run_for(cluster.config.max_stall * 3);
    let complete = |event: &Event| matches!(event, Event::Complete { .. });
    assert!(!cluster.has_event(peer(1), complete), "it may have slept while the others went on");
    assert!(cluster.has_event(peer(1), |event| matches!(event, Event::Paused { present: 1, needed: 2, missed: None })));
}
