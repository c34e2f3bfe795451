//! What a run must come to, computed without any of the machines.

use starling_topology::{Digest, View, ViewId, WorldSize};

use crate::contribution::{Cell, Contributions};
use crate::workload::Workload;

/// The digest of the replicated state before the first step.
pub const INITIAL: Digest = Digest([0; 32]);

/// The digest of the replicated state after a step: it chains the state before, the step, the view that committed it,
/// and the result of its reduction.
pub fn chain<'a>(
    before: Digest,
    step: u64,
    view: ViewId,
    result: impl IntoIterator<Item = (&'a Cell, &'a Contributions)>,
) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&before.0).update(&step.to_le_bytes()).update(&view.0);
    for (cell, contributions) in result {
        for word in [cell.bucket, cell.chunk.0, cell.segment, contributions.divided] {
            hasher.update(&word.to_le_bytes());
        }
        for count in &contributions.counts {
            hasher.update(&count.to_le_bytes());
        }
    }
    Digest(*hasher.finalize().as_bytes())
}

/// The digest after a step in which each member of `view` was counted exactly once.
pub fn expected(before: Digest, step: u64, view: &View, workload: &Workload) -> Digest {
    let world = view.world_size();
    let exact = exact(world);
    let layout = workload.layout(world);
    let cells: Vec<Cell> = Cell::all(&layout).collect();
    chain(before, step, view.id(), cells.iter().map(|cell| (cell, &exact)))
}

/// One contribution of each rank, divided once.
pub fn exact(world: WorldSize) -> Contributions {
    Contributions { counts: world.ranks().map(|_| 1).collect(), divided: 1 }
}
