//! Cutting one member's share among itself and those who compute for it.

use std::ops::Range;

use super::assignment;

/// So many ranges a part has that somebody else computes. A share has more only where many lost ones were returned; what is beyond stays
/// with the member itself.
pub const MAX_PART_RANGES: usize = 1_024;

/// Cuts `share` in proportion to `weights`, those of the member itself first: at the borders of micro-batches, where the run has them (0:
/// between any two samples). Each part is ascending, as a share is; a part may be empty, the first one only if the share is. Equal inputs
/// give equal parts.
///
/// # Panics
/// If there are no weights.
pub fn split(share: &[Range<u32>], micro_batch: u32, weights: &[u32]) -> Vec<Vec<Range<u32>>> {
    assert!(!weights.is_empty(), "a share has a member");
    let unit = micro_batch.max(1);
    let units: Vec<Range<u32>> = share.iter().map(|range| range.start / unit..range.end.div_ceil(unit)).collect();
    // Only the last micro-batch of an epoch is short.
    let end = share.last().map_or(0, |range| range.end);
    let weights: Vec<u32> = weights.iter().map(|weight| (*weight).max(1)).collect();
    let mut sizes = assignment::sizes(assignment::count(&units), &weights);
    if sizes[0] == 0
        && let Some(largest) = (1..sizes.len()).rev().max_by_key(|at| sizes[*at]).filter(|at| sizes[*at] > 0)
    {
        (sizes[0], sizes[largest]) = (1, sizes[largest] - 1);
    }
    let mut rest = units.into_iter();
    let mut open = 0..0;
    let mut parts: Vec<Vec<Range<u32>>> = Vec::with_capacity(sizes.len());
    let mut beyond = Vec::new();
    for (at, mut size) in sizes.into_iter().enumerate() {
        let mut part = Vec::new();
        while size > 0 {
            if open.is_empty() {
                open = rest.next().expect("invariant: sizes add up to the share");
            }
            let taken = open.start..open.end.min(open.start.saturating_add(size));
            open.start = taken.end;
            size -= taken.end - taken.start;
            let samples = taken.start * unit..taken.end.saturating_mul(unit).min(end);
            if at > 0 && part.len() == MAX_PART_RANGES { beyond.push(samples) } else { part.push(samples) }
        }
        parts.push(part);
    }
    if !beyond.is_empty() {
        parts[0] = assignment::union(&parts[0], &assignment::merge(beyond.into_iter()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(parts: &[Vec<Range<u32>>]) -> Vec<u32> {
        let mut all: Vec<u32> = parts.iter().flatten().flat_map(Clone::clone).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn each_sample_is_in_one_part_whatever_the_weights() {
        let shares = [vec![], vec![3..4, 4..4], vec![0..7, 7..7], vec![0..8, 12..16, 40..48], vec![96..100, 100..101]];
        for share in &shares {
            let share: Vec<Range<u32>> = assignment::merge(share.iter().cloned());
            let share = share.as_slice();
            for micro_batch in [0, 1, 2, 4] {
                let is_cut = |range: &Range<u32>| {
                    !range.start.is_multiple_of(micro_batch.max(1))
                        || !(range.end.is_multiple_of(micro_batch.max(1)) || Some(range) == share.last())
                };
                if share.iter().any(is_cut) {
                    continue;
                }
                for weights in [&[1][..], &[1, 1], &[5, 1, 9], &[1, 1_000_000, 3, 0], &[u32::MAX; 9]] {
                    let parts = split(share, micro_batch, weights);
                    assert_eq!(parts.len(), weights.len());
                    let whole: Vec<u32> = share.iter().flat_map(Clone::clone).collect();
                    assert_eq!(positions(&parts), whole, "{share:?}, {micro_batch}, {weights:?}");
                    assert!(share.is_empty() || !parts[0].is_empty(), "{share:?}, {micro_batch}, {weights:?}");
                    let end = share.last().map_or(0, |range| range.end);
                    for range in parts.iter().flatten() {
                        let borders = [range.start, range.end];
                        let is_border = |at: &u32| at.is_multiple_of(micro_batch.max(1)) || *at == end;
                        assert!(borders.iter().all(is_border), "{range:?} cuts a micro-batch");
                    }
                    assert!(parts.iter().all(|part| part.windows(2).all(|pair| pair[0].end <= pair[1].start)));
                }
            }
        }
    }

    #[test]
    fn parts_follow_weights_in_whole_micro_batches() {
        let sizes = |micro_batch, weights: &[u32]| -> Vec<u32> {
            split(std::slice::from_ref(&(0..64)), micro_batch, weights)
                .iter()
                .map(|part| assignment::count(part))
                .collect()
        };
        assert_eq!(sizes(0, &[1, 3]), [16, 48]);
        assert_eq!(sizes(8, &[1, 3]), [16, 48]);
        assert_eq!(sizes(32, &[1, 100]), [32, 32]);
        assert_eq!(sizes(64, &[1, 100]), [64, 0], "who has the share computes of it itself");
        assert_eq!(sizes(0, &[1, 1_000]), [1, 63]);
    }

    #[test]
    fn what_is_in_too_many_pieces_stays_with_the_member() {
        let share: Vec<Range<u32>> = (0..4_000).map(|at| 2 * at..2 * at + 1).collect();
        let parts = split(&share, 0, &[1, 3]);
        assert_eq!((parts[0].len(), parts[1].len()), (4_000 - MAX_PART_RANGES, MAX_PART_RANGES));
        assert_eq!(positions(&parts), share.iter().map(|range| range.start).collect::<Vec<_>>());
    }
}
