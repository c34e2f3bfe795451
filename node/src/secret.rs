//! The secret that admits to a private run.

use std::path::{Path, PathBuf};

use starling_topology::RunId;

use crate::error::NodeError;
use crate::private_file;

/// Proof of membership in a run. 32 random bytes for a private run; a constant that everybody knows for a public one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub(crate) fn new(bytes: Option<[u8; 32]>) -> Self {
        Self(bytes.unwrap_or_else(|| blake3::derive_key("starling 2026 a public run admits everybody", &[])))
    }

    /// Whether it is more than what everybody knows.
    pub(crate) fn is_private(&self) -> bool {
        *self != Self::new(None)
    }

    /// A message authentication code of `parts`, each behind its length.
    pub(crate) fn authenticate(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize()
    }
}

fn path(data_dir: &Path, run: RunId) -> PathBuf {
    data_dir.join(format!("secret-{}", &run.to_string()[..16]))
}

/// The secret of `run` that is kept in `data_dir`, if any.
///
/// # Errors
/// [`NodeError::File`] if the file can't be read or holds no secret.
pub fn load(data_dir: &Path, run: RunId) -> Result<Option<[u8; 32]>, NodeError> {
    let path = path(data_dir, run);
    let Some(bytes) = private_file::read(&path)? else { return Ok(None) };
    let secret = <[u8; 32]>::try_from(bytes).map_err(|bytes| {
        let message = format!("a secret has 32 bytes, this file has {}", bytes.len());
        NodeError::file("read", &path, std::io::Error::new(std::io::ErrorKind::InvalidData, message))
    })?;
    Ok(Some(secret))
}

/// Keeps the secret of `run` in `data_dir` (mode 0600).
pub(crate) fn store(data_dir: &Path, run: RunId, secret: &[u8; 32]) -> Result<(), NodeError> {
    private_file::write(&path(data_dir, run), secret)
}
