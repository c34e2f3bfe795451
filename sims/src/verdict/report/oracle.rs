//! What a step must come to, computed from the state before it and the names of those who reduced it, without any of the
//! machines.

use starling_topology::ledger::{AssignmentTable, MAX_SPEED};

use crate::steps::contribution::gradient;
use crate::steps::state::{ResultRecord, State};

/// Whose samples count: those of the members that have the state and the data, which is those with a speed.
pub fn contributions(before: &State, record: &ResultRecord) -> AssignmentTable {
    let speeds = record.speeds();
    let ready = |at: usize| speeds.get(at).is_some_and(|speed| (1..=MAX_SPEED).contains(speed));
    let shares = before.ledger.shares().iter();
    shares.filter(|(peer, _)| record.members.binary_search(peer).is_ok_and(ready)).cloned().collect()
}

/// The sum of their gradients.
pub fn sum(before: &State, record: &ResultRecord) -> u64 {
    let contributions = contributions(before, record);
    contributions.iter().fold(0, |sum, (peer, share)| sum.wrapping_add(gradient(*peer, record.step, share)))
}
