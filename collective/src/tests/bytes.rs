//! With real bytes as payload: all ranks end with the same bits, and the bits are those of a sum in ring order.

use starling_topology::Rank;

use super::cluster::{Buffer, Cluster, Order, Rng, all_layouts, layout};
use crate::{Layout, SegmentId, kernel};

#[derive(Debug, Clone)]
struct Floats {
    values: Vec<f32>,
    divisor: f32,
}

impl Buffer for Floats {
    type Payload = Vec<u8>;

    fn read(&self, layout: &Layout, segment: &SegmentId) -> Vec<u8> {
        let mut payload = Vec::new();
        kernel::encode(&self.values[layout.range(segment).expect("a segment of the layout")], &mut payload);
        payload
    }

    fn accumulate(&mut self, layout: &Layout, segment: &SegmentId, payload: Vec<u8>) {
        let into = &mut self.values[layout.range(segment).expect("a segment of the layout")];
        kernel::accumulate(into, &payload).expect("all contributions are finite");
    }

    fn divide(&mut self, layout: &Layout, segment: &SegmentId) {
        kernel::divide(&mut self.values[layout.range(segment).expect("a segment of the layout")], self.divisor);
    }

    fn store(&mut self, layout: &Layout, segment: &SegmentId, payload: Vec<u8>) {
        let into = &mut self.values[layout.range(segment).expect("a segment of the layout")];
        kernel::store(into, &payload).expect("all contributions are finite");
    }
}

/// The mean of `contributions`, each chunk summed from its first rank on, round the ring.
fn oracle(layout: &Layout, contributions: &[Vec<f32>], divisor: f32) -> Vec<f32> {
    let world = layout.world_size();
    let mut mean = vec![0.0; layout.elements()];
    for bucket in 0..layout.buckets() {
        for chunk in world.ranks() {
            for element in layout.chunk(bucket, chunk) {
                let mut sum = contributions[chunk.0 as usize][element];
                let mut rank = world.next(chunk);
                while rank != chunk {
                    sum += contributions[rank.0 as usize][element];
                    rank = world.next(rank);
                }
                mean[element] = sum / divisor;
            }
        }
    }
    mean
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn reduce(layout: &Layout, contributions: &[Vec<f32>], divisor: f32, order: Order, seed: u64) -> Vec<Vec<f32>> {
    let buffer = |rank: Rank| Floats { values: contributions[rank.0 as usize].clone(), divisor };
    let mut cluster = Cluster::new(layout.clone(), 2, buffer);
    cluster.run(&mut Rng(seed), order, usize::MAX);
    cluster.assert_done();
    cluster.buffers.into_iter().map(|buffer| buffer.values).collect()
}

#[test]
fn all_ranks_hold_the_bits_of_the_ring_order_sum() {
    for (index, layout) in all_layouts().enumerate() {
        let mut rng = Rng(index as u64);
        // Values of very different size, so that another order of addition would give other bits.
        let mut value = || (rng.below(2001) as f32 - 1000.0) * 10f32.powi(rng.below(9) as i32 - 4) / 7.0;
        let world = layout.world_size();
        let contributions: Vec<Vec<f32>> =
            world.ranks().map(|_| (0..layout.elements()).map(|_| value()).collect()).collect();
        let divisor = world.get() as f32;
        let expected = bits(&oracle(&layout, &contributions, divisor));
        for seed in 0..4 {
            let order = if seed % 2 == 0 { Order::Fifo } else { Order::Shuffled };
            for values in reduce(&layout, &contributions, divisor, order, seed) {
                assert_eq!(bits(&values), expected, "seed {seed}, {order:?}, {layout:?}");
            }
        }
    }
}

#[test]
fn a_representable_mean_is_exact() {
    // Small integers, weights that sum to a power of two: every sum and the division are exact, in any order.
    for (world, weights) in [(2, vec![1, 3]), (3, vec![1, 2, 5]), (5, vec![1, 2, 3, 4, 6]), (6, vec![4, 4, 2, 3, 2, 1])]
    {
        let layout = layout(101, world, 40, 3);
        let total: u32 = weights.iter().sum();
        assert!(total.is_power_of_two());
        let value = |rank: usize, element: usize| ((rank * 37 + element * 11) % 41) as i32 - 20;
        let contributions: Vec<Vec<f32>> = (0..world as usize)
            .map(|rank| {
                let plain: Vec<f32> = (0..layout.elements()).map(|element| value(rank, element) as f32).collect();
                let mut weighted = vec![0.0; plain.len()];
                kernel::scale(&mut weighted, &plain, weights[rank] as f32);
                weighted
            })
            .collect();
        let expected: Vec<f32> = (0..layout.elements())
            .map(|element| {
                let sum: i32 = (0..world as usize).map(|rank| weights[rank] as i32 * value(rank, element)).sum();
                (f64::from(sum) / f64::from(total)) as f32
            })
            .collect();
        for values in reduce(&layout, &contributions, total as f32, Order::Shuffled, 1) {
            assert_eq!(values, expected);
        }
    }
}
