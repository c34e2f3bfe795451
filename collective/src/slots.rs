//! What each rank says of itself, in the sum of what all say.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use starling_topology::Rank;

/// Whole numbers up to this are exact as `f32`, and so are their sums with zeros.
const MOST: u32 = 1 << 24;

/// Elements at the end of a buffer, each of which is one rank's: it brings a whole number, all others bring 0. Whatever
/// plan adds them up, a sum has in each of them what its rank has said, or 0 as long as that rank is not in it: so whoever
/// sends anything else is to blame for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotLayout(Arc<[Slot]>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Whose it is.
    pub of: Rank,
    /// What that rank may say.
    pub words: RangeInclusive<u32>,
}

impl SlotLayout {
    /// These, in the order of the elements.
    ///
    /// # Panics
    /// If a word is beyond 2^24.
    pub fn new(slots: impl IntoIterator<Item = Slot>) -> Self {
        let slots: Arc<[Slot]> = slots.into_iter().collect();
        assert!(slots.iter().all(|slot| *slot.words.end() <= MOST), "words are exact");
        Self(slots)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first of `values`, which are those of the slots from the one at `first` on, that can't be there in a sum of what `summed` have
    /// said, divided by `divisor`: which it is, and whose.
    pub fn first_bad(
        &self,
        first: usize,
        values: impl Iterator<Item = f32>,
        summed: &RankSet,
        divisor: f32,
    ) -> Option<(usize, Rank)> {
        let is_bad = |(slot, value): &(&Slot, f32)| !slot.admits(*value, summed, divisor);
        let mut read = self.0[first..].iter().zip(values).enumerate();
        read.find(|(_, slot)| is_bad(slot)).map(|(at, (slot, _))| (at, slot.of))
    }

    /// Likewise, the first of those of one rank that is not what this rank `said`, over `divisor`.
    pub(crate) fn first_other(
        &self,
        first: usize,
        values: impl Iterator<Item = f32>,
        (rank, said): (Rank, &[f32]),
        divisor: f32,
    ) -> Option<(usize, Rank)> {
        let mut read = self.0[first..].iter().zip(values.zip(said));
        let at =
            read.position(|(slot, (value, said))| slot.of == rank && value.to_bits() != (said / divisor).to_bits());
        at.map(|at| (at, rank))
    }
}

impl Slot {
    fn admits(&self, value: f32, summed: &RankSet, divisor: f32) -> bool {
        if !summed.contains(self.of) {
            return value.to_bits() == 0;
        }
        // The product is exact, and less than a half off; the cast makes a word of whatever it is.
        let word = (f64::from(value) * f64::from(divisor) + 0.5) as u32;
        self.words.contains(&word) && (word as f32 / divisor).to_bits() == value.to_bits()
    }
}

/// A set of ranks: ascending ranges that don't touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankSet(Vec<Range<u32>>);

impl RankSet {
    /// All of a world's.
    pub fn all(world: u32) -> Self {
        Self::run(Rank(0), world, world)
    }

    /// So many from `first` on, round a ring of `world`.
    pub(crate) fn run(first: Rank, count: u32, world: u32) -> Self {
        let end = first.0 + count;
        let ranges = [0..end.saturating_sub(world), first.0..end.min(world)];
        Self(ranges.into_iter().filter(|range| !range.is_empty()).collect())
    }

    /// Adds a rank behind all that are in it.
    pub(crate) fn push(&mut self, rank: Rank) {
        match self.0.last_mut() {
            Some(last) if last.end == rank.0 => last.end += 1,
            _ => self.0.push(rank.0..rank.0 + 1),
        }
    }

    /// How many are in it.
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether this one is.
    pub fn contains(&self, rank: Rank) -> bool {
        self.0.iter().any(|range| range.contains(&rank.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_a_word_of_its_rank_or_nothing() {
        let slot = Slot { of: Rank(1), words: 1..=4_194_305 };
        let (with, without) = (RankSet::all(3), RankSet::run(Rank(2), 2, 3));
        for divisor in [1.0, 3.0, 64.0, 65_537.0, 1_048_576.0] {
            for word in [1, 2, 3, 77, 654_321, 4_194_304, 4_194_305] {
                let value = word as f32 / divisor;
                assert!(slot.admits(value, &with, divisor), "{word} over {divisor}");
                assert!(!slot.admits(value, &without, divisor), "nobody in the sum has said it");
                assert!(!slot.admits(-value, &with, divisor));
                let next = f32::from_bits(value.to_bits() + 1);
                let is_word = |value: f32| (value * divisor).fract() == 0.0 && divisor == 1.0;
                assert!(is_word(next) || !slot.admits(next, &with, divisor), "{next} over {divisor}");
            }
            for value in [0.0, -0.0, 0.5 / divisor, 4_194_306.0 / divisor, f32::MAX, f32::INFINITY, f32::NAN, -1.0] {
                assert!(!slot.admits(value, &with, divisor), "{value} over {divisor}");
                assert_eq!(slot.admits(value, &without, divisor), value.to_bits() == 0, "{value}");
            }
        }
        let silent = Slot { of: Rank(1), words: 0..=5 };
        assert!(silent.admits(0.0, &with, 64.0) && !silent.admits(-0.0, &with, 64.0));
    }

    #[test]
    fn ranks_are_those_that_were_put_in() {
        for (world, first, count) in [(5, 0, 3), (5, 3, 2), (5, 4, 4), (9, 8, 1), (9, 2, 8)] {
            let run = RankSet::run(Rank(first), count, world);
            let is_in = |rank: u32| (rank + world - first) % world < count;
            let mut pushed = RankSet::default();
            (0..world).filter(|rank| is_in(*rank)).for_each(|rank| pushed.push(Rank(rank)));
            assert_eq!((run.count(), &run), (count, &pushed));
            assert!((0..world).all(|rank| run.contains(Rank(rank)) == is_in(rank)));
        }
    }
}
