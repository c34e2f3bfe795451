//! Why a benchmark has no result.

use std::io;

use starling::SwarmError;
use starling_node::reducer::bench::LinkError;
use thiserror::Error;

/// What goes wrong with a benchmark.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The operating system refused.
    #[error("the benchmark can't {what}: {source}")]
    Io {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The benchmark and its members misunderstand each other.
    #[error("the benchmark and its members misunderstand each other ({0}); this is a bug in starling")]
    Talk(String),
    /// A member can't reduce.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A member ended early; its own error went to stderr.
    #[error("member {0} of the benchmark ended early")]
    Member(usize),
    /// A member that trains has failed.
    #[error("member {member} of the benchmark: {error}")]
    Failed {
        /// Which.
        member: usize,
        /// Why, as it says.
        error: String,
    },
    /// A member does not answer.
    #[error("member {member} of the benchmark did not answer within {seconds} s")]
    Silent {
        /// Which.
        member: usize,
        /// The limit.
        seconds: u64,
    },
    /// The swarm of a benchmark between machines fails.
    #[error(transparent)]
    Swarm(#[from] SwarmError),
    /// The result is not the sum.
    #[error("member {member} got a wrong sum in round {round}: {what}; do not trust this machine or this release")]
    Wrong {
        /// Which.
        member: usize,
        /// When.
        round: u64,
        /// What.
        what: String,
    },
}

impl BenchError {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
