//! One operation under way: what each segment that comes does to the buffer.

use std::collections::BTreeMap;

use starling_collective::{
    BadSegment, Dropped, Input, OperationKey, Output, Schedule, SegmentHeader, SegmentId, Session, Workspace,
};
use starling_topology::Rank;

use super::link::Kind;
use super::links::{In, Outward};

/// Names a payload for the machine: the how manieth it was to come.
type Arrival = u64;

/// An operation, its buffer, and what came before its turn.
pub(super) struct Work {
    key: OperationKey,
    session: Session<Arrival>,
    pub(super) workspace: Workspace,
    /// How many segments have come.
    arrived: Arrival,
    /// Payloads that the machine holds. A ring's and a tree's segments seldom or never are among them: only they are copied.
    held: BTreeMap<Arrival, Vec<u8>>,
    /// Memory for those.
    spare: Vec<Vec<u8>>,
    /// This bucket and all behind it have been handed over.
    handed_over: u32,
}

impl Work {
    /// An operation to which nothing is brought yet.
    pub(super) fn new(
        key: OperationKey,
        schedule: Schedule,
        workspace: Workspace,
        in_flight: u32,
        spare: Vec<Vec<u8>>,
    ) -> Self {
        let session = Session::over(schedule, workspace.layout().clone(), in_flight);
        let handed_over = workspace.layout().buckets();
        Self { key, session, workspace, arrived: 0, held: BTreeMap::new(), spare, handed_over }
    }

    /// The bucket to bring next; `None` if there are enough to go on with, or no more.
    pub(super) fn wanted(&self) -> Option<u32> {
        self.session.wanted()
    }

    /// The bucket that was [wanted](Self::wanted) is in the buffer: queues what can be sent at once.
    pub(super) fn bring(&mut self, bucket: u32, outward: &mut Outward) {
        self.session.handle(Input::Ready { from: bucket }).expect("invariant: nobody violates anything by beginning");
        self.execute(&mut [], None, outward).expect("invariant: what was held has been checked");
    }

    /// Hands over the buckets that are reduced, from the last one to the second one, each with where it begins: until `take`
    /// refuses one, which is asked again. With the first bucket, the operation is done.
    pub(super) fn hand_over(&mut self, take: impl Fn(usize, &[f32]) -> bool) {
        while let Some(bucket @ 1..) = self.handed_over.checked_sub(1)
            && self.session.has_done(bucket)
        {
            let range = self.workspace.layout().bucket(bucket);
            if !take(range.start, &self.workspace.values()[range]) {
                return;
            }
            self.handed_over = bucket;
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.session.is_done()
    }

    /// Whether the result is finite, as far as this member can tell once the operation is done.
    pub(super) fn is_finite(&self) -> bool {
        self.workspace.is_finite()
    }

    /// The buffer, what was dropped, and memory for the next operation.
    pub(super) fn finish(mut self) -> (Vec<f32>, Option<Dropped>, Vec<Vec<u8>>) {
        self.spare.extend(std::mem::take(&mut self.held).into_values());
        let (buffer, dropped) = self.workspace.finish();
        (buffer, dropped, self.spare)
    }

    /// Takes in the segment that came last over the link `from`.
    ///
    /// # Errors
    /// What is wrong with it. The operation must end then.
    pub(super) fn take(&mut self, from: &mut In, outward: &mut Outward) -> Result<(), String> {
        let kind = from.link.kind();
        let (header, payload) = from.link.segment();
        let segment = self.admit(from.rank, header, payload.len())?;
        let next = self.execute(payload, Some((segment, kind)), outward).map_err(|bad| bad.to_string())?;
        if self.held.contains_key(&self.arrived) {
            // Here, because once it is used nobody knows whose it was.
            self.workspace.check(&segment, payload).map_err(|bad| bad.to_string())?;
        }
        if let Some((to, segment)) = next {
            outward.pass_on(to, &self.workspace.header(self.key, segment), &mut from.link);
        }
        Ok(())
    }

    /// Checks a segment and hands it to the machine, whose outputs then use its payload. Returns its name.
    fn admit(
        &mut self,
        from: Rank,
        header: &[u8; SegmentHeader::BYTES],
        payload_bytes: usize,
    ) -> Result<SegmentId, String> {
        let header = SegmentHeader::from_bytes(header).map_err(|violation| violation.to_string())?;
        if header.operation != self.key {
            return Err(format!("sent a segment of step {}", header.operation.step));
        }
        let range = header.range_in(self.session.layout(), self.workspace.codec());
        range.map_err(|violation| violation.to_string())?;
        if header.payload_bytes as usize != payload_bytes {
            let SegmentHeader { segment, payload_bytes: declared, .. } = header;
            return Err(format!("declared {declared} payload bytes for {segment}, and sent {payload_bytes}"));
        }
        self.arrived += 1;
        let input = Input::Received { from, segment: header.segment, payload: self.arrived };
        self.session.handle(input).map_err(|violation| violation.to_string())?;
        Ok(header.segment)
    }

    /// Does to the buffer what the machine asks. `payload` is that of the segment that came last, by the name and over the
    /// kind of link in `came`. If the machine has no use for it yet, it is copied, and used when its turn comes.
    ///
    /// What that segment becomes, by adding this member's share or by making it the result, is written in its place if the
    /// links allow it, and the answer is what to send from there, and to whom: it is still in the cache then.
    fn execute(
        &mut self,
        payload: &mut [u8],
        came: Option<(SegmentId, Kind)>,
        outward: &mut Outward,
    ) -> Result<Option<(Rank, SegmentId)>, BadSegment> {
        let Self { session, workspace, arrived, held, spare, .. } = self;
        let current = came.map(|_| *arrived);
        let (mut is_used, mut passed_on) = (false, None);
        let mut next = session.poll();
        while let Some(output) = next {
            next = session.poll();
            let goes_on = |segment: SegmentId| match next {
                Some(Output::Send { to, segment: sent }) if sent == segment => {
                    came.filter(|(_, kind)| outward.can_pass_on(to, *kind)).map(|_| (to, segment))
                }
                _ => None,
            };
            match output {
                Output::Send { to, segment } => {
                    let in_place = |(came, kind): (SegmentId, Kind)| {
                        kind.gives_buffers() && segment.is_beside(&came) && outward.can_pass_on(to, kind)
                    };
                    if is_used && passed_on.is_none() && came.is_some_and(in_place) {
                        workspace.write(&segment, payload);
                        passed_on = Some((to, segment));
                    } else {
                        outward.push(to, segment, begins(session, &segment));
                    }
                }
                Output::Accumulate { segment, payload: number } if Some(number) == current => {
                    is_used = true;
                    passed_on = goes_on(segment);
                    let is_last = matches!(next, Some(Output::Divide { segment: sum }) if sum == segment);
                    match passed_on {
                        Some(_) => workspace.contribute(&segment, payload)?,
                        None if is_last => workspace.conclude(&segment, payload)?,
                        None => workspace.accumulate(&segment, payload)?,
                    }
                    if passed_on.is_some() || is_last {
                        next = session.poll();
                    }
                }
                Output::Accumulate { segment, payload: number } => {
                    let waited = taken(held, number);
                    workspace.accumulate(&segment, &waited)?;
                    spare.push(waited);
                }
                Output::Prepend { segment, payloads } => {
                    is_used |= current.is_some_and(|current| payloads.contains(&current));
                    let waited =
                        |number: &Arrival| if Some(*number) == current { &*payload } else { held[number].as_slice() };
                    workspace.prepend(&segment, payloads.iter().map(waited).collect())?;
                    spare.extend(payloads.iter().filter_map(|number| held.remove(number)));
                }
                // Results are never held.
                Output::Store { segment, .. } => {
                    is_used = true;
                    workspace.store(&segment, payload)?;
                    passed_on = goes_on(segment);
                    if passed_on.is_some() {
                        next = session.poll();
                    }
                }
                Output::Divide { segment } => workspace.divide(&segment),
                Output::Round { segment } => workspace.round(&segment),
                Output::BucketDone(_) | Output::Done => {}
            }
        }
        if let Some(current) = current.filter(|_| !is_used) {
            let mut copy = spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(payload);
            held.insert(current, copy);
        }
        Ok(passed_on)
    }
}

/// Whether a segment that is sent is this member's contribution and nobody else's.
fn begins(session: &Session<Arrival>, segment: &SegmentId) -> bool {
    segment.phase == starling_collective::Phase::ReduceScatter && session.schedule().begins(segment.chunk)
}

fn taken(held: &mut BTreeMap<Arrival, Vec<u8>>, number: Arrival) -> Vec<u8> {
    held.remove(&number).expect("invariant: what the machine holds was kept")
}
