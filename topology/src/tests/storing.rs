//! Nothing is said before it is stored, whatever the disk does.

use std::time::Duration;

use super::changes::formed;
use super::cluster::driver::Fate;
use super::cluster::{Cluster, RUN, Signs, contact, me, peer};
use crate::message::MAX_MEMBERS;
use crate::view::mark::{LostState, MarkStatus};
use crate::{
    Ballot, Body, BranchPosition, Config, Digest, Envelope, Event, Generation, Input, JoinRequest, Membership, Output,
    PeerId, Progress, Record, Time, Timer, View, ViewId,
};

const AT_0: Progress = Progress { step: 0, lineage: crate::Lineage::NONE, has_state: true, has_result: false };

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// All but timers and contacts.
fn outputs(machine: &mut Membership) -> Vec<Output> {
    let counts = |output: &Output| !matches!(output, Output::SetTimer { .. } | Output::Learn(_));
    std::iter::from_fn(|| machine.poll()).filter(counts).collect()
}

/// One of three members, back from its record, which it has stored.
fn member() -> (Membership, View) {
    member_with(MarkStatus::Nothing)
}

/// The same, and what it had saved.
fn member_with(noted: MarkStatus) -> (Membership, View) {
    let view = View::found(RUN, peer(1)).succeed([1, 2, 3].map(peer));
    let record = Record { root: crate::Root::default(), ..Record::of(view.clone(), None) };
    let contacts = [1, 2].map(peer).map(contact).to_vec();
    let config = Config::default();
    let mut machine = Membership::recover(config, RUN, me(peer(3)), (record, noted), contacts, AT_0, Time::ZERO);
    let first = outputs(&mut machine);
    assert!(matches!(&first[..], [Output::Persist(_)]), "not even that it is back: {first:?}");
    machine.handle(Time::ZERO, Input::Persisted).expect("ours");
    let said = outputs(&mut machine);
    assert!(said.iter().any(|output| is_said(output, |body| matches!(body, Body::Hello(_)))), "{said:?}");
    (machine, view)
}

fn is_said(output: &Output, what: impl Fn(&Body) -> bool) -> bool {
    matches!(output, Output::Send { envelope, .. } if what(&envelope.body))
}

fn prepare(machine: &mut Membership, now: Time, view: &View, attempt: u64, proposer: u8) {
    let ballot = Ballot { attempt, proposer: peer(proposer) };
    let body = Body::Prepare { ballot, boundary: None, unreachable: Vec::new() };
    let envelope = Envelope { run: RUN, generation: view.generation, view: view.id(), body };
    machine.handle(now, Input::Received { from: peer(proposer), envelope }).expect("a correct message");
}

fn promises(outputs: &[Output]) -> Vec<u64> {
    let attempt = |output: &Output| match output {
        Output::Send { envelope: Envelope { body: Body::Promise { ballot, .. }, .. }, .. } => Some(ballot.attempt),
        _ => None,
    };
    outputs.iter().filter_map(attempt).collect()
}

fn stored(outputs: &[Output]) -> Vec<Option<u64>> {
    let promised = |output: &Output| match output {
        Output::Persist(record) => Some(record.promised.map(|ballot| ballot.attempt)),
        _ => None,
    };
    outputs.iter().filter_map(promised).collect()
}

#[test]
fn a_promise_waits_for_its_record() {
    let (mut machine, view) = member();
    prepare(&mut machine, at(10), &view, 7, 1);
    let asked = outputs(&mut machine);
    assert_eq!((stored(&asked), asked.len()), (vec![Some(7)], 1), "{asked:?}");
    // Whatever happens meanwhile, nothing leaves.
    for input in [Input::Expired(Timer::Heartbeat), Input::Leave, Input::Expired(Timer::Join)] {
        machine.handle(at(400), input).expect("ours");
        assert_eq!(outputs(&mut machine), []);
    }
    machine.handle(at(500), Input::Persisted).expect("ours");
    assert_eq!(promises(&outputs(&mut machine)), [7]);
}

#[test]
fn records_that_wait_are_stored_as_one() {
    let (mut machine, view) = member();
    prepare(&mut machine, at(10), &view, 7, 1);
    assert_eq!(stored(&outputs(&mut machine)), [Some(7)]);
    for attempt in 8..14 {
        prepare(&mut machine, at(20), &view, attempt, 1 + (attempt % 2) as u8);
        assert_eq!(outputs(&mut machine), []);
    }
    machine.handle(at(30), Input::Persisted).expect("ours");
    let said = outputs(&mut machine);
    assert_eq!((promises(&said), stored(&said)), (vec![7], vec![Some(13)]), "one of them, then the newest record");
    machine.handle(at(40), Input::Persisted).expect("ours");
    let said = outputs(&mut machine);
    assert_eq!((promises(&said), stored(&said)), ((8..14).collect(), vec![]));
}

#[test]
fn a_store_that_fails_is_tried_again_with_what_is_newest() {
    let (mut machine, view) = member();
    prepare(&mut machine, at(10), &view, 7, 1);
    assert_eq!(stored(&outputs(&mut machine)), [Some(7)]);
    let mut now = at(10);
    for attempt in 8..16 {
        machine.handle(now, Input::NotPersisted).expect("ours");
        prepare(&mut machine, now, &view, attempt, 1);
        assert_eq!(outputs(&mut machine), [], "not before a pause");
        now = now + Config::default().heartbeat_interval();
        machine.handle(now, Input::Expired(Timer::Store)).expect("ours");
        let asked = outputs(&mut machine);
        assert_eq!((stored(&asked), asked.len()), (vec![Some(attempt)], 1), "{asked:?}");
    }
    machine.handle(now, Input::Persisted).expect("ours");
    let said = outputs(&mut machine);
    assert_eq!((promises(&said), stored(&said)), ((7..16).collect(), vec![]), "and none of them twice");
}

/// Whether the disk says no, or nothing.
#[test]
fn who_can_store_nothing_ends_and_has_said_nothing() {
    for hangs in [false, true] {
        let (mut machine, view) = member();
        let limit = Config::default().max_stall;
        prepare(&mut machine, at(1_000), &view, 7, 1);
        let mut tries = stored(&outputs(&mut machine)).len();
        let mut now = at(1_000);
        while now < at(1_000) + limit {
            assert!(!machine.has_ended());
            if !hangs {
                machine.handle(now, Input::NotPersisted).expect("ours");
            }
            now = now + Duration::from_millis(250);
            machine.handle(now, Input::Expired(Timer::Heartbeat)).expect("ours");
            machine.handle(now, Input::Expired(Timer::Store)).expect("ours");
            let done = outputs(&mut machine);
            tries += stored(&done).len();
            if machine.has_ended() {
                assert_eq!(done, [Output::Event(Event::NotStored)]);
            } else {
                assert_eq!(done.len(), stored(&done).len(), "{done:?}");
            }
        }
        assert!(machine.has_ended());
        assert_eq!(tries > 10, !hangs, "{tries}");
        machine.handle(now, Input::Persisted).expect("too late");
        assert_eq!(outputs(&mut machine), []);
    }
}

#[test]
fn a_disk_that_comes_back_in_time_costs_no_seat() {
    for seed in 0..40 {
        let mut cluster = formed(seed, 60, &[1, 2, 3]);
        cluster.failing.insert(peer(2));
        // A change of view that needs its vote.
        cluster.join(peer(4), &[peer(1)]);
        cluster.run_for(Duration::from_secs(3));
        let is_member = |name: u8, cluster: &Cluster| {
            let view = cluster.peers[&peer(name)].machine.view();
            view.is_some_and(|view| view.contains(peer(name)))
        };
        assert!(is_member(2, &cluster), "seed {seed}");
        cluster.failing.clear();
        cluster.run();
        cluster.assert_complete([1, 2, 3, 4].map(peer));
    }
}

#[test]
fn a_disk_that_stays_broken_costs_one_seat_and_no_run() {
    for seed in 0..40 {
        let mut cluster = formed(seed, 60, &[1, 2, 3]);
        cluster.failing.insert(peer(2));
        cluster.join(peer(4), &[peer(1)]);
        cluster.run();
        cluster.assert_complete([1, 3, 4].map(peer));
        assert_eq!(cluster.peers[&peer(2)].fate, Fate::Ended(Event::NotStored), "seed {seed}");
    }
}

/// The founder of a run keeps nothing of it: the run never begins, and says why.
#[test]
fn a_founder_without_a_disk_takes_no_step() {
    let mut cluster = Cluster::new(1, 60, 1);
    cluster.failing.insert(peer(1));
    cluster.found(peer(1));
    cluster.run();
    assert_eq!(cluster.peers[&peer(1)].fate, Fate::Ended(Event::NotStored));
    assert_eq!(cluster.peers[&peer(1)].step, 0);
}

/// The last event comes, though late: nothing that follows from the record does.
#[test]
fn an_end_waits_for_the_disk_no_longer_than_anything_else() {
    let mut machine = Membership::found(Config::default(), RUN, me(peer(1)), AT_0, Time::ZERO);
    assert_eq!(stored(&outputs(&mut machine)).len(), 1);
    machine.handle(at(10), Input::Leave).expect("ours");
    assert_eq!((outputs(&mut machine), machine.has_ended()), (vec![], true));
    machine.handle(Time::ZERO + Config::default().max_stall, Input::Expired(Timer::Store)).expect("ours");
    assert_eq!(outputs(&mut machine), [Output::Event(Event::Left { stayed: Vec::new() })]);
}

#[test]
fn what_waits_is_bounded() {
    let (mut machine, view) = member();
    prepare(&mut machine, at(10), &view, 7, 1);
    assert_eq!(stored(&outputs(&mut machine)).len(), 1);
    for name in 0..20_000_u32 {
        let mut from = [9; 32];
        from[..4].copy_from_slice(&name.to_le_bytes());
        let (from, generation) = (PeerId(from), Generation(0));
        let body = Body::Join(JoinRequest::new(contact(from), 1).signed(RUN, &Signs(from)));
        let envelope = Envelope { run: RUN, generation, view: ViewId::NONE, body };
        machine.handle(at(20), Input::Received { from, envelope }).expect("a correct message");
    }
    machine.handle(at(30), Input::Persisted).expect("ours");
    machine.handle(at(40), Input::Persisted).expect("ours");
    let count = outputs(&mut machine).len();
    machine.handle(at(50), Input::Persisted).expect("ours");
    let said = count + outputs(&mut machine).len();
    assert!((MAX_MEMBERS / 2..5 * MAX_MEMBERS).contains(&said), "{said}");
}

/// A hold that was asked for in a view is no answer to one that is asked for in the next.
#[test]
fn what_the_driver_says_of_the_view_before_does_not_count() {
    let (mut machine, view) = member();
    // It hears that the others go on, and then from them that it is in again.
    let next = view.succeed([1, 2].map(peer));
    let branch_position =
        BranchPosition { step: 9, branch: 0, parent: Some(view.id()), forked: false, paused: false, recovering: false };
    let body = Body::Outsider { branch_position, contacts: Vec::new(), chain: Vec::new() };
    let envelope = Envelope { run: RUN, generation: next.generation, view: next.id(), body };
    prepare(&mut machine, at(10), &view, 7, 1);
    assert_eq!(stored(&outputs(&mut machine)).len(), 1);
    machine.handle(at(20), Input::Received { from: peer(1), envelope }).expect("a correct message");
    // The driver does not know that it is outside, and finishes what it was at.
    machine.handle(at(30), Input::Synced).expect("ours");
    machine.handle(at(30), Input::Finished { step: 9, digest: Digest([1; 32]) }).expect("ours");
    assert_eq!(outputs(&mut machine), []);
    machine.handle(at(40), Input::Persisted).expect("ours");
    let said = outputs(&mut machine);
    assert!(said.contains(&Output::Event(Event::Evicted { by: peer(1) })), "{said:?}");
    assert!(!said.iter().any(|output| is_said(output, |body| matches!(body, Body::Finished { .. }))), "{said:?}");
    assert_eq!(machine.view(), None);
}

#[test]
fn who_has_lost_its_note_says_that_it_may_have_signed_anything() {
    for (noted, lost) in [(MarkStatus::Nothing, LostState::Nothing), (MarkStatus::Unknown, LostState::Unknown)] {
        let (mut machine, view) = member_with(noted);
        assert_eq!(machine.loss(), lost);
        prepare(&mut machine, Time::ZERO, &view, 1, 1);
        let mut said = outputs(&mut machine);
        machine.handle(Time::ZERO, Input::Persisted).expect("ours");
        said.extend(outputs(&mut machine));
        let tells = |body: &Body| matches!(body, Body::Promise { promise, .. } if promise.promise.lost == lost);
        assert!(said.iter().any(|output| is_said(output, tells)), "{said:?}");
    }
}

/// A disk says of its own machine that it lacks the state which its view goes on from: of that the others know nothing. What was decided is
/// shown to them as it was decided.
#[test]
fn what_a_disk_adds_to_a_proposal_is_told_to_nobody() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed, 100_000, 1);
        cluster.found(peer(1));
        let all = [1, 2, 3, 4].map(peer);
        all[1..].iter().for_each(|name| cluster.join(*name, &[peer(1)]));
        cluster.run_until(|cluster| cluster.is_formed(&all));
        cluster.run_for(Duration::from_secs(1));
        // The others go on without the fourth; one of them comes back with a record that says more than was decided.
        cluster.kill(peer(4));
        cluster.run_until(|cluster| cluster.is_formed(&all[..3]));
        cluster.kill(peer(3));
        let record = cluster.at(peer(3)).record.as_mut().expect("a member");
        let resume = &mut record.origin.as_mut().expect("a view that was decided").resume;
        resume.syncing.push(peer(3));
        resume.syncing.sort_unstable();
        cluster.recover(peer(3));
        cluster.run_until(|cluster| cluster.is_formed(&all[..3]));
        // It alone leads the one that was away to the view of all: each link as its voters have sealed it.
        cluster.split(&[&all[..2], &all[2..]]);
        cluster.recover(peer(4));
        let mut shown = 0;
        for _ in 0..2_000 {
            cluster.tick();
            for (_, envelope) in cluster.under_way(peer(4)).into_iter().filter(|(from, _)| *from == peer(3)) {
                let (Body::Install { chain, .. } | Body::Outsider { chain, .. }) = envelope.body else { continue };
                for link in &chain {
                    let mut signers = link.certificate().seals.iter().map(|(signer, _)| *signer);
                    assert!(signers.all(|signer| link.is_sealed_by(&Signs(peer(4)), signer)), "seed {seed}");
                    shown += 1;
                }
            }
        }
        assert!(shown > 0, "seed {seed}: it is led nowhere");
        cluster.heal();
        cluster.run_until(|cluster| cluster.is_formed(&all));
    }
}
