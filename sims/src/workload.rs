//! What the simulated peers train.

use std::time::Duration;

use starling_collective::{Layout, LayoutConfig};
use starling_topology::WorldSize;

use crate::contribution::Cell;
use crate::rng::Rng;

/// Sizes and times of one run, the same for all its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The last step.
    pub steps: u64,
    /// Elements of the flat gradient.
    pub elements: usize,
    /// How they are cut.
    pub layout: LayoutConfig,
    /// How many buckets are in flight together.
    pub in_flight: u32,
    /// The shortest time that a peer computes before it reduces.
    pub compute_least: Duration,
    /// The longest.
    pub compute_most: Duration,
    /// Bytes of the replicated state that a joiner loads.
    pub state_bytes: u64,
}

impl Workload {
    /// Draws a workload of `steps` steps: from less than one element per rank to dozens of segments.
    pub fn draw(rng: &mut Rng, steps: u64) -> Self {
        let elements = if rng.one_in(8) { rng.between(1, 5) } else { rng.between(6, 400) };
        let segment = rng.between(1, 16);
        let bucket = rng.between(segment, 128);
        let compute = rng.between(100, 20_000);
        let size = |number: u64| usize::try_from(number).expect("invariant: drawn small");
        Self {
            steps,
            elements: size(elements),
            layout: LayoutConfig { bucket_elements: size(bucket), segment_elements: size(segment) },
            in_flight: if rng.one_in(2) { 1 } else { 4 },
            compute_least: Duration::from_micros(compute),
            compute_most: Duration::from_micros(compute * rng.between(1, 4)),
            state_bytes: rng.between(100, 1_000_000),
        }
    }

    /// The layout among `world` ranks.
    pub fn layout(&self, world: WorldSize) -> Layout {
        Layout::new(self.elements, world, self.layout)
    }

    /// How many segments a peer may have to keep for a step that it has not begun, in worlds of up to `most` ranks: each
    /// segment of one operation's reduce-scatter, in the view that it is in and in the one that it is about to enter.
    /// The all-gather can't come to a peer that has not contributed.
    pub fn early_limit(&self, most: WorldSize) -> usize {
        let segments = |size| {
            let layout = self.layout(WorldSize::new(size));
            Cell::all(&layout).count()
        };
        2 * (1..=most.get()).map(segments).max().unwrap_or_default()
    }
}
