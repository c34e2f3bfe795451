//! What has to be shown: a view that somebody installs who was not there, and the ballot in which a member says that it accepted
//! something.

use std::time::Duration;

use super::cluster::{Cluster, RUN, Signs, contact, peer};
use super::words::{following, promised};
use crate::vote::certificate::Acceptance;
use crate::{
    Ballot, Body, BranchPosition, Certificate, Config, Envelope, Event, Evidence, Generation, Input, JoinRequest,
    JustifiedProposal, Lineage, MarkStatus, Membership, Output, PeerId, Progress, Promise, Proposal, Quorum, Reason,
    Record, ResumePlan, SignedPromise, SuccessionProof, Time, View, ViewId,
};

const MEMBERS: [u8; 4] = [1, 2, 3, 4];
const STEPS: u64 = 40;
const LIAR: u8 = 4;
const STRANGER: PeerId = PeerId([9; 32]);

/// A view that nobody has decided, of the stranger and whom it lets in.
fn made_up(cluster: &Cluster, victim: PeerId, next: View) -> Body {
    let joiner = JoinRequest { branch: next.branch, ..JoinRequest::new(contact(victim), cluster.config.incarnation) };
    let joiner = joiner.signed(RUN, &Signs(victim));
    let (holders, donors, syncing) = (Vec::new(), vec![STRANGER], vec![victim]);
    let resume = ResumePlan { step: STEPS, lineage: Lineage::NONE, holders, donors, syncing };
    let (reasons, joiners) = (vec![Reason::Joined(victim)], vec![joiner]);
    let proposal = Proposal { view: next, resume, reasons, joiners, promised: 1, of: 1 };
    let ballot = Ballot { attempt: 1, proposer: STRANGER };
    let certificate = Some(Certificate { ballot, seals: Vec::new() });
    Body::Install { proposal, certificate, contacts: Vec::new(), fork: None, chain: Vec::new() }
}

#[test]
fn who_comes_back_from_a_record_gives_its_seat_up_for_no_view_that_a_stranger_installs() {
    for seed in 0..10 {
        let mut cluster = super::changes::formed(seed, STEPS, &MEMBERS);
        cluster.run_for(Duration::from_millis(500));
        MEMBERS.map(peer).into_iter().for_each(|name| cluster.kill(name));
        cluster.run_for(Duration::from_secs(1));
        let victim = peer(2);
        cluster.recover(victim);
        let view = cluster.peers[&victim].machine.view().expect("its record is of one").clone();
        let mut next = view.succeed([victim, STRANGER]);
        next.generation = Generation(view.generation.0 + 1_000);
        let elsewhere = View::found(RUN, STRANGER).on_branch(7).succeed([victim, STRANGER]);
        for round in 0..40 {
            let branch_position =
                BranchPosition { step: STEPS, branch: 3, parent: None, forked: true, paused: false, recovering: false };
            let of = (Generation(1 << 20), ViewId([9; 32]));
            cluster.say_of(
                STRANGER,
                victim,
                of,
                Body::Outsider { branch_position, contacts: Vec::new(), chain: Vec::new() },
            );
            cluster.run_for(Duration::from_millis(100));
            let next = if round % 2 == 0 { &next } else { &elsewhere };
            let install = made_up(&cluster, victim, next.clone());
            cluster.say_of(STRANGER, victim, of, install);
            let kept = cluster.peers[&victim].record.as_ref().map(|record| record.view.id());
            assert_eq!(kept, Some(view.id()), "seed {seed}: its vote is gone");
        }
        [1, 3, 4].map(peer).into_iter().for_each(|name| cluster.recover(name));
        cluster.run_until(|cluster| cluster.running().is_empty());
        cluster.assert_complete(MEMBERS.map(peer));
    }
}

/// The others have gone on without it and have ended, and the liar alone is there: it leads it to where they were, as any member does, and
/// then makes up what follows.
#[test]
fn who_was_shown_what_came_of_its_view_takes_no_word_for_what_follows_there() {
    let (victim, liar) = (peer(2), STRANGER);
    let is_taken_in = |is_led: bool, of_last: bool| {
        let mut cluster = super::changes::formed(3, STEPS, &MEMBERS);
        cluster.run_for(Duration::from_millis(500));
        MEMBERS.map(peer).into_iter().for_each(|name| cluster.kill(name));
        cluster.run_for(Duration::from_secs(1));
        cluster.recover(victim);
        let view = cluster.peers[&victim].machine.view().expect("its record is of one").clone();
        let others = [1, 3, LIAR];
        let follows = |before: &View| {
            let (next, donors) = (before.succeed(others.map(peer)), others.map(peer).to_vec());
            let (holders, syncing) = (donors.clone(), Vec::new());
            let resume = ResumePlan { step: STEPS - 9, lineage: Lineage::of(before), holders, donors, syncing };
            let (reasons, joiners) = (vec![Reason::StoodStill], Vec::new());
            let next = Proposal { view: next, resume, reasons, joiners, promised: 3, of: 3 };
            let ballot = Ballot { attempt: 1, proposer: peer(1) };
            let accepted = Acceptance::of(before.id(), ballot, &next);
            let seals = others.map(|name| (peer(name), accepted.sign(&Signs(peer(name))))).to_vec();
            SuccessionProof::to(&next, Certificate { ballot, seals })
        };
        let first = follows(&view);
        let second = follows(&first.view);
        let last = if of_last { &second.view } else { &first.view };
        let mut next = last.succeed([victim, liar]);
        next.generation = Generation(last.generation.0 + 1_000);
        let (of, chain) = ((second.view.generation, second.view.id()), vec![first.clone(), second.clone()]);
        let parent = second.view.parent;
        let branch_position =
            BranchPosition { step: STEPS - 9, branch: 0, parent, forked: false, paused: false, recovering: false };
        let says =
            |chain: &[SuccessionProof]| Body::Outsider { branch_position, contacts: Vec::new(), chain: chain.to_vec() };
        let gone = |cluster: &Cluster| {
            cluster.peers[&victim].events.iter().filter(|event| matches!(event, Event::Evicted { .. })).count()
        };
        for _ in 0..1_000 {
            let before = gone(&cluster);
            cluster.say_of(liar, victim, of, says(&[]));
            if is_led && gone(&cluster) > before {
                cluster.say_of(liar, victim, of, says(&chain)); // It is outside by somebody's word by then.
            }
            cluster.run_for(Duration::from_millis(100));
            let install = made_up(&cluster, victim, next.clone());
            cluster.say_of(liar, victim, of, install);
            if cluster.peers[&victim].record.as_ref().is_some_and(|record| record.view == next) {
                return true;
            }
        }
        assert!(gone(&cluster) > 1, "it takes its seat again meanwhile");
        false
    };
    assert!(is_taken_in(false, true), "where it knows nothing of that, it has to believe somebody");
    assert!(!is_taken_in(true, true) && !is_taken_in(true, false));
}

/// It came back from a record, and the others go on without it. They put out one that all of them saw break the rules.
#[test]
fn who_is_outside_speaks_for_nobody_whom_it_saw_break_the_rules() {
    let [first, liar, third, back] = [1, 2, 3, 4].map(peer);
    let all = [first, liar, third, back];
    let founded = View::found(RUN, first).with_quorum(Quorum::TwoThirds);
    let view = founded.succeed(all);
    let at = |step: u64, has_result: bool| Progress { step, lineage: Lineage::of(&view), has_state: true, has_result };
    let answer = |has_seen: bool| {
        let resume = ResumePlan {
            step: 57,
            lineage: Lineage::of(&founded),
            holders: Vec::new(),
            donors: all.to_vec(),
            syncing: Vec::new(),
        };
        let (reasons, joiners) = (vec![Reason::StoodStill], Vec::new());
        let record = Record::of(
            view.clone(),
            Some(Proposal { view: view.clone(), resume, reasons, joiners, promised: 4, of: 4 }),
        );
        let config = Config { last_step: 100, fork_after: None, quorum: Quorum::TwoThirds, ..Config::default() };
        let (me, contacts) = (super::cluster::me(back), [first, liar, third].map(contact).to_vec());
        let mut member =
            Membership::recover(config, RUN, me, (record, MarkStatus::Nothing), contacts, at(58, false), Time::ZERO);
        let mut said = |input: Option<Input>| {
            input.into_iter().for_each(|input| member.handle(Time::ZERO, input).expect("it follows"));
            let mut said = Vec::new();
            while let Some(output) = member.poll() {
                match output {
                    Output::Persist(_) => member.handle(Time::ZERO, Input::Persisted).expect("ours"),
                    Output::Hold(_) => member.handle(Time::ZERO, Input::Held(at(58, false))).expect("ours"),
                    Output::Send { to, envelope } if to == first => said.push(envelope.body),
                    _ => {}
                }
            }
            said
        };
        let received = |body: Body| {
            let envelope = Envelope { run: RUN, generation: view.generation, view: view.id(), body };
            Some(Input::Received { from: first, envelope })
        };
        said(None);
        let parent = view.parent;
        let branch_position =
            BranchPosition { step: 59, branch: 0, parent, forked: false, paused: false, recovering: false };
        let joins = said(received(Body::Outsider { branch_position, contacts: Vec::new(), chain: Vec::new() }));
        assert!(joins.iter().any(|body| matches!(body, Body::Join(_))), "it is outside: {joins:?}");
        said(has_seen.then_some(Input::Suspected { peer: liar, evidence: Evidence::Misbehaved }));
        let ballot = Ballot { attempt: 2, proposer: first };
        let promised = said(received(Body::Prepare { ballot, boundary: None, unreachable: Vec::new() }));
        let own = promised.into_iter().find_map(|body| match body {
            Body::Promise { promise, .. } => Some(promise),
            _ => None,
        });
        let promise = |by: PeerId, accused: Vec<PeerId>| {
            let promise = Promise { accused, ..Promise::at(at(59, true)) };
            SignedPromise::new(&Signs(by), view.id(), ballot, by, promise)
        };
        let (ours, theirs) = (own.expect("it promises"), vec![liar]);
        let promises = vec![promise(first, theirs.clone()), promise(liar, Vec::new()), promise(third, theirs), ours];
        let (holders, syncing, lineage) = (vec![first, third], Vec::new(), Lineage::of(&view));
        let resume = ResumePlan { step: 59, lineage, donors: holders.clone(), holders, syncing };
        let reasons = vec![Reason::Lost { peer: liar, evidence: Evidence::Misbehaved }, Reason::Restarted(back)];
        let next = view.succeed([first, third]);
        let proposal = Proposal { view: next, resume, reasons, joiners: Vec::new(), promised: 4, of: 4 };
        let excluded = vec![(liar, Evidence::Misbehaved), (back, Evidence::Restarted)];
        let justified = JustifiedProposal::new(&Signs(first), view.id(), ballot, proposal, promises, excluded);
        let (justified, seal) = (Box::new(justified.clone()), justified.seal);
        said(received(Body::Propose { ballot, justified, promises: Vec::new(), seal }))
    };
    let (unseen, seen) = (answer(false), answer(true));
    assert!(unseen.iter().any(|body| matches!(body, Body::Nack { .. })), "{unseen:?}");
    assert!(seen.iter().any(|body| matches!(body, Body::Echo { .. })), "{seen:?}");
}

/// The last of three goes on as a fork, and has a quorum there.
#[test]
fn who_goes_on_in_a_fork_leaves_it_for_no_strangers_word() {
    for seed in 0..10 {
        let mut cluster = super::changes::formed(seed, 1_000 * STEPS, &[1, 2, 3]);
        [1, 3].map(peer).into_iter().for_each(|name| cluster.kill(name));
        let victim = peer(2);
        let view_of = |cluster: &Cluster| cluster.peers[&victim].machine.view().cloned();
        cluster.run_until(|cluster| view_of(cluster).is_some_and(|view| view.forked));
        let view = view_of(&cluster).expect("a fork");
        let elsewhere = View::found(RUN, STRANGER).on_branch(7);
        for round in 0..40 {
            let step = cluster.peers[&victim].step + 100;
            let branch_position = BranchPosition {
                step,
                branch: 7,
                parent: None,
                forked: round % 2 == 0,
                paused: false,
                recovering: false,
            };
            let of = (Generation(view.generation.0 + 5), ViewId([9; 32]));
            cluster.say_of(
                STRANGER,
                victim,
                of,
                Body::Outsider { branch_position, contacts: Vec::new(), chain: Vec::new() },
            );
            cluster.run_for(Duration::from_millis(200));
            let mut next = elsewhere.succeed([victim, STRANGER]);
            next.generation = Generation(view.generation.0 + 5);
            let install = made_up(&cluster, victim, next);
            cluster.say_of(STRANGER, victim, of, install);
            assert_eq!(view_of(&cluster).map(|view| view.id()), Some(view.id()), "seed {seed}, round {round}");
        }
        let before = cluster.peers[&victim].step;
        cluster.run_for(Duration::from_secs(1));
        assert!(cluster.peers[&victim].step > before, "seed {seed}: it takes steps");
    }
}

/// One joins, in a decree of its own.
fn join_alone(cluster: &mut Cluster, joiner: u8) {
    cluster.join(peer(joiner), &[peer(1)]);
    cluster.run_until(|cluster| cluster.peers[&peer(1)].machine.view().is_some_and(|view| view.contains(peer(joiner))));
}

#[test]
fn who_comes_back_from_a_record_leads_on_those_who_were_away_for_longer() {
    for seed in 0..10 {
        let mut cluster = super::changes::formed(seed, 40 * STEPS, &MEMBERS);
        cluster.run_for(Duration::from_millis(500));
        cluster.kill(peer(2));
        cluster.run_until(|cluster| cluster.is_formed(&[1, 3, 4].map(peer)));
        (5..8).for_each(|joiner| join_alone(&mut cluster, joiner));
        let others = [1, 3, 4, 5, 6, 7].map(peer);
        let is_whole = |cluster: &Cluster| others.iter().all(|name| cluster.peers[name].state.is_some());
        cluster.run_until(|cluster| cluster.is_formed(&others) && is_whole(cluster));
        others.into_iter().for_each(|name| cluster.kill(name));
        others.into_iter().for_each(|name| cluster.recover(name));
        cluster.run_until(|cluster| cluster.is_formed(&others));
        cluster.recover(peer(2));
        let before = cluster.now;
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 4, 5, 6, 7].map(peer)));
        assert!(cluster.now - before < Duration::from_secs(10), "seed {seed}: their records have the chain");
    }
}

#[test]
fn who_was_away_for_several_views_is_led_to_the_present_one() {
    for seed in 0..10 {
        let mut cluster = super::changes::formed(seed, 40 * STEPS, &MEMBERS);
        cluster.kill(peer(2));
        cluster.run_until(|cluster| cluster.is_formed(&[1, 3, 4].map(peer)));
        (5..8).for_each(|joiner| join_alone(&mut cluster, joiner));
        cluster.recover(peer(2));
        let before = cluster.now;
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 4, 5, 6, 7].map(peer)));
        assert!(cluster.now - before < Duration::from_secs(10), "seed {seed}: a chain shows at once where they are");
    }
}

#[test]
fn who_asked_a_liar_to_be_let_in_is_not_locked_in_its_view() {
    for seed in 0..10 {
        let mut cluster = super::changes::formed(seed, 40 * STEPS, &MEMBERS);
        let joiner = peer(5);
        cluster.cut.extend(MEMBERS.map(|member| (peer(member), joiner)));
        cluster.join(joiner, &[STRANGER, peer(1)]);
        cluster.run_for(Duration::from_secs(5));
        let mut next = View::found(RUN, STRANGER).succeed([joiner, STRANGER]);
        next.generation = Generation(1 << 40);
        let install = made_up(&cluster, joiner, next.clone());
        cluster.say_of(STRANGER, joiner, (next.generation, next.id()), install);
        assert!(cluster.peers[&joiner].machine.view().is_some_and(|view| view.contains(STRANGER)), "seed {seed}");
        cluster.run_for(Duration::from_secs(1));
        cluster.cut.clear();
        cluster.at(joiner).generation = 0; // It has learned nothing there.
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 4, 5].map(peer)));
    }
}

#[test]
fn what_was_accepted_in_a_ballot_whose_proposer_never_made_it_counts_for_nothing() {
    let mut judged = 0;
    for seed in 0..20 {
        let mut cluster = super::changes::formed(seed, STEPS, &MEMBERS);
        cluster.run_for(Duration::from_millis(seed * 40));
        let (liar, view) = (Signs(peer(LIAR)), cluster.peers[&peer(1)].machine.view().expect("a member").id());
        let (first, last) = (Ballot { attempt: 5, proposer: peer(LIAR) }, Ballot { attempt: 9, proposer: peer(LIAR) });
        let Some(promises) = promised(&mut cluster, first) else { continue };
        let next = following(&cluster, &promises);
        let lost = JustifiedProposal::new(&liar, view, first, next, promises, Vec::new());
        let Some(mut promises) = promised(&mut cluster, last) else { continue };
        for (proposer, refused) in [(2, true), (LIAR, false)] {
            let claim = Ballot { attempt: 7, proposer: peer(proposer) };
            let own = promises.iter_mut().find(|signed| signed.by == peer(LIAR)).expect("it promises too");
            let promise = Promise { accepted: Some((claim, lost.hash())), ..own.promise.clone() };
            *own = SignedPromise::new(&liar, view, last, peer(LIAR), promise);
            let justified = JustifiedProposal { last: lost.sign(&liar, view, claim), ..lost.clone() };
            let (seal, justified) = (lost.sign(&liar, view, last), Box::new(justified));
            let body = Body::Propose { ballot: last, justified, promises: promises.clone(), seal };
            assert_eq!(cluster.say(peer(LIAR), peer(1), body), refused, "seed {seed}: by {proposer}");
        }
        judged += 1;
    }
    assert!(judged > 5, "{judged}");
}
