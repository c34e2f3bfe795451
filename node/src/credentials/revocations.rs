//! Who has to go, signed by the founder's key: the whole list each time, with a number that rises.
//!
//! A list brings a new secret with it. The secret is not in what is signed, only its hash, and those of the ones before: the list
//! is shown to whoever it names, the secret to members alone.
//!
//! Of two lists of one number, which a copy of the key makes, the one with the lower hash counts, everywhere.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use starling_topology::{PeerId, RunId};

use crate::credentials::founder::FounderKey;
use crate::credentials::identity::has_signed;
use crate::error::NodeError;
use crate::store::private_file;

/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling revokes 2";
/// The most peers that a run may have revoked.
pub const MAX_REVOKED: usize = 1024;
/// Secrets that still lead to the judgement of who knows them: the newest and those before.
pub const MAX_SECRETS: usize = 32;

/// Whom the founder has revoked so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationSet {
    /// How many revocations there have been.
    pub epoch: u64,
    /// Who has to go, sorted.
    pub peers: Vec<PeerId>,
    /// blake3 of the secret since, and of those before, the newest first; none of a public run.
    secrets: Vec<[u8; 32]>,
    /// The founder's, 64 bytes.
    signature: Vec<u8>,
}

/// A list, and the secrets that it leads to, as far as they are known: the newest one first. None of a public run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationUpdate {
    /// The list.
    pub list: RevocationSet,
    /// The secret since, and earlier ones.
    pub secrets: Vec<[u8; 32]>,
}

impl fmt::Debug for RevocationUpdate {
    /// Leaves the secrets out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocationUpdate").field("list", &self.list).finish_non_exhaustive()
    }
}

impl RevocationUpdate {
    /// What follows `before` once `peer` is revoked as well. `now`: the secret until then, of a private run.
    pub fn after(before: Option<&Self>, key: &FounderKey, run: RunId, peer: PeerId, now: Option<[u8; 32]>) -> Self {
        let mut peers = before.map(|before| before.list.peers.clone()).unwrap_or_default();
        if let Err(at) = peers.binary_search(&peer) {
            peers.insert(at, peer);
        }
        // A later key counts its own: one that was stolen may have used up all numbers.
        let own = before.filter(|before| before.list.is_of(key.public(), run));
        let epoch = own.map_or(0, |before| before.list.epoch).saturating_add(1);
        let mut secrets: Vec<[u8; 32]> = now.iter().map(|_| rand::random()).collect();
        // Who knows one of a list that has lost to another gets in all the same.
        let known = before.map(|before| before.secrets.as_slice()).unwrap_or_default();
        for known in now.iter().chain(known).filter(|_| now.is_some()) {
            if !secrets.contains(known) {
                secrets.push(*known);
            }
        }
        secrets.truncate(MAX_SECRETS);
        let hashes = secrets.iter().map(hash).collect();
        let mut list = RevocationSet { epoch, peers, secrets: hashes, signature: Vec::new() };
        list.signature = key.sign(&list.statement(run));
        Self { list, secrets }
    }

    /// Whether the founder has signed the list, and it came with its secret.
    pub(crate) fn is_of(&self, founder: PeerId, run: RunId) -> bool {
        self.list.secrets.first().copied() == self.secrets.first().map(hash) && self.list.is_of(founder, run)
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

impl RevocationSet {
    /// Whether the founder has signed it.
    pub(crate) fn is_of(&self, founder: PeerId, run: RunId) -> bool {
        let is_sorted = self.peers.len() <= MAX_REVOKED && self.peers.windows(2).all(|pair| pair[0] < pair[1]);
        let signature = <&[u8; 64]>::try_from(self.signature.as_slice());
        is_sorted
            && self.secrets.len() <= MAX_SECRETS
            && signature.is_ok_and(|signature| has_signed(founder, &self.statement(run), signature))
    }

    /// Whether it names this peer.
    pub fn names(&self, peer: &PeerId) -> bool {
        self.peers.binary_search(peer).is_ok()
    }

    /// Whether this secret came with it, or with one before.
    pub(crate) fn covers(&self, secret: &[u8; 32]) -> bool {
        self.secrets.contains(&hash(secret))
    }

    /// What tells lists of one number apart.
    pub(crate) fn mark(&self) -> [u8; 32] {
        hash(&self.content())
    }

    /// Whether it counts, and not the other, wherever both are known.
    pub(crate) fn precedes(&self, other: &Self) -> bool {
        self.epoch > other.epoch || self.epoch == other.epoch && self.mark() < other.mark()
    }

    fn content(&self) -> Vec<u8> {
        postcard::to_allocvec(&(self.epoch, &self.peers, &self.secrets)).expect("invariant: a list always encodes")
    }

    fn statement(&self, run: RunId) -> Vec<u8> {
        [PURPOSE, &run.0, &self.content()].concat()
    }
}

fn hash(bytes: &(impl AsRef<[u8]> + ?Sized)) -> [u8; 32] {
    *blake3::hash(bytes.as_ref()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId([3; 32]);

    #[test]
    fn a_list_grows_by_one_and_only_its_founder_can_write_it() {
        let (key, other) = (FounderKey::generate(), FounderKey::generate());
        let [a, b] = [1, 2].map(|name| PeerId([name; 32]));
        let first = RevocationUpdate::after(None, &key, RUN, b, Some([9; 32]));
        let second = RevocationUpdate::after(Some(&first), &key, RUN, a, first.secrets.first().copied());
        assert_eq!((second.list.epoch, &second.list.peers[..]), (2, &[a, b][..]));
        assert!(second.is_of(key.public(), RUN) && second.list.names(&a));
        assert!(!second.is_of(other.public(), RUN) && !second.is_of(key.public(), RunId([4; 32])));
        let swapped = RevocationUpdate { secrets: vec![[9; 32]], ..second.clone() };
        assert!(!swapped.is_of(key.public(), RUN), "an earlier secret");
        assert_eq!(second.secrets[1..], [first.secrets[0], [9; 32]], "who was away for both has the first");
        assert!(
            second.secrets.iter().all(|secret| second.list.covers(secret)) && !first.list.covers(&second.secrets[0])
        );
        let mut longer = second.list.clone();
        longer.peers.push(PeerId([3; 32]));
        assert!(!longer.is_of(key.public(), RUN));
        let dir = tempfile::tempdir().expect("a temp dir");
        assert_eq!(RevocationUpdate::load(dir.path(), RUN).expect("none"), None);
        second.store(dir.path(), RUN).expect("stored");
        assert_eq!(RevocationUpdate::load(dir.path(), RUN).expect("there"), Some(second));
    }

    #[test]
    fn of_two_lists_of_one_number_the_same_counts_everywhere() {
        let key = FounderKey::generate();
        let [a, b] =
            [1, 2].map(|name| RevocationUpdate::after(None, &key, RUN, PeerId([name; 32]), Some([9; 32])).list);
        assert!(a.precedes(&b) != b.precedes(&a) && !a.precedes(&a));
        let before = RevocationUpdate { list: a.clone(), secrets: Vec::new() };
        let later = RevocationUpdate::after(Some(&before), &key, RUN, PeerId([3; 32]), None).list;
        assert!(later.precedes(&a) && later.precedes(&b) && !b.precedes(&later));
    }

    #[test]
    fn the_longest_list_fits() {
        let peers = (0..MAX_REVOKED as u32).map(|at| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&at.to_be_bytes());
            PeerId(bytes)
        });
        let list = RevocationSet {
            epoch: u64::MAX,
            peers: peers.collect(),
            secrets: vec![[0; 32]; MAX_SECRETS],
            signature: vec![0; 64],
        };
        assert!(postcard::to_allocvec(&list).expect("encoded").len() < usize::from(u16::MAX));
    }
}
