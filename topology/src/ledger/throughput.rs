//! How fast members are, and by how much their shares follow.

use std::collections::BTreeMap;

use super::{MAX_SPEED, SYNCING, UNMEASURED};
use crate::id::PeerId;

/// No member's share is more than so many times an equal one, whatever it says of its speed.
pub(super) const MOST_TIMES: u64 = 4;

/// What the ledger knows of a ready member's speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Throughput {
    /// The moving average of its measured speeds; 0 if it measured none yet.
    pub(super) smoothed: u32,
    /// Its weight in the cut of a batch: members' shares are in proportion to these.
    pub(super) planned: u32,
}

/// The paces after a step that `members` reduced with the given speeds: those of the ready ones, or of all if none is.
pub(super) fn follow(
    before: &BTreeMap<PeerId, Throughput>,
    members: &[PeerId],
    speeds: &[u32],
) -> BTreeMap<PeerId, Throughput> {
    let is_any_ready = speeds.iter().any(|speed| *speed != SYNCING);
    let mut paces = BTreeMap::new();
    for (member, speed) in members.iter().zip(speeds) {
        let speed = if is_any_ready { *speed } else { UNMEASURED };
        if speed != SYNCING {
            let known = before.get(member).copied().unwrap_or(Throughput { smoothed: 0, planned: 0 });
            paces.insert(*member, Throughput { smoothed: smooth(known.smoothed, speed), planned: known.planned });
        }
    }
    plan(&mut paces);
    paces
}

/// A quarter of the new measurement, three quarters of what was known: one slow step does not move a share.
fn smooth(known: u32, measured: u32) -> u32 {
    match (known, measured.min(MAX_SPEED)) {
        (known, UNMEASURED) => known,
        (0, measured) => measured,
        (known, measured) => (3 * known + measured + 2) / 4,
    }
}

/// Adopts the proportions that the speeds ask for, if they differ enough from those in force.
fn plan(paces: &mut BTreeMap<PeerId, Throughput>) {
    let measured: Vec<u64> = paces.values().map(|pace| u64::from(pace.smoothed)).filter(|speed| *speed > 0).collect();
    let typical = measured.iter().sum::<u64>().checked_div(measured.len() as u64).unwrap_or(1) as u32;
    let speed = |pace: &Throughput| if pace.smoothed == 0 { typical } else { pace.smoothed };
    let (slowest, fastest) =
        paces.values().map(speed).fold((u32::MAX, 0), |(min, max), speed| (min.min(speed), max.max(speed)));
    let is_even = 2 * fastest < 3 * slowest;
    let most = highest(paces.values().map(speed).collect());
    let target = |pace: &Throughput| if is_even { 1 } else { speed(pace).min(most) };

    let total_target: u64 = paces.values().map(|pace| u64::from(target(pace))).sum();
    let total_planned: u64 = paces.values().map(|pace| u64::from(pace.planned)).sum();
    let members = paces.len() as u64;
    // A share is planned / total_planned now, and would be target / total_target.
    let is_off = |pace: &Throughput| {
        let (now, then) = (u64::from(pace.planned) * total_target, u64::from(target(pace)) * total_planned);
        let is_too_large = u64::from(pace.planned) * members > MOST_TIMES * total_planned;
        pace.planned == 0 || 8 * now.abs_diff(then) >= now || is_too_large
    };
    if paces.values().any(is_off) {
        paces.values_mut().for_each(|pace| pace.planned = target(pace));
    }
}

/// The highest of these speeds that counts: higher ones are taken for it, and nobody's share is too large then.
fn highest(mut speeds: Vec<u32>) -> u32 {
    speeds.sort_unstable_by_key(|speed| std::cmp::Reverse(*speed));
    let mut rest: u64 = speeds.iter().map(|speed| u64::from(*speed)).sum();
    let mut members = speeds.len() as u64;
    for speed in speeds {
        // So many are cut down already, each to `MOST_TIMES / members` of all: those and the others are all there is.
        let most = MOST_TIMES * rest / members;
        if u64::from(speed) <= most || members <= MOST_TIMES {
            return u32::try_from(most).unwrap_or(MAX_SPEED);
        }
        rest -= u64::from(speed);
        members -= MOST_TIMES;
    }
    MAX_SPEED
}
