//! Who computes which samples: the replicated record of what is done, pending and returned.
//!
//! ```text
//!   epoch: a seeded permutation of all training samples ([`SampleOrder`]); a sample is named by its position in it
//!
//!   0        done           |   pending: the batch of the next step    |       not handed out yet       samples
//!   =========================  a a a a a a | b b b b b b | c c c       ................................
//!                                                                      ^ cursor
//!   commit by {a, c}:  a and c are done; b's positions go to the head of the next batch
//!   =========================  ============= b b b b b b ======        ................................
//! ```
//!
//! The assignment of a step is made when the step before it commits, so a change of view in mid-step does not change
//! what anybody computes. A commit names the members whose ring reduced the step: their shares are done, those of the
//! lost are returned and come first in the next batch. As everything returned fits the next batch, nothing waits longer
//! than one step, and an epoch ends when each of its samples was contributed exactly once.
//!
//! Shares follow the members' measured speeds, which travel in the reduction itself, so that all members know the same
//! ones (see [`Ledger::commit`]). Everything here is integer arithmetic: equal inputs give equal shares everywhere.
//!
//! A run may have micro-batches: every so many positions of an epoch are dealt whole, the last ones of the epoch may be
//! fewer. Whatever is dealt, returned or given up is then cut at their borders alone.

mod assignment;
mod block_order;
mod codec;
mod permutation;
mod resting;
mod sample_order;
mod shuffle_policy;
pub mod split_mix;
mod splitting;
mod throughput;

use std::collections::BTreeMap;
use std::ops::Range;

pub use assignment::AssignmentTable;
pub use codec::{LedgerError, MAX_LEDGER_BYTES};
use resting::Rest;
pub use sample_order::SampleOrder;
pub use shuffle_policy::ShufflePolicy;
pub use splitting::{MAX_PART_RANGES, split};
use throughput::Throughput;

use crate::id::PeerId;

/// The largest batch, in samples.
pub const MAX_BATCH_SIZE: u32 = 1 << 20;
/// The most shares of a batch: as many as a view may have members.
pub const MAX_SHARES: usize = 1024;
/// The highest speed that is told apart.
pub const MAX_SPEED: u32 = 1 << 22;
/// The speed of a member that still downloads the state: it gets no samples.
pub const SYNCING: u32 = 0;
/// The speed of a member that is ready, but measured nothing in this step: what is known of it stays, and a new one is
/// taken for average.
pub const UNMEASURED: u32 = 1;
/// The speed of a member whose share came to numbers that no contribution may have: it gave zeros.
pub const GAVE_UP: u32 = MAX_SPEED + 1;
/// The speed of a member that lacks the data of its samples, or of those that come next, for as long as it is on its way: it gave zeros.
pub const STARVED: u32 = MAX_SPEED + 2;

/// The samples of a run: which are done, and who computes the next ones. Part of the replicated state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    seed: u64,
    samples: u32,
    batch_size: u32,
    /// How many samples are dealt together; 0: each is dealt by itself.
    micro_batch: u32,
    /// How far samples are shuffled.
    shuffle: ShufflePolicy,
    /// The epoch of the pending batch.
    epoch: u64,
    /// The first position of the epoch that was never handed out.
    cursor: u32,
    /// The step of the pending batch; 0 before the first assignment.
    step: u64,
    /// The pending batch, by ascending peer and position. A peer without samples is not in it.
    shares: AssignmentTable,
    /// The members that are ready for samples, and how fast they are.
    paces: BTreeMap<PeerId, Throughput>,
    /// Positions of the pending batch whose share was given up once, ascending.
    doubtful: Vec<Range<u32>>,
    /// Steps whose update was dropped.
    skips: SkipSummary,
    /// Members that have not contributed since they were starved.
    resting: BTreeMap<PeerId, Rest>,
    /// Steps in a row, up to the last one, in which nobody computed anything and somebody was starved.
    starved: u32,
}

/// How many steps were committed without their update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SkipSummary {
    /// Since the run began.
    pub total: u64,
    /// In a row, up to the last step.
    pub in_row: u32,
}

/// What a commit came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitResult {
    /// The step.
    pub step: u64,
    /// The epoch that its batch belongs to: 0 for the first pass over the data.
    pub epoch: u64,
    /// Who contributed which positions of the epoch, by ascending peer.
    pub contributions: AssignmentTable,
    /// How many samples were assigned to peers that did not contribute. They come first in the next batch.
    pub returned: u32,
    /// Positions of the epoch that were given up a second time. Nobody computes them again in this epoch.
    pub dropped: Vec<Range<u32>>,
}

impl CommitResult {
    /// How many samples were contributed.
    pub fn samples(&self) -> u64 {
        self.contributions.iter().map(|(_, ranges)| u64::from(assignment::count(ranges))).sum()
    }
}

impl Ledger {
    /// The ledger of a run over `samples` training samples, before the first assignment.
    ///
    /// # Panics
    /// If `samples` is zero, or `batch_size` is not in `1..=`[`MAX_BATCH_SIZE`].
    pub fn new(seed: u64, samples: u32, batch_size: u32) -> Self {
        assert!(samples > 0, "a ledger needs samples");
        assert!((1..=MAX_BATCH_SIZE).contains(&batch_size), "a batch has 1 to {MAX_BATCH_SIZE} samples");
        Self {
            seed,
            samples,
            batch_size,
            micro_batch: 0,
            shuffle: ShufflePolicy::Full,
            epoch: 0,
            cursor: 0,
            step: 0,
            shares: Vec::new(),
            paces: BTreeMap::new(),
            doubtful: Vec::new(),
            skips: SkipSummary::default(),
            resting: BTreeMap::new(),
            starved: 0,
        }
    }

    /// The same ledger, which deals micro-batches of so many samples; 0: samples one by one, as it is.
    ///
    /// # Panics
    /// If there is an assignment, or a batch is no multiple of `micro_batch`.
    #[must_use]
    pub fn with_micro_batch(self, micro_batch: u32) -> Self {
        assert!(!self.is_assigned(), "what is dealt together is said before the first assignment");
        assert!(fits(self.batch_size, micro_batch), "a batch of {} has whole micro-batches", self.batch_size);
        Self { micro_batch, ..self }
    }

    /// The same ledger, whose epochs have another order.
    ///
    /// # Panics
    /// If there is an assignment, or no run has such blocks.
    #[must_use]
    pub fn with_shuffle(self, shuffle: ShufflePolicy) -> Self {
        assert!(!self.is_assigned(), "how samples are shuffled is said before the first assignment");
        assert_eq!(shuffle.check(), Ok(()), "a shuffle is one that a run can have");
        Self { shuffle, ..self }
    }

    /// Makes the assignment of step 1: equal shares to `members`. Does nothing if there is an assignment.
    ///
    /// # Panics
    /// If `members` is not sorted and distinct, or has none or more than [`MAX_SHARES`].
    pub fn assign(&mut self, members: &[PeerId]) {
        check_members(members);
        if self.step == 0 {
            let all = vec![UNMEASURED; members.len()];
            self.paces = throughput::follow(&self.paces, members, &all);
            self.hand_out(Vec::new());
        }
    }

    /// Whether the first assignment has been made.
    pub fn is_assigned(&self) -> bool {
        self.step > 0
    }

    /// The step of the pending assignment; 0 before the first one.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The epoch of the pending assignment: 0 for the first pass over the data.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The seed of the sample order.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many training samples the run has.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// How many steps were committed without their update.
    pub fn skips(&self) -> SkipSummary {
        self.skips
    }

    /// How many steps in a row, up to the last one, had no samples because the data of them was still on its way to whoever they were dealt to.
    pub fn starved(&self) -> u32 {
        self.starved
    }

    /// How many samples a full batch has.
    pub fn batch_size(&self) -> u32 {
        self.batch_size
    }

    /// How many samples are dealt together; 0: each is dealt by itself.
    pub fn micro_batch(&self) -> u32 {
        self.micro_batch
    }

    /// How far samples are shuffled.
    pub fn shuffle(&self) -> ShufflePolicy {
        self.shuffle
    }

    /// The first position of the epoch that was never handed out.
    pub fn cursor(&self) -> u32 {
        self.cursor
    }

    /// So many of the samples that were never handed out, in their order; of the next epoch, too, where this one has fewer left.
    pub fn ahead(&self, count: u32) -> Vec<u32> {
        let count = count.min(self.samples);
        let end = self.cursor.saturating_add(count).min(self.samples);
        let mut samples = self.order(self.epoch).indices(std::slice::from_ref(&(self.cursor..end)));
        let left = count - (end - self.cursor);
        if left > 0 {
            samples.extend(self.order(self.epoch + 1).indices(std::slice::from_ref(&(0..left))));
        }
        samples
    }

    /// The order of the samples in an epoch.
    pub fn order(&self, epoch: u64) -> SampleOrder {
        SampleOrder::draw(self.seed, self.samples, epoch, self.shuffle)
    }

    /// The pending assignment, by ascending peer; positions in the epoch's order. A peer without samples is not in it.
    pub fn shares(&self) -> &[(PeerId, Vec<Range<u32>>)] {
        &self.shares
    }

    /// The positions that `peer` computes in the pending step, ascending. Empty if it has none.
    pub fn share_of(&self, peer: PeerId) -> &[Range<u32>] {
        match self.shares.binary_search_by_key(&peer, |(peer, _)| *peer) {
            Ok(at) => &self.shares[at].1,
            Err(_) => &[],
        }
    }

    /// How many samples `peer` computes in the pending step.
    pub fn share_len(&self, peer: PeerId) -> u32 {
        assignment::count(self.share_of(peer))
    }

    /// The positions that `peer` computes in the pending step, as of [`Self::micro_batches`].
    pub fn micro_batches_of(&self, peer: PeerId) -> Vec<Vec<Range<u32>>> {
        self.micro_batches(self.share_of(peer))
    }

    /// Positions of the pending step, a share or a part of one, micro-batch by micro-batch; all of them at once in a run without
    /// micro-batches. None of them is empty, and the first position of one tells it from all others of the epoch.
    pub fn micro_batches(&self, positions: &[Range<u32>]) -> Vec<Vec<Range<u32>>> {
        if self.micro_batch == 0 {
            return if positions.is_empty() { Vec::new() } else { vec![positions.to_vec()] };
        }
        let cut = |range: &Range<u32>| {
            let end = range.end;
            let from = range.clone().step_by(self.micro_batch as usize);
            from.map(move |start| start..end.min(start.saturating_add(self.micro_batch))).collect::<Vec<_>>()
        };
        positions.iter().flat_map(cut).map(|range| vec![range]).collect()
    }

    /// How many samples of the pending step the members of `reduced_by` contribute together: the weight of its mean.
    /// One whose speed is [`SYNCING`] gave zeros, even if it was assigned a share: before it was lost and came back. So did
    /// one whose speed is [`GAVE_UP`] or [`STARVED`].
    ///
    /// # Panics
    /// If `speeds` is not as long as `reduced_by`.
    pub fn total(&self, reduced_by: &[PeerId], speeds: &[u32]) -> u64 {
        contributors(reduced_by, speeds).map(|peer| u64::from(self.share_len(peer))).sum()
    }

    /// How many samples the pending step has.
    pub fn pending(&self) -> u32 {
        self.shares.iter().map(|(_, ranges)| assignment::count(ranges)).sum()
    }

    /// The samples at positions of the pending step's epoch.
    ///
    /// # Panics
    /// If a position is not below the number of samples.
    pub fn indices(&self, ranges: &[Range<u32>]) -> Vec<u32> {
        self.order(self.epoch).indices(ranges)
    }

    /// Books the committed step, which was reduced by a view with the members `reduced_by`, and assigns the next one.
    ///
    /// `speeds` has the speed of each of them in this step, in samples per unit of time, all on one scale;
    /// [`SYNCING`] for a member that is not ready for samples and gave zeros, so that a share which was assigned to it
    /// before it was lost and came back is returned, [`UNMEASURED`] for one that is and cannot tell; those
    /// above [`MAX_SPEED`] are taken for it. The next batch is cut for the ready members among them, in proportion to
    /// their smoothed speeds, but nobody gets more than four equal shares, whatever it says of itself; equally while the
    /// fastest is less than 1.5 times as fast as the slowest, and as before while no share would change by an eighth. If
    /// none is ready, all get equal shares.
    ///
    /// The share of a member that [gave up](GAVE_UP) is returned as well, and the member gets none of the next batch, if
    /// there are others: they try. What is given up twice is dropped, so that no sample comes for ever.
    ///
    /// So is the share of a member that is [starved](STARVED), however often: nothing is wrong with its samples. It gets none of the
    /// next batch either, if there are others; none of the next two, if it is so again before it has contributed, then of four, up to 64.
    ///
    /// # Panics
    /// If `step` is not the pending one, `reduced_by` is not sorted and distinct, or `speeds` is not as long as it.
    pub fn commit(&mut self, step: u64, reduced_by: &[PeerId], speeds: &[u32]) -> CommitResult {
        self.skips.in_row = 0;
        self.take(step, reduced_by, speeds)
    }

    /// As [`Self::commit`], of a step whose update is dropped.
    ///
    /// # Panics
    /// As [`Self::commit`].
    pub fn skip(&mut self, step: u64, reduced_by: &[PeerId], speeds: &[u32]) -> CommitResult {
        let SkipSummary { total, in_row } = self.skips;
        self.skips = SkipSummary { total: total.saturating_add(1), in_row: in_row.saturating_add(1) };
        self.take(step, reduced_by, speeds)
    }

    fn take(&mut self, step: u64, reduced_by: &[PeerId], speeds: &[u32]) -> CommitResult {
        assert!(self.step > 0 && step == self.step, "step {step} is not the pending one, {}", self.step);
        check_members(reduced_by);
        let contributed: Vec<PeerId> = contributors(reduced_by, speeds).collect();
        let (contributions, lost): (AssignmentTable, AssignmentTable) =
            std::mem::take(&mut self.shares).into_iter().partition(|(peer, _)| contributed.binary_search(peer).is_ok());
        self.resting = resting::follow(&self.resting, (reduced_by, speeds), &contributions, &lost);
        let is_starved = |(peer, _): &(PeerId, Vec<Range<u32>>)| {
            reduced_by.binary_search(peer).is_ok_and(|at| speeds[at] == STARVED)
        };
        self.starved = match contributions.is_empty() {
            true => self.starved.saturating_add(u32::from(lost.iter().any(is_starved))),
            false => 0,
        };
        let has_given_up = |peer: &PeerId| reduced_by.binary_search(peer).is_ok_and(|at| speeds[at] == GAVE_UP);
        let (given_up, lost): (AssignmentTable, AssignmentTable) =
            lost.into_iter().partition(|(peer, _)| has_given_up(peer));
        let [given_up, lost] =
            [given_up, lost].map(|shares| assignment::merge(shares.into_iter().flat_map(|(_, ranges)| ranges)));
        let dropped = assignment::common(&given_up, &self.doubtful);
        let tried = assignment::without(&given_up, &dropped);
        self.doubtful = assignment::union(&tried, &assignment::common(&lost, &self.doubtful));
        let returned = assignment::union(&tried, &lost);
        let count = assignment::count(&returned);
        let committed = CommitResult { step, epoch: self.epoch, contributions, returned: count, dropped };
        if returned.is_empty() && self.cursor == self.samples {
            self.epoch += 1;
            self.cursor = 0;
        }
        // Who has given up rests for a step: what it could not compute, another one tries. Who is starved can compute nothing yet.
        let paced = |speed: &u32| if matches!(*speed, GAVE_UP | STARVED) { SYNCING } else { *speed };
        let mut speeds: Vec<u32> = speeds.iter().map(paced).collect();
        // Who was starved for the last times rests for longer, unless nobody else is ready.
        let rests: Vec<bool> =
            reduced_by.iter().map(|peer| self.resting.get(peer).is_some_and(|rest| rest.left > 0)).collect();
        if speeds.iter().zip(&rests).any(|(speed, rests)| *speed != SYNCING && !rests) {
            speeds.iter_mut().zip(&rests).filter(|(_, rests)| **rests).for_each(|(speed, _)| *speed = SYNCING);
        }
        self.paces = throughput::follow(&self.paces, reduced_by, &speeds);
        self.hand_out(returned);
        committed
    }

    /// Makes the next step's assignment: what was returned first, then what was never handed out in this epoch.
    fn hand_out(&mut self, returned: Vec<Range<u32>>) {
        let missing = self.batch_size.checked_sub(assignment::count(&returned));
        let fresh = missing.expect("invariant: what is returned was one batch").min(self.samples - self.cursor);
        let batch = assignment::merge(returned.into_iter().chain(std::iter::once(self.cursor..self.cursor + fresh)));
        self.cursor += fresh;
        self.step += 1;
        let weights: Vec<u32> = self.paces.values().map(|pace| pace.planned).collect();
        // Counted in what is dealt together, then in samples again.
        let unit = self.micro_batch.max(1);
        let units: Vec<_> = batch.iter().map(|range| range.start / unit..range.end.div_ceil(unit)).collect();
        let sizes = assignment::sizes(assignment::count(&units), &weights);
        self.shares = assignment::cut(units, self.paces.keys().copied().zip(sizes));
        for range in self.shares.iter_mut().flat_map(|(_, ranges)| ranges) {
            *range = range.start * unit..range.end.saturating_mul(unit).min(self.samples);
        }
    }
}

/// Whether batches of such a size can be made of such micro-batches.
fn fits(batch_size: u32, micro_batch: u32) -> bool {
    micro_batch == 0 || batch_size.is_multiple_of(micro_batch)
}

/// Those members that gave their share, if they had one.
fn contributors(reduced_by: &[PeerId], speeds: &[u32]) -> impl Iterator<Item = PeerId> {
    assert_eq!(reduced_by.len(), speeds.len(), "one speed per member");
    reduced_by
        .iter()
        .zip(speeds)
        .filter(|(_, speed)| !matches!(**speed, SYNCING | GAVE_UP | STARVED))
        .map(|(peer, _)| *peer)
}

fn check_members(members: &[PeerId]) {
    assert!((1..=MAX_SHARES).contains(&members.len()), "1 to {MAX_SHARES} members, not {}", members.len());
    assert!(members.is_sorted_by(|a, b| a < b), "members are sorted and distinct");
}

#[cfg(test)]
mod tests;
