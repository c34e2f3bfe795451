//! Why a swarm can't do what it was asked.

use starling_collective::codec::kernel;
use starling_run::CallHeader;
use thiserror::Error;

use crate::error::NodeError;

/// What can go wrong with a [`Swarm`](super::Swarm).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SwarmError {
    /// A buffer has another length than the run's.
    #[error("the run reduces buffers of {theirs} numbers, this one has {ours}")]
    OtherLength {
        /// Of the buffer here.
        ours: usize,
        /// Of the run's.
        theirs: u64,
    },
    /// Members brought buffers that mean different things, or called different operations.
    #[error(
        "step {step} brought different buffers together: this member's has {ours}, that of {peer} has {theirs}, so nothing was averaged; all members must call the same operations on the same buffers in the same order"
    )]
    OtherTag {
        /// The step.
        step: u64,
        /// What this member's buffer means.
        ours: CallHeader,
        /// A member that brought another.
        peer: String,
        /// What that one means.
        theirs: CallHeader,
    },
    /// Nobody has broadcast what members wait for, or several have.
    #[error(
        "step {step} was a broadcast {}; one member must call `broadcast`, and all others `receive`",
        if sources.is_empty() { "by nobody: whoever was to has left, or has just joined".to_owned() }
        else { format!("by {}", sources.join(" and ")) }
    )]
    NotOneSource {
        /// The step.
        step: u64,
        /// The members that have.
        sources: Vec<String>,
    },
    /// Parts are not what they were when they were handed out.
    #[error(
        "the members have changed since their parts were reduced, so step {step} gathered nothing; reduce and scatter again"
    )]
    OtherMembers {
        /// The step.
        step: u64,
    },
    /// A buffer has a number that is none, or so large that others would refuse it.
    #[error("number {at} of the buffer is {value}; the run takes finite numbers up to {most:e}")]
    TooLarge {
        /// Its index.
        at: usize,
        /// The number.
        value: f32,
        /// The largest that it may be.
        most: f32,
    },
    /// The others had lost this member, went on, and it has caught up with them.
    #[error(
        "the others went on without this member, which now stands after step {step}, as they do; take what `newest` returns, and call again"
    )]
    Behind {
        /// The last step that was taken.
        step: u64,
    },
    /// We wanted to leave and nobody answered.
    #[error("left after step {step} without a decision of the others, who will take this member for lost")]
    LeftAlone {
        /// The last step that was taken here.
        step: u64,
    },
    /// The node came to an end.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The node had come to an end before.
    #[error("this swarm is at its end; join again")]
    Over,
}

/// Checks that all numbers are finite, and none is larger than `most`.
pub(super) fn check_numbers(values: &[f32], most: f32) -> Result<(), SwarmError> {
    if kernel::magnitude(values) <= most {
        return Ok(());
    }
    let is_none = |value: &f32| value.is_nan() || value.abs() > most;
    let at = values.iter().position(is_none).unwrap_or_default();
    Err(SwarmError::TooLarge { at, value: values[at], most })
}
