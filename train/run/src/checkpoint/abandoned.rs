//! Checkpoints of a branch that this member left. A run that starts again must not continue from them, while the others
//! continue from the branch that went on.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use starling_topology::heads::retention::{CheckpointRecord, lost};
use starling_topology::{Digest, Root};

use super::{CheckpointError, CheckpointStore, CheckpointSummary, remove, write_atomically};
use crate::state::ReplicatedState;
use crate::state::snapshot::parse_digest;

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
    /// From here on, in this store and its clones, only checkpoints that `root` admits are of the branch that goes on: the others
    /// are not loaded any more unless asked for by step, and go when the next one has been saved, but for those that
    /// [stay](starling_topology::heads::retention). False if it knew that.
    pub fn root_in(&self, root: Root) -> bool {
        self.lock_root().replace(root) != Some(root)
    }

    /// Whether the state is of a branch that was left, as far as this store knows.
    pub fn has_left(&self, state: &ReplicatedState) -> bool {
        self.root().is_some_and(|root| !root.admits(state.step, state.lineage))
    }

    /// Lists what the root does not admit, for those who read the directory without it. On disk before it returns. Whatever comes
    /// of it, this process goes by the root. Returns the steps of those that a quorum had vouched for, and that are new there: the run
    /// goes on without them.
    ///
    /// # Errors
    /// If the directory cannot be read or written.
    pub fn put_aside(&self) -> Result<Vec<u64>, CheckpointError> {
        let after = self.abandoned()?;
        let before = match self.listed() {
            Ok(before) if before == after => return Ok(Vec::new()),
            before => before.unwrap_or_default(),
        };
        self.write_abandoned(&after)?;
        let root = self.root();
        // What has certainly led to the state that the run goes on from is not missed, whichever branch goes on from there.
        let leads =
            |info: &CheckpointSummary| root.is_some_and(|root| info.lineage == root.lineage && info.step <= root.step);
        let is_lost = |info: &CheckpointSummary| after.kept.contains(&info.id) && !leads(info);
        let is_news = |info: &CheckpointSummary| is_lost(info) && !before.kept.contains(&info.id);
        let all = self.intact()?.into_iter().map(|(info, _)| info);
        Ok(all.filter(is_news).map(|info| info.step).collect())
    }

    /// What [`Self::root_in`] was told last.
    pub fn root(&self) -> Option<Root> {
        *self.lock_root()
    }

    fn lock_root(&self) -> MutexGuard<'_, Option<Root>> {
        // A value that is replaced whole is sound whoever panicked.
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `root` does not admit, given what is in the list.
    fn left_by(&self, root: &Root, listed: &Abandoned) -> Result<Abandoned, CheckpointError> {
        let there = self.intact()?;
        let held: Vec<CheckpointRecord> = there.iter().map(|(info, _)| self.held_as(info)).collect();
        let left = (0..held.len()).filter(|at| !root.admits(held[*at].step, held[*at].lineage)).collect();
        let name = |at: &usize| there[*at].0.id;
        let (lost, all) = (lost(&held, &left, root), left.iter().map(name).collect::<BTreeSet<_>>());
        let kept = listed.kept.intersection(&all).copied().chain(lost.iter().map(name)).collect();
        Ok(Abandoned { all, kept })
    }

    /// Whether the checkpoint with this name is of a branch that was left.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn is_put_aside(&self, id: Digest) -> Result<bool, CheckpointError> {
        Ok(self.abandoned()?.all.contains(&id))
    }

    /// The abandoned checkpoints: by the root, if that is known, else by the list. Where the list is damaged, any of them may be
    /// one, so all are: others may hold the state, and what they give replaces the list.
    pub(super) fn abandoned(&self) -> Result<Abandoned, CheckpointError> {
        let listed = match self.listed() {
            Err(CheckpointError::Malformed { .. }) => {
                let all = self.scan()?.into_iter().map(|(_, id, _)| id).collect();
                let stable = self.intact()?.into_iter().filter(|(info, _)| self.is_stable(info));
                Abandoned { all, kept: stable.map(|(info, _)| info.id).collect() }
            }
            listed => listed?,
        };
        self.root().map_or_else(|| Ok(listed.clone()), |root| self.left_by(&root, &listed))
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
