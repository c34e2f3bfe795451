//! Hands out what is cut into chunks while the members go on with their steps: the replicated state ([`state`]) and the files
//! of the data set and of given initial values ([`data`]) to joiners, and saved checkpoints ([`checkpoint`]) to whoever keeps them.
//!
//! ```text
//!   joiner                                     each donor (one stream, one question at a time)
//!      | -- the state after step S? ------------>  |
//!      | <-- its manifest: a hash for each chunk   |   or: later; or: not here
//!      | -- this chunk of that snapshot? ------->  |   the manifest that most donors name
//!      | <----------------------------- its bytes  |   checked against the hash on arrival
//! ```
//!
//! Chunks are asked for from all donors at once, so a fast one hands out more of them. What a donor fails to hand out in
//! time is asked for elsewhere; what has arrived is never asked for again. What the run is, which checkpoint is the newest
//! stable one, who is in a view, and what leads there, can be asked too ([`questions`]).

pub(crate) mod bulk;
pub(crate) mod checkpoint;
pub(crate) mod checkpoint_provider;
mod chunks;
pub(crate) mod data;
mod evidence;
pub(crate) mod providers;
pub(crate) mod questions;
pub(crate) mod result_transfer;
mod serve;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use starling_topology::heads::follower::MAX_BRANCHES;
use starling_topology::history::{MAX_PAGE_LEGS, ViewProof, ViewSearchRequest};
use starling_topology::{Contact, Digest, Generation, ViewId};

use data::MAX_TOLD;
pub(crate) use evidence::Evidence;
pub(crate) use serve::{ChunkProviders, Known, SharedFiles, serve};

/// The longest question, in bytes.
const MAX_REQUEST_BYTES: usize = 320;
/// What a reply takes besides its payload, in bytes.
const REPLY_OVERHEAD: usize = 64;

/// What a joiner or a keeper asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The manifest of the state after this step, at which the view of `generation` goes on.
    Manifest { generation: Generation, step: u64 },
    /// A chunk of whatever has the manifest with this hash.
    Chunk { of: Digest, chunk: Digest },
    /// What the run is.
    Run,
    /// The newest stable checkpoint.
    Newest,
    /// The manifest of the checkpoint with this name.
    Checkpoint(Digest),
    /// Who is in this view.
    View(ViewId),
    /// The manifest of the data set's files.
    DataManifest,
    /// Who else is in the view.
    Members,
    /// What was done to the data before training.
    Preprocessing,
    /// Which of the processes of this identity it is.
    Process,
    /// What leads to a view.
    Chain(ViewSearchRequest),
    /// The manifest of the values that the run begins with, if its founder has given them.
    InitialManifest,
}

/// What a donor answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It has none and will have none.
    NotHere,
    /// It will have it; ask again.
    Later,
    /// The manifest's bytes.
    Manifest(Vec<u8>),
    /// The chunk's bytes.
    Chunk(Vec<u8>),
    /// The canonical bytes of the run's manifest.
    Run(Vec<u8>),
    /// Who has signed the newest stable checkpoint here of each branch, as many as keepers follow. `live` from a member of a view;
    /// `looks_out` from one that is in none, and looks out for what it lacks.
    Newest {
        live: bool,
        looks_out: bool,
        #[serde(deserialize_with = "starling_topology::message::bounded::list::<_, _, MAX_BRANCHES>")]
        evidence: Vec<Evidence>,
    },
    /// The view's canonical bytes.
    View(Vec<u8>),
    /// Some of the members.
    Members(#[serde(deserialize_with = "starling_topology::message::bounded::list::<_, _, MAX_TOLD>")] Vec<Contact>),
    /// The canonical bytes of the preprocessing.
    Preprocessing(Vec<u8>),
    /// The process's incarnation, and whether it is in a view that goes on.
    Process(u64, bool),
    /// What leads to the view, or a part of it.
    Chain(
        #[serde(deserialize_with = "starling_topology::message::bounded::list::<_, _, MAX_PAGE_LEGS>")] Vec<ViewProof>,
    ),
}
