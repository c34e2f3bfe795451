//! Each kind of wrong message is refused and changes nothing; late ones are dropped.

use super::cluster::{RUN, contact, peer};
use crate::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES, MAX_ENVELOPE_BYTES, MAX_MEMBERS};
use crate::{
    Body, Config, Contact, Digest, Envelope, Event, Evidence, Generation, Input, Membership, Output, PeerId, Proposal,
    Refusal, RunId, Time, Timer, View, ViewId, Violation,
};

const DIGEST: Digest = Digest([3; 32]);

fn outputs(machine: &mut Membership) -> Vec<Output> {
    std::iter::from_fn(|| machine.poll()).collect()
}

fn receive(machine: &mut Membership, from: PeerId, generation: u64, body: Body) -> Result<Vec<Output>, Violation> {
    let envelope = Envelope { run: RUN, generation: Generation(generation), body };
    let taken = machine.handle(Time::ZERO, Input::Received { from, envelope });
    let outputs = outputs(machine);
    assert!(taken.is_ok() || outputs.is_empty(), "a violation leads to nothing: {outputs:?}");
    taken.map(|()| outputs)
}

fn first() -> View {
    View::found(RUN, peer(5))
}

fn proposal(view: View) -> Proposal {
    let contacts = view.members().iter().map(|member| contact(*member)).collect();
    Proposal { view, after_step: 0, digest: DIGEST, contacts }
}

/// Peer 6 in the view of generation 2, founded by peer 5.
fn member() -> Membership {
    let mut machine = Membership::join(Config::default(), RUN, contact(peer(6)), peer(5), Time::ZERO);
    let view = first().succeed([5, 6, 7].map(peer));
    receive(&mut machine, peer(5), 1, Body::Propose(proposal(view.clone()))).expect("a proposal");
    machine.handle(Time::ZERO, Input::Held { step: 0, digest: DIGEST }).expect("our own input");
    let outputs = receive(&mut machine, peer(5), 1, Body::Install { view: view.id() }).expect("an install");
    assert!(outputs.contains(&Output::Step(view)));
    machine
}

#[test]
fn messages_of_another_run() {
    let envelope = Envelope { run: RunId([1; 32]), generation: Generation(2), body: Body::Heartbeat };
    let mut machine = member();
    let taken = machine.handle(Time::ZERO, Input::Received { from: peer(5), envelope: envelope.clone() });
    assert_eq!(taken, Err(Violation::OtherRun));
    // One that wants to join is told.
    let envelope = Envelope { body: Body::Join(contact(peer(9))), ..envelope };
    machine.handle(Time::ZERO, Input::Received { from: peer(9), envelope }).expect("an answer");
    let refusals = outputs(&mut machine);
    assert!(
        matches!(&refusals[..], [Output::Send { to, envelope: Envelope { body: Body::Refuse(Refusal::OtherRun), .. } }] if *to == peer(9))
    );
}

#[test]
fn joins_for_another_peer() {
    let body = Body::Join(contact(peer(8)));
    assert_eq!(receive(&mut member(), peer(9), 0, body), Err(Violation::NotItself(peer(8))));
}

#[test]
fn proposals_from_others() {
    let view = first().succeed([5, 6, 7].map(peer));
    let next = Body::Propose(proposal(view.succeed([6, 7].map(peer))));
    for from in [6, 7, 9] {
        assert_eq!(receive(&mut member(), peer(from), 2, next.clone()), Err(Violation::NotProposer));
    }
    receive(&mut member(), peer(5), 2, next).expect("the proposer may");

    let mut joiner = Membership::join(Config::default(), RUN, contact(peer(6)), peer(5), Time::ZERO);
    outputs(&mut joiner);
    let first = Body::Propose(proposal(view));
    assert_eq!(receive(&mut joiner, peer(7), 1, first.clone()), Err(Violation::NotProposer));
    let without_us = Body::Propose(proposal(View::found(RUN, peer(5)).succeed([5, 7].map(peer))));
    assert_eq!(receive(&mut joiner, peer(5), 1, without_us), Err(Violation::NotProposer));
    receive(&mut joiner, peer(5), 1, first).expect("whom it asked may");
}

#[test]
fn proposals_that_do_not_follow() {
    let view = first().succeed([5, 6, 7].map(peer));
    let mut skipped = view.succeed([5, 6].map(peer));
    skipped.generation = Generation(u64::MAX);
    let mut orphan = view.succeed([5, 6].map(peer));
    orphan.parent = None;
    let mut foreign = view.succeed([5, 6].map(peer));
    foreign.run = RunId([0; 32]);
    for wrong in [view.clone(), skipped, orphan, foreign] {
        let proposed = wrong.generation;
        let refused = receive(&mut member(), peer(5), 2, Body::Propose(proposal(wrong)));
        assert_eq!(refused, Err(Violation::NotSuccessor { current: Generation(2), proposed }));
    }
}

#[test]
fn installs_of_what_was_not_proposed() {
    let view = first().succeed([5, 6, 7].map(peer));
    let next = view.succeed([5, 6].map(peer));
    let mut machine = member();
    assert_eq!(receive(&mut machine, peer(5), 2, Body::Install { view: view.id() }), Err(Violation::UnknownView));
    receive(&mut machine, peer(5), 2, Body::Propose(proposal(next.clone()))).expect("a proposal");
    let install = Body::Install { view: next.id() };
    assert_eq!(receive(&mut machine, peer(5), 2, install.clone()), Err(Violation::UnknownView), "not accepted yet");
    machine.handle(Time::ZERO, Input::Held { step: 0, digest: DIGEST }).expect("our own input");
    outputs(&mut machine);
    assert_eq!(receive(&mut machine, peer(7), 2, install.clone()), Err(Violation::UnknownView), "not the proposer");
    let other = Body::Install { view: ViewId([0; 32]) };
    assert_eq!(receive(&mut machine, peer(5), 2, other), Err(Violation::UnknownView));
    receive(&mut machine, peer(5), 2, install).expect("the one that was accepted");
}

#[test]
fn strangers_that_speak_as_members() {
    let lost = Body::Lost { peer: peer(7), evidence: Evidence::Closed };
    let finished = Body::Finished { step: 9, digest: DIGEST };
    for body in [lost, finished] {
        assert_eq!(receive(&mut member(), peer(9), 2, body.clone()), Err(Violation::NotMember));
        assert_eq!(receive(&mut member(), peer(9), u64::MAX, body.clone()), Err(Violation::NotMember));
        let outputs = receive(&mut member(), peer(9), 1, body).expect("late is not wrong");
        assert_eq!(outputs, [Output::Event(Event::Stale { from: peer(9) })]);
    }
}

#[test]
fn a_loss_counts_in_whichever_generation_it_was_said() {
    for generation in [1, 2, 3] {
        let body = Body::Lost { peer: peer(7), evidence: Evidence::LinkFailed };
        let lost = Event::Lost { peer: peer(7), evidence: Evidence::LinkFailed, reporter: Some(peer(5)) };
        assert_eq!(receive(&mut member(), peer(5), generation, body), Ok(vec![Output::Event(lost)]));
    }
}

#[test]
fn late_answers_change_nothing() {
    for body in [
        Body::Accept { view: ViewId([0; 32]) },
        Body::Leave,
        Body::Goodbye,
        Body::Refuse(Refusal::AlreadyMember),
        Body::Redirect(contact(peer(7))),
    ] {
        assert_eq!(receive(&mut member(), peer(5), 2, body), Ok(vec![]));
    }
}

#[test]
fn a_machine_that_has_ended_does_nothing() {
    let mut machine = member();
    machine.handle(Time::ZERO, Input::Suspected { peer: peer(5), evidence: Evidence::Closed }).expect("evidence");
    outputs(&mut machine);
    assert!(machine.has_ended());
    for body in [Body::Heartbeat, Body::Install { view: ViewId([0; 32]) }, Body::Join(contact(peer(1)))] {
        assert_eq!(receive(&mut machine, peer(9), 2, body), Ok(vec![]));
    }
}

#[test]
fn the_expiry_of_a_withdrawn_proposal_does_nothing() {
    let limit = Config::default().join_limit();
    let at = |tenths| Time::ZERO + limit * tenths / 10;
    let mut machine = Membership::found(Config::default(), RUN, contact(peer(5)), Time::ZERO);
    let mut input = |now, input| {
        machine.handle(now, input).expect("correct");
        outputs(&mut machine)
    };
    let held = || Input::Held { step: 0, digest: DIGEST };
    let join = |name| {
        let body = Body::Join(contact(peer(name)));
        Input::Received { from: peer(name), envelope: Envelope { run: RUN, generation: Generation(0), body } }
    };
    let gone = |name| Input::Suspected { peer: peer(name), evidence: Evidence::Closed };
    let proposes = |outputs: &[Output], expires: Time| {
        let set = Output::SetTimer { timer: Timer::Proposal, at: expires };
        outputs
            .iter()
            .any(|output| matches!(output, Output::Send { envelope: Envelope { body: Body::Propose(_), .. }, .. }))
            && outputs.contains(&set)
    };
    input(at(0), held());
    input(at(0), join(6));
    assert!(proposes(&input(at(0), held()), at(10)));
    let goes_on = input(at(2), gone(6));
    assert!(matches!(goes_on[..], [Output::Event(Event::JoinerLost(_)), Output::Step(_)]), "{goes_on:?}");
    assert_eq!(input(at(3), Input::Expired(Timer::Proposal)), [], "nothing is on offer");

    input(at(4), join(6));
    input(at(4), join(7));
    assert!(proposes(&input(at(4), held()), at(14)));
    assert_eq!(input(at(10), Input::Expired(Timer::Proposal)), [], "the first one's");
    assert!(proposes(&input(at(11), gone(6)), at(21)), "a second one for the same boundary");
    assert_eq!(input(at(14), Input::Expired(Timer::Proposal)), [], "the one that offered it to both");

    let last = input(at(21), Input::Expired(Timer::Proposal));
    let refusal = Refusal::TooSlow { limit_ms: limit.as_millis() as u64 };
    let told = Envelope { run: RUN, generation: Generation(1), body: Body::Refuse(refusal) };
    let told = Output::Send { to: peer(7), envelope: told };
    assert_eq!(last, [Output::Event(Event::JoinerLost(peer(7))), told, Output::Step(first())]);
    assert_eq!(input(at(31), Input::Expired(Timer::Proposal)), []);
}

#[test]
fn members_that_are_missing_are_not_too_slow() {
    let limit = Config::default().join_limit();
    let mut machine = Membership::found(Config::default(), RUN, contact(peer(5)), Time::ZERO);
    let mut input = |now, input| {
        machine.handle(now, input).expect("correct");
        outputs(&mut machine)
    };
    let received = |name, body| Input::Received {
        from: peer(name),
        envelope: Envelope { run: RUN, generation: Generation(1), body },
    };
    let held = || Input::Held { step: 0, digest: DIGEST };
    let join = |name| received(name, Body::Join(contact(peer(name))));
    input(Time::ZERO, held());
    input(Time::ZERO, join(6));
    input(Time::ZERO, held());
    let second = first().succeed([5, 6].map(peer));
    input(Time::ZERO, received(6, Body::Accept { view: second.id() }));
    // Peer 7 accepts in time; peer 6, a member now, has a long step.
    input(Time::ZERO, join(7));
    input(Time::ZERO, held());
    let third = second.succeed([5, 6, 7].map(peer));
    input(Time::ZERO, received(7, Body::Accept { view: third.id() }));
    let again = Output::SetTimer { timer: Timer::Proposal, at: Time::ZERO + limit * 2 };
    assert_eq!(input(Time::ZERO + limit, Input::Expired(Timer::Proposal)), [again]);
    // A joiner that is restarted has the rest of that time, and no more.
    input(Time::ZERO + limit, join(7));
    let dropped = input(Time::ZERO + limit * 2, Input::Expired(Timer::Proposal));
    assert!(dropped.contains(&Output::Event(Event::JoinerLost(peer(7)))), "{dropped:?}");
    let fourth = second.succeed([5, 6].map(peer));
    let installed = input(Time::ZERO + limit * 2, received(6, Body::Accept { view: fourth.id() }));
    assert!(installed.contains(&Output::Step(fourth)), "{installed:?}");
}

#[test]
fn a_redirect_in_circles_ends() {
    let mut machine = Membership::join(Config::default(), RUN, contact(peer(6)), peer(1), Time::ZERO);
    let mut asked = peer(1);
    for hop in 0..20 {
        let next = peer(1 + (hop + 1) % 3);
        let body = Body::Redirect(contact(next));
        receive(&mut machine, asked, 1, body).expect("a redirect");
        if machine.has_ended() {
            return assert_eq!(hop, 8);
        }
        asked = next;
    }
    panic!("it follows forever");
}

#[test]
fn a_redirect_to_itself_ends() {
    let mut machine = Membership::join(Config::default(), RUN, contact(peer(6)), peer(1), Time::ZERO);
    outputs(&mut machine);
    let outputs = receive(&mut machine, peer(1), 1, Body::Redirect(contact(peer(6)))).expect("a redirect");
    let lost = Event::Lost { peer: peer(1), evidence: Evidence::Misbehaved, reporter: None };
    assert_eq!(outputs, [Output::Event(lost)]);
}

#[test]
fn a_joiner_that_has_the_state_already_does_not_fetch_it() {
    for held in [true, false] {
        let mut joiner = Membership::join(Config::default(), RUN, contact(peer(6)), peer(5), Time::ZERO);
        if held {
            joiner.handle(Time::ZERO, Input::Held { step: 0, digest: DIGEST }).expect("our own input");
        }
        outputs(&mut joiner);
        let view = first().succeed([5, 6].map(peer));
        let outputs = receive(&mut joiner, peer(5), 1, Body::Propose(proposal(view))).expect("a proposal");
        assert_eq!(outputs.iter().any(|output| matches!(output, Output::Fetch { .. })), !held);
        let accepted = |output: &Output| {
            matches!(output, Output::Send { envelope: Envelope { body: Body::Accept { .. }, .. }, .. })
        };
        assert_eq!(outputs.iter().any(accepted), held);
    }
}

#[test]
fn bytes_beyond_the_bounds() {
    let envelope = |body| Envelope { run: RUN, generation: Generation(1), body };
    let decode = |body| Envelope::decode(&envelope(body).encode());
    assert_eq!(Envelope::decode(&[]), Err(Violation::Undecodable));
    assert_eq!(Envelope::decode(&vec![0; MAX_ENVELOPE_BYTES + 1]), Err(Violation::Undecodable));
    let mut trailing = envelope(Body::Heartbeat).encode();
    trailing.push(0);
    assert_eq!(Envelope::decode(&trailing), Err(Violation::Undecodable));

    let addresses = vec![String::new(); MAX_ADDRESSES + 1];
    let many = Contact { peer: peer(1), addresses };
    let long = Contact { peer: peer(1), addresses: vec!["a".repeat(MAX_ADDRESS_BYTES + 1)] };
    for contact in [many, long] {
        assert_eq!(decode(Body::Join(contact.clone())), Err(Violation::MalformedContact));
        assert_eq!(decode(Body::Redirect(contact.clone())), Err(Violation::MalformedContact));
        let proposal = Proposal { contacts: vec![contact], ..proposal(first()) };
        assert_eq!(decode(Body::Propose(proposal)), Err(Violation::MalformedContact));
    }
    let contacts = vec![contact(peer(1)); MAX_MEMBERS + 1];
    let crowded = Proposal { contacts, ..proposal(first()) };
    assert_eq!(decode(Body::Propose(crowded)), Err(Violation::MalformedContact));

    let crowd = first().succeed((0..=MAX_MEMBERS).map(|name| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(name as u64).to_be_bytes());
        PeerId(bytes)
    }));
    let crowd = Proposal { contacts: vec![], ..proposal(crowd) };
    assert_eq!(decode(Body::Propose(crowd)), Err(Violation::MalformedView));
}

#[test]
fn the_fullest_proposal_fits() {
    let members: Vec<PeerId> = (0..MAX_MEMBERS as u8).map(peer).collect();
    let contacts = members
        .iter()
        .map(|member| Contact { peer: *member, addresses: vec!["a".repeat(MAX_ADDRESS_BYTES); MAX_ADDRESSES] })
        .collect();
    let proposal = Proposal { contacts, after_step: u64::MAX, ..proposal(first().succeed(members)) };
    let envelope = Envelope { run: RUN, generation: Generation(u64::MAX), body: Body::Propose(proposal) };
    assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
}
