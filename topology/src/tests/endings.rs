//! How a run ends: nobody is sent away who has done its part, and all that leave at once have left.

use std::time::Duration;

use super::cluster::{RUN, Signs, contact, me, peer};
use crate::view::mark::MarkStatus;
use crate::vote::certificate::Acceptance;
use crate::{
    Ballot, Body, BranchPosition, CatchUpAction, Certificate, Config, Envelope, Event, Evidence, Generation, Input,
    Lineage, Membership, Output, PeerId, Progress, Proposal, Reason, Record, RefusalReason, ResumePlan,
    SuccessionProof, Time, Timer, View, ViewId,
};

const STEPS: u64 = 40;

#[test]
fn who_is_outside_when_the_run_ends_gets_the_last_state() {
    for seed in 0..20 {
        let members = [1, 2, 3, 4].map(peer);
        let mut cluster = super::changes::formed(seed, STEPS, &[1, 2, 3, 4]);
        cluster.run_until(|cluster| cluster.peers[&members[0]].step >= STEPS - 2);
        for other in [1, 2, 3].map(peer) {
            cluster.cut.extend([(members[3], other), (other, members[3])]);
        }
        // The others have come to the end, and have put it out by now.
        cluster.run_for(Duration::from_millis(7_500));
        cluster.cut.clear();
        let before = cluster.now;
        cluster.run();
        cluster.assert_complete(members);
        assert!(cluster.now - before < Duration::from_secs(30), "seed {seed}: it is there");
    }
}

#[test]
fn nobody_waits_long_at_the_end_for_one_that_never_comes() {
    for seed in 0..20 {
        let mut cluster = super::changes::formed(seed, STEPS, &[1, 2, 3, 4]);
        cluster.run_until(|cluster| cluster.peers[&peer(1)].step >= STEPS - 2);
        cluster.hang(peer(4));
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3].map(peer)));
        let before = cluster.now;
        cluster.run_until(|cluster| [1, 2, 3].map(peer).iter().all(|name| !cluster.running().contains(name)));
        cluster.assert_complete([1, 2, 3].map(peer));
        assert!(cluster.now - before < Duration::from_secs(14), "seed {seed}: {:?}", cluster.now - before);
    }
}

#[test]
fn who_leaves_is_gone_only_when_another_has_decided_that() {
    for seed in 0..60 {
        let names: Vec<u8> = (1..=2 + (seed % 3) as u8).collect();
        let mut cluster = super::changes::formed(seed, 40 * STEPS, &names);
        cluster.run_for(Duration::from_millis(500 + seed * 7));
        let leaver = peer(names[seed as usize % names.len()]);
        cluster.leave(leaver);
        cluster.run_until(|cluster| !cluster.peers[&leaver].is_running());
        // What it said last may never arrive.
        let knows = |peer: &PeerId| cluster.peers[peer].machine.view().is_some_and(|view| !view.contains(leaver));
        assert!(names.iter().map(|name| peer(*name)).any(|name| name != leaver && knows(&name)), "seed {seed}");
    }
}

#[test]
fn all_leave_at_one_moment() {
    let mut longest = Duration::ZERO;
    for seed in 0..300 {
        let names: Vec<u8> = (1..=2 + (seed % 5) as u8).collect();
        let mut cluster = super::changes::formed(seed, 40 * STEPS, &names);
        cluster.run_for(Duration::from_millis(seed * 7));
        let before = cluster.now;
        names.iter().for_each(|name| cluster.leave(peer(*name)));
        cluster.run();
        for name in names {
            let has_left = |event: &Event| matches!(event, Event::Left { .. });
            assert!(cluster.has_event(peer(name), has_left), "seed {seed}: {:?}", cluster.peers[&peer(name)].fate);
        }
        longest = longest.max(cluster.now - before);
    }
    assert!(longest < Duration::from_secs(10), "a user would give up: {longest:?}");
}

#[test]
fn who_hears_that_the_run_has_finished_asks_all_others_at_once() {
    let config = Config { last_step: STEPS, ..Config::default() };
    let contacts = (1..6).map(|name| contact(peer(name))).collect();
    let mut joiner = Membership::join(config, RUN, me(peer(9)), contacts, Time::ZERO);
    let asked = |joiner: &mut Membership| {
        let outputs = std::iter::from_fn(|| joiner.poll());
        let joins = outputs.filter_map(|output| match output {
            Output::Send { to, envelope: Envelope { body: Body::Join(_), .. } } => Some(to),
            _ => None,
        });
        joins.collect::<Vec<_>>()
    };
    let first = asked(&mut joiner);
    assert_eq!(first.len(), 1);
    let body = Body::Refuse(RefusalReason::RunFinished);
    let envelope = Envelope { run: RUN, generation: Generation(3), view: ViewId([3; 32]), body };
    joiner.handle(Time::ZERO, Input::Received { from: first[0], envelope }).expect("well-formed");
    let all: std::collections::BTreeSet<_> = asked(&mut joiner).into_iter().collect();
    assert!((1..6).map(peer).filter(|name| *name != first[0]).all(|name| all.contains(&name)), "{all:?}");
}

#[test]
fn what_may_be_stable_on_a_lost_members_disk_is_waited_for_and_left_behind_as_a_fork_alone() {
    let (here, lost) = (peer(1), peer(2));
    let both = View::found(RUN, here).succeed([here, lost]);
    let view = both.succeed([here]);
    // It went on alone after step 57; what it has on disk is of `held`.
    let comes_back = |held: u64, checkpoint_every: u64, fork_after: Option<Duration>| {
        let resume =
            ResumePlan { step: 57, lineage: Lineage::of(&both), holders: vec![], donors: vec![here], syncing: vec![] };
        let evidence = crate::Evidence::Closed;
        let reasons = vec![Reason::Lost { peer: lost, evidence }];
        let origin = Proposal { view: view.clone(), resume, reasons, joiners: Vec::new(), promised: 2, of: 2 };
        let record = Record { certificate: None::<Certificate>, ..Record::of(view.clone(), Some(origin)) };
        let config = Config { checkpoint_every, fork_after, last_step: 100, ..Config::default() };
        let progress = Progress { step: held, lineage: Lineage::NONE, has_state: true, has_result: false };
        let contacts = vec![contact(lost)];
        let mut now = Time::ZERO;
        let mut member =
            Membership::recover(config, RUN, me(here), (record, MarkStatus::Nothing), contacts, progress, now);
        let (mut timers, mut went_on) = (std::collections::BTreeMap::new(), None);
        for _ in 0..4_000 {
            while let Some(output) = member.poll() {
                match output {
                    Output::SetTimer { timer, at } => drop(timers.insert(timer, at)),
                    Output::Persist(_) => member.handle(now, Input::Persisted).expect("ours"),
                    Output::Hold(_) => member.handle(now, Input::Held(progress)).expect("ours"),
                    Output::Resume(resumption) => {
                        assert_eq!(resumption.catch_up, CatchUpAction::Current);
                        went_on.get_or_insert((now, resumption.view.forked, resumption.step));
                    }
                    Output::Send { .. } | Output::Learn(_) | Output::Keep(_) | Output::Event(_) => {}
                }
            }
            if went_on.is_some() {
                break;
            }
            let Some((timer, at)) = timers.iter().map(|(timer, at)| (*timer, *at)).min_by_key(|(_, at)| *at) else {
                break;
            };
            let _: Timer = timer;
            timers.remove(&timer);
            now = now.max(at);
            member.handle(now, Input::Expired(timer)).expect("ours");
        }
        went_on.map(|(at, forked, step)| (at - Time::ZERO, forked, step))
    };
    let long = Some(Duration::from_secs(120));
    let (after, forked, step) = comes_back(40, 10, long).expect("it goes on at last");
    assert!(forked && step == 40 && after >= Duration::from_secs(120), "{after:?} {forked}");
    assert_eq!(comes_back(40, 10, None), None, "without forks it waits for whoever has step 50");
    for (held, every) in [(50, 10), (40, 20), (40, 0)] {
        let (after, forked, step) = comes_back(held, every, long).expect("nothing later is due");
        assert!(!forked && step == held && after < Duration::from_secs(60), "{held} {every}: {after:?} {forked}");
    }
}

#[test]
fn who_was_a_member_some_views_ago_brings_what_nobody_else_holds_any_more() {
    let [here, former, stranger] = [1, 2, 9].map(peer);
    let decided = |view: View, step: u64| {
        let resume = ResumePlan { step, lineage: Lineage::NONE, holders: vec![], donors: vec![here], syncing: vec![] };
        Proposal { view, resume, reasons: vec![Reason::StoodStill], joiners: Vec::new(), promised: 1, of: 1 }
    };
    let certificate = || Certificate { ballot: Ballot { attempt: 1, proposer: here }, seals: Vec::new() };
    // It was in the views that began after steps 0 and 20 with others, is alone since, and has lost all that it had.
    let second = View::found(RUN, here).succeed([here, former]);
    let third = second.succeed([1, 2, 3, 4, 5].map(peer));
    let alone = third.succeed([here]);
    let view = alone.succeed([here]);
    let goes_on_from = |from: PeerId, step: u64, lineage: Lineage, checkpoint_every: u64, known: bool| {
        let led = [(second.clone(), 0), (third.clone(), 20), (alone.clone(), 57)];
        let chain = led.into_iter().map(|(view, step)| SuccessionProof::to(&decided(view, step), certificate()));
        let record = Record {
            certificate: Some(certificate()),
            chain: chain.skip(if known { 0 } else { 2 }).collect(),
            ..Record::of(view.clone(), Some(decided(view.clone(), 57)))
        };
        let config = Config { checkpoint_every, fork_after: None, last_step: 100, ..Config::default() };
        let (interval, nothing) = (config.probe_interval(), Progress::default());
        let mut now = Time::ZERO;
        let mut member = Membership::recover(
            config,
            RUN,
            me(here),
            (record, MarkStatus::Nothing),
            vec![contact(from)],
            nothing,
            now,
        );
        let (generation, state) = (third.generation, Some((step, lineage)));
        let joiner = crate::JoinRequest { step, state, generation, ..crate::JoinRequest::new(contact(from), 1) };
        let joiner = joiner.signed(RUN, &Signs(from));
        let (mut timers, mut asks_at) = (std::collections::BTreeMap::new(), now);
        for _ in 0..4_000 {
            while let Some(output) = member.poll() {
                match output {
                    Output::SetTimer { timer, at } => drop(timers.insert(timer, at)),
                    Output::Persist(_) => member.handle(now, Input::Persisted).expect("ours"),
                    Output::Hold(_) => member.handle(now, Input::Held(nothing)).expect("ours"),
                    Output::Resume(resumption) => {
                        assert_eq!(resumption.catch_up, CatchUpAction::State { from: vec![from] });
                        return Some((now - Time::ZERO, resumption.view.forked, resumption.step));
                    }
                    Output::Event(Event::NoState) => return None,
                    Output::Send { .. } | Output::Learn(_) | Output::Keep(_) | Output::Event(_) => {}
                }
            }
            if now >= asks_at {
                asks_at = now + interval;
                let body = Body::Join(joiner.clone());
                let envelope = Envelope { run: RUN, generation: third.generation, view: third.id(), body };
                member.handle(now, Input::Received { from, envelope }).expect("well-formed");
            }
            let Some((timer, at)) = timers.iter().map(|(timer, at)| (*timer, *at)).min_by_key(|(_, at)| *at) else {
                break;
            };
            let _: Timer = timer;
            timers.remove(&timer);
            now = now.max(at);
            member.handle(now, Input::Expired(timer)).expect("ours");
        }
        None
    };
    let (second, third) = (Lineage::of(&second), Lineage::of(&third));
    let (after, forked, step) = goes_on_from(former, 40, third, 0, true).expect("it is all that there is");
    assert!(!forked && step == 40 && after >= Config::default().max_stall, "{after:?} {forked} {step}");
    assert!(goes_on_from(former, 15, second, 0, true).is_some());
    assert_eq!(goes_on_from(former, 30, second, 0, true), None, "it was gone back behind");
    assert_eq!(goes_on_from(former, 40, Lineage { branch: 8, ..third }, 0, true), None, "it was never come through");
    assert_eq!(goes_on_from(stranger, 40, third, 0, true), None, "it was in none of them");
    assert_eq!(goes_on_from(former, 40, third, 0, false), None, "that it was is not known");
    assert_eq!(goes_on_from(former, 40, third, 10, true), None, "three of five are away, and may hold step 50");
    assert!(goes_on_from(former, 40, third, 20, true).is_some(), "nothing later was due");
}

/// What it sends, and how it has left; what it stores is stored at once.
fn drained(machine: &mut Membership) -> (Vec<(PeerId, Body)>, Option<Vec<PeerId>>) {
    let (mut sent, mut left) = (Vec::new(), None);
    while let Some(output) = machine.poll() {
        match output {
            Output::Persist(_) => machine.handle(Time::ZERO, Input::Persisted).expect("ours"),
            Output::Send { to, envelope } => sent.push((to, envelope.body)),
            Output::Event(Event::Left { stayed }) => left = Some(stayed),
            _ => {}
        }
    }
    (sent, left)
}

#[test]
fn who_leaves_gives_its_seat_up_only_when_some_of_those_who_stay_know() {
    let (here, other) = (peer(1), peer(2));
    let both = View::found(RUN, here).succeed([here, other]);
    let resume =
        ResumePlan { step: 3, lineage: Lineage::of(&both), holders: vec![], donors: vec![other], syncing: vec![] };
    let (view, reasons) = (both.succeed([other]), vec![Reason::Left(here)]);
    let proposal = Proposal { view, resume, reasons, joiners: Vec::new(), promised: 2, of: 2 };
    let ballot = Ballot { attempt: 1, proposer: other };
    let accepted = Acceptance::of(both.id(), ballot, &proposal);
    let seals = [here, other].map(|name| (name, accepted.sign(&Signs(name)))).to_vec();
    let certificate = Some(Certificate { ballot, seals });
    let says = |machine: &mut Membership, of: (Generation, ViewId), body: Body| {
        let envelope = Envelope { run: RUN, generation: of.0, view: of.1, body };
        machine.handle(Time::ZERO, Input::Received { from: other, envelope }).expect("well-formed");
    };
    let leaves = |answers: bool, closes: bool| {
        let record = Record::of(both.clone(), None);
        let config = Config { last_step: STEPS, ..Config::default() };
        let progress = Progress { step: 3, lineage: Lineage::of(&both), has_state: true, has_result: true };
        let mut machine = Membership::recover(
            config,
            RUN,
            me(here),
            (record, MarkStatus::Nothing),
            vec![contact(other)],
            progress,
            Time::ZERO,
        );
        machine.handle(Time::ZERO, Input::Leave).expect("ours");
        drained(&mut machine);
        let (proposal, certificate) = (proposal.clone(), certificate.clone());
        let install = Body::Install { proposal, certificate, contacts: Vec::new(), fork: None, chain: Vec::new() };
        says(&mut machine, (both.generation, both.id()), install);
        let (told, left) = drained(&mut machine);
        assert!(told.iter().any(|(to, body)| *to == other && matches!(body, Body::Install { .. })), "{told:?}");
        assert_eq!(left, None, "nobody is known to know");
        if closes {
            let closed = Input::Suspected { peer: other, evidence: Evidence::Closed };
            machine.handle(Time::ZERO, closed).expect("ours");
        }
        if answers {
            let decided = both.succeed([other]);
            let parent = Some(both.id());
            let branch_position =
                BranchPosition { step: 3, branch: 0, parent, forked: false, paused: false, recovering: false };
            says(&mut machine, (decided.generation, decided.id()), Body::Hello(branch_position));
            return drained(&mut machine).1;
        }
        // What it wanted before has no use any more.
        for input in [Input::Unable, Input::Expired(Timer::Round), Input::Expired(Timer::Heartbeat)] {
            machine.handle(Time::ZERO, input).expect("ours");
        }
        let (told, left) = drained(&mut machine);
        assert!(told.is_empty() && left.is_none(), "{told:?} {left:?}");
        let late = Time::ZERO + Config::default().max_stall * 2;
        machine.handle(late, Input::Expired(Timer::Goodbye)).expect("ours");
        drained(&mut machine).1
    };
    assert_eq!(leaves(true, false), Some(vec![other]));
    assert_eq!(leaves(true, true), Some(vec![other]), "it has come back");
    assert_eq!(leaves(false, false), Some(Vec::new()), "it may come back to its seat");
    assert_eq!(leaves(false, true), Some(Vec::new()));
}
