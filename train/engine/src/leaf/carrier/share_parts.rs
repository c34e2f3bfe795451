//! One share under way: who computes which part of it, and what is there.

use std::ops::Range;
use std::time::Duration;

use starling_topology::{PeerId, Time};

/// What has become of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartState {
    /// It is on its way.
    Waiting,
    /// Whoever was to bring it won't.
    Lost,
    /// It is part of the contribution.
    Counted,
}

/// A part of a share.
#[derive(Debug)]
pub(super) struct Part {
    /// The leaf that was given it; `None`: the member itself.
    pub(super) leaf: Option<PeerId>,
    pub(super) number: u64,
    pub(super) ranges: Vec<Range<u32>>,
    /// When it should be there, as far as is known of the leaf.
    pub(super) expected: Option<Time>,
    pub(super) state: PartState,
}

/// The parts of one step's share. The first one is the member's own.
#[derive(Debug)]
pub(super) struct ShareParts {
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) share: Vec<Range<u32>>,
    pub(super) began: Time,
    pub(super) parts: Vec<Part>,
    /// The number that is being computed here, and which part that is.
    pub(super) computing: Option<(u64, usize)>,
    /// When the own part was there.
    pub(super) own_done: Option<Time>,
    /// Whether it was told that all is there.
    pub(super) is_whole: bool,
}

impl ShareParts {
    /// Whether this is that share of that step.
    pub(super) fn is_of(&self, step: u64, epoch: u64, share: &[Range<u32>]) -> bool {
        (self.step, self.epoch, self.share.as_slice()) == (step, epoch, share)
    }

    pub(super) fn part_of(&mut self, leaf: PeerId, number: u64) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.leaf == Some(leaf) && part.number == number)
    }

    /// The leaf of this part brings it no more.
    pub(super) fn lose(&mut self, leaf: PeerId) {
        let waits = |part: &&mut Part| part.leaf == Some(leaf) && part.state == PartState::Waiting;
        self.parts.iter_mut().filter(waits).for_each(|part| part.state = PartState::Lost);
    }

    /// When this member begins with a leaf's part: half as long again as it should take, but the wait is no longer than its own part took,
    /// and no longer than `most`. `None` as long as it is busy with its own.
    pub(super) fn due(&self, part: &Part, most: Duration) -> Option<Time> {
        let own_done = self.own_done?;
        let own_took = own_done - self.began;
        let own: u64 = samples(&self.parts.first()?.ranges).max(1);
        let by_own_pace = || {
            let share = u128::from(samples(&part.ranges)) * own_took.as_nanos() / u128::from(own);
            self.began + Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX))
        };
        let expected = part.expected.unwrap_or_else(by_own_pace);
        let later = expected + (expected - self.began) / 2;
        Some(later.max(own_done).min(own_done + own_took.min(most)))
    }
}

/// How many positions there are.
pub(super) fn samples(ranges: &[Range<u32>]) -> u64 {
    ranges.iter().map(|range| u64::from(range.end.saturating_sub(range.start))).sum()
}
