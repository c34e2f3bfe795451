//! Replicated states on disk: atomic, content-addressed, verified before use.
//!
//! ```text
//!   <directory>/
//!     chunks/<blake3 of the chunk>                               at most 1 MiB each, shared between checkpoints
//!     step-000000000120-<blake3 of this file>.json               {run, step, lineage, digest, values, bytes, ..}
//!     step-000000000120-<blake3 of that file>.signed.json        who vouches for it, and whether that makes it stable
//!     abandoned.json                                             which of them are of a branch that was left
//! ```
//!
//! Manifest and chunks are those of a [snapshot](crate::state::snapshot), so that a checkpoint can be handed to other peers.
//!
//! A file appears whole or not at all: it is written beside its place, synced, renamed, and its directory synced. The
//! manifest comes last, so a manifest's chunks are there, and it goes first, so a checkpoint that is being removed is none.
//! Names are hashes, so what is read is what was written, or is refused. One process at a time writes to a directory; others
//! may read beside it, and what it removes under their eyes counts as if they had never seen it.

mod abandoned;
mod arrival;
mod error;
mod folder;
mod pins;
mod recovery;
mod saving;
pub(crate) mod signed_head;
mod sound;
mod sweep;
mod unsynced;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use atomic_write_file::AtomicWriteFile;
use signed_head::signatures_path;
use sound::Sound;
use starling_topology::heads::retention::{CheckpointRecord, RetentionInput};
use starling_topology::{Digest, Lineage, Root, RunId};
use sweep::Arriving;

use abandoned::ABANDONED;
pub use error::CheckpointError;
pub use folder::CheckpointFolder;
use pins::Pins;
pub use recovery::RecoveryResult;
pub use signed_head::SignedHead;
pub use starling_topology::{Head, Signature};

use crate::state::ReplicatedState;
use crate::state::snapshot::{
    CHUNK_BYTES, MAX_SNAPSHOT_MANIFEST_BYTES, SnapshotError, SnapshotManifest, check, hash, parse, parse_digest,
};

/// A directory of checkpoints of one run. Its clones are of the same directory: one of them writes, all may read.
#[derive(Debug, Clone)]
pub struct CheckpointStore {
    directory: PathBuf,
    keep: usize,
    pins: Pins,
    /// Which checkpoints are of the branch that goes on, once that is known.
    root: Arc<Mutex<Option<Root>>>,
    sound: Sound,
    arriving: Arriving,
}

/// One checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// The run it belongs to.
    pub run: RunId,
    /// The last step it includes.
    pub step: u64,
    /// The view in which that step was committed.
    pub lineage: Lineage,
    /// The digest of its state.
    pub digest: Digest,
    /// The hash of its state's [values](ReplicatedState::values).
    pub values: Digest,
    /// Its name: blake3 of its manifest file.
    pub id: Digest,
    /// Its manifest file.
    pub path: PathBuf,
    /// How long its state is, in bytes.
    pub bytes: u64,
}

/// How often checkpoints are looked for again when all that were found are gone.
const MAX_LOOKS: usize = 16;

/// What verifying one checkpoint came to.
#[derive(Debug)]
pub struct VerificationReport {
    /// Its manifest file.
    pub path: PathBuf,
    /// Its step, by its file name.
    pub step: u64,
    /// The checkpoint, every byte of which was read and hashed, or what is wrong with it.
    pub result: Result<CheckpointSummary, CheckpointError>,
}

impl CheckpointStore {
    /// Opens the store in `directory`, which is made if it is not there, and removes what interrupted writes left.
    /// Saving keeps the last `keep` checkpoints, at least one, and the last stable one.
    ///
    /// # Errors
    /// If the directory cannot be made or read.
    pub fn open(directory: impl Into<PathBuf>, keep: usize) -> Result<Self, CheckpointError> {
        let store = Self { keep: keep.max(1), ..Self::reading(directory) };
        let chunks = store.chunks();
        fs::create_dir_all(&chunks).map_err(CheckpointError::io("make", &chunks))?;
        for directory in [&store.directory, &chunks] {
            for name in names(directory)? {
                let is_orphan = name.strip_suffix(".signed.json").is_some_and(|checkpoint| {
                    checkpoint.starts_with("step-") && !directory.join(format!("{checkpoint}.json")).exists()
                });
                if is_leftover(&name) || is_orphan {
                    remove(&directory.join(name))?;
                }
            }
        }
        Ok(store)
    }

    /// The store in `directory`, to read what is there: makes and removes nothing, so that it may be used while another
    /// process writes.
    pub fn reading(directory: impl Into<PathBuf>) -> Self {
        let (directory, keep) = (directory.into(), usize::MAX);
        let (pins, sound, arriving) = (Pins::default(), Sound::default(), Arriving::default());
        Self { directory, keep, pins, root: Arc::default(), sound, arriving }
    }

    /// Where the checkpoints are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The steps of all checkpoints that were not abandoned, ascending, by their file names alone.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        Ok(self.usable()?.into_iter().map(|(step, _, _)| step).collect())
    }

    /// The run whose checkpoints these are: `None` if no manifest is intact.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn run(&self) -> Result<Option<RunId>, CheckpointError> {
        Ok(self.intact()?.last().map(|(info, _)| info.run))
    }

    /// The step of the last checkpoint that is intact, every byte read and hashed, and was not abandoned. `None` if there
    /// is none.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn last_intact(&self) -> Result<Option<u64>, CheckpointError> {
        let is_intact = |(step, id, path): &(u64, Digest, PathBuf)| {
            self.read_manifest(path, *step, *id).and_then(|(_, manifest)| self.read_state(&manifest, path)).is_ok()
        };
        Ok(self.usable()?.iter().rev().find(|found| is_intact(found)).map(|(step, _, _)| *step))
    }

    /// All checkpoints, by ascending step. Reads manifests, not chunks: [`CheckpointStore::verify`] reads everything.
    ///
    /// # Errors
    /// If the directory cannot be read, or a manifest is damaged.
    pub fn list(&self) -> Result<Vec<CheckpointSummary>, CheckpointError> {
        let manifests = self.each(|step, id, path| self.read_manifest(path, step, id))?;
        manifests.into_iter().map(|manifest| Ok(manifest?.0)).collect()
    }

    /// Reads the checkpoint of `step`, or of the last step there is. Every byte is hashed before it is looked at. One
    /// that was abandoned is read only if it is the only one of `step`.
    ///
    /// # Errors
    /// If there is no such checkpoint, or it is damaged: the error names the file and both hashes.
    pub fn load(&self, step: Option<u64>) -> Result<ReplicatedState, CheckpointError> {
        for _ in 0..MAX_LOOKS {
            let mut found = if step.is_some() { self.scan()? } else { Vec::new() };
            found.extend(self.usable()?);
            let wanted = found.iter().rev().find(|(candidate, _, _)| step.is_none_or(|step| step == *candidate));
            let Some((step, id, path)) = wanted else {
                self.listed()?; // That may be why.
                return Err(self.not_found(step)?);
            };
            match self.read_whole(*step, *id, path) {
                // A node has removed it, because it has newer ones.
                Err(_) if !path.exists() => {}
                result => return result.map(|(_, state)| state),
            }
        }
        Err(CheckpointError::Removed { directory: self.directory.clone() })
    }

    /// The manifest of the checkpoint with this name, for peers that want to fetch it. `None` if it is not here.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn manifest(&self, id: Digest) -> Result<Option<SnapshotManifest>, CheckpointError> {
        Ok(self.find(id)?.map(|(_, manifest)| manifest))
    }

    /// A chunk of any of the checkpoints, by its hash, which is verified.
    ///
    /// # Errors
    /// If it is not here, or damaged.
    pub fn read_chunk(&self, chunk: Digest) -> Result<Vec<u8>, CheckpointError> {
        read_verified(&self.chunk_path(chunk), CHUNK_BYTES as u64, chunk)
    }

    /// Reads and hashes every byte of every checkpoint, by ascending step.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn verify(&self) -> Result<Vec<VerificationReport>, CheckpointError> {
        let verdict = |step, id, path: &Path| {
            let result = self.read_whole(step, id, path).map(|(info, _)| info);
            match result {
                Err(error) if !path.exists() => Err(error),
                result => Ok(VerificationReport { path: path.to_owned(), step, result }),
            }
        };
        self.each(verdict)?.into_iter().collect()
    }

    fn chunks(&self) -> PathBuf {
        self.directory.join("chunks")
    }

    fn chunk_path(&self, chunk: Digest) -> PathBuf {
        self.chunks().join(chunk.to_string())
    }

    /// What `read` makes of each checkpoint there is, by ascending step. One that a node removes meanwhile is passed over; if
    /// that leaves none, what has come in their place is looked for.
    fn each<T>(
        &self,
        read: impl Fn(u64, Digest, &Path) -> Result<T, CheckpointError>,
    ) -> Result<Vec<Result<T, CheckpointError>>, CheckpointError> {
        for _ in 0..MAX_LOOKS {
            let found = self.scan()?;
            let made = found.iter().map(|(step, id, path)| (read(*step, *id, path), path));
            let there: Vec<_> =
                made.filter(|(made, path)| made.is_ok() || path.exists()).map(|(made, _)| made).collect();
            if !there.is_empty() || found.is_empty() {
                return Ok(there);
            }
        }
        Err(CheckpointError::Removed { directory: self.directory.clone() })
    }

    /// Reads a checkpoint and puts its state together.
    fn read_whole(
        &self,
        step: u64,
        id: Digest,
        path: &Path,
    ) -> Result<(CheckpointSummary, ReplicatedState), CheckpointError> {
        let read = || {
            let (info, manifest) = self.read_manifest(path, step, id)?;
            Ok((info, self.read_state(&manifest, path)?))
        };
        match read() {
            // It may have been removed and saved again since its manifest was read.
            Err(CheckpointError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => read(),
            result => result,
        }
    }

    /// All files that are named as a checkpoint's manifest: step, id and path, by ascending step.
    fn scan(&self) -> Result<Vec<(u64, Digest, PathBuf)>, CheckpointError> {
        let mut found: Vec<_> = names(&self.directory)?
            .into_iter()
            .filter_map(|name| {
                let (step, id) = name.strip_prefix("step-")?.strip_suffix(".json")?.split_once('-')?;
                Some((step.parse().ok()?, parse_digest(id)?, self.directory.join(&name)))
            })
            .collect();
        found.sort();
        Ok(found)
    }

    /// As [`CheckpointStore::scan`], without those that were abandoned.
    fn usable(&self) -> Result<Vec<(u64, Digest, PathBuf)>, CheckpointError> {
        let (mut found, abandoned) = (self.scan()?, self.abandoned()?);
        found.retain(|(_, id, _)| !abandoned.all.contains(id));
        Ok(found)
    }

    /// The checkpoints whose manifests are intact, by ascending step.
    fn intact(&self) -> Result<Vec<(CheckpointSummary, SnapshotManifest)>, CheckpointError> {
        let manifests = self.each(|step, id, path| self.read_manifest(path, step, id))?;
        Ok(manifests.into_iter().filter_map(Result::ok).collect())
    }

    /// The checkpoint with this name, if its manifest is here and intact.
    fn find(&self, name: Digest) -> Result<Option<(CheckpointSummary, SnapshotManifest)>, CheckpointError> {
        let found = self.scan()?;
        let found = found.iter().find(|(_, id, _)| *id == name);
        Ok(found.and_then(|(step, id, path)| self.read_manifest(path, *step, *id).ok()))
    }

    fn refuse_other_run(&self, ours: RunId) -> Result<(), CheckpointError> {
        match self.intact()?.iter().find(|(info, _)| info.run != ours) {
            Some((info, _)) => {
                Err(CheckpointError::OtherRun { directory: self.directory.clone(), theirs: info.run, ours })
            }
            None => Ok(()),
        }
    }

    fn not_found(&self, step: Option<u64>) -> Result<CheckpointError, CheckpointError> {
        Ok(CheckpointError::NotFound { directory: self.directory.clone(), step, steps: self.steps()? })
    }

    /// Reads the manifest at `path` and checks it against its name.
    fn read_manifest(
        &self,
        path: &Path,
        step: u64,
        id: Digest,
    ) -> Result<(CheckpointSummary, SnapshotManifest), CheckpointError> {
        let bytes = read_verified(path, MAX_SNAPSHOT_MANIFEST_BYTES as u64, id)?;
        let malformed = |reason: String| CheckpointError::Malformed { path: path.to_owned(), reason };
        let manifest = SnapshotManifest::decode(&bytes).map_err(|error| malformed(error.to_string()))?;
        if manifest.step != step {
            return Err(malformed(format!("it is of step {}, but its name says {step}", manifest.step)));
        }
        let info = CheckpointSummary {
            run: manifest.run,
            step,
            lineage: manifest.lineage,
            digest: manifest.digest,
            values: manifest.values,
            id,
            path: path.to_owned(),
            bytes: manifest.bytes,
        };
        Ok((info, manifest))
    }

    /// Reads the chunks of a checkpoint and puts its state together.
    fn read_state(&self, manifest: &SnapshotManifest, path: &Path) -> Result<ReplicatedState, CheckpointError> {
        let read = manifest.chunks.iter().map(|chunk| self.read_chunk(*chunk));
        parse(manifest, read)?.map_err(|error| not_whole(path, error))
    }

    /// Reads, hashes and checks every byte of a checkpoint, chunk by chunk: a run in training has no room for one more state.
    fn check_bytes(&self, manifest: &SnapshotManifest, path: &Path) -> Result<(), CheckpointError> {
        let read = manifest.chunks.iter().map(|chunk| self.read_chunk(*chunk));
        check(manifest, read)?.map_err(|error| not_whole(path, error))?;
        self.sound.note(manifest.id());
        Ok(())
    }

    /// Removes what is [surplus](RetentionInput::surplus), and the chunks that none of the rest needs. `saved` is verified.
    fn prune(&self, saved: &CheckpointSummary) -> Result<(), CheckpointError> {
        let (mut abandoned, mut there, root) = (self.abandoned()?, self.intact()?, self.root());
        // The state that another branch gave us may be one that we had.
        abandoned.all.remove(&saved.id);
        let held: Vec<CheckpointRecord> = there.iter().map(|(info, _)| self.held_as(info)).collect();
        let places = |names: &BTreeSet<Digest>| -> BTreeSet<usize> {
            (0..there.len()).filter(|at| names.contains(&there[*at].0.id)).collect()
        };
        let (left, kept) = (places(&abandoned.all), places(&abandoned.kept));
        let Some(at) = there.iter().position(|(info, _)| info.id == saved.id) else { return Ok(()) };
        let (keep, root) = (self.keep, root.as_ref());
        let folder = RetentionInput { all: &held, saved: at, left: &left, kept: &kept, root, keep };
        let is_intact = |at: usize| self.check_bytes(&there[at].1, &there[at].0.path).is_ok();
        let mut gone = folder.surplus(is_intact);
        let pins = self.pins.lock();
        gone.retain(|at| left.contains(at) || there[*at].0.step == saved.step || !pins.has(there[*at].0.id));
        for (info, _) in gone.iter().map(|at| &there[*at]) {
            remove(&signatures_path(&info.path))?;
            remove(&info.path)?;
            abandoned.all.remove(&info.id);
        }
        drop(pins);
        gone.iter().rev().for_each(|at| drop(there.remove(*at)));
        let needed = there.iter().flat_map(|(_, manifest)| manifest.chunks.iter().copied()).collect();
        let freed = self.remove_chunks_but(&needed);
        // Last: on a disk that is full, there is room for the list now.
        self.write_abandoned(&abandoned)?;
        freed
    }
}

/// Why the chunks of the checkpoint at `path` are none.
fn not_whole(path: &Path, error: SnapshotError) -> CheckpointError {
    match error {
        SnapshotError::Digest { expected, found } => {
            CheckpointError::Damaged { path: path.to_owned(), expected, found }
        }
        error => CheckpointError::Malformed { path: path.to_owned(), reason: error.to_string() },
    }
}

/// Reads a file of at most `limit` bytes whose blake3 must be `expected`.
fn read_verified(path: &Path, limit: u64, expected: Digest) -> Result<Vec<u8>, CheckpointError> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(CheckpointError::io("read", path))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(CheckpointError::io("read", path))?;
    if bytes.len() as u64 > limit {
        let reason = format!("it is longer than {limit} bytes");
        return Err(CheckpointError::Malformed { path: path.to_owned(), reason });
    }
    let found = hash(&bytes);
    if found == expected { Ok(bytes) } else { Err(CheckpointError::Damaged { path: path.to_owned(), expected, found }) }
}

/// Puts a file in its place whole: temporary file, sync, rename, sync of the directory.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut file = AtomicWriteFile::open(path).map_err(CheckpointError::io("write", path))?;
    file.write_all(bytes).and_then(|()| file.commit()).map_err(CheckpointError::io("write", path))
}

fn names(directory: &Path) -> Result<Vec<String>, CheckpointError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(CheckpointError::io("read", directory))? {
        let entry = entry.map_err(CheckpointError::io("read", directory))?;
        // Names that are not UTF-8 are not ours.
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// Whether a name is that of a temporary file of an interrupted write: `.` name `.` six letters or digits.
fn is_leftover(name: &str) -> bool {
    let Some((ours, suffix)) = name.strip_prefix('.').and_then(|name| name.rsplit_once('.')) else { return false };
    let is_ours =
        parse_digest(ours).is_some() || (ours.ends_with(".json") && (ours.starts_with("step-") || ours == ABANDONED));
    is_ours && suffix.len() == 6 && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn remove(path: &Path) -> Result<(), CheckpointError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(CheckpointError::io("remove", path)),
    }
}

#[cfg(test)]
mod tests;
