//! Members that lacked the data of samples that they were to compute, and for how long they get none.
//!
//! A share that is not computed comes again, and an epoch ends only with its last sample. So whoever gives its share back again and again rests
//! for longer and longer, and some step deals all that is left to those who compute: else two members could hold an epoch up for ever.

use std::collections::BTreeMap;

use super::{STARVED, assignment::AssignmentTable};
use crate::id::PeerId;

/// A member rests for so many steps at most.
pub(super) const MAX_REST: u32 = 64;
/// After so many starved shares in a row it does.
pub(super) const MAX_TIMES: u32 = MAX_REST.trailing_zeros() + 1;

/// Of a member that has not contributed since it was starved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rest {
    /// How many shares it has given back so, at most [`MAX_TIMES`].
    pub(super) times: u32,
    /// For how many steps it gets none.
    pub(super) left: u32,
}

impl Rest {
    /// After so many shares in a row: 1, 2, 4 and so on.
    pub(super) fn after(times: u32) -> Self {
        Self { times, left: 1 << (times - 1) }
    }

    /// Whether it can be that.
    pub(super) fn is_possible(self) -> bool {
        (1..=MAX_TIMES).contains(&self.times) && self.left <= 1 << (self.times - 1)
    }
}

/// Who rests after a step that `members` reduced at these speeds, `contributions` being what they gave of their shares and `lost` what they did not.
pub(super) fn follow(
    before: &BTreeMap<PeerId, Rest>,
    (members, speeds): (&[PeerId], &[u32]),
    contributions: &AssignmentTable,
    lost: &AssignmentTable,
) -> BTreeMap<PeerId, Rest> {
    let has = |shares: &AssignmentTable, peer: &PeerId| shares.binary_search_by_key(peer, |(peer, _)| *peer).is_ok();
    let rest = |(peer, speed): (&PeerId, &u32)| {
        let known = before.get(peer).copied();
        if *speed == STARVED && has(lost, peer) {
            let times = known.map_or(0, |rest| rest.times) + 1;
            return Some((*peer, Rest::after(times.min(MAX_TIMES))));
        }
        let goes_on = known.filter(|_| !has(contributions, peer))?;
        Some((*peer, Rest { left: goes_on.left.saturating_sub(1), ..goes_on }))
    };
    members.iter().zip(speeds).filter_map(rest).collect()
}
