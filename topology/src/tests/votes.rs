//! When newcomers get their votes, and that they decide nothing before.

use std::time::Duration;

use super::changes::{formed, gather};
use super::cluster::{CROWD, Cluster, peer};
use crate::{Body, BranchPosition, Event, PeerId, Reason, View};

fn view_of(cluster: &Cluster, name: u8) -> View {
    cluster.peers[&peer(name)].machine.view().expect("it is a member").clone()
}

fn votes(cluster: &Cluster, of: u8, name: u8) -> bool {
    cluster.peers[&peer(of)].machine.view().is_some_and(|view| view.votes(peer(name)))
}

/// One joins a run that has begun, and loads the state.
fn joined(cluster: &mut Cluster, joiner: u8) {
    cluster.join(peer(joiner), &[peer(1)]);
    cluster.run_until(|cluster| cluster.peers[&peer(joiner)].view.is_some());
    cluster.run_until(|cluster| cluster.peers[&peer(joiner)].state.is_some());
}

#[test]
fn a_newcomer_votes_soon_after_it_has_contributed_and_not_before() {
    for seed in 0..50 {
        let mut cluster = formed(seed, 1_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        joined(&mut cluster, 9);
        let (before, view) = (cluster.peers[&peer(9)].step, view_of(&cluster, 1));
        assert_eq!(view.newcomers(), [peer(9)], "seed {seed}");
        assert_eq!(view.voters().collect::<Vec<_>>(), [1, 2, 3].map(peer), "seed {seed}");
        cluster.run_until(|cluster| cluster.peers[&peer(9)].step >= before + 3);
        assert!(!votes(&cluster, 9, 9), "seed {seed}");
        let limit = cluster.now + cluster.config.max_stall / 2;
        cluster.run_until(|cluster| [1, 2, 3, 9].iter().all(|of| votes(cluster, *of, 9)));
        assert!(cluster.now <= limit, "seed {seed}: it took until {:?}", cluster.now);
        let given =
            |event: &Event| matches!(event, Event::Changed { reasons, .. } if *reasons == [Reason::Votes(peer(9))]);
        cluster.run_until(|cluster| cluster.has_event(peer(1), given));
    }
}

#[test]
fn who_is_starved_gets_no_vote_before_it_has_data() {
    for seed in 0..20 {
        let mut cluster = formed(seed, 1_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        cluster.starved.insert(peer(9));
        joined(&mut cluster, 9);
        let before = cluster.peers[&peer(9)].step;
        cluster.run_until(|cluster| cluster.peers[&peer(9)].step >= before + 30);
        assert!([1, 2, 3, 9].iter().all(|of| !votes(&cluster, *of, 9)), "seed {seed}");
        cluster.starved.clear();
        let limit = cluster.now + cluster.config.max_stall;
        cluster.run_until(|cluster| [1, 2, 3, 9].iter().all(|of| votes(cluster, *of, 9)));
        assert!(cluster.now <= limit, "seed {seed}: it took until {:?}", cluster.now);
    }
}

#[test]
fn those_who_begin_together_vote_from_the_first_step_on() {
    for seed in 0..20 {
        let names = [4, 7, 2, 9, 1];
        let mut cluster = Cluster::new(seed, 10, 5);
        gather(&mut cluster, &names);
        for name in names {
            assert_eq!(view_of(&cluster, name).newcomers(), [], "seed {seed}");
        }
    }
}

#[test]
fn where_all_who_vote_leave_those_who_are_left_do() {
    for seed in 0..50 {
        let mut cluster = formed(seed, 200, &[1]);
        cluster.run_for(Duration::from_secs(1));
        [2, 3].into_iter().for_each(|name| joined(&mut cluster, name));
        cluster.leave(peer(1));
        cluster.run_until(|cluster| !cluster.peers[&peer(1)].is_running());
        cluster.run_until(|cluster| cluster.is_formed(&[2, 3].map(peer)));
        assert!(view_of(&cluster, 2).voter_count() > 0, "seed {seed}");
        cluster.run();
        cluster.assert_complete([2, 3].map(peer));
    }
}

/// What it says first is lost, as it would be in a view that is over.
#[test]
fn it_is_said_until_it_is_heard() {
    for seed in 0..20 {
        let mut cluster = formed(seed, 1_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        joined(&mut cluster, 9);
        for name in [1, 2, 3] {
            cluster.cut.insert((peer(9), peer(name)));
        }
        cluster.run_for(Duration::from_secs(3));
        assert!(!votes(&cluster, 1, 9), "seed {seed}");
        cluster.heal();
        let limit = cluster.now + cluster.config.max_stall / 2;
        cluster.run_until(|cluster| votes(cluster, 9, 9));
        assert!(cluster.now <= limit, "seed {seed}");
        cluster.run_for(Duration::from_millis(100));
        let is_said = |cluster: &Cluster, name: PeerId| {
            cluster.under_way(name).iter().any(|(_, envelope)| matches!(envelope.body, Body::Contributes { .. }))
        };
        for _ in 0..200 {
            cluster.run_for(Duration::from_millis(10));
            assert!(
                [1, 2, 3].map(peer).iter().all(|name| !is_said(&cluster, *name)),
                "seed {seed}: it owes nothing more"
            );
        }
    }
}

#[test]
fn a_vote_that_the_first_in_line_does_not_hear_of_is_given_by_the_next() {
    for seed in 0..20 {
        let mut cluster = formed(seed, 1_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        joined(&mut cluster, 9);
        // It hears all else.
        cluster.deaf = Some(peer(1));
        let limit = cluster.now + cluster.config.max_stall;
        cluster.run_until(|cluster| votes(cluster, 9, 9));
        assert!(cluster.now <= limit, "seed {seed}");
    }
}

/// It can't have come to a step that we have not come to, nor is its word about others worth anything.
#[test]
fn nobody_gets_a_vote_for_what_was_not_done() {
    for seed in 0..10 {
        let mut cluster = formed(seed, 1_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        cluster.busy.insert(peer(9)); // It never loads the state.
        cluster.join(peer(9), &[peer(1)]);
        cluster.run_until(|cluster| cluster.peers[&peer(9)].view.is_some());
        for _ in 0..20 {
            for name in [1, 2, 3].map(peer) {
                let step = cluster.peers[&name].step + 50;
                cluster.say(peer(9), name, Body::Contributes { step });
            }
            cluster.run_for(Duration::from_millis(100));
        }
        assert!(!votes(&cluster, 1, 9), "seed {seed}");
    }
}

/// They come by one invitation, which gives a vote to one of them at a time.
#[test]
fn of_those_who_come_by_one_invitation_as_many_vote_as_it_says() {
    for seed in 0..20 {
        let mut cluster = formed(seed, 1_000, &[1, 2, 3]);
        cluster.run_for(Duration::from_secs(1));
        [62, 61, 63].into_iter().for_each(|name| joined(&mut cluster, name));
        cluster.run_until(|cluster| votes(cluster, 1, 61) || votes(cluster, 1, 62));
        let settled = view_of(&cluster, 1);
        cluster.run_for(cluster.config.max_stall);
        assert_eq!(view_of(&cluster, 1), settled, "seed {seed}: no change gives nobody a vote");
        let crowd = |view: &View| view.voters().filter(|voter| CROWD.contains(&voter.0[0])).collect::<Vec<_>>();
        let first = crowd(&settled);
        assert_eq!((first.len(), settled.voter_count(), settled.newcomers().len()), (1, 4, 2), "seed {seed}");
        // Its place is the next one's.
        cluster.kill(first[0]);
        cluster.run_until(|cluster| {
            let view = view_of(cluster, 1);
            !view.contains(first[0]) && crowd(&view).len() == 1
        });
    }
}

/// One that has no vote and no state, and one alone that has both.
fn with_one_that_needs_the_state(seed: u64) -> Cluster {
    let mut cluster = formed(seed, 1_000, &[1]);
    cluster.run_for(Duration::from_secs(1));
    cluster.busy.insert(peer(2)); // It never loads the state.
    cluster.join(peer(2), &[peer(1)]);
    cluster.run_until(|cluster| cluster.peers[&peer(2)].view.is_some());
    cluster.run_for(Duration::from_millis(300));
    cluster
}

#[test]
fn who_alone_votes_keeps_its_seat_when_it_comes_back_to_those_who_miss_it() {
    for seed in 0..20 {
        let mut cluster = with_one_that_needs_the_state(seed);
        let before = view_of(&cluster, 1).generation;
        cluster.kill(peer(1));
        cluster.run_for(Duration::from_millis(200 + 100 * seed));
        cluster.recover(peer(1));
        let limit = cluster.now + cluster.config.max_stall / 2;
        cluster
            .run_until(|cluster| cluster.peers[&peer(1)].machine.view().is_some_and(|view| view.generation > before));
        assert!(cluster.now <= limit, "seed {seed}: it took until {:?}", cluster.now);
        assert!(!cluster.has_event(peer(1), |event| matches!(event, Event::Evicted { .. })), "seed {seed}");
    }
}

#[test]
fn who_comes_back_while_another_process_of_it_is_heard_is_shown_out() {
    for seed in 0..20 {
        let mut cluster = with_one_that_needs_the_state(seed);
        let view = view_of(&cluster, 1);
        let (step, branch, parent) = (1, view.branch, view.parent);
        let branch_position = BranchPosition { step, branch, parent, forked: false, paused: false, recovering: true };
        cluster.say_of(peer(1), peer(2), (view.generation, view.id()), Body::Hello(branch_position));
        let said = cluster.under_way(peer(1));
        let is_out = |body: &Body| matches!(body, Body::Outsider { branch_position, .. } if !branch_position.paused);
        assert!(said.iter().any(|(from, told)| *from == peer(2) && is_out(&told.body)), "seed {seed}");
        let is_kept = |body: &Body| matches!(body, Body::Hello(branch_position) if branch_position.paused);
        assert!(!said.iter().any(|(from, told)| *from == peer(2) && is_kept(&told.body)), "seed {seed}");
    }
}
