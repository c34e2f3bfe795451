//! Who has to go, signed by the founder's key: the whole list each time, with a number that rises.
//!
//! A list brings a new secret with it. The secret is not in what is signed, only its hash: the list is shown to whoever it
//! names, the secret to members alone.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use starling_topology::{PeerId, RunId};

use crate::error::NodeError;
use crate::founder::FounderKey;
use crate::identity::has_signed;
use crate::private_file;

/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling revokes 1";
/// The most peers that a run may have revoked.
pub const MAX_REVOKED: usize = 1024;

/// Whom the founder has revoked so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocations {
    /// How many revocations there have been.
    pub epoch: u64,
    /// Who has to go, sorted.
    pub peers: Vec<PeerId>,
    /// blake3 of the secret since.
    secret: [u8; 32],
    /// The founder's, 64 bytes.
    signature: Vec<u8>,
}

/// A list, and the secret that came with it; not there for a public run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The list.
    pub list: Revocations,
    /// The secret since.
    pub secret: Option<[u8; 32]>,
}

impl Renewal {
    /// What follows `before` once `peer` is revoked as well.
    pub fn after(before: Option<&Self>, key: &FounderKey, run: RunId, peer: PeerId, secret: Option<[u8; 32]>) -> Self {
        let mut peers = before.map(|before| before.list.peers.clone()).unwrap_or_default();
        if let Err(at) = peers.binary_search(&peer) {
            peers.insert(at, peer);
        }
        let epoch = before.map_or(0, |before| before.list.epoch).saturating_add(1);
        let hash = *blake3::hash(&secret.unwrap_or_default()).as_bytes();
        let signature = key.sign(&statement(run, epoch, &peers, &hash));
        Self { list: Revocations { epoch, peers, secret: hash, signature }, secret }
    }

    /// Whether the founder has signed the list, and it came with this secret.
    pub(crate) fn is_of(&self, founder: PeerId, run: RunId) -> bool {
        let hash = *blake3::hash(&self.secret.unwrap_or_default()).as_bytes();
        hash == self.list.secret && self.list.is_of(founder, run)
    }

    pub(crate) fn path(data_dir: &Path, run: RunId) -> PathBuf {
        data_dir.join(format!("revocations-{}", &run.to_string()[..16]))
    }

    /// What is kept of `run` in `data_dir`, if anything.
    ///
    /// # Errors
    /// [`NodeError::File`] if it can't be read.
    pub fn load(data_dir: &Path, run: RunId) -> Result<Option<Self>, NodeError> {
        let path = Self::path(data_dir, run);
        let Some(bytes) = private_file::read(&path)? else { return Ok(None) };
        let renewal = postcard::from_bytes(&bytes).map_err(|error| {
            NodeError::file("read", &path, std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string()))
        })?;
        Ok(Some(renewal))
    }

    /// Keeps it in `data_dir`, where a running node looks.
    ///
    /// # Errors
    /// [`NodeError::File`] if it can't be written.
    pub fn store(&self, data_dir: &Path, run: RunId) -> Result<(), NodeError> {
        let bytes = postcard::to_allocvec(self).expect("invariant: a list always encodes");
        private_file::write(&Self::path(data_dir, run), &bytes)
    }
}

impl Revocations {
    /// Whether the founder has signed it.
    pub(crate) fn is_of(&self, founder: PeerId, run: RunId) -> bool {
        let is_sorted = self.peers.len() <= MAX_REVOKED && self.peers.windows(2).all(|pair| pair[0] < pair[1]);
        let statement = statement(run, self.epoch, &self.peers, &self.secret);
        let signature = <&[u8; 64]>::try_from(self.signature.as_slice());
        is_sorted && signature.is_ok_and(|signature| has_signed(founder, &statement, signature))
    }

    /// Whether it names this peer.
    pub fn names(&self, peer: &PeerId) -> bool {
        self.peers.binary_search(peer).is_ok()
    }
}

fn statement(run: RunId, epoch: u64, peers: &[PeerId], secret: &[u8; 32]) -> Vec<u8> {
    let rest = postcard::to_allocvec(&(epoch, peers, secret)).expect("invariant: a list always encodes");
    [PURPOSE, &run.0, &rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId([3; 32]);

    #[test]
    fn a_list_grows_by_one_and_only_its_founder_can_write_it() {
        let (key, other) = (FounderKey::generate(), FounderKey::generate());
        let [a, b] = [1, 2].map(|name| PeerId([name; 32]));
        let first = Renewal::after(None, &key, RUN, b, Some([9; 32]));
        let second = Renewal::after(Some(&first), &key, RUN, a, Some([8; 32]));
        assert_eq!((second.list.epoch, &second.list.peers[..]), (2, &[a, b][..]));
        assert!(second.is_of(key.public(), RUN) && second.list.names(&a));
        assert!(!second.is_of(other.public(), RUN) && !second.is_of(key.public(), RunId([4; 32])));
        let swapped = Renewal { secret: Some([9; 32]), ..second.clone() };
        assert!(!swapped.is_of(key.public(), RUN), "another secret");
        let mut longer = second.list.clone();
        longer.peers.push(PeerId([3; 32]));
        assert!(!longer.is_of(key.public(), RUN));
        let dir = tempfile::tempdir().expect("a temp dir");
        assert_eq!(Renewal::load(dir.path(), RUN).expect("none"), None);
        second.store(dir.path(), RUN).expect("stored");
        assert_eq!(Renewal::load(dir.path(), RUN).expect("there"), Some(second));
    }

    #[test]
    fn the_longest_list_fits() {
        let peers = (0..MAX_REVOKED as u32).map(|at| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&at.to_be_bytes());
            PeerId(bytes)
        });
        let list = Revocations { epoch: u64::MAX, peers: peers.collect(), secret: [0; 32], signature: vec![0; 64] };
        assert!(postcard::to_allocvec(&list).expect("encoded").len() < usize::from(u16::MAX));
    }
}
