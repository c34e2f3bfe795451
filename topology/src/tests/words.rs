//! One peer's word: well-formed messages that no correct peer sends end nobody, move nobody and use nothing up. Each test lets
//! a peer say them to all others while the run goes on, and asks that the others come to its end.

use super::cluster::{Cluster, RUN, contact, peer};
use crate::tests::cluster::{DOUBTED, Signs, UNINVITED};
use crate::view::mark::MarkStatus;
use crate::vote::certificate::{Acceptance, Certificate, SuccessionProof, WireSignature, leads};
use crate::{
    Ballot, Body, BranchPosition, Config, Digest, Envelope, Event, Evidence, Generation, Input, JoinRequest,
    JustifiedProposal, Lineage, Membership, Output, PeerId, Progress, Promise, Proposal, Quorum, Reason, Record,
    RefusalReason, ResumePlan, SignedPromise, Time, View, ViewId,
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

fn joiner(name: u8) -> JoinRequest {
    signed(JoinRequest::new(contact(peer(name)), 9))
}

fn signed(joiner: JoinRequest) -> JoinRequest {
    let signs = Signs(joiner.contact.peer);
    joiner.signed(RUN, &signs)
}

#[test]
fn a_stranger_says_that_the_run_went_on_without_us() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        for name in [1, 2, 3].map(peer) {
            let branch_position = BranchPosition {
                step: STEPS,
                branch: 0,
                parent: None,
                forked: seed % 2 == 1,
                paused: false,
                recovering: false,
            };
            // Of a count that a run can have come to, or the machine looks no further.
            let of = (Generation(1 << 31), ViewId([9; 32]));
            let body = Body::Outsider { branch_position, contacts: Vec::new(), chain: Vec::new() };
            cluster.say_of(peer(9), name, of, body);
            cluster.say_of(peer(9), name, of, Body::Hello(branch_position));
            cluster.say_of(peer(9), name, of, Body::Refuse(RefusalReason::RunFinished));
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
fn members_differ_for_good_about_a_joiner() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed, 10 * STEPS, 1);
        cluster.config.quorum = Quorum::TwoThirds;
        super::changes::gather(&mut cluster, &[1, 2, 3]);
        // The first proposes, and can't let it in without the others.
        cluster.join(DOUBTED, &[peer(1)]);
        assert_the_others_complete(&mut cluster);
        assert!(cluster.has_event(peer(1), |event| matches!(event, Event::Joining(DOUBTED))), "seed {seed}");
        let let_in = |event: &Event| matches!(event, Event::Changed { reasons, .. } if reasons.contains(&Reason::Joined(DOUBTED)));
        assert!(!cluster.has_event(peer(1), let_in), "seed {seed}");
    }
}

#[test]
fn one_member_refuses_a_joiner() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        cluster.join(peer(5), &[peer(1), peer(2)]);
        cluster.say_of(peer(LIAR), peer(5), (Generation(0), ViewId::NONE), Body::Refuse(RefusalReason::RunFinished));
        cluster.say_of(peer(2), peer(5), (Generation(0), ViewId::NONE), Body::Refuse(RefusalReason::Withdrawn));
        cluster.run_until(|cluster| cluster.is_formed(&[1, 2, 3, 4, 5].map(peer)));
    }
}

#[test]
fn whoever_all_refuse_ends_for_what_most_of_them_say() {
    for (seed, liar) in (0..20).flat_map(|seed| MEMBERS.map(|liar| (seed, liar))) {
        let mut cluster = formed(seed);
        let joiner = peer(5);
        cluster.cut.extend(MEMBERS.map(|member| (joiner, peer(member)))); // They answer what they never hear.
        cluster.join(joiner, &MEMBERS.map(peer));
        cluster.run_for(std::time::Duration::from_secs(3));
        for member in MEMBERS {
            let refusal = if member == liar { RefusalReason::OtherRun } else { RefusalReason::RunFinished };
            cluster.say_of(peer(member), joiner, (Generation(0), ViewId::NONE), Body::Refuse(refusal));
        }
        cluster.run_for(std::time::Duration::from_secs(3));
        let ends = |event: &Event| matches!(event, Event::Refused { refusal: RefusalReason::RunFinished, .. });
        assert!(cluster.has_event(joiner, ends), "seed {seed}, liar {liar}");
    }
}

#[test]
fn one_member_has_a_joiner_wait_again_and_again() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        cluster.cut.insert((peer(5), peer(LIAR))); // It never hears the request, and answers all the same.
        cluster.join(peer(5), &MEMBERS.map(peer));
        for _ in 0..400 {
            cluster.run_for(std::time::Duration::from_millis(100));
            let refusal = RefusalReason::Quarantined { for_ms: u64::MAX };
            if cluster.running().contains(&peer(5)) && cluster.peers[&peer(5)].machine.view().is_none() {
                cluster.say_of(peer(LIAR), peer(5), (Generation(2), ViewId([9; 32])), Body::Refuse(refusal));
            }
        }
        let came_in = |event: &Event| matches!(event, Event::Changed { .. });
        assert!(cluster.has_event(peer(5), came_in), "seed {seed}: it waits for ever");
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
            let claim = signed(JoinRequest { branch, generation, ..joiner(9) });
            cluster.say_of(peer(9), name, (Generation(0), ViewId::NONE), Body::Join(claim));
            let far = signed(JoinRequest { step: u64::MAX, ..joiner(9) });
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
        // Beyond all counts, or what a run of ages could come to.
        let attempt = if seed % 4 < 2 { u64::MAX } else { 1 << 50 };
        let last = Ballot { attempt, proposer: peer(LIAR) };
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
    let resume = ResumePlan { step, lineage: Lineage::NONE, holders: vec![], donors: vec![donor], syncing: vec![] };
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
                let forged: Vec<(PeerId, WireSignature)> = [1, 2, 3, 4].map(|name| (peer(name), seal)).to_vec();
                for certificate in [None, Some(alone), Some(Certificate { ballot, seals: forged })] {
                    let contacts = Vec::new();
                    let proposal = next.clone();
                    let install = Body::Install { proposal, certificate, contacts, fork: None, chain: Vec::new() };
                    if cluster.peers[&victim].machine.view().is_some_and(|now| now.id() == view.id()) {
                        assert!(cluster.say(peer(LIAR), victim, install), "seed {seed}");
                    }
                }
                let mut fork = next.clone();
                fork.view.forked = true;
                let install = Body::Install {
                    proposal: fork,
                    certificate: None,
                    contacts: Vec::new(),
                    fork: Some(ballot),
                    chain: Vec::new(),
                };
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
        SuccessionProof::to(next, Certificate { ballot, seals })
    };
    let second = proposal(first.succeed([1, 2].map(peer)), 3, peer(1));
    let third = proposal(second.view.succeed([1, 2, 3].map(peer)), 5, peer(1));
    let chain = [link(&first, &second, &[0, 1]), link(&second.view, &third, &[0, 1])];
    let goes = |chain: &[SuccessionProof], to: &View| leads(&keys[0], &first, chain, to.id());
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

/// What all members promise in a ballot of the liar, whose own process says nothing any more; its own promise is as that of
/// others. `None` if they do not all stand at the same place.
pub(super) fn promised(cluster: &mut Cluster, ballot: Ballot) -> Option<Vec<SignedPromise>> {
    cluster.hang(peer(LIAR));
    for name in [1, 2, 3].map(peer) {
        cluster.say(peer(LIAR), name, Body::Prepare { ballot, boundary: None, unreachable: Vec::new() });
    }
    let mut promises: Vec<SignedPromise> = Vec::new();
    cluster.run_until(|cluster| {
        for (by, envelope) in cluster.under_way(peer(LIAR)) {
            if let Body::Promise { promise, ballot: of, .. } = envelope.body
                && of == ballot
                && promises.iter().all(|before| before.by != by)
            {
                promises.push(promise);
            }
        }
        promises.len() == 3
    });
    promises.sort_by_key(|signed| signed.by);
    let view = cluster.peers[&peer(1)].machine.view().expect("a member").id();
    let own = promises[0].promise.clone();
    let is_alike = promises.iter().all(|signed| signed.promise == own);
    promises.push(SignedPromise::new(&Signs(peer(LIAR)), view, ballot, peer(LIAR), own));
    is_alike.then_some(promises)
}

/// What follows from these promises.
pub(super) fn following(cluster: &Cluster, promises: &[SignedPromise]) -> Proposal {
    let view = cluster.peers[&peer(1)].machine.view().expect("a member");
    let all = MEMBERS.map(peer).to_vec();
    let Progress { step, lineage, has_result, .. } = promises[0].promise.progress;
    let holders = if has_result { all.clone() } else { Vec::new() };
    let resume = ResumePlan { step, lineage, holders, donors: all.clone(), syncing: Vec::new() };
    let (reasons, joiners) = (vec![Reason::StoodStill], Vec::new());
    Proposal { view: view.succeed(all), resume, reasons, joiners, promised: 4, of: 4 }
}

#[test]
fn a_member_proposes_one_thing_again_and_again_and_installs_it_never() {
    let mut accepted = 0;
    for seed in 0..20 {
        let mut cluster = formed(seed);
        cluster.run_for(std::time::Duration::from_millis(seed * 40));
        let ballot = Ballot { attempt: 5, proposer: peer(LIAR) };
        let Some(promises) = promised(&mut cluster, ballot) else { continue };
        let next = following(&cluster, &promises);
        let view = cluster.peers[&peer(1)].machine.view().expect("a member").id();
        let justified = JustifiedProposal::new(&Signs(peer(LIAR)), view, ballot, next.clone(), promises, Vec::new());
        let done = |cluster: &Cluster| [1, 2, 3].map(peer).iter().all(|name| !cluster.running().contains(name));
        for _ in 0..2_000 {
            cluster.run_for(std::time::Duration::from_millis(50));
            for name in
                [1, 2, 3].map(peer).into_iter().filter(|name| cluster.running().contains(name)).collect::<Vec<_>>()
            {
                if cluster.peers[&name].machine.view().is_some_and(|here| here.id() == view) {
                    let (justified, seal) = (Box::new(justified.clone()), justified.seal);
                    let body = Body::Propose { ballot, justified, promises: Vec::new(), seal };
                    cluster.say(peer(LIAR), name, body);
                    let kept = cluster.peers[&name].record.as_ref().and_then(|record| record.accepted.clone());
                    accepted += usize::from(kept.is_some_and(|(of, _)| of == ballot));
                }
            }
            if done(&cluster) {
                break;
            }
        }
        assert!(done(&cluster), "seed {seed}: it keeps all others standing");
        cluster.assert_complete([1, 2, 3].map(peer));
    }
    assert!(accepted > 20, "they have accepted it: {accepted}");
}

#[test]
fn whoever_proposes_says_of_nobody_twice_that_it_is_lost() {
    let (mut once, mut twice) = (0, 0);
    for seed in 0..20 {
        let mut cluster = formed(seed);
        cluster.run_for(std::time::Duration::from_millis(seed * 40));
        let ballot = Ballot { attempt: 5, proposer: peer(LIAR) };
        let Some(mut promises) = promised(&mut cluster, ballot) else { continue };
        promises.retain(|signed| signed.by != peer(3));
        let mut next = following(&cluster, &promises);
        let view = cluster.peers[&peer(1)].machine.view().expect("a member").clone();
        let stay = [1, 2, LIAR].map(peer);
        (next.view, next.promised) = (view.succeed(stay), 3);
        next.resume.donors.retain(|peer| stay.contains(peer));
        next.resume.holders.retain(|peer| stay.contains(peer));
        let lost = Reason::Lost { peer: peer(3), evidence: Evidence::Unanswered };
        for (count, refused) in [(2, &mut twice), (1, &mut once)] {
            next.reasons = vec![lost; count];
            let justified = JustifiedProposal::new(
                &Signs(peer(LIAR)),
                view.id(),
                ballot,
                next.clone(),
                promises.clone(),
                Vec::new(),
            );
            let seal = justified.seal;
            let body = Body::Propose { ballot, justified: Box::new(justified), promises: Vec::new(), seal };
            *refused += usize::from(cluster.say(peer(LIAR), peer(1), body));
        }
    }
    assert!(once == 0 && twice > 5, "refused: {once} with one loss, {twice} with two");
}

#[test]
fn what_somebody_asks_for_another_is_not_taken_in() {
    let (stranger, mut own, mut forged) = (peer(9), 0, 0);
    for seed in 0..20 {
        let mut cluster = formed(seed);
        let asks = joiner(9);
        let claims = JoinRequest { incarnation: 10, ..asks.clone() };
        let outside = (Generation(0), ViewId::NONE);
        assert!(
            cluster.say_of(stranger, peer(1), outside, Body::Join(claims.clone())),
            "seed {seed}: it is not signed"
        );
        cluster.run_for(std::time::Duration::from_millis(seed * 40));
        let ballot = Ballot { attempt: 5, proposer: peer(LIAR) };
        let Some(promises) = promised(&mut cluster, ballot) else { continue };
        let mut next = following(&cluster, &promises);
        let view = cluster.peers[&peer(1)].machine.view().expect("a member").clone();
        let members = MEMBERS.map(peer).into_iter().chain([stranger]);
        next.view = view.succeed(members).with_newcomers([stranger]);
        next.reasons = vec![Reason::Joined(stranger)];
        if next.resume.step > 0 {
            next.resume.syncing = vec![stranger];
        } else {
            next.view = view.succeed(next.view.members().iter().copied());
        }
        for (joiner, refused) in [(claims, &mut forged), (asks, &mut own)] {
            next.joiners = vec![joiner];
            let (next, promises) = (next.clone(), promises.clone());
            let justified = JustifiedProposal::new(&Signs(peer(LIAR)), view.id(), ballot, next, promises, Vec::new());
            let seal = justified.seal;
            let body = Body::Propose { ballot, justified: Box::new(justified), promises: Vec::new(), seal };
            *refused += usize::from(cluster.say(peer(LIAR), peer(1), body));
        }
    }
    assert!(own == 0 && forged > 5, "refused: {own} of its own, {forged} of others");
}

#[test]
fn whoever_cannot_be_heard_is_told_to_have_finished_and_not_with_which_state() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        cluster.cut.extend([(peer(1), peer(2)), (peer(2), peer(1))]);
        cluster.close(peer(1), peer(2));
        let severed = |cluster: &Cluster| {
            let view = cluster.peers[&peer(1)].machine.view();
            view.is_some_and(|view| view.contains(peer(2)) && view.is_severed(peer(1), peer(2)))
        };
        cluster.run_until(severed);
        let told = Body::Finished { peer: peer(2), step: STEPS, digest: Digest([9; 32]) };
        assert!(!cluster.say(peer(LIAR), peer(1), told), "seed {seed}: that is told by whoever hears it");
        cluster.run_until(|cluster| [1, 2, 3].map(peer).iter().all(|name| !cluster.running().contains(name)));
        cluster.assert_complete([1, 2, 3].map(peer));
        let differs = |event: &Event| matches!(event, Event::Differs { .. } | Event::Outvoted { .. });
        assert!(!cluster.has_event(peer(1), differs), "seed {seed}");
    }
}

#[test]
fn a_stranger_says_again_and_again_that_others_went_on_without_those_who_come_back() {
    for seed in 0..10 {
        let mut cluster = formed(seed);
        cluster.run_for(std::time::Duration::from_millis(500));
        MEMBERS.map(peer).into_iter().for_each(|name| cluster.kill(name));
        cluster.run_for(std::time::Duration::from_secs(1));
        MEMBERS.map(peer).into_iter().for_each(|name| cluster.recover(name));
        let done = |cluster: &Cluster| MEMBERS.map(peer).iter().all(|name| !cluster.running().contains(name));
        for _ in 0..6_000 {
            cluster.run_for(std::time::Duration::from_millis(100));
            for name in cluster.running() {
                let branch_position = BranchPosition {
                    step: STEPS,
                    branch: 3,
                    parent: None,
                    forked: true,
                    paused: false,
                    recovering: false,
                };
                let of = (Generation(1 << 40), ViewId([9; 32]));
                let body = Body::Outsider { branch_position, contacts: Vec::new(), chain: Vec::new() };
                cluster.say_of(peer(9), name, of, body);
                cluster.say_of(peer(9), name, of, Body::Refuse(RefusalReason::RunFinished));
            }
            if done(&cluster) {
                break;
            }
        }
        assert!(done(&cluster), "seed {seed}: they stay outside");
        cluster.assert_complete(MEMBERS.map(peer));
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
fn what_two_see_of_a_member_one_after_the_other_puts_it_out() {
    for seed in 0..20 {
        let mut cluster = super::changes::formed(seed, 400, &MEMBERS);
        let severed = |cluster: &Cluster, name: PeerId| {
            let view = cluster.peers[&name].machine.view();
            view.is_some_and(|view| view.contains(peer(LIAR)) && view.is_severed(name, peer(LIAR)))
        };
        cluster.input(peer(1), Input::Suspected { peer: peer(LIAR), evidence: Evidence::Misbehaved });
        cluster.run_until(|cluster| severed(cluster, peer(1)));
        // What one has seen is no reason for another change, and is not forgotten for want of one.
        let view = |cluster: &Cluster| cluster.peers[&peer(2)].machine.view().map(View::id);
        cluster.run_for(std::time::Duration::from_secs(1));
        let before = view(&cluster);
        cluster.run_for(std::time::Duration::from_secs(2));
        assert_eq!(view(&cluster), before, "seed {seed}");
        cluster.input(peer(2), Input::Suspected { peer: peer(LIAR), evidence: Evidence::Misbehaved });
        let is_it = |reason: &Reason| matches!(reason, Reason::Lost { peer: lost, evidence: Evidence::Misbehaved } if *lost == peer(LIAR));
        let named = |event: &Event| matches!(event, Event::Changed { reasons, .. } if reasons.iter().any(is_it));
        cluster.run_until(|cluster| severed(cluster, peer(2)) || cluster.has_event(peer(3), named));
        assert!(cluster.has_event(peer(3), named), "seed {seed}");
    }
}

#[test]
fn what_an_accused_member_says_of_others_is_not_heeded() {
    for seed in 0..20 {
        let mut cluster = super::changes::formed(seed, 400, &MEMBERS);
        for name in [1, 2] {
            let (liar, evidence) = (peer(LIAR), Evidence::Misbehaved);
            cluster.input(peer(name), Input::Suspected { peer: liar, evidence });
            cluster.say(liar, peer(name), Body::Suspect { peer: peer(3), evidence: Evidence::Closed });
        }
        cluster.run_for(std::time::Duration::from_secs(1));
        let is_by_liar =
            |event: &Event| matches!(event, Event::Suspected { reporter, .. } if *reporter == Some(peer(LIAR)));
        assert!([1, 2].iter().all(|name| !cluster.has_event(peer(*name), is_by_liar)), "seed {seed}");
    }
}

#[test]
fn who_is_put_out_for_what_it_did_waits_before_it_is_let_in_again() {
    for seed in 0..20 {
        let mut cluster = super::changes::formed(seed, 4_000, &MEMBERS);
        for name in [1, 2, 3] {
            cluster.input(peer(name), Input::Suspected { peer: peer(LIAR), evidence: Evidence::Misbehaved });
        }
        let has_liar =
            |cluster: &Cluster| cluster.peers[&peer(1)].machine.view().is_some_and(|view| view.contains(peer(LIAR)));
        cluster.run_until(|cluster| !has_liar(cluster));
        let begun = cluster.now;
        cluster.run_until(has_liar);
        let waited = cluster.now - begun;
        assert!(waited >= Config::default().quarantine(), "seed {seed}: let in again after {waited:?}");
    }
}

#[test]
fn whoever_is_refused_a_result_by_those_it_has_no_link_to_gives_up_neither_its_state_nor_its_seat() {
    for seed in 0..20 {
        let mut cluster = formed(seed);
        // The view names no holder that it could blame.
        cluster.input(peer(1), Input::Withheld);
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
            SignedPromise::new(&liar, view.id(), ballot, peer(by), Promise::at(progress))
        };
        // It alone goes on from what it says that it has; with its own promise, and with such as it makes up for others.
        let next = proposal(view.succeed([1, LIAR].map(peer)), STEPS - 1, peer(LIAR));
        for promises in [vec![promise(LIAR, STEPS - 1)], [1, 2, LIAR].map(|by| promise(by, STEPS - 1)).to_vec()] {
            let justified = JustifiedProposal::new(&liar, view.id(), ballot, next.clone(), promises, Vec::new());
            for name in [1, 2, 3].map(peer) {
                let (justified, seal) = (Box::new(justified.clone()), justified.seal);
                let body = Body::Propose { ballot, justified, promises: Vec::new(), seal };
                assert!(cluster.say(peer(LIAR), name, body), "seed {seed}: it is believed");
                let accepted = cluster.peers[&name].record.as_ref().and_then(|record| record.accepted.clone());
                assert!(accepted.is_none_or(|(_, accepted)| accepted.proposal != next), "seed {seed}");
            }
        }
        assert_the_others_complete(&mut cluster);
    }
}

#[test]
fn where_nobody_holds_a_state_a_member_brings_in_a_stranger_with_an_old_one() {
    let [here, liar, former, stranger] = [1, LIAR, 3, 9].map(peer);
    let first = View::found(RUN, here);
    let before = first.succeed([here, liar, former]);
    let view = before.succeed([here, liar]);
    let told = |bringer: PeerId| {
        let resume = |step: u64| ResumePlan {
            step,
            lineage: Lineage::NONE,
            holders: Vec::new(),
            donors: vec![here],
            syncing: Vec::new(),
        };
        let decided = |view: &View, step: u64| {
            let (resume, reasons) = (resume(step), vec![Reason::StoodStill]);
            Proposal { view: view.clone(), resume, reasons, joiners: Vec::new(), promised: 2, of: 2 }
        };
        let certificate = || Certificate { ballot: Ballot { attempt: 1, proposer: here }, seals: Vec::new() };
        let record = Record {
            certificate: Some(certificate()),
            chain: vec![SuccessionProof::to(&decided(&before, 0), certificate())],
            ..Record::of(view.clone(), Some(decided(&view, 57)))
        };
        let (config, nothing) = (Config { last_step: 100, fork_after: None, ..Config::default() }, Progress::default());
        let contacts = vec![contact(liar)];
        let mut member = Membership::recover(
            config,
            RUN,
            super::cluster::me(here),
            (record, MarkStatus::Nothing),
            contacts,
            nothing,
            Time::ZERO,
        );
        let mut answers = |body: Option<Body>| {
            if let Some(body) = body {
                let envelope = Envelope { run: RUN, generation: view.generation, view: view.id(), body };
                member.handle(Time::ZERO, Input::Received { from: liar, envelope }).expect("it follows");
            }
            let mut said = Vec::new();
            while let Some(output) = member.poll() {
                match output {
                    Output::Persist(_) => member.handle(Time::ZERO, Input::Persisted).expect("ours"),
                    Output::Hold(_) => member.handle(Time::ZERO, Input::Held(nothing)).expect("ours"),
                    Output::Send { to, envelope } if to == liar => said.push(envelope.body),
                    _ => {}
                }
            }
            said
        };
        answers(None);
        let ballot = Ballot { attempt: 2, proposer: liar };
        let said = answers(Some(Body::Prepare { ballot, boundary: None, unreachable: Vec::new() }));
        let promise = said.into_iter().find_map(|body| match body {
            Body::Promise { promise, .. } => Some(promise),
            _ => None,
        });
        let promise = promise.expect("it promises");
        let own = SignedPromise::new(&Signs(liar), view.id(), ballot, liar, promise.promise.clone());
        let (state, lineage) = (Some((40, Lineage::of(&before))), Lineage::of(&before));
        let joiner = JoinRequest::new(contact(bringer), 9);
        let joiner = signed(JoinRequest { step: 40, state, generation: before.generation, ..joiner });
        let mut next = view.succeed([here, liar, bringer]).with_newcomers([bringer]);
        next.generation = view.generation.next();
        let resume = ResumePlan { lineage, donors: vec![bringer], syncing: vec![here, liar], ..resume(40) };
        let (reasons, joiners) = (vec![Reason::Recovered, Reason::Joined(bringer)], vec![joiner]);
        let proposal = Proposal { view: next, resume, reasons, joiners, promised: 2, of: 2 };
        let justified =
            JustifiedProposal::new(&Signs(liar), view.id(), ballot, proposal, vec![promise, own], Vec::new());
        let seal = justified.seal;
        answers(Some(Body::Propose { ballot, justified: Box::new(justified), promises: Vec::new(), seal }))
    };
    let accepts = |said: &[Body]| said.iter().any(|body| matches!(body, Body::Accept { .. }));
    let refuses = |said: &[Body]| said.iter().any(|body| matches!(body, Body::Nack { .. }));
    let (known, unknown) = (told(former), told(stranger));
    assert!(accepts(&known) && !refuses(&known), "{known:?}");
    assert!(!accepts(&unknown) && refuses(&unknown), "{unknown:?}");
}
