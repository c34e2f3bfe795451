//! The simulator's buffer: the real one, and beside it a count of who is in it.

use std::ops::Range;

use starling_collective::{
    Buffer, Codec, Layout, PayloadViolation, RankSet, SegmentId, SegmentViolation, SlotLayout, Workspace,
};
use starling_topology::{Rank, WorldSize};

use crate::steps::contribution::{Cell, Contributions};

/// A segment's payload: the bytes that a real driver would send, and who they came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    /// Who.
    pub made: Contributions,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A real buffer whose contributions are counted. What an operation makes of the counts proves that each rank was counted
/// once; what it makes of the numbers, that all ranks end with the same bits.
#[derive(Debug)]
pub struct Counted {
    /// The real buffer.
    pub workspace: Workspace,
    /// In the order of [`Cell::all`].
    pub cells: Vec<(Cell, Contributions)>,
    /// What the members may say of their speeds.
    pub slots: SlotLayout,
}

impl Counted {
    /// Before the operation: who brought what, in each cell of the workspace's layout.
    pub fn new(workspace: Workspace, brought: impl Fn(usize) -> Contributions) -> Self {
        let cells = Cell::all(workspace.layout()).enumerate().map(|(index, cell)| (cell, brought(index))).collect();
        Self { workspace, cells, slots: SlotLayout::default() }
    }

    /// This peer's contribution to these elements, which are a bucket's: `numbers` and `brought` are those of all.
    pub fn fill(&mut self, range: Range<usize>, numbers: &[f32], brought: &[Contributions]) {
        self.workspace.room(range.clone()).copy_from_slice(&numbers[range.clone()]);
        let layout = self.workspace.layout();
        for ((cell, made), brought) in self.cells.iter_mut().zip(brought) {
            if layout.bucket(cell.bucket).start == range.start {
                made.clone_from(brought);
            }
        }
    }

    fn cell(&mut self, segment: &SegmentId) -> &mut Contributions {
        let at = self.cells.binary_search_by_key(&Cell::from(*segment), |(cell, _)| *cell);
        &mut self.cells[at.expect("invariant: a layout's cells are all there")].1
    }
}

impl Buffer for Counted {
    type Payload = Payload;

    fn layout(&self) -> &Layout {
        self.workspace.layout()
    }

    fn codec(&self) -> Codec {
        self.workspace.codec()
    }

    fn length(payload: &Payload) -> usize {
        payload.bytes.len()
    }

    fn expect(&mut self, contributions: u32) {
        self.workspace.expect(contributions);
    }

    fn inspect(
        &self,
        segment: &SegmentId,
        payload: &Payload,
        summed: &RankSet,
        answered: Option<Rank>,
    ) -> Result<(), SegmentViolation> {
        self.workspace.inspect(segment, &payload.bytes, summed, answered)?;
        let speeds = payload.made.speeds.iter().map(|speed| *speed as f32);
        let Some((index, rank)) = self.slots.first_bad(0, speeds, summed, 1.0) else { return Ok(()) };
        let source = PayloadViolation::Slot { index, bits: payload.made.speeds[index], rank };
        Err(SegmentViolation { segment: *segment, source })
    }

    fn accumulate(&mut self, segment: &SegmentId, payload: &Payload) -> Result<(), SegmentViolation> {
        self.cell(segment).accumulate(&payload.made);
        self.workspace.accumulate(segment, &payload.bytes)
    }

    fn prepend(&mut self, segment: &SegmentId, payloads: Vec<&Payload>) -> Result<(), SegmentViolation> {
        payloads.iter().for_each(|payload| self.cell(segment).accumulate(&payload.made));
        self.workspace.prepend(segment, payloads.into_iter().map(|payload| payload.bytes.as_slice()).collect())
    }

    fn divide(&mut self, segment: &SegmentId) {
        self.cell(segment).divided += 1;
        self.workspace.divide(segment);
    }

    fn round(&mut self, segment: &SegmentId) {
        self.workspace.round(segment);
    }

    fn store(&mut self, segment: &SegmentId, payload: &Payload) -> Result<(), SegmentViolation> {
        self.cell(segment).clone_from(&payload.made);
        self.workspace.store(segment, &payload.bytes)
    }

    fn write(&mut self, segment: &SegmentId, into: &mut Payload) {
        into.made.clone_from(self.cell(segment));
        into.bytes.clear();
        self.workspace.encode(segment, &mut into.bytes);
    }

    // As the real one: what is here stays what it was.
    fn contribute(&mut self, segment: &SegmentId, payload: &mut Payload) -> Result<(), SegmentViolation> {
        payload.made.accumulate(self.cell(segment));
        self.workspace.contribute(segment, &mut payload.bytes)
    }

    fn conclude(&mut self, segment: &SegmentId, payload: &Payload) -> Result<(), SegmentViolation> {
        let cell = self.cell(segment);
        cell.accumulate(&payload.made);
        cell.divided += 1;
        self.workspace.conclude(segment, &payload.bytes)
    }

    fn check(&mut self, segment: &SegmentId, payload: &Payload) -> Result<(), SegmentViolation> {
        self.workspace.check(segment, &payload.bytes)
    }
}

/// Who would be in the result of an all-reduce, each once, if every rank brings what `brought` says.
pub fn mean(world: WorldSize, brought: impl Fn(Rank) -> Contributions) -> Contributions {
    let mut mean = Contributions { counts: vec![0; world.get() as usize], divided: 1, ..Contributions::default() };
    world.ranks().for_each(|rank| mean.accumulate(&brought(rank)));
    mean
}
