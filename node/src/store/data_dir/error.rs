//! Why something can't be had or said in a data directory.

use std::path::PathBuf;

use thiserror::Error;

use crate::error::NodeError;

/// What is wrong with a data directory, or with what was to be said there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// A file can't be used.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// No node has run here.
    #[error("no node has run in {}; start one with `starling run` or `starling join`, or pass its --data-dir", .0.display())]
    NoStatus(PathBuf),
    /// Nothing was measured here.
    #[error("no run was measured in {}; pass the data directory of a machine that trains or has trained, and a --run of it", .0.display())]
    NoMetrics(PathBuf),
    /// There is nothing to invite to.
    #[error("there is no run to invite to in {}: {reason}", dir.display())]
    NoInvitation {
        /// The data directory.
        dir: PathBuf,
        /// Why.
        reason: String,
    },
    /// The founder's key is not there.
    #[error(
        "{} is not there: only the run's founder can say who may come, and who has to go; do it in the data directory of whoever founded the run, or pass --key", .0.display()
    )]
    NoFounderKey(PathBuf),
    /// Nobody would see that a keeper has used it.
    #[error(
        "no decree lets a keeper in, so an invitation that admits one once can't be told to be used: bind it to its machine with --for PEER, which `starling id` prints there"
    )]
    KeeperOnce,
    /// It is in no view.
    #[error("a keeper never votes: --voters is for invitations of members; leave it out")]
    KeeperVotes,
    /// There is no room in the list.
    #[error("a run has room for {0} peers that are revoked")]
    TooManyRevoked(usize),
    /// It is another run's.
    #[error("{} is not the key of this run's founder", .0.display())]
    OtherFounder(PathBuf),
    /// There is nobody who could consent.
    #[error("no member of a run has its data in {}: its user says who is to have the founder's place; pass its --data-dir", .0.display())]
    NoMember(PathBuf),
    /// It can't have the founder's place.
    #[error("{key} can't have the founder's place: {reason}")]
    NotAppointed {
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
}
