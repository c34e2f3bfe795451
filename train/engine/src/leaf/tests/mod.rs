//! A carrier and leaves, without links: what is given, what counts, and what becomes of whoever does what it should not.

mod carrier;
mod hostile;
mod leaf;

use std::ops::Range;

use starling_topology::{Lineage, PeerId, RunId};

use crate::steps::StepResult;

const STALL: std::time::Duration = std::time::Duration::from_secs(16);
const RUN: RunId = RunId([1; 32]);
/// Numbers of a gradient.
const ELEMENTS: u64 = 3;

/// One range, as a list.
fn one(range: Range<u32>) -> Vec<Range<u32>> {
    std::iter::once(range).collect()
}

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// The result of a step, and nothing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Of {
    step: u64,
    lineage: Lineage,
    after: Lineage,
}

impl StepResult for Of {
    fn step(&self) -> u64 {
        self.step
    }

    fn lineage(&self) -> Lineage {
        self.lineage
    }

    fn after(&self) -> Lineage {
        self.after
    }

    fn bytes(&self) -> usize {
        1 << 20
    }

    fn is_from_all(&self) -> bool {
        true
    }
}
