//! What ranks say of themselves: whoever changes it on the way is named by the first one that gets it, whatever the plan.

use std::cell::Cell;
use std::rc::Rc;

use starling_topology::Rank;
use starling_topology::plan::Plan;

use super::cluster::{Cluster, Order, Rng, layout_for, plans};
use crate::{Codec, Layout, Operation, PayloadViolation, Phase, SegmentHeader, Slot, SlotLayout, Violation, Workspace};

const MOST: u32 = 4_194_305;
const DIVISOR: f32 = 48.0;
const ELEMENTS: usize = 21;

/// What a rank says; the first one says nothing, and may.
fn word(rank: Rank) -> u32 {
    [0, 1, 77, MOST, 654_321][rank.0 as usize % 5]
}

/// Elements, and the slots of all, in another order than that of the ranks.
fn slots(world: u32) -> Vec<Slot> {
    let words = |rank: u32| if word(Rank(rank)) > 0 { 1..=MOST } else { 0..=3 };
    (0..world).rev().map(|rank| Slot { of: Rank(rank), words: words(rank) }).collect()
}

fn cluster(plan: &Plan, layout: &Layout, codec: Codec) -> Cluster<Workspace> {
    let world = layout.world_size().get();
    Cluster::over(plan, Operation::AllReduce, layout.clone(), 2, |rank| {
        let said = slots(world).into_iter().map(|slot| if slot.of == rank { word(rank) as f32 } else { 0.0 });
        let values = vec![1.0; ELEMENTS].into_iter().chain(said).collect();
        Workspace::new(layout.clone(), codec, values, DIVISOR).with_slots(SlotLayout::new(slots(world)))
    })
}

fn all(mut check: impl FnMut(&Plan, &Layout, Codec)) {
    for world in [2, 3, 5, 8] {
        for plan in plans(world) {
            for weigh in [false, true] {
                let exact = 1 + world as usize;
                let layout = layout_for(&plan, ELEMENTS + world as usize, world, (16, 3), weigh);
                check(&plan, &layout, Codec::F32);
                check(&plan, &layout.with_exact(exact), Codec::Bf16);
            }
        }
    }
}

#[test]
fn all_that_may_be_said_arrives_and_nobody_is_named() {
    let mut rng = Rng::new(11);
    all(|plan, layout, codec| {
        for order in [Order::Fifo, Order::Shuffled] {
            let mut cluster = cluster(plan, layout, codec);
            cluster.run(&mut rng, order, 100_000);
            cluster.assert_done();
            for buffer in cluster.buffers() {
                let said = slots(layout.world_size().get()).into_iter().map(|slot| word(slot.of) as f32 / DIVISOR);
                assert!(buffer.values()[ELEMENTS..].iter().copied().eq(said), "{plan}, {codec}");
            }
        }
    });
}

/// Something that nobody can have said, instead of `value`, which is there in this phase.
fn lie(rng: &mut Rng, phase: Phase, value: f32) -> f32 {
    let scale = if phase == Phase::AllGather { DIVISOR } else { 1.0 };
    let common = [-1.0, -0.0, 0.5 / scale, (MOST + 1) as f32 / scale, f32::MAX, f32::NAN, f32::NEG_INFINITY];
    match rng.below(4) {
        0 => common[rng.below(common.len())],
        // A word, but of nobody who is in there; or none, of one who is.
        _ if value == 0.0 && phase == Phase::ReduceScatter => 5.0,
        1 if value > 0.0 => 0.0,
        2 => -1.0,
        _ => f32::from_bits(if phase == Phase::AllGather { 77.0f32 / scale } else { 76.5 }.to_bits() + 1),
    }
}

/// Reduces with a lie instead of the `nth` slot that is sent. Who sent it, if so many are, and who is named.
fn named(plan: &Plan, layout: &Layout, codec: Codec, nth: usize, seed: u64) -> Option<(Rank, Vec<(Rank, Violation)>)> {
    let mut rng = Rng::new(seed);
    let mut cluster = cluster(plan, layout, codec);
    cluster.blamed = Some(Vec::new());
    let liar = Rc::new(Cell::new(None));
    let (found, spread, mut seen, mut lies) = (Rc::clone(&liar), layout.clone(), 0, Rng::new(seed));
    cluster.change = Some(Box::new(move |rank: Rank, header: &SegmentHeader, payload: &mut [u8]| {
        let range = spread.range(&header.segment).expect("a segment of the layout");
        for slot in range.clone().filter(|at| *at >= ELEMENTS) {
            if seen == nth {
                let bytes = &mut payload[(slot - range.start) * 4..][..4];
                let value = f32::from_le_bytes(bytes.try_into().expect("four"));
                bytes.copy_from_slice(&lie(&mut lies, header.segment.phase, value).to_le_bytes());
                found.set(Some(rank));
            }
            seen += 1;
        }
    }));
    cluster.run(&mut rng, Order::Fifo, 100_000);
    liar.get().map(|liar| (liar, cluster.blamed.take().expect("kept")))
}

#[test]
fn who_changes_what_another_says_is_named_by_whoever_gets_it() {
    let seed = 12;
    all(|plan, layout, codec| {
        let mut nth = 0;
        while let Some((liar, blamed)) = named(plan, layout, codec, nth, seed + nth as u64) {
            let what = format!("{plan}, {codec}, slot {nth}, seed {seed}");
            let [(sender, Violation::BadSegment(bad))] = blamed[..] else { panic!("{what}: {blamed:?}") };
            assert_eq!(sender, liar, "{what}");
            assert!(matches!(bad.source, PayloadViolation::Slot { .. }), "{what}: {bad}");
            nth += 1;
        }
        let world = layout.world_size().get() as usize;
        assert_eq!(nth, 2 * world * (world - 1), "each slot once over each link of its trees");
    });
}

/// It had what was said from whose it is, and nobody is between them.
#[test]
fn an_owner_that_says_another_possible_word_of_a_neighbour_is_named() {
    let mut rng = Rng::new(13);
    let mut lied = 0;
    all(|plan, layout, codec| {
        let world = layout.world_size();
        if *plan != Plan::Mesh && world.get() > 2 {
            return;
        }
        for owner in world.ranks() {
            let mut cluster = cluster(plan, layout, codec);
            cluster.blamed = Some(Vec::new());
            let (changed, spread) = (Rc::new(Cell::new(false)), layout.clone());
            let has_changed = Rc::clone(&changed);
            cluster.change = Some(Box::new(move |rank: Rank, header: &SegmentHeader, payload: &mut [u8]| {
                let range = spread.range(&header.segment).expect("a segment of the layout");
                let of_others = |at: &usize| *at >= ELEMENTS && at - ELEMENTS != (world.get() - 1 - owner.0) as usize;
                let slots = range.clone().filter(|_| rank == owner && header.segment.phase == Phase::AllGather);
                for slot in slots.filter(of_others) {
                    payload[(slot - range.start) * 4..][..4].copy_from_slice(&(3.0 / DIVISOR).to_le_bytes());
                    has_changed.set(true);
                }
            }));
            cluster.run(&mut rng, Order::Fifo, 100_000);
            let blamed = cluster.blamed.take().expect("kept");
            let is_slot = |bad: &Violation| matches!(bad, Violation::BadSegment(bad) if matches!(bad.source, PayloadViolation::Slot { .. }));
            assert!(blamed.iter().all(|(rank, bad)| *rank == owner && is_slot(bad)), "{plan}: {blamed:?}");
            assert_eq!(!blamed.is_empty(), changed.get(), "{plan}, {codec}, {owner:?} of {world:?}");
            lied += u32::from(changed.get());
        }
    });
    assert!(lied > 0);
}
