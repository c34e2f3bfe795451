//! Signatures in virtual time: quick to make and to check, and forged by nobody, as no simulated peer signs for another.

use starling_topology::{Contact, LocalIdentity, PeerId, Signer};

/// The key of one peer.
#[derive(Debug)]
pub struct Key(PeerId);

impl Key {
    /// That of `peer`. Whoever is simulated asks for its own; who judges a run, for all.
    pub fn of(peer: PeerId) -> Self {
        Self(peer)
    }

    fn signature(signer: PeerId, statement: &[u8]) -> [u8; 64] {
        let mut hasher = blake3::Hasher::new_keyed(&signer.0);
        let mut signature = [0; 64];
        hasher.update(statement).finalize_xof().fill(&mut signature);
        signature
    }
}

impl Signer for Key {
    fn sign(&self, statement: &[u8]) -> [u8; 64] {
        Self::signature(self.0, statement)
    }

    fn is_signed(&self, signer: PeerId, statement: &[u8], signature: &[u8; 64]) -> bool {
        Self::signature(signer, statement) == *signature
    }
}

/// The peer that is reached there, with its key.
pub fn with_key(contact: Contact) -> LocalIdentity {
    let notary = Box::new(Key::of(contact.peer));
    LocalIdentity { contact, notary }
}
