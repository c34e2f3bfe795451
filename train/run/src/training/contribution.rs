//! What members reduce together: the buffer of one operation.
//!
//! ```text
//!   | gradient x weight: trained | loss and other figures x weight | speeds: one slot per member of the view, in their order |
//!       own mean over own samples    the same                        own slot: own speed; the others': 0
//! ```
//!
//! The ring sums the members' buffers and divides by the batch size, which never changes, so a member that still
//! downloads the state can take part without a ledger. Whoever applies the result knows the ledger and so the true number
//! of samples, and corrects for a batch that was not full. The speed slots become the same integers on all members: a
//! sum of one number and zeros is exact, and its rounded quotient times the divisor is less than a half off.
//!
//! Whatever a member puts into another's slot is refused by the next one that gets it, and named, unless it is what the other
//! could have said ([`words`]). What that can do is bounded ([`scale`]), and the other sees it.

use std::ops::RangeInclusive;
use std::time::Duration;

use starling_topology::ledger::{GAVE_UP, MAX_SPEED, STARVED, SYNCING, UNMEASURED};
use starling_topology::{Lineage, PeerId};

use crate::state::record::ResultRecord;

/// Speeds count eighths of a sample per second, so that slow models have speeds, too.
const SPEED_UNITS: u128 = 8;

/// The speed of a member that computed `samples` samples in `elapsed`, on the scale that all members share: eighths of
/// a sample per second, up to [`MAX_SPEED`]. [`UNMEASURED`] if there was nothing to measure.
pub fn speed(samples: u64, elapsed: Duration) -> u32 {
    let Some(speed) = (SPEED_UNITS * 1_000_000_000 * u128::from(samples)).checked_div(elapsed.as_nanos()) else {
        return UNMEASURED;
    };
    if samples == 0 {
        return UNMEASURED;
    }
    u32::try_from(speed).unwrap_or(MAX_SPEED).clamp(UNMEASURED + 1, MAX_SPEED)
}

/// How many samples per second a [`speed`] stands for; `None` of a member that told none.
pub fn samples_per_s(speed: u32) -> Option<f64> {
    (UNMEASURED + 1..=MAX_SPEED).contains(&speed).then(|| f64::from(speed) / SPEED_UNITS as f64)
}

/// What a member has said, for people.
pub fn describe(word: u32) -> String {
    match (word, samples_per_s(word)) {
        (_, Some(per_s)) => format!("{per_s} samples per second"),
        (SYNCING, _) => "it has no state yet".to_owned(),
        (UNMEASURED, _) => "it measured no speed".to_owned(),
        (STARVED, _) => "the data of its samples is on its way".to_owned(),
        _ => "it gave up its share".to_owned(),
    }
}

/// What is behind gradient and loss: the own speed in the own slot, zeros in the others'.
pub fn slots(members: &[PeerId], me: PeerId, speed: u32) -> impl Iterator<Item = f32> {
    members.iter().map(move |member| if *member == me { slot(speed) } else { 0.0 })
}

/// What a member may say in its slot, on its way into a view that `syncing` entered without the state: only they can be
/// without it, and they may have got it. That data is missing can be where that [can arrive](crate::Manifest::can_arrive) later, and nowhere else.
pub fn words(member: &PeerId, syncing: &[PeerId], can_arrive: bool) -> RangeInclusive<u32> {
    let highest = if can_arrive { STARVED } else { GAVE_UP };
    if syncing.contains(member) { SYNCING..=highest } else { UNMEASURED..=highest }
}

/// What makes of a sum over `batch_size` the mean of the `weight` samples that were contributed, of the `pending` ones that the
/// step has. At most twice what it is with all of them: no honest majority loses more in one step, and what members that are
/// said to have given nothing did give is in the sum, too. 0 of no samples.
pub fn scale(batch_size: u32, weight: u64, pending: u32) -> f32 {
    if weight == 0 { 0.0 } else { batch_size as f32 / weight.max(pending.div_ceil(2).into()) as f32 }
}

/// The record of a step that a peer takes alone, outside of any view: `gradient` becomes what a ring of one would leave.
pub fn alone(step: u64, mut gradient: Vec<f32>, weight: u64, batch_size: u32, me: PeerId, speed: u32) -> ResultRecord {
    if weight != u64::from(batch_size) {
        let share = weight as f32 / batch_size as f32;
        gradient.iter_mut().for_each(|value| *value *= share);
    }
    gradient.push(slot(speed) / batch_size as f32);
    ResultRecord { step, lineage: Lineage::NONE, after: Lineage::NONE, members: vec![me], mean: gradient }
}

/// What a member that is not syncing writes into its slot. Zero would say that it has no state yet.
pub fn slot(speed: u32) -> f32 {
    word(speed) as f32
}

/// The same, as the others read it.
pub fn word(speed: u32) -> u32 {
    speed.clamp(UNMEASURED, STARVED)
}

/// The speeds that were reduced in `slots`, divided by the batch size.
pub fn speeds(slots: &[f32], batch_size: u32) -> Vec<u32> {
    // The product of two such numbers is exact in f64. A cast from a negative number gives 0.
    let speed = |slot: &f32| (f64::from(*slot) * f64::from(batch_size) + 0.5) as u32;
    slots.iter().map(|slot| speed(slot).clamp(SYNCING, STARVED)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_survive_the_reduction() {
        for batch_size in (1..200).chain([1_000, 4_096, 65_537, (1 << 20) - 1, 1 << 20]) {
            for speed in (0..200).chain([4_097, 99_999, 654_321, MAX_SPEED - 1, MAX_SPEED, GAVE_UP, STARVED]) {
                let slots = [0.0, 0.0 + speed as f32, 0.0].map(|slot: f32| slot / batch_size as f32);
                assert_eq!(speeds(&slots, batch_size), [0, speed, 0], "{speed} with batches of {batch_size}");
            }
        }
        assert_eq!(speeds(&[-1.0, f32::MAX, -0.0], 64), [SYNCING, STARVED, SYNCING]);
    }

    #[test]
    fn a_mean_is_of_what_was_contributed_and_at_most_twice_what_it_is_of_all() {
        assert_eq!(
            [(64, 64), (32, 64), (3, 3), (0, 64)].map(|(weight, all)| scale(64, weight, all)),
            [1.0, 2.0, 64.0 / 3.0, 0.0]
        );
        // A member that has everybody else said to have given up gets no more out of its share.
        assert_eq!([1, 7, 31].map(|weight| scale(64, weight, 64)), [2.0; 3]);
        assert_eq!([scale(64, 1, 3), scale(1 << 20, 1, 1 << 20)], [32.0, 2.0]);
    }

    #[test]
    fn who_has_the_state_is_not_without_it() {
        let [ready, syncing] = [1, 2].map(|name| PeerId([name; 32]));
        let may = |member: &PeerId, said, can_arrive| words(member, &[syncing], can_arrive).contains(&said);
        for can_arrive in [false, true] {
            assert!(!may(&ready, SYNCING, can_arrive) && may(&syncing, SYNCING, can_arrive));
            for said in [UNMEASURED, MAX_SPEED, GAVE_UP] {
                assert!([ready, syncing].iter().all(|member| may(member, said, can_arrive)));
            }
            // Elsewhere all have all data: who says something else takes part without work.
            assert!([ready, syncing].iter().all(|member| may(member, STARVED, can_arrive) == can_arrive));
            assert!([ready, syncing].iter().all(|member| !may(member, STARVED + 1, can_arrive)));
        }
    }

    #[test]
    fn speeds_are_eighths_of_a_sample_per_second() {
        assert_eq!(speed(64, Duration::from_secs(1)), 512);
        assert_eq!(speed(64, Duration::from_millis(250)), 2_048);
        assert_eq!(speed(1, Duration::from_secs(3_600)), UNMEASURED + 1);
        assert_eq!(speed(u64::MAX, Duration::from_nanos(1)), MAX_SPEED);
        assert_eq!(samples_per_s(speed(64, Duration::from_millis(250))), Some(256.0));
        assert_eq!([SYNCING, UNMEASURED, GAVE_UP, STARVED].map(samples_per_s), [None; 4]);
        assert_eq!(describe(20), "2.5 samples per second");
        assert_eq!(describe(GAVE_UP), "it gave up its share");
        assert_eq!((speed(0, Duration::from_secs(1)), speed(5, Duration::ZERO)), (UNMEASURED, UNMEASURED));
    }

    #[test]
    fn the_own_slot_holds_the_own_speed() {
        let members = [1, 2, 3].map(|name| PeerId([name; 32]));
        assert_eq!(slots(&members, members[1], 77).collect::<Vec<_>>(), [0.0, 77.0, 0.0]);
        let ready = slots(&members, members[2], SYNCING).collect::<Vec<_>>();
        assert_eq!(ready, [0.0, 0.0, UNMEASURED as f32], "it gave its share, so it is ready");
    }

    #[test]
    fn alone_is_a_ring_of_one() {
        let me = PeerId([1; 32]);
        for weight in [0, 3, 16] {
            let record = alone(5, vec![0.5, -1.0, 2.0], weight, 16, me, 40);
            let weighted = [0.5, -1.0, 2.0].map(|value: f32| value * weight as f32);
            let mut buffer: Vec<f32> = weighted.into_iter().chain(slots(&[me], me, 40)).collect();
            buffer.iter_mut().for_each(|value| *value /= 16.0);
            assert_eq!(
                record,
                ResultRecord { step: 5, lineage: Lineage::NONE, after: Lineage::NONE, members: vec![me], mean: buffer }
            );
        }
    }
}
