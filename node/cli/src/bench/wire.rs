//! What a benchmark and its members say to each other: one JSON object per line over the members' stdin and stdout.

use serde::{Deserialize, Serialize};
use starling::Transport;
use starling_node::reducer::bench::{MemberContact, ReductionSpec};

/// What a member is to do, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) reduction: ReductionSpec,
    pub(super) seed: u64,
    /// This member's place among those that draw values.
    pub(super) index: u32,
    pub(super) peers: u32,
}

/// From the benchmark to a member. Each is answered once, but for [`Self::End`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Ask {
    Setup(Setup),
    Link(Vec<MemberContact>),
    /// Draw the values of this round.
    Prepare(u64),
    /// Reduce them, all members at once.
    Reduce,
    /// Look at the result, once all have it: whoever does so earlier takes the processor from those who reduce. With `sums`, compare
    /// it with the sum that it must be.
    Check {
        sums: bool,
    },
    End,
}

/// From a member to the benchmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    Listening(MemberContact),
    Linked { plan: String, transport: Transport },
    Prepared,
    Reduced(Reduced),
    Checked(Checked),
}

/// How long one round took one member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Reduced {
    pub(super) seconds: f64,
    /// Processor time of the whole process meanwhile.
    pub(super) cpu_seconds: f64,
}

/// What one round came to at one member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Checked {
    /// blake3 of the result.
    pub(super) digest: String,
    /// The first element that is not what it must be: the sum, as nearly as the codec tells it.
    pub(super) wrong: Option<usize>,
}
