//! Cutting a batch into shares.

use std::ops::Range;

use crate::id::PeerId;

/// Positions in an epoch's order by peer, both ascending: ranges are not empty, and those of one peer do not touch.
pub type AssignmentTable = Vec<(PeerId, Vec<Range<u32>>)>;

/// How many positions there are.
pub(super) fn count(ranges: &[Range<u32>]) -> u32 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Joins ascending ranges that touch, and leaves empty ones out.
pub(super) fn merge(ranges: impl Iterator<Item = Range<u32>>) -> Vec<Range<u32>> {
    let mut merged: Vec<Range<u32>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => merged.push(range),
        }
    }
    merged
}

/// The positions in both; each ascending.
pub(super) fn common(a: &[Range<u32>], b: &[Range<u32>]) -> Vec<Range<u32>> {
    let (mut found, mut rest) = (Vec::new(), b);
    for range in a {
        while let Some((first, behind)) = rest.split_first() {
            found.push(range.start.max(first.start)..range.end.min(first.end));
            if first.end > range.end {
                break; // It may reach into the next one.
            }
            rest = behind;
        }
    }
    merge(found.into_iter())
}

/// The positions of `a` that are not in `b`; each ascending.
pub(super) fn without(a: &[Range<u32>], b: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut left = Vec::new();
    for range in a {
        let mut start = range.start;
        for hole in common(std::slice::from_ref(range), b) {
            left.push(start..hole.start);
            start = hole.end;
        }
        left.push(start..range.end);
    }
    merge(left.into_iter())
}

/// The positions in one of two that have none in common.
pub(super) fn union(a: &[Range<u32>], b: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut all: Vec<_> = a.iter().chain(b).cloned().collect();
    all.sort_unstable_by_key(|range| range.start);
    merge(all.into_iter())
}

/// Divides `total` in proportion to `weights`, by largest remainders; of equal ones, the first. If there is enough,
/// everybody gets at least 1, from whoever has most.
pub(super) fn sizes(total: u32, weights: &[u32]) -> Vec<u32> {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let product = |at: usize| u64::from(total) * u64::from(weights[at]);
    let mut sizes: Vec<u32> = (0..weights.len()).map(|at| (product(at) / sum) as u32).collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|at| (std::cmp::Reverse(product(*at) % sum), *at));
    let rest = total - sizes.iter().sum::<u32>();
    for at in by_remainder.into_iter().take(rest as usize) {
        sizes[at] += 1;
    }
    if total as usize >= sizes.len() {
        while let Some(empty) = sizes.iter().position(|size| *size == 0) {
            let largest = (0..sizes.len()).rev().max_by_key(|at| sizes[*at]).expect("invariant: one of them is empty");
            sizes[largest] -= 1;
            sizes[empty] += 1;
        }
    }
    sizes
}

/// Cuts ascending positions into shares of the given sizes, in order. Empty shares are left out.
///
/// # Panics
/// If the sizes do not add up to the number of positions.
pub(super) fn cut(batch: Vec<Range<u32>>, sizes: impl Iterator<Item = (PeerId, u32)>) -> AssignmentTable {
    let mut rest = batch.into_iter();
    let mut open = 0..0;
    let mut shares = AssignmentTable::new();
    for (peer, mut size) in sizes {
        let mut ranges = Vec::new();
        while size > 0 {
            if open.is_empty() {
                open = rest.next().expect("invariant: sizes add up to the batch");
            }
            let taken = open.start..open.end.min(open.start + size);
            open.start = taken.end;
            size -= taken.end - taken.start;
            ranges.push(taken);
        }
        if !ranges.is_empty() {
            shares.push((peer, ranges));
        }
    }
    assert!(open.is_empty() && rest.next().is_none(), "sizes add up to the batch");
    shares
}
