//! The values that members reduce: drawn from a seed, so that each member can tell what all of them sum to.

use starling_collective::kernel;

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

/// The first element of `sum` that is not the sum of what `peers` members bring to `round`.
pub(super) fn first_wrong(sum: &[f32], seed: u64, round: u64, peers: u32) -> Option<usize> {
    let streams: Vec<u64> = (0..peers).map(|index| stream(seed, round, index)).collect();
    let expected = |element| streams.iter().map(|stream| value(*stream, element)).sum::<f32>();
    sum.iter().enumerate().position(|(element, sum)| *sum != expected(element))
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
    use super::*;

    #[test]
    fn a_wrong_sum_is_found() {
        let mut sum = vec![0.0; 1000];
        for index in 0..3 {
            let mut mine = vec![0.0; 1000];
            draw(&mut mine, 1, 2, index);
            assert!(mine.iter().any(|value| *value != mine[0]), "values differ");
            sum.iter_mut().zip(&mine).for_each(|(sum, mine)| *sum += mine);
        }
        assert_eq!(first_wrong(&sum, 1, 2, 3), None);
        assert!(first_wrong(&sum, 1, 3, 3).is_some(), "each round has its own values");
        let right = digest(&sum);
        sum[999] += 1.0;
        assert_eq!(first_wrong(&sum, 1, 2, 3), Some(999));
        assert_ne!(digest(&sum), right);
    }
}
