//! The machine for one bucket, whatever the plan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use starling_topology::Rank;

use crate::error::Violation;
use crate::schedule::{Role, Schedule};
use crate::segment::layout::Layout;
use crate::segment::{Phase, SegmentId};
use crate::session::Output;

/// One rank's part in one bucket: what each arriving segment leads to, and when all is done.
///
/// It is dataflow per segment: how many sums have been added to it, and whether its result has come. Sums that come
/// before their turn are held, so that they are added in the same order however they arrive.
#[derive(Debug)]
pub(crate) struct Reduction<P> {
    bucket: u32,
    /// Whether the own contribution is in the buffer. Until then, what is to be added to it is held.
    at_hand: bool,
    started: bool,
    /// Segments still to come, over both phases.
    expected: u64,
    chunks: Vec<Chunk>,
    /// By chunk, segment and position in the order.
    held: BTreeMap<(u32, u32, usize), P>,
}

/// The segments of one chunk.
#[derive(Debug, Clone)]
struct Chunk {
    /// How many of the order have been added; the own contribution counts once something follows it.
    added: Vec<u16>,
    stored: Vec<bool>,
}

impl<P> Reduction<P> {
    pub(crate) fn new(layout: &Layout, schedule: &Schedule, bucket: u32) -> Self {
        let mut expected = 0;
        let chunk = |(chunk, role): (u32, &Role)| {
            let segments = layout.segments(bucket, Rank(chunk));
            expected += role.receptions() * u64::from(segments);
            Chunk { added: vec![0; segments as usize], stored: vec![false; segments as usize] }
        };
        let chunks = (0..).zip(schedule.roles()).map(chunk).collect();
        Self { bucket, at_hand: false, started: false, expected, chunks, held: BTreeMap::new() }
    }

    /// The own contribution is in the buffer: what was held is added, as far as its turn has come.
    pub(crate) fn bring(&mut self, schedule: &Schedule, outputs: &mut VecDeque<Output<P>>) {
        if std::mem::replace(&mut self.at_hand, true) {
            return;
        }
        let mut segments: Vec<(u32, u32)> = self.held.keys().map(|(chunk, index, _)| (*chunk, *index)).collect();
        segments.dedup();
        for (chunk, index) in segments {
            let segment = self.id(Phase::ReduceScatter, chunk as usize, index as usize);
            self.add_held(&schedule.roles()[chunk as usize], segment, outputs);
        }
    }

    /// Whether this rank has sent all it has to send and received all it will receive.
    pub(crate) fn is_done(&self) -> bool {
        self.started && self.expected == 0
    }

    /// The first place in the bucket's order of which something has not come, and from whom it has not: sums in the order of
    /// how many contributions they hold, then results in that of how many links they come over. What comes at one place rests
    /// on places before it alone.
    pub(crate) fn missing(&self, schedule: &Schedule) -> Option<(u32, BTreeSet<Rank>)> {
        let mut missing: BTreeMap<u32, BTreeSet<Rank>> = BTreeMap::new();
        for ((index, chunk), role) in (0..).zip(&self.chunks).zip(schedule.roles()) {
            for segment in 0..chunk.added.len() {
                let at = |position| (index, u32::try_from(segment).unwrap_or(u32::MAX), position);
                let to_come = (usize::from(chunk.added[segment])..role.order.len())
                    .filter(|position| *position != role.own && !self.held.contains_key(&at(*position)));
                for position in to_come {
                    missing.entry(role.sums[position].count()).or_default().insert(role.order[position]);
                }
                if let Some(from) = role.from.filter(|_| !chunk.stored[segment]) {
                    let place = schedule.world_size().get().saturating_add(role.depth);
                    missing.entry(place).or_default().insert(from);
                }
            }
        }
        missing.pop_first()
    }

    /// Sends what needs nothing from others, once the own contribution is at hand: segment by segment, each rank beginning
    /// behind its own chunk, so that not all begin with the same receiver.
    pub(crate) fn start(&mut self, schedule: &Schedule, outputs: &mut VecDeque<Output<P>>) {
        if self.started {
            return;
        }
        self.started = true;
        let count = self.chunks.len();
        let longest = self.chunks.iter().map(|chunk| chunk.added.len()).max().unwrap_or_default();
        for segment in 0..longest {
            for chunk in (0..count).map(|offset| (schedule.rank().0 as usize + offset) % count) {
                let role = &schedule.roles()[chunk];
                if segment >= self.chunks[chunk].added.len() {
                    continue;
                }
                let id = self.id(Phase::ReduceScatter, chunk, segment);
                if role.order.len() == 1 {
                    complete(role, id, outputs);
                } else if role.order.is_empty() && role.from.is_none() {
                    publish(role, id, outputs);
                }
            }
        }
    }

    /// Takes in a segment from another rank.
    pub(crate) fn receive(
        &mut self,
        layout: &Layout,
        schedule: &Schedule,
        from: Rank,
        segment: SegmentId,
        payload: P,
        outputs: &mut VecDeque<Output<P>>,
    ) -> Result<(), Violation> {
        if layout.range(&segment).is_none() {
            return Err(Violation::OutOfBounds { segment });
        }
        let (rank, role) = (schedule.rank(), &schedule.roles()[segment.chunk.0 as usize]);
        match segment.phase {
            Phase::ReduceScatter => self.add(rank, role, from, segment, payload, outputs)?,
            Phase::AllGather => self.store(rank, role, from, segment, payload, outputs)?,
        }
        self.expected -= 1;
        Ok(())
    }

    fn add(
        &mut self,
        rank: Rank,
        role: &Role,
        from: Rank,
        segment: SegmentId,
        payload: P,
        outputs: &mut VecDeque<Output<P>>,
    ) -> Result<(), Violation> {
        if role.order.len() < 2 {
            return Err(Violation::Impossible { rank, segment });
        }
        let position = role.order.binary_search(&from).ok().filter(|position| *position != role.own);
        let position = position.ok_or(Violation::WrongSender { from, rank, segment })?;
        let at = (segment.chunk.0, segment.segment, position);
        let added = self.chunks[at.0 as usize].added[at.1 as usize];
        if position < usize::from(added) || self.held.contains_key(&at) {
            return Err(Violation::Duplicate { rank, segment });
        }
        self.held.insert(at, payload);
        if self.at_hand {
            self.add_held(role, segment, outputs);
        }
        Ok(())
    }

    /// Adds what is held of `segment`, as far as its turn has come. Where only one other contributes, that is always now, so
    /// a ring whose contribution is at hand holds nothing.
    fn add_held(&mut self, role: &Role, segment: SegmentId, outputs: &mut VecDeque<Output<P>>) {
        let (chunk, index) = (segment.chunk.0, segment.segment);
        let added = &mut self.chunks[chunk as usize].added[index as usize];
        let held = &mut self.held;
        let mut turn = usize::from(*added);
        let is_held = |position: usize| held.contains_key(&(chunk, index, position));
        let ready = if role.own == 0 { is_held(1) } else { (0..role.own).all(is_held) };
        if turn == 0 && ready {
            // What comes before the own contribution is added up first, as a sum of its own.
            round(role, segment, outputs);
            let mut payloads: Vec<P> =
                (0..role.own).filter_map(|position| held.remove(&(chunk, index, position))).collect();
            if payloads.len() > 1 {
                outputs.push_back(Output::Prepend { segment, payloads });
            } else if let Some(payload) = payloads.pop() {
                outputs.push_back(Output::Accumulate { segment, payload });
            }
            turn = role.own + 1;
        }
        while turn > 0
            && let Some(payload) = held.remove(&(chunk, index, turn))
        {
            outputs.push_back(Output::Accumulate { segment, payload });
            turn += 1;
        }
        *added = u16::try_from(turn).expect("invariant: a world has fewer than 2^16 ranks");
        if turn == role.order.len() {
            complete(role, segment, outputs);
        }
    }

    fn store(
        &mut self,
        rank: Rank,
        role: &Role,
        from: Rank,
        segment: SegmentId,
        payload: P,
        outputs: &mut VecDeque<Output<P>>,
    ) -> Result<(), Violation> {
        let expected = role.from.ok_or(Violation::Impossible { rank, segment })?;
        if from != expected {
            return Err(Violation::WrongSender { from, rank, segment });
        }
        let chunk = &mut self.chunks[segment.chunk.0 as usize];
        let contributed = match role.order.len() {
            0 => true,
            1 => self.started,
            others => usize::from(chunk.added[segment.segment as usize]) == others,
        };
        if !contributed {
            return Err(Violation::Premature { rank, segment });
        }
        let stored = &mut chunk.stored[segment.segment as usize];
        if std::mem::replace(stored, true) {
            return Err(Violation::Duplicate { rank, segment });
        }
        outputs.push_back(Output::Store { segment, payload });
        outputs.extend(role.down.iter().map(|to| Output::Send { to: *to, segment }));
        Ok(())
    }

    fn id(&self, phase: Phase, chunk: usize, segment: usize) -> SegmentId {
        let index = |index: usize| u32::try_from(index).expect("invariant: chunks and segments are counted by u32");
        SegmentId { bucket: self.bucket, phase, chunk: Rank(index(chunk)), segment: index(segment) }
    }
}

/// Before anything is added to it, the own contribution becomes what the others would read of it.
fn round<P>(role: &Role, segment: SegmentId, outputs: &mut VecDeque<Output<P>>) {
    if role.rounds {
        outputs.push_back(Output::Round { segment });
    }
}

/// The buffer holds all sums that this rank adds: it goes on, or it is the result.
fn complete<P>(role: &Role, segment: SegmentId, outputs: &mut VecDeque<Output<P>>) {
    if let Some(to) = role.up {
        outputs.push_back(Output::Send { to, segment });
    } else {
        outputs.push_back(Output::Divide { segment });
        publish(role, segment, outputs);
    }
}

/// The buffer holds the result: it goes to the others, and its owner keeps what they will read.
fn publish<P>(role: &Role, segment: SegmentId, outputs: &mut VecDeque<Output<P>>) {
    let segment = SegmentId { phase: Phase::AllGather, ..segment };
    if !role.down.is_empty() {
        outputs.push_back(Output::Round { segment });
    }
    outputs.extend(role.down.iter().map(|to| Output::Send { to: *to, segment }));
}
