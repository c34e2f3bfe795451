//! The values that members reduce: drawn from a seed, so that each member can tell what all of them sum to.

use starling_collective::Codec;
use starling_collective::codec::kernel;

use super::wire::Setup;

/// Values are whole and below this, so that sums over any world are exact in `f32`.
const RANGE: u64 = 1 << 10;

/// The value of one element, of one member, in one round.
fn value(stream: u64, element: usize) -> f32 {
    // The multiplier of Knuth's MMIX generator; its upper bits are well mixed.
    let mixed = (stream ^ element as u64).wrapping_mul(6_364_136_223_846_793_005).rotate_left(20);
    (mixed % RANGE) as f32
}

fn stream(seed: u64, round: u64, index: u32) -> u64 {
    let name = [seed.to_le_bytes(), round.to_le_bytes(), u64::from(index).to_le_bytes()];
    let hash = blake3::hash(name.as_flattened());
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("invariant: a hash has 32 bytes"))
}

/// Overwrites `into` with what member `index` brings to `round`.
pub(super) fn draw(into: &mut [f32], seed: u64, round: u64, index: u32) {
    let stream = stream(seed, round, index);
    into.iter_mut().enumerate().for_each(|(element, into)| *into = value(stream, element));
}

/// The first element of `sum` that is not the sum of what all members bring to `round`: exactly, or as nearly as the
/// codec tells it.
pub(super) fn first_wrong(sum: &[f32], setup: &Setup, round: u64) -> Option<usize> {
    let streams: Vec<u64> = (0..setup.peers).map(|index| stream(setup.seed, round, index)).collect();
    let expected = |element| streams.iter().map(|stream| value(*stream, element)).sum::<f32>();
    let tolerance = tolerance(setup.reduction.codec, setup.peers);
    sum.iter().enumerate().position(|(element, sum)| (sum - expected(element)).abs() > tolerance)
}

/// How far rounding may lead: each rank rounds once on a sum's way, and its owner once more, each time by no more than the
/// codec's share of the largest sum.
fn tolerance(codec: Codec, peers: u32) -> f32 {
    let share = match codec {
        Codec::F32 => return 0.0,
        Codec::Bf16 => 1.0 / 256.0,
        Codec::F16 => 1.0 / 2048.0,
        Codec::Int8 => 1.0 / 253.0,
    };
    (peers + 1) as f32 * share * peers as f32 * RANGE as f32
}

/// blake3 of the values' bytes, hex.
pub(super) fn digest(values: &[f32]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = Vec::new();
    for block in values.chunks(1 << 14) {
        bytes.clear();
        kernel::encode(block, &mut bytes);
        hasher.update(&bytes);
    }
    hasher.finalize().to_string()
}

#[cfg(test)]
mod tests {
    use starling::TransportPolicy;
    use starling::parts::PlanPolicy;
    use starling_node::reducer::bench::ReductionSpec;

    use super::*;

    fn setup(codec: Codec) -> Setup {
        let reduction = ReductionSpec {
            secret: [0; 32],
            data_plane: TransportPolicy::Auto,
            elements: 1000,
            codec,
            plan: PlanPolicy::Ring,
            bucket_elements: 1000,
            segment_elements: 1000,
            in_flight: 1,
        };
        Setup { reduction, seed: 1, index: 0, peers: 3 }
    }

    #[test]
    fn a_wrong_sum_is_found() {
        let mut sum = vec![0.0; 1000];
        for index in 0..3 {
            let mut mine = vec![0.0; 1000];
            draw(&mut mine, 1, 2, index);
            assert!(mine.iter().any(|value| *value != mine[0]), "values differ");
            sum.iter_mut().zip(&mine).for_each(|(sum, mine)| *sum += mine);
        }
        for codec in Codec::ALL {
            assert_eq!(first_wrong(&sum, &setup(codec), 2), None);
            assert!(first_wrong(&sum, &setup(codec), 3).is_some(), "each round has its own values");
        }
        let right = digest(&sum);
        sum[999] += 1.0;
        assert_eq!(first_wrong(&sum, &setup(Codec::F32), 2), Some(999));
        assert_eq!(first_wrong(&sum, &setup(Codec::Int8), 2), None, "no codec is that exact");
        assert_ne!(digest(&sum), right);
    }
}
