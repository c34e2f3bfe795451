//! How a machine comes back, and for what it waits until it has.

use serde::{Deserialize, Serialize};

/// How a machine comes back to a run that it took part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReturnKind {
    /// Members still train: it joins them.
    Join,
    /// It comes back to its place in a view with others, who were gone when it last ran, or are.
    Seat,
    /// Nobody else was in its view when it ended: it goes on by itself, and nothing is forked.
    Alone,
    /// It goes on alone although others may, as a fork.
    Fork,
    /// It asks others to let it in again, who were members when it was last there.
    Ask,
    /// It waits for members that stayed when it left.
    Wait,
    /// The run is complete, and it stays until others that are there have its last state.
    Serve,
}

/// What a peer waits for that is in no view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// That a member lets it in.
    Admission,
    /// That one comes back of those who stayed when it left, and lets it in.
    Return,
    /// That they fetch the last state of the run from it.
    Download,
}
