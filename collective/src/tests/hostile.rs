//! Random inputs: refused or harmless, never a panic, never more output than input allows.

use starling_topology::Rank;

use super::cluster::{Rng, layout_for, plans};
use crate::{Buffer, Codec, Input, Operation, Phase, Schedule, SegmentId, Session, Workspace};

#[test]
fn random_inputs_never_panic_and_never_amplify() {
    for seed in 0..4_000 {
        let mut rng = Rng::new(seed);
        let world = 1 + rng.below(6) as u32;
        let plans = plans(world);
        let plan = &plans[rng.below(plans.len())];
        let (bucket, segment) = (1 + rng.below(20), 1 + rng.below(4));
        let layout = layout_for(plan, rng.below(40), world, (bucket, segment), rng.below(2) == 0);
        let segments = layout.ranges().count();
        // A rank has to do with each segment of each chunk in two phases, and tells all others of it at most.
        let bound = 8 * (segments + 1) * (world as usize + 1);
        let rank = Rank(rng.below(world as usize) as u32);
        let operation = match rng.below(4) {
            0 => Operation::ReduceScatter,
            1 => Operation::AllGather,
            2 => Operation::Broadcast { root: Rank(rng.below(world as usize) as u32) },
            _ => Operation::AllReduce,
        };
        let schedule = Schedule::new(plan, layout.world_size(), operation, rank);
        let mut session = Session::over(schedule, layout.clone(), rng.below(4) as u32);
        let mut outputs = 0;
        for _ in 0..300 {
            let input = match rng.below(200) {
                0..=20 => Input::Ready { from: 0 },
                _ => Input::Received {
                    from: Rank(number(&mut rng, world)),
                    segment: SegmentId {
                        bucket: number(&mut rng, layout.buckets()),
                        phase: if rng.below(2) == 0 { Phase::ReduceScatter } else { Phase::AllGather },
                        chunk: Rank(number(&mut rng, world)),
                        segment: number(&mut rng, 4),
                    },
                    payload: (),
                },
            };
            let refused = session.handle(input).is_err();
            let count = std::iter::from_fn(|| session.poll()).count();
            assert!(!refused || count == 0, "seed {seed}: a refused input led to something");
            outputs += count;
        }
        assert!(outputs <= bound, "seed {seed}: {outputs} outputs, at most {bound} make sense");
    }
}

/// Mostly small, sometimes absurd.
fn number(rng: &mut Rng, bound: u32) -> u32 {
    match rng.below(20) {
        0 => u32::MAX,
        1 => rng.next() as u32,
        _ => rng.below(bound as usize + 1) as u32,
    }
}

/// Whatever bytes come, they are taken as they would be written or refused; the contribution is untouched either way.
#[test]
fn random_payloads_are_refused_or_would_be_written_again() {
    for codec in Codec::ALL {
        let mut refused = 0;
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let elements = 1 + rng.below(600);
            let mut payload = vec![0; codec.payload_bytes(elements)];
            if rng.below(2) == 0 {
                let values: Vec<f32> = (0..elements).map(|_| rng.below(1_000) as f32).collect();
                codec.encode(&values, &mut payload);
            }
            for _ in 0..rng.below(3) {
                let at = rng.below(payload.len());
                payload[at] = rng.next() as u8;
            }
            let mut values = vec![7.0; elements];
            if codec.store(&mut values, &payload).is_err() {
                refused += 1;
                assert!(codec.accumulate(&mut vec![7.0; elements], &payload).is_err());
                continue;
            }
            assert!(values.iter().all(|value| value.is_finite()));
            let mut again = vec![0; payload.len()];
            codec.encode(&values, &mut again);
            assert_eq!(again, payload, "{codec}, seed {seed}");
        }
        assert!(refused > 0 || codec != Codec::Int8, "some changes are no form of this codec");
    }
}

#[test]
fn a_bad_segment_is_named_and_leaves_the_contribution_alone() {
    let plan = &plans(3)[2];
    let layout = layout_for(plan, 12, 3, (12, 4), false);
    let contribution: Vec<f32> = (0..12).map(|index| index as f32).collect();
    for codec in Codec::ALL {
        let mut workspace = Workspace::new(layout.clone(), codec, contribution.clone(), 3.0);
        let segment = SegmentId { bucket: 0, phase: Phase::ReduceScatter, chunk: Rank(1), segment: 0 };
        let mut payload = vec![0; codec.payload_bytes(4)];
        codec.encode(&[1.0, f32::NAN, 2.0, 3.0], &mut payload);
        for refused in [
            workspace.accumulate(&segment, &payload),
            workspace.conclude(&segment, &payload),
            workspace.contribute(&segment, &mut payload.clone()),
            workspace.store(&segment, &payload),
            workspace.check(&segment, &payload),
            workspace.prepend(&segment, vec![&payload, &payload]),
        ] {
            let error = refused.expect_err("a value is not finite");
            assert_eq!(error.segment, segment);
            assert!(error.to_string().contains(&segment.to_string()));
        }
    }
}
