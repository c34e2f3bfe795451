//! The key of whoever founded a run: it says who may come, and who has to go.
//!
//! It is no peer's key and takes part in nothing. The run's id covers its public half, so that all members check by it what it
//! has signed, whoever passes that on. Its file lies in the founder's data directory and may be moved elsewhere: the run goes
//! on without it, but nobody is invited or revoked until it is back, or a quorum of the members has named another.

use std::path::{Path, PathBuf};

use libp2p::identity::Keypair;
use starling_topology::PeerId;

use crate::credentials::identity::from_libp2p;
use crate::error::NodeError;
use crate::store::private_file;

const FILE: &str = "founder.key";

/// The founder's key pair.
#[derive(Clone)]
pub struct FounderKey {
    keypair: Keypair,
}

impl std::fmt::Debug for FounderKey {
    /// Leaves the key out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FounderKey").field("public", &self.public()).finish_non_exhaustive()
    }
}

impl FounderKey {
    /// Where a data directory keeps it.
    pub fn file(data_dir: &Path) -> PathBuf {
        data_dir.join(FILE)
    }

    /// The key in this file; `None` if there is no such file.
    ///
    /// # Errors
    /// [`NodeError::File`] if it can't be read, [`NodeError::Identity`] if it holds no key.
    pub fn load(path: &Path) -> Result<Option<Self>, NodeError> {
        let Some(bytes) = private_file::read(path)? else { return Ok(None) };
        let keypair = Keypair::from_protobuf_encoding(&bytes).map_err(|_| NodeError::FounderKey(path.to_owned()))?;
        keypair.clone().try_into_ed25519().map_err(|_| NodeError::FounderKey(path.to_owned()))?;
        Ok(Some(Self { keypair }))
    }

    /// The key in `data_dir`, or a new one that is kept there (mode 0600).
    ///
    /// # Errors
    /// As [`Self::load`], and [`NodeError::File`] if it can't be written.
    pub fn load_or_create(data_dir: &Path) -> Result<Self, NodeError> {
        Self::load_or_make(&Self::file(data_dir))
    }

    /// The same of a key in this file.
    ///
    /// # Errors
    /// As [`Self::load_or_create`].
    pub fn load_or_make(path: &Path) -> Result<Self, NodeError> {
        if let Some(key) = Self::load(path)? {
            return Ok(key);
        }
        let key = Self::generate();
        let bytes = key.keypair.to_protobuf_encoding().map_err(|_| NodeError::FounderKey(path.to_owned()))?;
        private_file::write(path, &bytes)?;
        Ok(key)
    }

    /// A key that is kept nowhere.
    pub(crate) fn generate() -> Self {
        Self { keypair: Keypair::generate_ed25519() }
    }

    /// Its public half, as manifests have it.
    pub fn public(&self) -> PeerId {
        from_libp2p(&self.keypair.public().to_peer_id()).expect("invariant: the key is Ed25519")
    }

    /// Its signature of a message that says by its first bytes what it is.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.keypair.sign(message).expect("invariant: an Ed25519 key signs without fail")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::identity::Identity;

    #[test]
    fn a_founders_key_is_made_once_and_is_not_the_peers() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let made = FounderKey::load_or_create(dir.path()).expect("made");
        assert_eq!(FounderKey::load_or_create(dir.path()).expect("read").public(), made.public());
        let peer = Identity::load_or_create(dir.path()).expect("an identity").peer_id();
        assert_ne!(from_libp2p(&peer), Some(made.public()));
        assert!(FounderKey::load(&dir.path().join("elsewhere")).expect("no file is no error").is_none());
        std::fs::write(FounderKey::file(dir.path()), "no key").expect("written");
        let error = FounderKey::load_or_create(dir.path()).expect_err("refused").to_string();
        assert!(error.contains(FILE), "{error}");
    }
}
