//! One peer's word: well-formed messages that no correct peer sends end nobody, move nobody and use nothing up. Each test lets
//! a peer say them to all others while the run goes on, and asks that the others come to its end.

use super::cluster::{Cluster, RUN, contact, peer};
use crate::certificate::{Acceptance, Certificate, Seal, Succession, leads};
use crate::tests::cluster::{Signs, UNINVITED};
use crate::{
    Ballot, Body, Digest, Event, Evidence, Generation, Input, Joiner, Justified, Lineage, PeerId, Progress, Promise,
    Proposal, Reason, Refusal, Resume, SignedPromise, Standing, View, ViewId,
};

const MEMBERS: [u8; 4] = [1, 2, 3, 4];
const LIAR: u8 = 4;
const STEPS: u64 = 40;

fn formed(seed: u64) -> Cluster {
    super::changes::formed(seed, STEPS, &MEMBERS)
}

/// Says it to the three others, again and again while the run goes on.
fn say_to_all(cluster: &mut Cluster, from: PeerId, body: impl Fn(&Cluster, PeerId) -> Option<Body>) {
    for _ in 0..5 {
        cluster.run_for(std::time::Duration::from_millis(200));
        for name in [1, 2, 3].map(peer) {
            if let Some(body) = body(cluster, name).filter(|_| cluster.peers[&name].machine.view().is_some()) {
                cluster.say(from, name, body);
            }
        }
    }
}

fn assert_the_others_complete(cluster: &mut Cluster) {
    cluster.run_until(|cluster| [1, 2, 3].map(peer).iter().all(|name| !cluster.running().contains(name)));
    cluster.assert_complete([1, 2, 3].map(peer));
    for name in [1, 2, 3].map(peer) {
        assert!(!cluster.has_event(name, |event| matches!(event, Event::Evicted { .. })), "seed {}", cluster.seed);
    }
}

fn joiner(name: u8) -> Joiner {
    let (contact, generation) = (contact(peer(name)), Generation(0));
    Joiner { contact, incarnation: 9, step: 0, state: None, branch: 0, generation, pass: Vec::new() }
}

#[test]
fn a_stranger_says_that_the_run_went_on_without_us() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        for name in [1, 2, 3].map(peer) {
            let standing = Standing {
                step: STEPS,
                branch: 0,
                parent: None,
                forked: seed % 2 == 1,
                paused: false,
                recovering: false,
            };
            let of = (Generation(1 << 63), ViewId([9; 32]));
            let body = Body::Outsider { standing, contacts: Vec::new(), chain: Vec::new() };
            cluster.say_of(peer(9), name, of, body);
            cluster.say_of(peer(9), name, of, Body::Hello(standing));
            cluster.say_of(peer(9), name, of, Body::Refuse(Refusal::RunFinished));
        }
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn who_is_revoked_is_left_out_and_let_in_no_more() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        // Not all hear of it at once, and it goes on saying what members say.
        for name in [1, 2, 3].map(peer) {
            cluster.input(name, Input::Revoke(vec![peer(LIAR)]));
            cluster.run_for(std::time::Duration::from_millis(cluster.seed * 7));
        }
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3].map(peer)));
        let is_it = |reason: &Reason| matches!(reason, Reason::Lost { peer: lost, evidence: Evidence::Revoked } if *lost == peer(LIAR));
        let told = |event: &Event| matches!(event, Event::Changed { reasons, .. } if reasons.iter().any(is_it));
        assert!([1, 2, 3].map(peer).iter().any(|name| cluster.has_event(*name, told)), "seed {seed}");
        cluster.restart(peer(LIAR), &[1, 2, 3].map(peer));
        cluster.join(peer(5), &[peer(1)]);
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 5].map(peer)));
        cluster.run_for(std::time::Duration::from_secs(1));
        assert!(cluster.peers[&peer(LIAR)].machine.view().is_none(), "seed {seed}");
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn a_member_proposes_a_joiner_whom_the_others_do_not_let_in() {
    for seed in 0..20 {
        let mut cluster = super::changes::formed(seed, 200, &MEMBERS);
        // It proposes first, and has no objection.
        cluster.join(UNINVITED, &[peer(1)]);
        cluster.run_for(std::time::Duration::from_secs(2));
        cluster.join(peer(5), &[peer(2)]);
        cluster.run_until(|cluster| cluster.peers[&peer(5)].machine.view().is_some());
        let has_it = |name: PeerId| cluster.peers[&name].machine.view().is_some_and(|view| view.contains(UNINVITED));
        assert!(![2, 3, 4, 5].map(peer).into_iter().any(has_it), "seed {seed}");
        // It would go on as long as it is let in again.
        cluster.kill(peer(1));
        cluster.run_until(|cluster| [2, 3, 4, 5].map(peer).iter().all(|name| !cluster.running().contains(name)));
        cluster.assert_complete([2, 3, 4, 5].map(peer));
    }
}

#[test]
fn one_member_refuses_a_joiner() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        cluster.join(peer(5), &[peer(1), peer(2)]);
        cluster.say_of(peer(LIAR), peer(5), (Generation(0), ViewId::NONE), Body::Refuse(Refusal::RunFinished));
        cluster.say_of(peer(2), peer(5), (Generation(0), ViewId::NONE), Body::Refuse(Refusal::Withdrawn));
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 4, 5].map(peer)));
    }
}

#[test]
fn a_joiner_claims_the_last_generation() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        let view = cluster.peers[&peer(1)].machine.view().expect("a member").clone();
        for name in [1, 2, 3].map(peer) {
            // At the bound, and far beyond it.
            let near = view.generation.0 + (1 << 20) - seed % 3;
            let (branch, generation) = (view.branch, Generation(if seed < 10 { near } else { u64::MAX }));
            let claim = Joiner { branch, generation, ..joiner(9) };
            cluster.say_of(peer(9), name, (Generation(0), ViewId::NONE), Body::Join(claim));
            let far = Joiner { step: u64::MAX, ..joiner(9) };
            cluster.say_of(peer(9), name, (Generation(0), ViewId::NONE), Body::Join(far));
        }
        cluster.join(peer(5), &[peer(1)]);
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 4, 5].map(peer)));
        let view = cluster.peers[&peer(1)].machine.view().expect("a member").clone();
        assert!(view.generation < Generation(1 << 21), "{:?}", view.generation);
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn a_member_opens_the_last_ballot() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        let last = Ballot { attempt: u64::MAX, proposer: peer(LIAR) };
        say_to_all(&mut cluster, peer(LIAR), |cluster, _| {
            let nack = Body::Nack { ballot: Ballot { attempt: 1, proposer: peer(1) }, promised: last };
            let prepare = Body::Prepare { ballot: last, boundary: None, unreachable: Vec::new() };
            Some(if cluster.seed % 2 == 0 { nack } else { prepare })
        });
        cluster.kill(peer(LIAR));
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn a_member_says_that_its_state_is_another() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        say_to_all(&mut cluster, peer(LIAR), |cluster, name| {
            let step = cluster.peers[&name].step;
            Some(Body::Digest { step: step.next_multiple_of(8), digest: Digest([0xee; 32]) })
        });
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn a_member_says_what_others_have_come_to() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        say_to_all(&mut cluster, peer(LIAR), |_, name| {
            let other = if name == peer(1) { peer(2) } else { peer(1) };
            Some(Body::Finished { peer: other, step: STEPS, digest: Digest([0xee; 32]) })
        });
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn a_member_introduces_peers_that_are_not_there() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        for name in 100..160 {
            for member in [1, 2, 3].map(peer) {
                cluster.say(peer(LIAR), member, Body::Introduce(joiner(name)));
            }
        }
        assert_the_others_complete(&mut cluster);
        let paused = |event: &Event| matches!(event, Event::Paused { .. });
        assert!(![1, 2, 3].map(peer).iter().any(|name| cluster.has_event(*name, paused)), "seed {seed}");
    }
}

fn proposal(view: View, step: u64, donor: PeerId) -> Proposal {
    let resume = Resume { step, lineage: Lineage::NONE, holders: vec![], donors: vec![donor], syncing: vec![] };
    let reasons = vec![Reason::StoodStill];
    Proposal { view, resume, reasons, joiners: Vec::new(), promised: 1, of: 4 }
}

#[test]
fn a_member_installs_a_view_by_itself() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        let liar = Signs(peer(LIAR));
        for _ in 0..3 {
            for victim in [1, 2, 3].map(peer) {
                let view = cluster.peers[&victim].machine.view().expect("a member").clone();
                let ballot = Ballot { attempt: 5, proposer: peer(LIAR) };
                cluster.say(peer(LIAR), victim, Body::Prepare { ballot, boundary: None, unreachable: Vec::new() });
                cluster.run_for(std::time::Duration::from_millis(300));
                let next = proposal(view.succeed([victim, peer(LIAR)]), STEPS, peer(LIAR));
                let seal = Acceptance::of(view.id(), ballot, &next).sign(&liar);
                let alone = Certificate { ballot, seals: vec![(peer(LIAR), seal)] };
                let forged: Vec<(PeerId, Seal)> = [1, 2, 3, 4].map(|name| (peer(name), seal)).to_vec();
                for certificate in [None, Some(alone), Some(Certificate { ballot, seals: forged })] {
                    let contacts = Vec::new();
                    let proposal = next.clone();
                    let install = Body::Install { proposal, certificate, contacts, fork: None };
                    if cluster.peers[&victim].machine.view().is_some_and(|now| now.id() == view.id()) {
                        assert!(cluster.say(peer(LIAR), victim, install), "seed {seed}");
                    }
                }
                let mut fork = next.clone();
                fork.view.forked = true;
                let install =
                    Body::Install { proposal: fork, certificate: None, contacts: Vec::new(), fork: Some(ballot) };
                cluster.say(peer(LIAR), victim, install);
                let members = cluster.peers[&victim].machine.view().map(|view| view.members().to_vec());
                assert_ne!(members, Some(vec![victim, peer(LIAR)]), "seed {seed}");
            }
        }
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn a_chain_leads_from_one_view_to_a_later_one_and_nothing_else_does() {
    let keys = [1, 2, 3].map(|name| Signs(peer(name)));
    let first = View::found(RUN, peer(1)).succeed([1, 2, 3].map(peer));
    let ballot = Ballot { attempt: 1, proposer: peer(1) };
    let link = |before: &View, next: &Proposal, signers: &[usize]| {
        let accepted = Acceptance::of(before.id(), ballot, next);
        let seals = signers.iter().map(|at| (peer(*at as u8 + 1), accepted.sign(&keys[*at]))).collect();
        Succession::to(next, Certificate { ballot, seals })
    };
    let second = proposal(first.succeed([1, 2].map(peer)), 3, peer(1));
    let third = proposal(second.view.succeed([1, 2, 3].map(peer)), 5, peer(1));
    let chain = [link(&first, &second, &[0, 1]), link(&second.view, &third, &[0, 1])];
    let goes = |chain: &[Succession], to: &View| leads(&keys[0], &first, chain, to.id());
    assert!(goes(&chain, &third.view) && goes(&chain[..1], &second.view));
    assert!(!goes(&chain, &second.view) && !goes(&[], &first) && !goes(&chain[1..], &third.view));
    assert!(!goes(&[link(&first, &second, &[1])], &second.view), "no quorum");
    assert!(!goes(&[link(&first, &third, &[0, 1])], &third.view), "it does not follow");
    let other = proposal(second.view.clone(), 4, peer(1));
    let mut swapped = link(&first, &second, &[0, 1]);
    swapped.view = first.succeed([1, 3].map(peer));
    assert!(!goes(&[swapped.clone()], &swapped.view), "another view");
    let certificate = Certificate { ballot, seals: vec![] };
    assert!(!certificate.proves(&keys[0], &first, &other), "nobody accepted it");
    let mut fork = second.clone();
    fork.view.forked = true;
    assert!(!goes(&[link(&first, &fork, &[0, 1])], &fork.view), "a fork is not proven");
}

#[test]
fn newcomers_do_not_outvote_those_who_stay() {
    let mut cluster = Cluster::new(7, 200, 1);
    cluster.found(peer(1));
    let names: Vec<PeerId> = (1..=40).map(peer).collect();
    for name in &names[1..] {
        cluster.join(*name, &[peer(1)]);
    }
    let mut before = 1;
    cluster.run_until(|cluster| {
        let members = cluster.peers[&peer(1)].machine.view().map_or(before, |view| view.members().len());
        assert!(members <= 2 * before, "from {before} to {members}");
        before = members;
        members == names.len()
    });
}

#[test]
fn a_member_opens_ballots_without_end() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        for attempt in 1..200 {
            cluster.run_for(std::time::Duration::from_millis(50));
            let ballot = Ballot { attempt, proposer: peer(LIAR) };
            for name in cluster.running().into_iter().filter(|name| *name != peer(LIAR)) {
                cluster.say(
                    peer(LIAR),
                    name,
                    Body::Prepare { ballot, boundary: Some(u64::MAX), unreachable: Vec::new() },
                );
            }
        }
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn a_member_refuses_every_ballot_and_speaks_against_all_others() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        for round in 0..200 {
            cluster.run_for(std::time::Duration::from_millis(50));
            for name in cluster.running().into_iter().filter(|name| *name != peer(LIAR)) {
                let accused = peer(1 + (round % 3) as u8);
                cluster.say(peer(LIAR), name, Body::Suspect { peer: accused, evidence: Evidence::LinkFailed });
                for attempt in 1..4 {
                    let ballot = Ballot { attempt, proposer: name };
                    cluster.say(peer(LIAR), name, Body::Nack { ballot, promised: Ballot { attempt: 9, ..ballot } });
                }
            }
        }
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn a_member_proposes_what_nobody_promised() {
    let liar = Signs(peer(LIAR));
    for seed in 0..20 {
        let mut cluster = formed(seed);
        cluster.run_for(std::time::Duration::from_millis(300));
        let view = cluster.peers[&peer(1)].machine.view().expect("a member").clone();
        let ballot = Ballot { attempt: 3, proposer: peer(LIAR) };
        let promise = |by: u8, step: u64| {
            let progress = Progress { step, lineage: Lineage::of(&view), has_state: true, has_result: false };
            let promise = Promise {
                progress,
                unreachable: Vec::new(),
                accused: Vec::new(),
                missing: None,
                leaving: false,
                recovering: false,
                accepted: None,
            };
            SignedPromise::new(&liar, view.id(), ballot, peer(by), promise)
        };
        // It alone goes on from what it says that it has; with its own promise, and with such as it makes up for others.
        let next = proposal(view.succeed([1, LIAR].map(peer)), STEPS - 1, peer(LIAR));
        for promises in [vec![promise(LIAR, STEPS - 1)], [1, 2, LIAR].map(|by| promise(by, STEPS - 1)).to_vec()] {
            let justified = Justified::new(&liar, view.id(), ballot, next.clone(), promises, Vec::new());
            for name in [1, 2, 3].map(peer) {
                let body = Body::Propose { ballot, justified: Box::new(justified.clone()), promises: Vec::new() };
                assert!(cluster.say(peer(LIAR), name, body), "seed {seed}: it is believed");
                let accepted = cluster.peers[&name].record.as_ref().and_then(|record| record.accepted.clone());
                assert!(accepted.is_none_or(|(_, accepted)| accepted.proposal != next), "seed {seed}");
            }
        }
        assert_the_others_complete(&mut cluster);
    }
}
