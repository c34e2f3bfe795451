//! One operation under way: what each segment that comes does to the buffer, and what is sent when.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;

use starling_topology::Rank;

use crate::buffer::Buffer;
use crate::error::Violation;
use crate::schedule::Schedule;
use crate::segment::{OperationKey, Phase, SegmentHeader, SegmentId};
use crate::session::workspace::SegmentViolation;
use crate::session::{Input, Output, Session};
use crate::slots::RankSet;

/// Names a payload for the machine: the how manieth it was to come.
type Arrival = u64;

/// A payload that waits for its turn.
pub type OwnedPayload<B> = <<B as Buffer>::Payload as ToOwned>::Owned;

/// Whether the segment that came last can be sent on from where it lies, without a copy.
pub trait ForwardPolicy {
    /// Whether it can go on to this rank now.
    fn takes(&self, to: Rank) -> bool;

    /// Whether anything of its length may be written in its place, to be sent instead of it.
    fn gives_place(&self) -> bool;
}

/// Nothing goes on from where it lies: all is sent from the buffer.
#[derive(Debug, Clone, Copy)]
pub struct NoForwardPolicy;

impl ForwardPolicy for NoForwardPolicy {
    fn takes(&self, _: Rank) -> bool {
        false
    }

    fn gives_place(&self) -> bool {
        false
    }
}

/// The executor of a [`Session`]: an operation, its buffer, what came before its turn, and what waits to be sent.
///
/// Its driver owns links and time. It brings buckets that are [wanted](Self::wanted), hands over what comes
/// ([`Self::take`]), and sends what waits as links become free ([`Self::next_send`]): a segment is written then and not
/// before, so what waits is a name, not a payload. Sending must never keep it from receiving.
///
/// An operation that is interrupted is [finished](Self::finish) before it is done, or dropped: neither contribution nor
/// what was booked as dropped has been committed anywhere.
pub struct Execution<B: Buffer> {
    key: OperationKey,
    session: Session<Arrival>,
    buffer: B,
    /// Who contributes.
    all: RankSet,
    /// How many segments have come.
    arrived: Arrival,
    /// How many are still to come from each sender.
    due: Vec<u64>,
    /// The same of the last bucket alone.
    last_due: Vec<u64>,
    /// Payloads that the machine holds. A ring's and a tree's segments seldom or never are among them: only they are copied.
    kept: BTreeMap<Arrival, OwnedPayload<B>>,
    /// Memory for those.
    spare: Vec<OwnedPayload<B>>,
    /// What waits for each receiver.
    sends: Vec<Sends>,
    /// This bucket and all behind it have been handed over.
    handed_over: u32,
}

/// Segments that wait until a link is free.
#[derive(Debug, Clone, Default)]
struct Sends {
    /// What came and goes on, and results. First, because others wait for it, and it may still be in the cache.
    onward: VecDeque<SegmentId>,
    /// This rank's contribution and nobody else's, which begins its way here.
    own: VecDeque<SegmentId>,
}

impl<B: Buffer> Execution<B> {
    /// An operation to which nothing is brought yet, with at most `in_flight` buckets (at least one) begun and unfinished at
    /// a time, and memory that [another one](Self::finish) has left.
    ///
    /// # Panics
    /// If the buffer's layout is not cut for the schedule's plan.
    pub fn new(key: OperationKey, schedule: Schedule, buffer: B, in_flight: u32, spare: Vec<OwnedPayload<B>>) -> Self {
        let layout = buffer.layout();
        let buckets = layout.buckets();
        let due = schedule.receptions(layout, 0..buckets);
        let last_due = schedule.receptions(layout, buckets.saturating_sub(1)..buckets);
        let sends = vec![Sends::default(); schedule.receivers().len()];
        let (handed_over, all) = (buckets, RankSet::all(schedule.world_size().get()));
        let session = Session::over(schedule, layout.clone(), in_flight);
        let mut begun = Self {
            key,
            session,
            buffer,
            all,
            arrived: 0,
            due,
            last_due,
            kept: BTreeMap::new(),
            spare,
            sends,
            handed_over,
        };
        if handed_over == 0 {
            begun.bring(0);
        }
        begun
    }

    /// Which operation it is.
    pub fn key(&self) -> OperationKey {
        self.key
    }

    /// The part that this rank has in it.
    pub fn schedule(&self) -> &Schedule {
        self.session.schedule()
    }

    /// What it runs on.
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    /// What it runs on: contributions are written there before their bucket is [brought](Self::bring), and what is sent is
    /// read from there.
    pub fn buffer_mut(&mut self) -> &mut B {
        &mut self.buffer
    }

    /// The bucket to bring next; `None` if there are enough to go on with, or no more.
    pub fn wanted(&self) -> Option<u32> {
        self.session.wanted()
    }

    /// Brings the buckets that are [wanted](Self::wanted), as far as contributions to `ready` and to all behind it are there:
    /// `fill` writes them. Says whether all have been brought.
    pub fn bring_wanted(&mut self, ready: u32, mut fill: impl FnMut(&mut B, Range<usize>)) -> bool {
        while let Some(bucket) = self.wanted().filter(|bucket| *bucket >= ready) {
            let range = self.session.layout().bucket(bucket);
            fill(&mut self.buffer, range);
            self.bring(bucket);
        }
        self.session.has_all()
    }

    /// The contribution to `bucket` and to all behind it is in the buffer: queues what can be sent at once.
    pub fn bring(&mut self, bucket: u32) {
        self.session.handle(Input::Ready { from: bucket }).expect("invariant: nobody violates anything by beginning");
        self.execute(None, &NoForwardPolicy).expect("invariant: what was kept has been checked");
    }

    /// As [`Session::missing`].
    pub fn missing(&self) -> Option<(u64, BTreeSet<Rank>)> {
        self.session.missing()
    }

    /// How many segments are still to come from each of the schedule's [senders](Schedule::senders), in their order. What
    /// comes after them belongs to the next operation.
    pub fn due(&self) -> &[u64] {
        &self.due
    }

    /// The same of the last bucket, for a driver that goes by what is in it, and may do something else than the rest of this
    /// operation then.
    pub fn last_due(&self) -> &[u64] {
        &self.last_due
    }

    /// Takes in the segment that came last, from rank `from`. If something is to be sent on from where it lies, as `onward`
    /// allows, it lies there now, and the answer is to whom, and as what.
    ///
    /// # Errors
    /// What is wrong with it. The sender is at fault, and the operation must end.
    pub fn take(
        &mut self,
        from: Rank,
        header: &[u8; SegmentHeader::BYTES],
        payload: &mut B::Payload,
        onward: &impl ForwardPolicy,
    ) -> Result<Option<(Rank, SegmentHeader)>, Violation> {
        let segment = self.admit(from, header, B::length(payload))?;
        if let Ok(position) = self.session.schedule().senders().binary_search(&from) {
            self.due[position] -= 1;
            if segment.bucket + 1 == self.session.layout().buckets() {
                self.last_due[position] -= 1;
            }
        }
        let schedule = self.session.schedule();
        let is_answer = segment.phase == Phase::AllGather && schedule.is_answered(segment.chunk);
        let answered = is_answer.then_some(schedule.rank());
        self.buffer.inspect(&segment, payload, self.summed(from, segment), answered)?;
        let goes_on = self.execute(Some((from, segment, payload)), onward)?;
        Ok(goes_on.map(|(to, segment)| (to, self.header(segment))))
    }

    /// The segment to send next to the schedule's receiver at `position`: to be [written](Buffer::write) before anything else
    /// is taken or brought.
    pub fn next_send(&mut self, position: usize) -> Option<SegmentHeader> {
        let next = self.sends.get_mut(position)?.pop()?;
        Some(self.header(next))
    }

    /// Whether something waits for the receiver at `position`.
    pub fn has_sends(&self, position: usize) -> bool {
        self.sends.get(position).is_some_and(|sends| !sends.is_empty())
    }

    /// Whether the buffer holds the whole result. Others may still need what waits to be sent.
    pub fn is_done(&self) -> bool {
        self.session.is_done()
    }

    /// Whether the buffer holds this bucket's result.
    pub fn has_done(&self, bucket: u32) -> bool {
        self.session.has_done(bucket)
    }

    /// Hands over the elements that are reduced, bucket by bucket from the last to the second one: until `take` refuses some,
    /// for which it is asked again. With the first bucket, the operation is done.
    pub fn hand_over(&mut self, take: impl Fn(&B, Range<usize>) -> bool) {
        while let Some(bucket @ 1..) = self.handed_over.checked_sub(1)
            && self.session.has_done(bucket)
            && take(&self.buffer, self.session.layout().bucket(bucket))
        {
            self.handed_over = bucket;
        }
    }

    /// The buffer, and memory for the next operation.
    pub fn finish(mut self) -> (B, Vec<OwnedPayload<B>>) {
        self.spare.extend(std::mem::take(&mut self.kept).into_values());
        (self.buffer, self.spare)
    }

    fn header(&self, segment: SegmentId) -> SegmentHeader {
        let header = SegmentHeader::encoded(self.key, segment, self.session.layout(), self.buffer.codec());
        header.expect("invariant: machines name segments of their layout")
    }

    /// Whose contributions are in a segment that comes from there.
    fn summed(&self, from: Rank, segment: SegmentId) -> &RankSet {
        let sum = match segment.phase {
            Phase::ReduceScatter => self.session.schedule().contributions(segment.chunk, from),
            Phase::AllGather => None,
        };
        sum.unwrap_or(&self.all)
    }

    /// Checks a segment and hands it to the machine, whose outputs then use its payload. Returns its name.
    fn admit(&mut self, from: Rank, header: &[u8; SegmentHeader::BYTES], came: usize) -> Result<SegmentId, Violation> {
        let header = SegmentHeader::from_bytes(header)?;
        let SegmentHeader { segment, payload_bytes: declared, operation, .. } = header;
        if operation != self.key {
            return Err(Violation::OtherOperation { operation });
        }
        header.range_in(self.session.layout(), self.buffer.codec())?;
        if declared as usize != came {
            return Err(Violation::Incomplete { segment, declared, came });
        }
        self.arrived += 1;
        self.session.handle(Input::Received { from, segment, payload: self.arrived })?;
        Ok(segment)
    }

    /// Does to the buffer what the machine asks. `came` is the segment that came last. If the machine has no use for it yet,
    /// it is copied, and used when its turn comes.
    ///
    /// What that segment becomes, by adding this rank's share or by making it the result, is written in its place if the
    /// links allow it, and the answer is what to send from there, and to whom: it is still in the cache then.
    fn execute(
        &mut self,
        came: Option<(Rank, SegmentId, &mut B::Payload)>,
        onward: &impl ForwardPolicy,
    ) -> Result<Option<(Rank, SegmentId)>, SegmentViolation> {
        // Of the segment that came it is known how many contributions it has. What waited was looked at when it came.
        let all = self.all.count();
        let sum = came.as_ref().map_or(all, |(from, segment, _)| self.summed(*from, *segment).count());
        let Self { session, buffer, arrived, kept, spare, sends, .. } = self;
        let current = came.as_ref().map(|_| *arrived);
        let mut came = came.map(|(_, segment, payload)| (segment, payload));
        let (mut is_used, mut passed_on) = (false, None);
        let mut next = session.poll();
        while let Some(output) = next {
            next = session.poll();
            let goes_on = |segment: SegmentId| match next {
                Some(Output::Send { to, segment: sent }) if sent == segment && onward.takes(to) => Some((to, segment)),
                _ => None,
            };
            match output {
                Output::Send { to, segment } => match &mut came {
                    Some((came, payload))
                        if is_used
                            && passed_on.is_none()
                            && onward.gives_place()
                            && segment.is_beside(came)
                            && onward.takes(to) =>
                    {
                        buffer.write(&segment, payload);
                        passed_on = Some((to, segment));
                    }
                    _ => push(sends, session.schedule(), to, segment),
                },
                Output::Accumulate { segment, payload: number } => match &mut came {
                    Some((_, payload)) if Some(number) == current => {
                        is_used = true;
                        buffer.expect(sum);
                        passed_on = goes_on(segment);
                        let is_last = matches!(next, Some(Output::Divide { segment: sum }) if sum == segment);
                        match passed_on {
                            Some(_) => buffer.contribute(&segment, payload)?,
                            None if is_last => buffer.conclude(&segment, payload)?,
                            None => buffer.accumulate(&segment, payload)?,
                        }
                        if passed_on.is_some() || is_last {
                            next = session.poll();
                        }
                    }
                    _ => {
                        let waited = kept.remove(&number).expect("invariant: what the machine holds was kept");
                        buffer.expect(all);
                        buffer.accumulate(&segment, waited.borrow())?;
                        spare.push(waited);
                    }
                },
                Output::Prepend { segment, payloads } => {
                    let is_even = session.schedule().is_even(segment.chunk);
                    buffer.expect(if is_even { sum } else { all });
                    if let (Some(current), Some((_, payload))) = (current, &came)
                        && payloads.contains(&current)
                    {
                        is_used = true;
                        if !is_even {
                            buffer.expect(sum);
                            buffer.check(&segment, payload)?;
                            buffer.expect(all);
                        }
                    }
                    let waited = |number: &Arrival| match &came {
                        Some((_, payload)) if Some(*number) == current => &**payload,
                        _ => kept[number].borrow(),
                    };
                    buffer.prepend(&segment, payloads.iter().map(waited).collect())?;
                    spare.extend(payloads.iter().filter_map(|number| kept.remove(number)));
                }
                Output::Store { segment, .. } => {
                    let (_, payload) = came.as_mut().expect("invariant: results are used as they come");
                    is_used = true;
                    buffer.store(&segment, payload)?;
                    passed_on = goes_on(segment);
                    if passed_on.is_some() {
                        next = session.poll();
                    }
                }
                Output::Divide { segment } => buffer.divide(&segment),
                Output::Round { segment } => buffer.round(&segment),
                Output::BucketDone(_) | Output::Done => {}
            }
        }
        if let (Some(current), Some((segment, payload)), false) = (current, came, is_used) {
            // Now, because once it is used nobody knows whose it was.
            buffer.expect(sum);
            buffer.check(&segment, payload)?;
            let mut copy = spare.pop().unwrap_or_default();
            (*payload).clone_into(&mut copy);
            kept.insert(current, copy);
        }
        Ok(passed_on)
    }
}

/// Queues a segment; those that begin here let others pass.
fn push(sends: &mut [Sends], schedule: &Schedule, to: Rank, segment: SegmentId) {
    let position = schedule.receivers().binary_search(&to).expect("invariant: machines send to their receivers");
    let begins = segment.phase == Phase::ReduceScatter && schedule.begins(segment.chunk);
    let Sends { onward, own } = &mut sends[position];
    if begins { own.push_back(segment) } else { onward.push_back(segment) }
}

impl Sends {
    fn is_empty(&self) -> bool {
        self.onward.is_empty() && self.own.is_empty()
    }

    fn pop(&mut self) -> Option<SegmentId> {
        self.onward.pop_front().or_else(|| self.own.pop_front())
    }
}

impl<B: Buffer> fmt::Debug for Execution<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("key", &self.key).field("due", &self.due).finish_non_exhaustive()
    }
}
