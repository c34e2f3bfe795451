//! Who this machine is: one Ed25519 key in its data directory.

use std::path::{Path, PathBuf};

use libp2p::identity::{Keypair, ed25519};
pub use starling_links::{from_libp2p, to_libp2p};
use starling_topology::Signer;

use crate::error::NodeError;
use crate::store::private_file;

const FILE: &str = "identity.key";
/// The machine's key pair.
#[derive(Clone)]
pub struct Identity {
    keypair: Keypair,
}

impl std::fmt::Debug for Identity {
    /// Leaves the key out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("peer", &self.peer_id()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads the key in `data_dir`, or makes one there (mode 0600).
    ///
    /// # Errors
    /// [`NodeError::File`] if the file can't be read or written, [`NodeError::Identity`] if it holds no key.
    pub fn load_or_create(data_dir: &Path) -> Result<Self, NodeError> {
        let path = Self::file(data_dir);
        if let Some(bytes) = private_file::read(&path)? {
            let keypair = Keypair::from_protobuf_encoding(&bytes).map_err(|_| NodeError::Identity(path.clone()))?;
            // Our peer ids are Ed25519 keys; another kind would have no place in a view.
            keypair.clone().try_into_ed25519().map_err(|_| NodeError::Identity(path))?;
            return Ok(Self { keypair });
        }
        let keypair = Keypair::generate_ed25519();
        let bytes = keypair.to_protobuf_encoding().map_err(|_| NodeError::Identity(path.clone()))?;
        private_file::write(&path, &bytes)?;
        Ok(Self { keypair })
    }

    /// Where it is kept.
    pub fn file(data_dir: &Path) -> PathBuf {
        data_dir.join(FILE)
    }

    /// The libp2p peer id.
    pub fn peer_id(&self) -> libp2p::PeerId {
        self.keypair.public().to_peer_id()
    }

    pub(crate) fn keypair(&self) -> &Keypair {
        &self.keypair
    }

    /// Our signature of a message that says by its first bytes what it is.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let signature = self.keypair.sign(message).expect("invariant: an Ed25519 key signs without fail");
        signature.try_into().expect("invariant: an Ed25519 signature has 64 bytes")
    }

    /// An identity that is kept nowhere.
    pub fn generate() -> Self {
        Self { keypair: Keypair::generate_ed25519() }
    }
}

/// Signs what the membership machine says.
impl Signer for Identity {
    fn sign(&self, statement: &[u8]) -> [u8; 64] {
        Self::sign(self, statement)
    }

    fn is_signed(&self, signer: starling_topology::PeerId, statement: &[u8], signature: &[u8; 64]) -> bool {
        has_signed(signer, statement, signature)
    }
}

/// Whether `signature` of `message` is `peer`'s own.
pub fn has_signed(peer: starling_topology::PeerId, message: &[u8], signature: &[u8; 64]) -> bool {
    ed25519::PublicKey::try_from_bytes(&peer.0).is_ok_and(|key| key.verify(message, signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_one_peer_and_one_message() {
        let (identity, other) = (Identity::generate(), Identity::generate());
        let [peer, stranger] = [&identity, &other].map(|one| from_libp2p(&one.peer_id()).expect("an Ed25519 key"));
        let signature = identity.sign(b"a message");
        assert!(has_signed(peer, b"a message", &signature));
        assert!(!has_signed(peer, b"another", &signature) && !has_signed(stranger, b"a message", &signature));
    }

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let made = Identity::load_or_create(dir.path()).expect("made");
        let read = Identity::load_or_create(dir.path()).expect("read");
        assert_eq!(made.peer_id(), read.peer_id());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(dir.path().join(FILE)).expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_without_a_key_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a temp dir");
        std::fs::write(dir.path().join(FILE), b"not a key").expect("written");
        let error = Identity::load_or_create(dir.path()).expect_err("refused");
        assert!(error.to_string().contains(FILE), "{error}");
    }
}
