//! Random bytes and random messages: refused or harmless, never a panic, never without bound.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::cluster::{RUN, Rng, Signs, contact, me, peer};
use crate::plan::{Bucket, Link, PlanPolicy};
use crate::view::mark::{LostState, MarkStatus};
use crate::{
    Ballot, Body, BranchPosition, Config, Digest, Envelope, Evidence, Generation, Input, JoinRequest,
    JustifiedProposal, Membership, Output, PeerId, Progress, Promise, Proposal, Quorum, Reason, Record, RefusalReason,
    ResumePlan, RunId, SignedPromise, StallReport, Time, Timer, View, ViewId, Violation,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_refused_or_canonical(mut bytes in prop::collection::vec(any::<u8>(), 0..300), run in any::<bool>()) {
        if run && bytes.len() > 66 {
            bytes[65] %= 22; // So that a body is looked at.
        }
        if let Ok(envelope) = Envelope::decode(&bytes) {
            prop_assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
        }
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn damaged_messages_are_refused_or_bounded(seed in any::<u64>(), flips in 1usize..6) {
        let mut rng = Rng::new(seed);
        let mut bytes = envelope(&mut rng, &View::found(RUN, peer(5))).encode();
        for _ in 0..flips {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        if let Ok(Envelope { body: Body::Propose { justified, .. }, .. }) = Envelope::decode(&bytes) {
            prop_assert!(justified.proposal.validate().is_ok());
        }
    }
}

#[test]
fn rows_of_links_are_sorted_distinct_and_within_bounds() {
    let link = Link { delay_us: 5, bytes_per_second: 1 << 20 };
    let view = View::found(RUN, peer(5));
    let of = |links: Vec<(PeerId, Link)>| {
        let body = Body::Measured { links };
        let envelope = Envelope { run: RUN, generation: view.generation, view: view.id(), body };
        Envelope::decode(&envelope.encode()).map(drop)
    };
    let row = |size: u8| (0..size).map(|name| (peer(name), link)).collect::<Vec<_>>();
    assert_eq!((of(row(0)), of(row(32)), of(row(33))), (Ok(()), Ok(()), Err(Violation::MalformedLinks)));
    let slow = Link { delay_us: 60_000_001, ..link };
    let fast = Link { bytes_per_second: (1 << 40) + 1, ..link };
    for links in [
        vec![(peer(2), link), (peer(1), link)],
        vec![(peer(1), link), (peer(1), link)],
        vec![(peer(1), Link::NONE)],
        vec![(peer(1), slow)],
        vec![(peer(1), fast)],
    ] {
        assert_eq!(of(links), Err(Violation::MalformedLinks));
    }
}

#[test]
fn random_messages_into_every_state() {
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed);
        let bucket = Bucket { bytes: 1 << 20, segment_bytes: 1 << 16 };
        let reduced = (rng.below(2) == 0).then(|| (rng.pick(&PlanPolicy::ALL), bucket));
        let quorum = Quorum::ALL[(seed % 2) as usize];
        let config = Config { min_members: 1 + rng.below(3), reduced, quorum, ..Config::default() };
        let mut now = Time::ZERO;
        let progress = Progress { step: rng.below(3) as u64, has_state: true, ..Progress::default() };
        let first = View::found(RUN, peer(5)).with_quorum(quorum).succeed([5, 6, 7, 8].map(peer));
        let first = first.with_newcomers(some(&mut rng));
        let mut machine = match rng.below(3) {
            0 => Membership::found(config, RUN, me(peer(5)), progress, now),
            1 => Membership::join(config, RUN, me(peer(5)), vec![contact(peer(6))], now),
            _ => {
                let record = Record { root: crate::Root::default(), ..Record::of(first.clone(), None) };
                let contacts = [6, 7, 8].map(|name| contact(peer(name))).to_vec();
                Membership::recover(config, RUN, me(peer(5)), (record, MarkStatus::Nothing), contacts, progress, now)
            }
        };
        drain(&mut machine, &mut rng, now);
        for _ in 0..120 {
            now = now + Duration::from_millis(rng.below(3_000) as u64);
            let (step, digest) = (number(&mut rng), Digest([rng.below(2) as u8; 32]));
            let timers = [Timer::Heartbeat, Timer::Round, Timer::Takeover, Timer::Join, Timer::Goodbye, Timer::Store];
            let input = match rng.below(26) {
                24 => Input::Persisted,
                25 => Input::NotPersisted,
                0..=2 => Input::Expired(rng.pick(&timers)),
                3 => Input::Suspected { peer: name(&mut rng), evidence: evidence(&mut rng) },
                4..=6 => Input::Held(any_progress(&mut rng)),
                7 if rng.below(8) == 0 => Input::Finished { step, digest },
                8 if rng.below(8) == 0 => Input::Leave,
                9 if rng.below(3) == 0 => Input::Starved { step },
                9 => Input::Synced,
                10 if rng.below(3) == 0 => Input::Unable,
                11 => Input::Digest { step: number(&mut rng), digest: Digest([0; 32]) },
                12 => Input::Reached { step, waits: (step % 2 == 0).then(|| any_awaited(&mut rng)) },
                13 if rng.below(2) == 0 => Input::Measured { links: vec![(name(&mut rng), any_link(&mut rng))] },
                _ => {
                    let view = machine.view().cloned().unwrap_or_else(|| first.clone());
                    let envelope = envelope(&mut rng, &view);
                    let envelope = Envelope::decode(&envelope.encode()).expect("within bounds");
                    Input::Received { from: name(&mut rng), envelope }
                }
            };
            let ended = machine.has_ended();
            let refused = machine.handle(now, input).is_err();
            let outputs = drain(&mut machine, &mut rng, now);
            assert!(outputs <= 600, "seed {seed}: {outputs} outputs");
            assert!(machine.contacts().count() <= 2_048 && !(refused && ended), "seed {seed}");
        }
    }
}

/// Carries out what the machine asks for, and stores most records at once; how many outputs there were.
fn drain(machine: &mut Membership, rng: &mut Rng, now: Time) -> usize {
    let mut outputs = 0;
    while let Some(output) = machine.poll() {
        outputs += 1;
        if matches!(output, Output::Persist(_)) && rng.below(4) != 0 {
            machine.handle(now, Input::Persisted).expect("ours");
        }
    }
    outputs
}

fn name(rng: &mut Rng) -> PeerId {
    peer(4 + rng.below(6) as u8)
}

fn number(rng: &mut Rng) -> u64 {
    if rng.below(10) == 0 { u64::MAX - rng.below(2) as u64 } else { rng.below(4) as u64 }
}

fn evidence(rng: &mut Rng) -> Evidence {
    rng.pick(&[
        Evidence::Closed,
        Evidence::Silent(Duration::from_secs(6)),
        Evidence::LinkFailed,
        Evidence::Unanswered,
        Evidence::Restarted,
        Evidence::Elsewhere,
        Evidence::Misbehaved,
    ])
}

fn any_link(rng: &mut Rng) -> Link {
    let delay_us = rng.pick(&[0, 50, 5_000, 60_000_000, u32::MAX]);
    Link { delay_us, bytes_per_second: rng.pick(&[0, 1, 1 << 20, 1 << 40, u64::MAX]) }
}

fn possible_link(rng: &mut Rng) -> Link {
    Link::measured(Duration::from_micros(rng.below(1 << 20) as u64), rng.next())
}

fn lineage(rng: &mut Rng) -> crate::Lineage {
    crate::Lineage { branch: rng.below(2) as u64, ..crate::Lineage::NONE }
}

fn any_progress(rng: &mut Rng) -> Progress {
    Progress { step: number(rng), lineage: lineage(rng), has_state: rng.below(3) > 0, has_result: rng.below(2) == 0 }
}

fn some(rng: &mut Rng) -> Vec<PeerId> {
    let mut peers: Vec<PeerId> = (0..rng.below(4)).map(|_| name(rng)).collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

fn joiner(rng: &mut Rng, name: PeerId) -> JoinRequest {
    let generation = Generation(number(rng));
    let state = (rng.below(2) == 0).then(|| (number(rng), lineage(rng)));
    JoinRequest {
        step: number(rng),
        state,
        branch: rng.below(2) as u64,
        generation,
        pass: vec![0; 9 * rng.below(2)],
        ..JoinRequest::new(contact(name), rng.below(2) as u64)
    }
    .signed(RUN, &Signs(name))
}

/// A proposal that may follow `view`.
fn proposal(rng: &mut Rng, view: &View) -> Proposal {
    let mut members = some(rng);
    members.push(name(rng));
    let mut next = view.succeed(members).with_severed([(name(rng), name(rng))]);
    next = next.with_costs(|from, to| (from.0 < to.0).then_some(Link { delay_us: 5, bytes_per_second: 1 << 20 }));
    next = next.with_newcomers(some(rng));
    next.forked = rng.below(4) == 0;
    if rng.below(5) == 0 {
        next.generation = Generation(number(rng));
    }
    let within = |peers: Vec<PeerId>| peers.into_iter().filter(|peer| next.contains(*peer)).collect::<Vec<_>>();
    let (holders, donors, syncing) = (within(some(rng)), within(some(rng)), within(some(rng)));
    let joiners = some(rng).into_iter().map(|name| joiner(rng, name)).collect();
    let reasons = vec![Reason::Lost { peer: name(rng), evidence: evidence(rng) }, Reason::Recovered];
    let lineage = lineage(rng);
    let resume = ResumePlan { step: number(rng), lineage, holders, donors, syncing };
    Proposal { view: next, resume, reasons, joiners, promised: 1, of: u32::MAX }
}

fn any_awaited(rng: &mut Rng) -> StallReport {
    StallReport { step: number(rng), place: number(rng), from: some(rng) }
}

/// A promise that some member has signed.
fn signed_promise(rng: &mut Rng, view: &View, ballot: Ballot, accepted: Option<&JustifiedProposal>) -> SignedPromise {
    let (by, unreachable, accused, contributing) = (name(rng), some(rng), some(rng), some(rng));
    let (leaving, recovering) = (rng.below(3) == 0, rng.below(3) == 0);
    let missing = (rng.below(3) == 0).then(|| any_awaited(rng));
    let accepted = accepted.map(|accepted| (accepted.ballot, accepted.hash()));
    let lost = match rng.below(4) {
        0 => LostState::Unknown,
        1 => LostState::Step(rng.below(20) as u64),
        _ => LostState::Nothing,
    };
    let (progress, failed) = (any_progress(rng), some(rng));
    let promise =
        Promise { progress, unreachable, failed, accused, contributing, missing, leaving, recovering, lost, accepted };
    SignedPromise::new(&Signs(by), view.id(), ballot, by, promise)
}

fn promises(rng: &mut Rng, view: &View, ballot: Ballot, accepted: Option<&JustifiedProposal>) -> Vec<SignedPromise> {
    let count = rng.below(5);
    let mut promises: Vec<_> = (0..count).map(|_| signed_promise(rng, view, ballot, accepted)).collect();
    promises.sort_by_key(|signed| signed.by);
    promises.dedup_by_key(|signed| signed.by);
    promises
}

/// Something that a member has proposed, from promises that were given.
fn justified(rng: &mut Rng, view: &View, ballot: Ballot, accepted: Option<&JustifiedProposal>) -> JustifiedProposal {
    let (proposal, promises) = (proposal(rng, view), promises(rng, view, ballot, accepted));
    JustifiedProposal::new(&Signs(ballot.proposer), view.id(), ballot, proposal, promises, Vec::new())
}

/// A well-formed envelope that says anything, often in this very view.
fn envelope(rng: &mut Rng, view: &View) -> Envelope {
    let ballot = Ballot { attempt: number(rng).min(5), proposer: name(rng) };
    let other = Ballot { attempt: rng.below(3) as u64, proposer: name(rng) };
    let (step, digest) = (number(rng), Digest([rng.below(2) as u8; 32]));
    let branch_position = BranchPosition {
        step,
        branch: rng.below(2) as u64,
        parent: (rng.below(2) == 0).then(|| view.id()),
        forked: rng.below(2) == 0,
        paused: rng.below(2) == 0,
        recovering: rng.below(2) == 0,
    };
    let accepted = (rng.below(3) == 0).then(|| justified(rng, view, other, None));
    let body = match rng.below(23) {
        0 => {
            let asker = name(rng);
            Body::Join(joiner(rng, asker))
        }
        1 => {
            let asker = name(rng);
            Body::Introduce(joiner(rng, asker))
        }
        2 => Body::Refuse(if rng.below(8) > 0 {
            RefusalReason::Quarantined { for_ms: step }
        } else {
            RefusalReason::OtherRun
        }),
        3 => Body::Leave,
        4 => Body::Suspect { peer: name(rng), evidence: evidence(rng) },
        5 | 6 => Body::Prepare { ballot, boundary: (rng.below(2) == 0).then_some(step), unreachable: some(rng) },
        7 => {
            let promise = signed_promise(rng, view, ballot, accepted.as_ref());
            Body::Promise { ballot, promise, accepted: accepted.map(Box::new) }
        }
        8 => Body::Nack { ballot, promised: other },
        9 | 10 => {
            let justified = Box::new(justified(rng, view, ballot, None));
            let promises = if rng.below(4) == 0 { promises(rng, view, ballot, Some(&justified)) } else { Vec::new() };
            let seal = if rng.below(2) == 0 { justified.seal } else { [rng.below(2) as u8; 64].into() };
            Body::Propose { ballot, justified, promises, seal }
        }
        11 => Body::Accept { ballot, seal: [rng.below(2) as u8; 64].into() },
        12 => Body::Install {
            proposal: proposal(rng, view),
            contacts: some(rng).into_iter().map(contact).collect(),
            certificate: None,
            fork: (rng.below(4) == 0).then_some(other),
            chain: Vec::new(),
        },
        13 => Body::Heartbeat { step, waiting: step as u32 },
        14 => Body::Hello(branch_position),
        15 => Body::Outsider {
            branch_position,
            contacts: some(rng).into_iter().map(contact).collect(),
            chain: Vec::new(),
        },
        16 => Body::Synced,
        17 => Body::Finished { peer: name(rng), step, digest: Digest([0; 32]) },
        18 => Body::Measured { links: some(rng).into_iter().map(|name| (name, possible_link(rng))).collect() },
        19 => Body::Echo { ballot, seal: [rng.below(2) as u8; 64].into() },
        20 => Body::Confirm { ballot, echoes: some(rng).into_iter().map(|name| (name, [0; 64].into())).collect() },
        21 => Body::Contributes { step },
        _ if rng.below(2) == 0 => Body::Goodbye,
        _ => Body::Digest { step, digest },
    };
    let run = if rng.below(15) == 0 { RunId([1; 32]) } else { RUN };
    let (generation, view) = match rng.below(4) {
        0 => (Generation(number(rng)), ViewId([rng.below(2) as u8; 32])),
        1 => (view.generation, view.parent.unwrap_or(ViewId::NONE)),
        _ => (view.generation, view.id()),
    };
    Envelope { run, generation, view, body }
}
