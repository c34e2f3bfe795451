//! Random inputs: refused or harmless, never a panic, never more output than input allows.

use starling_topology::Rank;

use super::cluster::{Rng, layout};
use crate::{Input, Phase, SegmentId, Session};

#[test]
fn random_inputs_never_panic_and_never_amplify() {
    for seed in 0..2_000 {
        let mut rng = Rng(seed);
        let world = 1 + rng.below(6) as u32;
        let layout = layout(rng.below(40), world, 1 + rng.below(20), 1 + rng.below(4));
        let most: u32 = (0..layout.buckets()).map(|bucket| layout.segments(bucket, Rank(0))).sum();
        // A rank sends at most each segment of each chunk once per phase, with a few words about each.
        let bound = 8 * (most as usize + 1) * (world as usize + 1);
        let rank = Rank(rng.below(world as usize) as u32);
        let mut session = Session::new(layout.clone(), rank, rng.below(4) as u32);
        let mut outputs = 0;
        for _ in 0..300 {
            let input = match rng.below(200) {
                0 => Input::Abort,
                1..=20 => Input::Start,
                _ => Input::Received {
                    from: if rng.below(10) == 0 { Rank(rng.next() as u32) } else { layout.world_size().previous(rank) },
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
