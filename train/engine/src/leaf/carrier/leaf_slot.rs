//! What a carrier knows of one of its leaves.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use starling_run::training::contribution;
use starling_topology::ledger::{MAX_SPEED, UNMEASURED};
use starling_topology::{DeclineReason, Digest, LeafProgress, Time};

use super::share_parts::samples;
use crate::leaf::{MAX_BEHIND, MAX_BEHIND_BYTES};

/// A leaf may say so much before it was sent anything.
const CREDITS: u32 = 16;
/// So much at most, however much it was sent.
const MAX_CREDITS: u32 = 256;
/// How much it may say for each message that it was sent.
const ANSWERS: u32 = 2;
/// How much more in each `max_stall`.
const PER_STALL: u32 = 16;
/// Who is always late is given something once in two to the power of this many steps.
const MAX_LATE: u32 = 6;

/// How far a leaf is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafStatus {
    /// It is told where to start once that can be said: what it holds.
    Waits(Option<LeafProgress>),
    /// It loads the state of the step where it starts, until then at most.
    Loads(Time),
    /// It holds the state, and results follow.
    Follows,
}

/// A work that a leaf has not answered.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) number: u64,
    pub(super) step: u64,
    pub(super) ranges: Vec<Range<u32>>,
    pub(super) sent: Time,
}

/// What is remembered of a leaf beyond its stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeafHabits {
    /// How often in a row it was late, and the step before which it is given nothing for that.
    late: u32,
    rests_until: u64,
    /// How often its state was another one.
    pub(super) differed: u32,
}

#[derive(Debug)]
pub(super) struct LeafSlot {
    pub(super) status: LeafStatus,
    /// Counts its starts.
    pub(super) starts: u64,
    /// The step where it started.
    pub(super) began: u64,
    /// The last step whose result it was sent, or where it started.
    pub(super) sent: u64,
    /// The last step that it has applied, or where it started with what it held.
    pub(super) applied: Option<u64>,
    /// Its digests that are yet to be compared.
    pub(super) digests: BTreeMap<u64, Digest>,
    pub(super) habits: LeafHabits,
    pub(super) owed: Option<Owed>,
    /// The number of the last work that it has answered.
    pub(super) answered: u64,
    /// When it was last heard, and last told something.
    pub(super) heard: Time,
    pub(super) said: Time,
    /// How fast it is, sending included; 0: unknown.
    speed: u32,
    credits: u32,
    credited: Time,
}

impl LeafSlot {
    pub(super) fn new(now: Time, holds: Option<LeafProgress>, habits: LeafHabits) -> Self {
        Self {
            status: LeafStatus::Waits(holds),
            starts: 0,
            began: 0,
            sent: 0,
            applied: None,
            digests: BTreeMap::new(),
            habits,
            owed: None,
            answered: 0,
            heard: now,
            said: now,
            speed: 0,
            credits: CREDITS,
            credited: now,
        }
    }

    /// Its speed, if that is known.
    pub(super) fn speed(&self) -> Option<u32> {
        (self.speed > UNMEASURED).then_some(self.speed)
    }

    /// Whether it can be given work of the step after `step`.
    pub(super) fn is_ready(&self, step: u64) -> bool {
        let is_there = self.status == LeafStatus::Follows && self.sent == step;
        is_there && self.owed.is_none() && step >= self.habits.rests_until
    }

    /// What it owes to `step` has to be computed in its place: all had to wait. It rests for some steps, more each time.
    pub(super) fn note_late(&mut self, step: u64) {
        self.habits.late = (self.habits.late + 1).min(MAX_LATE);
        self.habits.rests_until = step.saturating_add(1 << self.habits.late);
    }

    /// It was there in time.
    pub(super) fn note_in_time(&mut self) {
        self.habits.late = 0;
    }

    /// Whether more results are on their way to it than may, each of so many bytes.
    pub(super) fn is_too_far_behind(&self, bytes: usize) -> bool {
        let behind = self.sent.saturating_sub(self.applied.unwrap_or(self.began));
        let memory = usize::try_from(behind).unwrap_or(usize::MAX).saturating_mul(bytes);
        behind > MAX_BEHIND || (behind > 2 && memory > MAX_BEHIND_BYTES)
    }

    /// It was sent something.
    pub(super) fn sent(&mut self, now: Time) {
        self.said = now;
        self.credits = self.credits.saturating_add(ANSWERS).min(MAX_CREDITS);
    }

    /// It has said something; false if that is more than it may.
    pub(super) fn hear(&mut self, now: Time, max_stall: Duration) -> bool {
        self.heard = now;
        let each = max_stall / PER_STALL;
        while self.credits < MAX_CREDITS && now - self.credited >= each && !each.is_zero() {
            (self.credits, self.credited) = (self.credits + 1, self.credited + each);
        }
        if self.credits == MAX_CREDITS {
            self.credited = now;
        }
        let may = self.credits > 0;
        self.credits = self.credits.saturating_sub(1);
        may
    }

    /// It has answered what it owes: with its gradient, or without, for this reason.
    pub(super) fn answer(&mut self, now: Time, declined: Option<DeclineReason>) -> Option<Owed> {
        let owed = self.owed.take()?;
        self.answered = owed.number;
        let measured = match declined {
            None | Some(DeclineReason::Over) => contribution::speed(samples(&owed.ranges), now - owed.sent),
            Some(DeclineReason::Unable) => UNMEASURED,
        };
        self.speed = match (self.speed, measured) {
            (known, UNMEASURED) => known,
            (0, measured) => measured,
            // Who was interrupted may be as fast as is known, or slower.
            (known, measured) if declined.is_some() && measured >= known => known,
            (known, measured) => (3 * known + measured + 2) / 4,
        }
        .min(MAX_SPEED);
        Some(owed)
    }
}
