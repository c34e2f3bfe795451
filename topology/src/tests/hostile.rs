//! Random bytes and random messages: refused or harmless, never a panic.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::cluster::{Cluster, RUN, Rng, contact, peer};
use crate::{
    Body, Config, Digest, Envelope, Evidence, Generation, Input, Membership, PeerId, Proposal, Refusal, RunId, Time,
    Timer, View, ViewId,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_refused_or_canonical(mut bytes in prop::collection::vec(any::<u8>(), 0..300), run in any::<bool>()) {
        if run && bytes.len() > 34 {
            bytes[..32].fill(7); // Past the run, so that the body is looked at.
            bytes[33] %= 12;
        }
        if let Ok(envelope) = Envelope::decode(&bytes) {
            prop_assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
        }
    }

    #[test]
    fn damaged_messages_are_refused_or_bounded(seed in any::<u64>(), flips in 1usize..6) {
        let mut rng = Rng(seed);
        let mut bytes = envelope(&mut rng).encode();
        for _ in 0..flips {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        if let Ok(Envelope { body: Body::Propose(proposal), .. }) = Envelope::decode(&bytes) {
            prop_assert!(proposal.view.validate().is_ok());
        }
    }
}

#[test]
fn random_messages_into_every_phase() {
    for seed in 0..1_500 {
        let mut rng = Rng(seed);
        let config = Config { min_members: 1 + rng.below(3), ..Config::default() };
        let mut machine = if rng.below(2) == 0 {
            Membership::found(config, RUN, contact(peer(5)), Time::ZERO)
        } else {
            Membership::join(config, RUN, contact(peer(5)), name(&mut rng), Time::ZERO)
        };
        let mut now = Time::ZERO;
        while machine.poll().is_some() {}
        for _ in 0..60 {
            now = now + std::time::Duration::from_millis(rng.below(800) as u64);
            let (step, digest) = (rng.below(3) as u64, Digest([rng.below(2) as u8; 32]));
            let input = match rng.below(20) {
                0 => Input::Expired(Timer::Heartbeat),
                1 => Input::Expired(rng.pick(&[Timer::Goodbye, Timer::Proposal])),
                2 => Input::Suspected { peer: name(&mut rng), evidence: Evidence::LinkFailed },
                3..=5 => Input::Held { step, digest },
                6 if rng.below(4) == 0 => Input::Finished { step, digest },
                7 if rng.below(4) == 0 => Input::Leave,
                _ => {
                    let mut envelope = envelope(&mut rng);
                    // Often plausible: a successor of the very view that the machine holds.
                    if let (Body::Propose(proposal), Some(view), true) =
                        (&mut envelope.body, machine.view(), rng.below(2) == 0)
                    {
                        proposal.view = view.succeed([5, 6, 7].map(peer));
                    }
                    let envelope = Envelope::decode(&envelope.encode()).expect("within bounds");
                    Input::Received { from: name(&mut rng), envelope }
                }
            };
            let ended = machine.has_ended();
            let refused = machine.handle(now, input).is_err();
            let outputs = std::iter::from_fn(|| machine.poll()).count();
            assert!(!(refused || ended) || outputs == 0, "seed {seed}");
            assert!(outputs <= 300, "seed {seed}: {outputs} outputs");
        }
    }
}

#[test]
fn a_stranger_among_members_disturbs_nobody() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(seed, 20, 3);
        cluster.found(peer(5));
        cluster.join(peer(6), peer(5));
        cluster.join(peer(7), peer(5));
        let mut ticking = true;
        while ticking {
            ticking = cluster.tick();
            let target = peer(5 + cluster.rng.below(3) as u8);
            let envelope = envelope(&mut cluster.rng);
            if matches!(envelope.body, Body::Join(_)) || cluster.rng.below(4) > 0 {
                continue; // A stranger that asks to join is not a stranger any more.
            }
            let now = cluster.now;
            let machine = &mut cluster.peers.get_mut(&target).expect("there").machine;
            // Refused or dropped; what it leads to, the cluster executes and checks like anything else.
            let _ = machine.handle(now, Input::Received { from: peer(99), envelope });
        }
        cluster.assert_complete([5, 6, 7].map(peer));
    }
}

fn name(rng: &mut Rng) -> PeerId {
    peer(4 + rng.below(5) as u8)
}

/// A well-formed envelope that says anything.
fn envelope(rng: &mut Rng) -> Envelope {
    let view = |rng: &mut Rng| {
        let mut view = View::found(RUN, name(rng));
        for _ in 0..rng.below(3) {
            let members: Vec<PeerId> = (0..=rng.below(4)).map(|_| name(rng)).collect();
            view = view.succeed(members);
        }
        if rng.below(6) == 0 {
            view.generation = Generation(u64::MAX - rng.below(2) as u64);
        }
        view
    };
    let digest = Digest([rng.below(2) as u8; 32]);
    let step = if rng.below(8) == 0 { u64::MAX } else { rng.below(3) as u64 };
    let body = match rng.below(11) {
        0 => Body::Join(contact(name(rng))),
        1 => Body::Redirect(contact(name(rng))),
        2 => Body::Refuse(rng.pick(&[
            Refusal::RunFinished,
            Refusal::AlreadyMember,
            Refusal::Full { max_members: 0 },
            Refusal::TooSlow { limit_ms: u64::MAX },
            Refusal::Withdrawn,
        ])),
        3 => Body::Leave,
        4 => {
            let view = view(rng);
            let contacts = view.members().iter().map(|member| contact(*member)).collect();
            Body::Propose(Proposal { view, after_step: step, digest, contacts })
        }
        5 => Body::Accept { view: view(rng).id() },
        6 => Body::Install { view: if rng.below(2) == 0 { ViewId([0; 32]) } else { view(rng).id() } },
        7 => Body::Heartbeat,
        8 => Body::Lost { peer: name(rng), evidence: Evidence::Closed },
        9 => Body::Finished { step, digest },
        _ => Body::Goodbye,
    };
    let run = if rng.below(15) == 0 { RunId([1; 32]) } else { RUN };
    Envelope { run, generation: Generation(rng.below(4) as u64), body }
}
