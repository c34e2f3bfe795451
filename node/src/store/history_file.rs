//! Which views a run has had, as far as this machine knows: a file beside its record, so that it can lead others, and be led on
//! itself, when it is started again.
//!
//! ```text
//!   "STRLANN1" | blake3 of what follows, with the run | postcard of the legs
//! ```

use std::path::{Path, PathBuf};

use starling_topology::history::{MAX_BYTES, MAX_LEG_BYTES};
use starling_topology::{RunId, ViewHistory};

use crate::error::NodeError;
use crate::store::private_file;

const PREFIX: &str = "annals-";
const MAGIC: &[u8; 8] = b"STRLANN1";
const HASH_BYTES: usize = 32;

/// The history of one run in a data directory.
#[derive(Debug, Clone)]
pub(crate) struct HistoryFile {
    path: PathBuf,
    run: RunId,
}

impl HistoryFile {
    pub(crate) fn new(data_dir: &Path, run: RunId) -> Self {
        Self { path: data_dir.join(format!("{PREFIX}{}", &run.to_string()[..16])), run }
    }

    /// What is kept; nothing, if that can't be read: others lead there again.
    pub(crate) fn load(&self) -> ViewHistory {
        let read = private_file::read_up_to(&self.path, (MAX_BYTES + MAX_LEG_BYTES + HASH_BYTES + 64) as u64);
        let Ok(Some(bytes)) = read.inspect_err(|error| tracing::warn!(%error, "the run's views are not known")) else {
            return ViewHistory::default();
        };
        self.decode(&bytes).unwrap_or_else(|| {
            tracing::warn!(path = %self.path.display(), "the list of the run's views is damaged");
            ViewHistory::default()
        })
    }

    fn decode(&self, bytes: &[u8]) -> Option<ViewHistory> {
        let (hash, content) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<HASH_BYTES>()?;
        if self.hash(content).as_bytes() != hash {
            return None;
        }
        ViewHistory::decode(content).ok()
    }

    /// Keeps them. On disk when this returns.
    pub(crate) fn store(&self, history: &ViewHistory) -> Result<(), NodeError> {
        let content = history.encode();
        private_file::write(&self.path, &[&MAGIC[..], self.hash(&content).as_bytes(), &content].concat())
    }

    fn hash(&self, content: &[u8]) -> blake3::Hash {
        blake3::Hasher::new().update(&self.run.0).update(content).finalize()
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::history::ViewProof;
    use starling_topology::{PeerId, View};

    use super::*;

    #[test]
    fn what_is_kept_is_read_and_what_is_damaged_is_nothing() {
        let (dir, run) = (tempfile::tempdir().expect("a temp dir"), RunId([7; 32]));
        let file = HistoryFile::new(dir.path(), run);
        let view = View::found(run, PeerId([1; 32]));
        let mut history = ViewHistory::default();
        history.take([ViewProof::Apart(view.clone())]);
        assert!(!file.load().contains(view.id()));
        file.store(&history).expect("stored");
        assert!(file.load().contains(view.id()));
        let mut bytes = std::fs::read(&file.path).expect("there");
        *bytes.last_mut().expect("not empty") ^= 1;
        std::fs::write(&file.path, bytes).expect("written");
        assert!(!file.load().contains(view.id()));
    }
}
