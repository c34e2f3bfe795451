//! What members can do with their buffers besides taking the mean, each a step like any other.

use std::ops::Range;
use std::sync::Arc;

use starling_run::{BufferLearner, BufferStepReport, CallDecision, CallHeader, CallKind, ResultRecord};
use starling_topology::ViewId;

use super::{ReduceReport, Swarm, SwarmError, error};
use crate::credentials::identity::to_libp2p;
use crate::learner::contribution::Contribution;

/// What a broadcast came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BroadcastResult {
    /// The step, counted from 1 in each run: the same on all members.
    pub step: u64,
    /// The peer id of the member whose values these are.
    pub from: String,
}

/// This member's part of a mean, as [`Swarm::reduce_scatter`] leaves it. It is good for one [`Swarm::all_gather`] or more, as long as
/// the members stay the same.
#[derive(Debug, Clone)]
pub struct ScatterResult {
    mean: ReduceReport,
    ranges: Vec<Range<usize>>,
    view: ViewId,
}

impl ScatterResult {
    /// What the step came to.
    pub fn mean(&self) -> ReduceReport {
        self.mean
    }

    /// Where this member's part lies in a buffer, as ascending ranges of elements. None, if this member brought no buffer, or was
    /// lost to the others before it had its part; in a tree, two members have everything.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }
}

impl Swarm {
    /// Hands `values` to all members, which wait for them in [`Self::receive`] with the same `tag`; nobody else may broadcast in that
    /// step. All then hold the same bits: with a lossy codec, what it makes of them.
    ///
    /// # Errors
    /// As [`Self::all_reduce_tagged`], and [`SwarmError::NotOneSource`] if this member has just joined, or another one broadcasts, too.
    pub fn broadcast(&mut self, tag: u64, values: &[f32]) -> Result<BroadcastResult, SwarmError> {
        let tag = CallHeader::of(CallKind::Broadcast, tag);
        self.check_length(values.len())?;
        error::check_numbers(values, self.manifest.bound)?;
        let (averaged, _) = self.choose(Some(Arc::new(values.to_vec())), None, tag, |_| tag)?;
        received(averaged)
    }

    /// Replaces `values` by those that another member hands out with [`Self::broadcast`].
    ///
    /// # Errors
    /// As [`Self::all_reduce_tagged`], and [`SwarmError::NotOneSource`] if nobody broadcasts: whoever was to has left, say. `values` are
    /// as before then, and the swarm can be used on.
    pub fn receive(&mut self, tag: u64, values: &mut [f32]) -> Result<BroadcastResult, SwarmError> {
        let tag = CallHeader::of(CallKind::Receive, tag);
        self.check_length(values.len())?;
        let (averaged, _) = self.choose(None, Some(values), tag, |_| tag)?;
        received(averaged)
    }

    /// Takes the mean of all members' values, of which each gets a part of its own: `values` are the mean at the
    /// [ranges](ScatterResult::ranges) that it says, and as before elsewhere. Each element is one member's, so that members can share
    /// what follows from it and [gather](Self::all_gather) the outcome. Half of what an all-reduce sends.
    ///
    /// What a lossy codec drops here is not made up for later. If a member is lost after this step, its part is.
    ///
    /// # Errors
    /// As [`Self::all_reduce_tagged`].
    pub fn reduce_scatter(&mut self, tag: u64, values: &mut [f32]) -> Result<ScatterResult, SwarmError> {
        let tag = CallHeader::of(CallKind::ReduceScatter, tag);
        self.check_length(values.len())?;
        error::check_numbers(values, self.manifest.bound)?;
        let (averaged, record) = self.choose(Some(Arc::new(values.to_vec())), None, tag, |_| tag)?;
        let mean = self.mean(&averaged);
        let own = self.turns.shared_steps.take_own(averaged.step).filter(|_| mean.is_included);
        let ranges = own.map_or_else(Vec::new, |own| {
            let count = mean.contributors as f32;
            for range in &own.ranges {
                let sums = own.values[range.clone()].iter();
                values[range.clone()].iter_mut().zip(sums).for_each(|(mean, sum)| *mean = sum / count);
            }
            own.ranges
        });
        Ok(ScatterResult { mean, ranges, view: record.lineage.view })
    }

    /// Replaces `values` by what each member has at its part, as [`Self::reduce_scatter`] said in `part`: the same bits everywhere.
    ///
    /// # Errors
    /// As [`Self::all_reduce_tagged`], and [`SwarmError::OtherMembers`] on all members alike, if others have come or gone since some of
    /// them have their parts: then the parts are not all there is. `values` are as before, and all begin anew with
    /// [`Self::reduce_scatter`].
    pub fn all_gather(
        &mut self,
        tag: u64,
        part: &ScatterResult,
        values: &mut [f32],
    ) -> Result<ReduceReport, SwarmError> {
        let [own, outdated] = [CallKind::AllGather, CallKind::Outdated].map(|call| CallHeader::of(call, tag));
        self.check_length(values.len())?;
        error::check_numbers(values, self.manifest.bound)?;
        let (view, is_included) = (part.view, part.mean.is_included);
        let says = move |of: ViewId| if is_included && of == view { own } else { outdated };
        let brought = Arc::new(values.to_vec());
        let (averaged, _) = self.choose(Some(brought), Some(values), own, says)?;
        if averaged.agreed == CallDecision::Nothing && !averaged.contributors.is_empty() {
            return Err(SwarmError::OtherMembers { step: averaged.step });
        }
        Ok(self.mean(&averaged))
    }

    /// Takes the next step with an operation that all have to call, as one who `brings` something and `says` so in each view.
    fn choose(
        &mut self,
        brings: Option<Arc<Vec<f32>>>,
        takes: Option<&mut [f32]>,
        tag: CallHeader,
        says: impl Fn(ViewId) -> CallHeader,
    ) -> Result<(BufferStepReport, Arc<ResultRecord>), SwarmError> {
        let (record, is_finite) = self.reduce(|swarm, active| {
            let slots = BufferLearner::slots(&active.members, swarm.turns.me, says(active.lineage.view));
            let brought = brings.clone().ok_or(swarm.elements);
            swarm.turns.contribute(active, Contribution::agreed(brought, slots));
            Ok(())
        })?;
        Ok((self.conclude_step(&record, is_finite, takes, tag)?, record))
    }

    /// Concludes a step of all-reduce.
    pub(super) fn conclude(
        &mut self,
        record: &Arc<ResultRecord>,
        is_finite: bool,
        values: Option<&mut [f32]>,
        tag: CallHeader,
    ) -> Result<ReduceReport, SwarmError> {
        let averaged = self.conclude_step(record, is_finite, values, tag)?;
        Ok(self.mean(&averaged))
    }

    fn conclude_step(
        &mut self,
        record: &Arc<ResultRecord>,
        is_finite: bool,
        values: Option<&mut [f32]>,
        tag: CallHeader,
    ) -> Result<BufferStepReport, SwarmError> {
        let averaged = self.apply(record, is_finite, values.map(|values| (values, tag)))?;
        if let Some((peer, theirs)) = averaged.other_than(tag) {
            let peer = to_libp2p(peer).to_string();
            return Err(SwarmError::OtherTag { step: averaged.step, ours: tag, peer, theirs });
        }
        Ok(averaged)
    }

    fn mean(&self, averaged: &BufferStepReport) -> ReduceReport {
        let is_included = averaged.contributors.binary_search(&self.turns.me).is_ok();
        ReduceReport { step: averaged.step, contributors: averaged.contributors.len(), is_included }
    }
}

fn received(
    BufferStepReport { step, contributors, tags, agreed }: BufferStepReport,
) -> Result<BroadcastResult, SwarmError> {
    if let CallDecision::Broadcast(from) = agreed {
        return Ok(BroadcastResult { step, from: to_libp2p(from).to_string() });
    }
    let calls = contributors.into_iter().zip(tags);
    let sources = calls.filter(|(_, tag)| tag.call() == Some(CallKind::Broadcast));
    let sources = sources.map(|(peer, _)| to_libp2p(peer).to_string()).collect();
    Err(SwarmError::NotOneSource { step, sources })
}
