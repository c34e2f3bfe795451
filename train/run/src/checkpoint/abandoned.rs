//! Checkpoints of a branch that this member left. A run that starts again must not continue from them, while the others
//! continue from the branch that went on.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use starling_topology::Digest;

use super::{CheckpointError, CheckpointStore, remove, write_atomically};
use crate::snapshot::parse_digest;

/// The file with the names of abandoned checkpoints.
pub(super) const ABANDONED: &str = "abandoned.json";
/// The format's name and version.
const FORMAT: &str = "starling-abandoned-1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    format: String,
    checkpoints: Vec<String>,
}

impl CheckpointStore {
    /// Marks all checkpoints there are, but `kept`, as abandoned: this member is about to take another branch's state, or
    /// goes on from `kept`. They are not loaded any more unless asked for by step, and go when the next one has been
    /// saved. On disk before it returns.
    ///
    /// # Errors
    /// If the directory cannot be read or written.
    pub fn abandon(&self, kept: Option<Digest>) -> Result<(), CheckpointError> {
        let others = self.scan()?.into_iter().map(|(_, id, _)| id).filter(|id| Some(*id) != kept);
        let all: BTreeSet<Digest> = others.collect();
        if all.is_empty() && kept.is_none() { Ok(()) } else { self.write_abandoned(&all) }
    }

    /// The names of the abandoned checkpoints. Where the list is damaged, any of them may be one, so all are: others may hold
    /// the state, and what they give replaces the list.
    pub(super) fn abandoned(&self) -> Result<BTreeSet<Digest>, CheckpointError> {
        match self.listed() {
            Err(CheckpointError::Malformed { .. }) => Ok(self.scan()?.into_iter().map(|(_, id, _)| id).collect()),
            listed => listed,
        }
    }

    /// The names in the list.
    pub(super) fn listed(&self) -> Result<BTreeSet<Digest>, CheckpointError> {
        let path = self.abandoned_path();
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            bytes => bytes.map_err(CheckpointError::io("read", &path))?,
        };
        let json = serde_json::from_slice::<Json>(&bytes).ok().filter(|json| json.format == FORMAT);
        let names = json.and_then(|json| json.checkpoints.iter().map(|name| parse_digest(name)).collect());
        names.ok_or_else(|| {
            let reason = format!(
                "it is no list of the form {FORMAT}; remove it only if no checkpoint is of a branch that was left"
            );
            CheckpointError::Malformed { path, reason }
        })
    }

    pub(super) fn write_abandoned(&self, names: &BTreeSet<Digest>) -> Result<(), CheckpointError> {
        let path = self.abandoned_path();
        if names.is_empty() {
            return remove(&path);
        }
        let checkpoints = names.iter().map(Digest::to_string).collect();
        let json = Json { format: FORMAT.to_owned(), checkpoints };
        let bytes =
            serde_json::to_vec_pretty(&json).expect("invariant: a list of names has no type that cannot be JSON");
        write_atomically(&path, &bytes)
    }

    fn abandoned_path(&self) -> PathBuf {
        self.directory.join(ABANDONED)
    }
}
