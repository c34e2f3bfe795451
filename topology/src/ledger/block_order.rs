//! The sample order of one epoch in which blocks of consecutive samples stay together.
//!
//! ```text
//!   samples:      block 0 | block 1 | block 2 | block 3 | bl 4      the last one may be short
//!   in order:     block 3 | bl 4 || block 0 | block 2 || block 1    blocks in any order, two of them a window
//!   positions:    3 4 3 3 4 ..   || 2 0 0 2 2 ..      || 1 1 ..     within a window, samples in any order
//! ```

use std::ops::Range;

use super::permutation::Permutation;
use super::split_mix::SplitMix64Generator;

/// Such an order. It is computed where it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockOrder {
    samples: u32,
    /// Samples of a block.
    rows: u32,
    /// Blocks of a window.
    window: u32,
    blocks: u32,
    order: Permutation,
    /// Where in that order the last block is, and by how many samples it is shorter than the others.
    last: u32,
    missing: u32,
    /// What windows are shuffled by.
    seed: u64,
}

impl BlockOrder {
    /// Of blocks of `rows` samples, `window` of them at a time; neither is 0.
    pub(super) fn draw(seed: u64, samples: u32, epoch: u64, rows: u32, window: u32) -> Self {
        let mut generator = SplitMix64Generator::for_purpose("starling block order", seed, epoch);
        let blocks = samples.div_ceil(rows);
        let order = Permutation::draw(&mut generator, blocks);
        let last = order.source(blocks.saturating_sub(1));
        // Below `rows`, however many that are.
        let missing = (u64::from(blocks) * u64::from(rows) - u64::from(samples)) as u32;
        Self { samples, rows, window, blocks, order, last, missing, seed: generator.next_u64() }
    }

    /// The samples at these positions, which are below the number of samples.
    pub(super) fn indices(&self, ranges: &[Range<u32>]) -> Vec<u32> {
        let mut indices = Vec::new();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let mut start = range.start;
            while start < range.end {
                let window = self.block_at(start) / self.window;
                let positions = self.window(window);
                let end = range.end.min(positions.end);
                self.add(&mut indices, window, &positions, start..end);
                start = end;
            }
        }
        indices
    }

    /// The samples of each window, from that of this position on, block by block. None of no window.
    pub(super) fn windows_from(&self, position: u32) -> impl ExactSizeIterator<Item = Vec<Range<u32>>> + '_ {
        let windows = self.blocks.div_ceil(self.window);
        let first = if position < self.samples { self.block_at(position) / self.window } else { windows };
        (first..windows).map(|window| {
            let start = window * self.window;
            let end = (u64::from(start) + u64::from(self.window)).min(self.blocks.into()) as u32;
            let mut numbers: Vec<u32> = (start..end).collect();
            self.order.apply(&mut numbers);
            let of = |number: u32| {
                let first = number * self.rows;
                first..(u64::from(first) + u64::from(self.rows)).min(self.samples.into()) as u32
            };
            numbers.into_iter().map(of).collect()
        })
    }

    /// Adds the samples at positions of this window.
    fn add(&self, indices: &mut Vec<u32>, window: u32, positions: &Range<u32>, asked: Range<u32>) {
        let mut places: Vec<u32> = asked.map(|position| position - positions.start).collect();
        let mut generator = SplitMix64Generator::for_purpose("starling window order", self.seed, window.into());
        Permutation::draw(&mut generator, positions.end - positions.start).apply(&mut places);
        let blocks = places.iter().map(|place| self.block_at(positions.start + place));
        let mut numbers: Vec<u32> = blocks.collect();
        for (place, block) in places.iter_mut().zip(&numbers) {
            *place = positions.start + *place - self.start(*block);
        }
        self.order.apply(&mut numbers);
        indices.extend(numbers.iter().zip(places).map(|(number, place)| number * self.rows + place));
    }

    /// The positions of a window.
    fn window(&self, window: u32) -> Range<u32> {
        let end = (u64::from(window) + 1) * u64::from(self.window);
        self.start(window * self.window)..self.start(end.min(self.blocks.into()) as u32)
    }

    /// The first position of the block that is this one in order; behind the last one, how many positions there are.
    fn start(&self, block: u32) -> u32 {
        let whole = u64::from(block) * u64::from(self.rows);
        (whole - if block > self.last { u64::from(self.missing) } else { 0 }) as u32
    }

    /// Which one in order the block is that has this position.
    fn block_at(&self, position: u32) -> u32 {
        let before = position / self.rows;
        if before < self.last || position < self.start(self.last + 1) {
            return before.min(self.last);
        }
        ((u64::from(position) + u64::from(self.missing)) / u64::from(self.rows)) as u32
    }
}
