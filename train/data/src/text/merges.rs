//! A vocabulary that is learned: byte pair encoding (Sennrich, Haddow and Birch: "Neural Machine Translation of Rare Words with Subword
//! Units", 2016).
//!
//! The crate that makes tokens can learn them, too. That equal texts give equal vocabularies rests there on the order of a heap that is filled
//! from hash maps, and nothing promises it; here it follows from the definition.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

/// A pair that comes less often is nothing to learn.
const LEAST_COUNT: u64 = 2;

type Pair = (u32, u32);

/// The merges of a vocabulary of `size` tokens over words, given as the numbers of their bytes with how often each of them comes; fewer, if no
/// pair comes twice. The first merge makes the token `first`. Of equally frequent pairs, the lowest is taken. `progress` is told how many
/// there are.
pub(super) fn learn(words: &BTreeMap<Vec<u8>, u64>, first: u32, size: u32, progress: &mut dyn FnMut(u32)) -> Vec<Pair> {
    let mut words: Vec<(Vec<u32>, u64)> =
        words.iter().map(|(word, count)| (word.iter().map(|byte| u32::from(*byte)).collect(), *count)).collect();
    // Nothing goes through these in their order.
    let mut counts: HashMap<Pair, u64> = HashMap::new();
    let mut places: HashMap<Pair, Vec<u32>> = HashMap::new();
    for ((word, count), at) in words.iter().zip(0..) {
        for pair in pairs(word) {
            *counts.entry(pair).or_default() += count;
            places.entry(pair).or_default().push(at);
        }
    }
    let mut queue: BinaryHeap<(u64, Reverse<Pair>)> =
        counts.iter().map(|(pair, count)| (*count, Reverse(*pair))).collect();
    let mut merges = Vec::new();
    let mut next = first;
    while next < size {
        let Some((count, Reverse(pair))) = queue.pop() else { break };
        let present = counts.get(&pair).copied().unwrap_or(0);
        if present != count {
            // It was pushed again when it became more; less is seen here.
            queue.extend((present >= LEAST_COUNT && present < count).then_some((present, Reverse(pair))));
            continue;
        }
        if count < LEAST_COUNT {
            break;
        }
        let mut of_pair = places.remove(&pair).unwrap_or_default();
        of_pair.sort_unstable();
        of_pair.dedup();
        let mut changed = BTreeSet::new();
        for at in of_pair {
            let (word, count) = &mut words[at as usize];
            let Some(merged) = merged(word, pair, next) else { continue };
            for pair in pairs(word) {
                let left = counts.entry(pair).or_default();
                *left = left.saturating_sub(*count);
            }
            for pair in pairs(&merged) {
                *counts.entry(pair).or_default() += *count;
                if pair.0 == next || pair.1 == next {
                    places.entry(pair).or_default().push(at);
                    changed.insert(pair);
                }
            }
            *word = merged;
        }
        counts.remove(&pair);
        queue.extend(changed.into_iter().map(|pair| (counts[&pair], Reverse(pair))));
        merges.push(pair);
        next += 1;
        progress(next);
    }
    merges
}

fn pairs(word: &[u32]) -> impl Iterator<Item = Pair> + '_ {
    word.windows(2).map(|pair| (pair[0], pair[1]))
}

/// The word with each such pair as the token that it becomes, from its beginning on; `None` if it has none.
fn merged(word: &[u32], pair: Pair, token: u32) -> Option<Vec<u32>> {
    let mut merged = Vec::with_capacity(word.len());
    let mut at = 0;
    while at < word.len() {
        let is_pair = word.get(at + 1).is_some_and(|second| (word[at], *second) == pair);
        merged.push(if is_pair { token } else { word[at] });
        at += if is_pair { 2 } else { 1 };
    }
    (merged.len() < word.len()).then_some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(of: &[(&str, u64)]) -> BTreeMap<Vec<u8>, u64> {
        of.iter().map(|(word, count)| (word.as_bytes().to_vec(), *count)).collect()
    }

    fn learned(of: &[(&str, u64)], size: u32) -> Vec<Pair> {
        learn(&words(of), 257, size, &mut |_| {})
    }

    const fn byte(letter: char) -> u32 {
        letter as u32
    }

    #[test]
    fn the_most_frequent_pair_is_merged_first_and_the_lowest_of_equals() {
        let of = [("low", 5), ("lower", 2), ("newest", 6), ("widest", 3)];
        let [e, s, t, l, o, w] = ['e', 's', 't', 'l', 'o', 'w'].map(byte);
        // `es` and `st` come nine times each.
        assert_eq!(learned(&of, 259), [(e, s), (257, t)]);
        assert_eq!(learned(&of, 261)[2..], [(l, o), (259, w)]);
        assert_eq!(learned(&[("ab", 2), ("cd", 2)], 300), [(byte('a'), byte('b')), (byte('c'), byte('d'))]);
    }

    #[test]
    fn what_comes_once_is_not_learned() {
        assert_eq!(learned(&[("abc", 1)], 1000), []);
        assert_eq!(learned(&[], 1000), []);
        assert_eq!(learned(&[("ab", 9)], 257), []);
    }

    /// By the definition: all pairs are counted anew for each merge.
    #[test]
    fn it_is_what_counting_anew_gives() {
        let mut generator = starling_topology::SplitMix64Generator::new(5);
        for _ in 0..30 {
            let mut of = BTreeMap::new();
            for _ in 0..40 {
                let letters: Vec<u8> = (0..1 + generator.below(9)).map(|_| b'a' + generator.below(3) as u8).collect();
                of.insert(letters, u64::from(1 + generator.below(5)));
            }
            let mut plain: Vec<(Vec<u32>, u64)> =
                of.iter().map(|(word, count)| (word.iter().map(|byte| u32::from(*byte)).collect(), *count)).collect();
            let mut expected = Vec::new();
            for next in 257..300 {
                let mut counts: BTreeMap<Pair, u64> = BTreeMap::new();
                plain.iter().for_each(|(word, count)| {
                    pairs(word).for_each(|pair| *counts.entry(pair).or_default() += count);
                });
                let best = counts.iter().max_by_key(|(pair, count)| (**count, Reverse(**pair)));
                let Some((pair, _)) = best.filter(|(_, count)| **count >= LEAST_COUNT) else { break };
                expected.push(*pair);
                for (word, _) in &mut plain {
                    *word = merged(word, *pair, next).unwrap_or_else(|| word.clone());
                }
            }
            assert_eq!(learn(&of, 257, 300, &mut |_| {}), expected);
        }
    }
}
