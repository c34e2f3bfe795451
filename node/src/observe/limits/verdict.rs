//! What slows the steps of one moment down: a pure function of what was measured then.

use std::str::FromStr;

use starling_collective::Codec;

use super::Second;
use crate::observe::report::{Limit, LinkCost, MemberPaceReport};

/// A member is slow that computes a sample at less than this part of the others' median speed.
const SLOW: f64 = 0.5;
/// It stays so up to this part.
const STILL_SLOW: f64 = 0.6;
/// A member that computes for less than this part of the others' median time holds nobody up, however slow it seems: few
/// samples take long each where most of a step's time is spent on none of them.
const LONG: f64 = 0.6;
/// Below this part of a step, computing is not what it waits for.
const WORTH: f64 = 0.1;
/// A link is the limit whose bytes take this part of a step.
const BUSY: f64 = 0.5;
/// It stays so down to this part.
const STILL_BUSY: f64 = 0.35;
/// For comparing codecs.
const ELEMENTS: usize = 1 << 20;

/// Whether something new is looked for, or something that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// It must be clear.
    Enter,
    /// It must be clear that it is no longer so; and what is clear of some seconds together must not be unclear of one of them.
    Stay,
}

/// What a link carries, as time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) link: &'a LinkCost,
    /// How long the bytes of one step take to pass.
    pub(super) step_ms: f64,
}

/// What slowed the steps of this second down, if that stands out.
pub(super) fn limit(second: &Second, loads: &[Load<'_>], codec: &str, strictness: Strictness) -> Option<Limit> {
    slow_member(&second.members, strictness).or_else(|| busy_link(second, loads, codec, strictness))
}

fn slow_member(members: &[MemberPaceReport], strictness: Strictness) -> Option<Limit> {
    let below = if strictness == Strictness::Enter { SLOW } else { STILL_SLOW };
    let measured: Vec<(&MemberPaceReport, f64)> =
        members.iter().filter_map(|pace| Some((pace, pace.samples_per_s.filter(|speed| *speed > 0.0)?))).collect();
    let (slowest, speed) = *measured.iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let others = || measured.iter().filter(|(pace, _)| pace.peer != slowest.peer);
    let median_speed = median(others().map(|(_, speed)| *speed).collect())?;
    let median_share = median(others().map(|(pace, _)| pace.computing_share).collect())?;
    let ratio = speed / median_speed;
    let is_slow = ratio < below && slowest.computing_share >= (median_share * LONG).max(WORTH);
    is_slow.then(|| Limit::Member { peer: slowest.peer.clone(), speed: ratio })
}

fn busy_link(second: &Second, loads: &[Load<'_>], codec: &str, strictness: Strictness) -> Option<Limit> {
    let busy = if strictness == Strictness::Enter { BUSY } else { STILL_BUSY };
    let Load { link, step_ms } = loads.iter().max_by(|one, other| one.step_ms.total_cmp(&other.step_ms))?;
    let share = step_ms * second.steps as f64 / (second.seconds * 1e3);
    if share.is_nan() || share < busy {
        return None;
    }
    let bytes = |codec: Codec| codec.payload_bytes(ELEMENTS) as f64;
    let present = Codec::from_str(codec).unwrap_or(Codec::F32);
    let codec_share = bytes(Codec::Int8) / bytes(present);
    let codec = (codec_share < 1.0).then(|| Codec::Int8.to_string());
    // What was measured may be older than the link's present state.
    Some(Limit::Link { from: link.from.clone(), to: link.to.clone(), share: share.min(1.0), codec, codec_share })
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    Some(if numbers.len().is_multiple_of(2) { f64::midpoint(numbers[middle - 1], upper) } else { upper })
}
