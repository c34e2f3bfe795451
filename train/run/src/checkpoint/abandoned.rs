//! Checkpoints of a branch that this member left. A run that starts again must not continue from them, while the others
//! continue from the branch that went on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use starling_topology::{Digest, Root};

use super::{CheckpointError, CheckpointInfo, CheckpointStore, remove, write_atomically};
use crate::snapshot::parse_digest;

/// The file with the names of abandoned checkpoints.
pub(super) const ABANDONED: &str = "abandoned.json";
/// The format's name and version.
const FORMAT: &str = "starling-abandoned-2";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    format: String,
    checkpoints: Vec<String>,
    /// Those of them that are not removed.
    kept: Vec<String>,
}

/// The checkpoints of branches that were left, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Abandoned {
    pub(super) all: BTreeSet<Digest>,
    /// A quorum had vouched for them, and what came instead goes back behind them, or is of another founding: they stay
    /// until their user removes them.
    pub(super) kept: BTreeSet<Digest>,
}

impl CheckpointStore {
    /// Puts aside all checkpoints that `root` does not admit: they are of a branch that this member has left. They are not
    /// loaded any more unless asked for by step, and go when the next one has been saved, but for the newest stable one of
    /// each branch that this one does not continue. On disk before it returns.
    ///
    /// # Errors
    /// If the directory cannot be read or written.
    pub fn put_aside(&self, root: &Root) -> Result<(), CheckpointError> {
        let before = self.listed().unwrap_or_default();
        let mut left = self.intact()?;
        left.retain(|(info, _)| !root.admits(info.step, info.lineage));
        let all: BTreeSet<Digest> = left.iter().map(|(info, _)| info.id).collect();
        let in_fork = |info: &CheckpointInfo| self.signed(info).is_some_and(|signed| signed.view.forked);
        let is_undone =
            |info: &CheckpointInfo| info.lineage.branch != root.branch || info.step > root.step || in_fork(info);
        // By ascending step.
        let undone = left.iter().map(|(info, _)| info).filter(|info| is_undone(info) && self.is_stable(info));
        let newest: BTreeMap<u64, Digest> = undone.map(|info| (info.lineage.branch, info.id)).collect();
        let kept = before.kept.intersection(&all).copied().chain(newest.into_values()).collect();
        let after = Abandoned { all, kept };
        if after == before { Ok(()) } else { self.write_abandoned(&after) }
    }

    /// Whether the checkpoint with this name is of a branch that was left.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn is_put_aside(&self, id: Digest) -> Result<bool, CheckpointError> {
        Ok(self.abandoned()?.all.contains(&id))
    }

    /// The abandoned checkpoints. Where the list is damaged, any of them may be one, so all are: others may hold the state, and
    /// what they give replaces the list.
    pub(super) fn abandoned(&self) -> Result<Abandoned, CheckpointError> {
        match self.listed() {
            Err(CheckpointError::Malformed { .. }) => {
                let all = self.scan()?.into_iter().map(|(_, id, _)| id).collect();
                let stable = self.intact()?.into_iter().filter(|(info, _)| self.is_stable(info));
                Ok(Abandoned { all, kept: stable.map(|(info, _)| info.id).collect() })
            }
            listed => listed,
        }
    }

    /// What is in the list.
    pub(super) fn listed(&self) -> Result<Abandoned, CheckpointError> {
        let path = self.abandoned_path();
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Abandoned::default()),
            bytes => bytes.map_err(CheckpointError::io("read", &path))?,
        };
        let names =
            |names: &[String]| names.iter().map(|name| parse_digest(name)).collect::<Option<BTreeSet<Digest>>>();
        let json = serde_json::from_slice::<Json>(&bytes).ok().filter(|json| json.format == FORMAT);
        let listed = json.and_then(|json| Some(Abandoned { all: names(&json.checkpoints)?, kept: names(&json.kept)? }));
        listed.ok_or_else(|| {
            let reason = format!(
                "it is no list of the form {FORMAT}; remove it only if no checkpoint is of a branch that was left"
            );
            CheckpointError::Malformed { path, reason }
        })
    }

    pub(super) fn write_abandoned(&self, abandoned: &Abandoned) -> Result<(), CheckpointError> {
        let path = self.abandoned_path();
        if abandoned.all.is_empty() {
            return remove(&path);
        }
        let names = |names: &BTreeSet<Digest>| names.iter().map(Digest::to_string).collect();
        let json = Json { format: FORMAT.to_owned(), checkpoints: names(&abandoned.all), kept: names(&abandoned.kept) };
        let bytes =
            serde_json::to_vec_pretty(&json).expect("invariant: a list of names has no type that cannot be JSON");
        write_atomically(&path, &bytes)
    }

    fn abandoned_path(&self) -> PathBuf {
        self.directory.join(ABANDONED)
    }
}
