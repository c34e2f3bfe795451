//! With real bytes as payload: all ranks end with the same bits, and the bits are those of the sum that the plan says.

use starling_topology::plan::{Plan, Route};
use starling_topology::{Rank, WorldSize};

use super::cluster::{Cluster, Order, Rng, layout, layout_for, plans};
use crate::codec::kernel;
use crate::{Buffer, Codec, FeedbackState, Layout, Operation, OperationResidual, SegmentId, Workspace};

/// What a rank's subtree of a route sums up to, over one segment; recursive, where the machine is dataflow.
fn subtree(route: &Route, rank: Rank, codec: Codec, own: &impl Fn(Rank) -> Vec<f32>) -> Vec<f32> {
    let children = route.contributors(rank);
    let term = |of: Rank| {
        let mut values = if of == rank { own(of) } else { subtree(route, of, codec, own) };
        // What comes from others has been rounded; where contributions meet directly, the own one is, too.
        if of != rank || (route.is_direct() && !children.is_empty()) {
            codec.round(&mut values);
        }
        values
    };
    let mut order = children.clone();
    order.push(rank);
    order.sort_unstable();
    let mut terms = order.into_iter().map(term);
    let first = terms.next().expect("the rank itself");
    // From the left, but for a ring's and a tree's two or three terms this is any order that keeps neighbours.
    terms.fold(first, |sum, term| sum.iter().zip(term).map(|(sum, term)| sum + term).collect())
}

/// The mean of `contributions` as the plan sums it, the same on all ranks.
fn oracle(plan: &Plan, layout: &Layout, codec: Codec, contributions: &[Vec<f32>], divisor: f32) -> Vec<f32> {
    let world = layout.world_size();
    let mut mean = vec![0.0; layout.elements()];
    for bucket in 0..layout.buckets() {
        for chunk in (0..layout.chunks()).map(Rank) {
            let route = plan.route(world, chunk);
            for segment in 0..layout.segments(bucket, chunk) {
                let segment = SegmentId { bucket, phase: crate::Phase::AllGather, chunk, segment };
                let range = layout.range(&segment).expect("a segment of the layout");
                let own = |rank: Rank| contributions[rank.0 as usize][range.clone()].to_vec();
                let mut sum = subtree(&route, route.owner(), codec, &own);
                sum.iter_mut().for_each(|sum| *sum /= divisor);
                if world.get() > 1 {
                    codec.round(&mut sum);
                }
                mean[range].copy_from_slice(&sum);
            }
        }
    }
    mean
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn reduce(
    plan: &Plan,
    layout: &Layout,
    codec: Codec,
    contributions: &[Vec<f32>],
    divisor: f32,
    order: Order,
    seed: u64,
) -> Vec<Vec<f32>> {
    let buffer = |rank: Rank| Workspace::new(layout.clone(), codec, contributions[rank.0 as usize].clone(), divisor);
    let mut cluster = Cluster::over(plan, Operation::AllReduce, layout.clone(), 2, buffer);
    cluster.run(&mut Rng::new(seed), order, usize::MAX);
    cluster.assert_done();
    cluster.into_buffers().map(|buffer| buffer.finish().0).collect()
}

/// Values of very different size, so that another order of addition would give other bits, and that no codec can hold.
fn contributions(layout: &Layout, seed: u64) -> Vec<Vec<f32>> {
    let mut rng = Rng::new(seed);
    let mut value = || (rng.below(2001) as f32 - 1000.0) * 10f32.powi(rng.below(9) as i32 - 4) / 7.0;
    layout.world_size().ranks().map(|_| (0..layout.elements()).map(|_| value()).collect()).collect()
}

#[test]
fn all_ranks_hold_the_bits_that_the_plan_says() {
    for world in 1..=9 {
        for plan in plans(world) {
            for (seed, codec) in Codec::ALL.into_iter().enumerate() {
                let seed = seed as u64 + u64::from(world);
                let layout = layout_for(&plan, 613, world, (300, 70), seed.is_multiple_of(2));
                let contributions = contributions(&layout, seed);
                let expected = bits(&oracle(&plan, &layout, codec, &contributions, world as f32));
                for order in [Order::Fifo, Order::Shuffled] {
                    for values in reduce(&plan, &layout, codec, &contributions, world as f32, order, seed) {
                        assert_eq!(bits(&values), expected, "{plan}, {codec}, {order:?}, {world} ranks");
                    }
                }
            }
        }
    }
}

#[test]
fn long_segments_span_many_blocks() {
    for codec in Codec::ALL {
        let layout = layout(12_345, 4, 12_345, 2_500);
        let contributions = contributions(&layout, 5);
        let expected = bits(&oracle(&Plan::Mesh, &layout, codec, &contributions, 4.0));
        for values in reduce(&Plan::Mesh, &layout, codec, &contributions, 4.0, Order::Shuffled, 5) {
            assert_eq!(bits(&values), expected, "{codec}");
        }
    }
}

/// Values that fp16 cannot hold: too large, too precise, too small.
const HARD: [f32; 6] = [1.0 / 3.0, 70_000.0, -1e-9, 2049.0, 65_519.9, -3.3e38];

/// Each peer averaged its own exact values with what it had read of others', and no two ended alike: a way to be wrong that
/// only shows with values that the codec can't hold, and three peers.
#[test]
fn own_contribution_uses_decoded_bytes() {
    for world in 3..=6 {
        for codec in Codec::ALL.into_iter().filter(|codec| codec.is_lossy()) {
            let layout = layout(HARD.len(), world, HARD.len(), 2);
            let value = |rank: u32, index: usize| HARD[(index + rank as usize) % HARD.len()] / world as f32;
            let contributions: Vec<Vec<f32>> =
                (0..world).map(|rank| (0..HARD.len()).map(|index| value(rank, index)).collect()).collect();
            // By hand, without a route: every contribution is read before it is added, the owner's as well, and so is the result.
            let mut expected = Vec::new();
            for range in layout.ranges() {
                let mut sum: Option<Vec<f32>> = None;
                for contribution in &contributions {
                    let mut read = contribution[range.clone()].to_vec();
                    codec.round(&mut read);
                    sum = Some(match sum {
                        Some(sum) => sum.iter().zip(read).map(|(sum, read)| sum + read).collect(),
                        None => read,
                    });
                }
                let mut sum = sum.expect("there are contributions");
                sum.iter_mut().for_each(|sum| *sum /= world as f32);
                codec.round(&mut sum);
                expected.extend(sum);
            }
            let exact = reduce(&Plan::Mesh, &layout, Codec::F32, &contributions, world as f32, Order::Fifo, 1);
            assert_ne!(bits(&exact[0]), bits(&expected), "the codec can't hold these values");
            for values in reduce(&Plan::Mesh, &layout, codec, &contributions, world as f32, Order::Shuffled, 1) {
                assert_eq!(bits(&values), bits(&expected), "{codec} among {world}");
            }
            for plan in plans(world) {
                let layout = layout_for(&plan, HARD.len(), world, (HARD.len(), 2), false);
                let all = reduce(&plan, &layout, codec, &contributions, world as f32, Order::Shuffled, 2);
                assert!(all.iter().all(|values| bits(values) == bits(&all[0])), "{plan}, {codec} among {world}");
            }
        }
    }
}

/// Own values first, then the others' as they come, gives each peer another sum.
#[test]
fn sum_order_is_by_rank() {
    for world in 3..=8 {
        for weigh in [false, true] {
            let layout = layout_for(&Plan::Mesh, 400, world, (150, 11), weigh);
            let contributions = contributions(&layout, u64::from(world));
            let by = |order: &mut dyn Iterator<Item = usize>| -> Vec<f32> {
                let first = contributions[order.next().expect("a rank")].clone();
                order.fold(first, |sum, rank| sum.iter().zip(&contributions[rank]).map(|(a, b)| a + b).collect())
            };
            let by_rank = by(&mut (0..world as usize));
            assert_ne!(bits(&by_rank), bits(&by(&mut (0..world as usize).rev())), "the order matters for these values");
            for seed in 0..6 {
                for values in reduce(&Plan::Mesh, &layout, Codec::F32, &contributions, 1.0, Order::Shuffled, seed) {
                    assert_eq!(bits(&values), bits(&by_rank), "{world} ranks, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn a_representable_mean_is_exact() {
    // Small integers, weights that sum to a power of two: every sum and the division are exact, in any order.
    for (world, weights) in [(2, vec![1, 3]), (3, vec![1, 2, 5]), (5, vec![1, 2, 3, 4, 6]), (6, vec![4, 4, 2, 3, 2, 1])]
    {
        for plan in plans(world) {
            let layout = layout_for(&plan, 101, world, (40, 3), false);
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
            for values in reduce(&plan, &layout, Codec::F32, &contributions, total as f32, Order::Shuffled, 1) {
                assert_eq!(values, expected);
            }
        }
    }
}

/// One step of all ranks with error feedback.
fn step(plan: &Plan, layout: &Layout, workspaces: Vec<Workspace>, seed: u64) -> Vec<Workspace> {
    let mut workspaces = workspaces.into_iter();
    let next = |_| workspaces.next().expect("one for each rank");
    let mut cluster = Cluster::over(plan, Operation::AllReduce, layout.clone(), 2, next);
    cluster.run(&mut Rng::new(seed), Order::Shuffled, usize::MAX);
    cluster.assert_done();
    cluster.into_buffers().collect()
}

#[test]
fn what_a_codec_drops_comes_back_in_the_steps_after() {
    const STEPS: usize = 40;
    for world in [2, 3, 5] {
        for plan in plans(world) {
            for codec in Codec::ALL {
                let layout = layout_for(&plan, 300, world, (200, 64), false);
                // Within fp16's range, so that nothing is cut off; the same gradient in each step, so that errors would add up.
                let value = |rank: usize, index: usize| ((index * 31 + rank * 17) % 199) as f32 / 997.0 - 0.1;
                let contribution = |rank: usize| -> Vec<f32> { (0..300).map(|index| value(rank, index)).collect() };
                let mut feedback = vec![FeedbackState::new(300); world as usize];
                let mut total = vec![0f64; 300];
                for seed in 0..STEPS {
                    let workspaces = feedback.iter().enumerate().map(|(rank, feedback)| {
                        let mut values = contribution(rank);
                        feedback.residual().add_to(0, &mut values);
                        // Memory as an earlier operation leaves it.
                        let dropped = OperationResidual::new(300, vec![9.0; 300]);
                        Workspace::new(layout.clone(), codec, values, world as f32).booking(dropped)
                    });
                    let done = step(&plan, &layout, workspaces.collect(), seed as u64);
                    for (rank, (workspace, feedback)) in done.into_iter().zip(&mut feedback).enumerate() {
                        let (values, dropped) = workspace.finish();
                        assert_eq!(dropped.is_some(), codec.is_lossy());
                        _ = feedback.settle(dropped);
                        if rank == 0 {
                            total.iter_mut().zip(values).for_each(|(total, value)| *total += f64::from(value));
                        }
                    }
                }
                for (index, total) in total.into_iter().enumerate() {
                    let exact: f64 = (0..world as usize).map(|rank| f64::from(value(rank, index))).sum();
                    let left: f64 =
                        feedback.iter().map(|feedback| f64::from(feedback.residual().values()[index])).sum();
                    let kept = total * f64::from(world) + left;
                    assert!((kept - exact * STEPS as f64).abs() < 1e-3, "{plan}, {codec}: {kept} of {exact}");
                }
            }
        }
    }
}

#[test]
fn who_owns_a_sum_without_end_knows_it() {
    let layout = layout(300, 2, 300, 64);
    let segment = SegmentId { bucket: 0, phase: crate::Phase::ReduceScatter, chunk: Rank(1), segment: 0 };
    let length = layout.range(&segment).expect("a segment").len();
    for codec in [Codec::F32, Codec::Bf16, Codec::Int8] {
        let most = f32::MAX / 4.0;
        for (share, is_finite) in [(1.0, true), (3.5, false)] {
            let workspace = || Workspace::new(layout.clone(), codec, vec![share * most; 300], 2.0);
            let mut payload = vec![0; codec.payload_bytes(length)];
            codec.encode(&vec![share * most; length], &mut payload);
            let (mut at_once, mut in_turn) = (workspace(), workspace());
            at_once.conclude(&segment, &payload).expect("what came is finite");
            in_turn.accumulate(&segment, &payload).expect("what came is finite");
            in_turn.divide(&segment);
            assert_eq!([at_once.is_finite(), in_turn.is_finite()], [is_finite; 2], "{codec}, {share}");
        }
    }
}

#[test]
fn a_step_that_does_not_commit_drops_nothing() {
    let layout = layout(300, 3, 300, 64);
    let codec = Codec::Int8;
    let contribution = |rank: usize| -> Vec<f32> { (0..300).map(|index| (index + rank) as f32 / 7.0).collect() };
    let reduce = |feedback: &[FeedbackState], seed: u64| -> (Vec<Vec<f32>>, Vec<OperationResidual>) {
        let workspace = |(rank, feedback): (usize, &FeedbackState)| {
            let mut values = contribution(rank);
            feedback.residual().add_to(0, &mut values);
            Workspace::new(layout.clone(), codec, values, 3.0).booking(OperationResidual::new(300, Vec::new()))
        };
        let begun = feedback.iter().enumerate().map(workspace).collect();
        let done = step(&Plan::Mesh, &layout, begun, seed).into_iter().map(Workspace::finish);
        done.map(|(values, dropped)| (values, dropped.expect("it was given one"))).unzip()
    };
    let mut feedback = vec![FeedbackState::new(300); 3];
    let (first, _) = reduce(&feedback, 1);
    assert!(feedback.iter().all(|feedback| feedback.residual().values().iter().all(|left| *left == 0.0)));
    // Reduced again, from the same contributions: the same result.
    let (second, dropped) = reduce(&feedback, 2);
    assert_eq!(first, second);
    feedback.iter_mut().zip(dropped).for_each(|(feedback, dropped)| _ = feedback.settle(Some(dropped)));
    assert!(feedback.iter().all(|feedback| feedback.residual().values().iter().any(|left| *left != 0.0)));
    let (third, _) = reduce(&feedback, 3);
    assert_ne!(first, third, "what was dropped is in there now");
    feedback.iter_mut().for_each(FeedbackState::forget);
    assert_eq!(reduce(&feedback, 4).0, first);
}

/// The last elements are exact whatever the codec, and alone in their bucket.
#[test]
fn exact_elements_lose_nothing() {
    for world in [2, 3, 4] {
        for plan in plans(world) {
            for codec in Codec::ALL {
                let layout = layout_for(&plan, 613, world, (300, 70), false).with_exact(13);
                assert_eq!(layout.bucket(layout.buckets() - 1), 600..613, "the exact one");
                let contributions = contributions(&layout, 3);
                let means = reduce(&plan, &layout, codec, &contributions, 1.0, Order::Shuffled, 3);
                let exact = reduce(&plan, &layout, Codec::F32, &contributions, 1.0, Order::Shuffled, 4);
                for (mean, exact) in means.iter().zip(exact) {
                    assert_eq!(bits(&mean[600..]), bits(&exact[600..]), "{plan}, {codec}");
                    assert_eq!(bits(mean), bits(&means[0]), "{plan}, {codec}");
                    assert_eq!(bits(mean) == bits(&exact), !codec.is_lossy());
                }
            }
        }
    }
}

/// What a driver without copies does, gives the bytes that adding and then sending would.
#[test]
fn a_contribution_in_place_is_what_would_be_sent() {
    let layout = layout(1000, 2, 1000, 400).with_exact(100);
    let contributions = contributions(&layout, 8);
    for codec in Codec::ALL {
        for (bucket, index) in [(0, 0), (0, 1), (1, 0)] {
            let segment = SegmentId { bucket, phase: crate::Phase::ReduceScatter, chunk: Rank(1), segment: index };
            let workspace = |rank: usize| {
                let dropped = OperationResidual::new(layout.shortened(), Vec::new());
                Workspace::new(layout.clone(), codec, contributions[rank].clone(), 2.0).booking(dropped)
            };
            let (mut theirs, mut payload) = (workspace(0), Vec::new());
            theirs.encode(&segment, &mut payload);
            let (mut mine, mut expected) = (workspace(1), Vec::new());
            mine.accumulate(&segment, &payload).expect("finite");
            mine.encode(&segment, &mut expected);
            let mut again = workspace(1);
            again.contribute(&segment, &mut payload).expect("finite");
            assert_eq!(payload, expected, "{codec}, {segment}");
            assert_eq!(again.finish().1, mine.finish().1, "the same is booked");
        }
    }
}

#[test]
fn a_sum_that_is_concluded_is_added_and_divided() {
    let layout = layout(1000, 2, 1000, 400).with_exact(100);
    let contributions = contributions(&layout, 8);
    for codec in Codec::ALL {
        for (bucket, index) in [(0, 0), (0, 1), (1, 0)] {
            let segment = SegmentId { bucket, phase: crate::Phase::ReduceScatter, chunk: Rank(1), segment: index };
            let workspace = |rank: usize| Workspace::new(layout.clone(), codec, contributions[rank].clone(), 3.0);
            let mut payload = Vec::new();
            workspace(0).encode(&segment, &mut payload);
            let (mut expected, mut concluded) = (workspace(1), workspace(1));
            expected.accumulate(&segment, &payload).expect("finite");
            expected.divide(&segment);
            concluded.conclude(&segment, &payload).expect("finite");
            let bits =
                |workspace: &Workspace| workspace.values().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&concluded), bits(&expected), "{codec}, {segment}");
        }
    }
}

#[test]
fn a_ring_sums_along_its_hops() {
    // The order that neighbours of a ring have always summed in: from the chunk's first rank on.
    let layout = layout(50, 4, 50, 5);
    let contributions = contributions(&layout, 9);
    let world = WorldSize::new(4);
    for values in reduce(&Plan::Ring, &layout, Codec::F32, &contributions, 4.0, Order::Shuffled, 3) {
        for chunk in world.ranks() {
            for element in layout.chunk(0, chunk) {
                let mut sum = contributions[chunk.0 as usize][element];
                let mut rank = world.next(chunk);
                while rank != chunk {
                    sum += contributions[rank.0 as usize][element];
                    rank = world.next(rank);
                }
                assert_eq!(values[element].to_bits(), (sum / 4.0).to_bits());
            }
        }
    }
}
