//! Two processes with one identity: the one goes that was started before, by what a quorum has decided and nothing less.

use std::time::Duration;

use super::cluster::driver::Peer;
use super::cluster::{Cluster, RUN, Signs, contact, me, peer};
use crate::{
    Body, BranchPosition, ChangeRole, Envelope, Event, Generation, Input, JoinRequest, Membership, Output, PeerId,
    Progress, View,
};

const MEMBERS: [u8; 4] = [1, 2, 3, 4];
const STEPS: u64 = 4_000;
/// Of whom there are two processes. It came last, so that its incarnation is not the first.
const TWICE: u8 = 4;

/// Hands it to the process that the cluster does not know any more. What that tells its user.
fn hears(old: &mut Peer, cluster: &Cluster, (from, envelope): (PeerId, Envelope)) -> Vec<Event> {
    let machine = &mut old.machine;
    machine.handle(cluster.now, Input::Received { from, envelope }).expect("it is sound");
    let mut events = Vec::new();
    while let Some(output) = machine.poll() {
        let answer = match output {
            Output::Persist(_) => Input::Persisted,
            Output::Hold(_) => {
                old.hold = None;
                let has_result = old.result.is_some_and(|(step, _)| step == old.step);
                let (step, lineage, has_state) = (old.step, old.lineage, true);
                Input::Held(crate::Progress { step, lineage, has_state, has_result })
            }
            Output::Event(event) => {
                events.push(event);
                continue;
            }
            Output::Send { .. } | Output::Learn(_) | Output::Keep(_) | Output::SetTimer { .. } | Output::Resume(_) => {
                continue;
            }
        };
        machine.handle(cluster.now, answer).expect("it is our own");
    }
    events
}

/// Says something as `view`'s member of that name, and takes what comes back.
fn answered(cluster: &mut Cluster, view: &View, body: Body) -> Option<(PeerId, Envelope)> {
    let before = cluster.under_way(peer(TWICE)).len();
    cluster.say_of(peer(TWICE), peer(1), (view.generation, view.id()), body);
    let said = cluster.under_way(peer(TWICE));
    let told = |(from, envelope): &(PeerId, Envelope)| {
        *from == peer(1) && matches!(envelope.body, Body::Install { .. } | Body::Outsider { .. })
    };
    if said.len() > before { said.into_iter().rev().find(told) } else { None }
}

#[test]
fn who_is_shown_twice_that_a_later_process_has_its_seat_ends() {
    assert!(shown(true) > 5);
}

#[test]
fn what_an_earlier_process_has_asked_for_ends_nobody() {
    assert!(shown(false) > 5);
}

/// How many members that were shown again and again that another process of theirs was let in, a `later` one or not, did what they
/// should.
fn shown(later: bool) -> u32 {
    let mut shown = 0;
    for seed in 0..20 {
        let mut cluster = super::changes::formed(seed, STEPS, &MEMBERS);
        cluster.run_for(Duration::from_millis(500));
        let mut old = cluster.peers.remove(&peer(TWICE)).expect("a member");
        let view = old.machine.view().expect("a member").clone();
        if !later {
            cluster.config.incarnation = 0; // Who asks then was started before all others.
        }
        cluster.join(peer(TWICE), &[peer(1)]);
        let is_back = |cluster: &Cluster| {
            let later = cluster.peers[&peer(1)].machine.view().is_some_and(|now| now.generation > view.generation);
            later && cluster.is_formed(&MEMBERS.map(peer))
        };
        cluster.run_until(is_back);
        cluster.run_for(Duration::from_millis(600));
        let Some(out) = answered(&mut cluster, &view, Body::Heartbeat { step: 0, waiting: 0 }) else { continue };
        let events = hears(&mut old, &cluster, out);
        if events != [Event::Evicted { by: peer(1) }] {
            continue; // The chain has shown it more already, or is not there.
        }
        let (branch, generation) = (view.branch, view.generation);
        let joiner = JoinRequest { branch, generation, ..JoinRequest::new(contact(peer(TWICE)), 1 << 40) };
        let joiner = joiner.signed(RUN, &Signs(peer(TWICE)));
        let Some((from, install)) = answered(&mut cluster, &view, Body::Join(joiner)) else { continue };
        assert!(matches!(install.body, Body::Install { .. }), "seed {seed}: {install:?}");
        let mut forged = install.clone();
        if let Body::Install { proposal, .. } = &mut forged.body {
            proposal.view.generation = Generation(proposal.view.generation.0 + 1);
        }
        for _ in 0..3 {
            let events = hears(&mut old, &cluster, (from, forged.clone()));
            assert!(!events.contains(&Event::Twin { by: from }), "seed {seed}: nobody has decided it");
            assert_eq!(old.machine.view(), None, "seed {seed}: nobody has let it in");
        }
        assert_eq!(hears(&mut old, &cluster, (from, install.clone())), [], "seed {seed}: the other one may be gone");
        let end: &[Event] = if later { &[Event::Twin { by: from }] } else { &[] };
        for _ in 0..3 {
            let events = hears(&mut old, &cluster, (from, install.clone()));
            assert_eq!(events, end, "seed {seed}");
            if later {
                break;
            }
        }
        shown += 1;
    }
    shown
}

/// Two come back from one record, each alone, to one view. The other one lets somebody in there.
#[test]
fn who_is_to_stay_by_what_another_process_has_promised_takes_its_seat_as_one_that_comes_back() {
    let (twice, joiner) = (peer(1), peer(2));
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed, STEPS, 2);
        cluster.found(twice);
        cluster.run_for(Duration::from_secs(1));
        let record = cluster.peers[&twice].record.clone();
        cluster.kill(twice);
        cluster.recover(twice);
        let has_come_back =
            |cluster: &Cluster| cluster.has_event(twice, |event| matches!(event, Event::Changed { .. }));
        cluster.run_until(has_come_back);
        cluster.run_for(Duration::from_secs(1));
        let mut old = cluster.peers.remove(&twice).expect("there");
        let view = old.machine.view().expect("it has come back").clone();
        let progress = Progress { has_state: true, ..Progress::default() };
        let process = Membership::found(cluster.config.clone(), RUN, me(twice), progress, cluster.now);
        let mut copy = Peer::new(process, progress, old.state);
        copy.record = record;
        cluster.peers.insert(twice, copy);
        cluster.recover(twice);
        cluster.run_until(has_come_back);
        assert_eq!(cluster.peers[&twice].machine.view(), Some(&view), "seed {seed}: both are in one view");
        cluster.join(joiner, &[twice]);
        cluster.run_until(|cluster| cluster.is_formed(&[twice, joiner]));
        let branch_position = BranchPosition {
            step: 0,
            branch: view.branch,
            parent: view.parent,
            forked: false,
            paused: false,
            recovering: false,
        };
        cluster.say_of(twice, joiner, (view.generation, view.id()), Body::Hello(branch_position));
        let said = cluster.under_way(twice).into_iter();
        let mut shown = said.filter(|(from, told)| *from == joiner && matches!(told.body, Body::Install { .. }));
        let install = shown.next_back().expect("it is one view behind");
        let events = hears(&mut old, &cluster, install);
        assert!(!events.iter().any(|event| matches!(event, Event::Changed { .. })), "seed {seed}: {events:?}");
        assert!(old.machine.view().is_some_and(|view| view.contains(joiner)), "seed {seed}: it is there");
        assert_eq!(old.machine.doing(), ChangeRole::Recovers, "seed {seed}: it has not promised that");
    }
}
