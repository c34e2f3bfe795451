//! Putting a peer out of the run, by the founder's key.

use std::path::Path;

use starling_topology::{PeerId, RunId};

use super::DataDirError;
use super::invite::key_file;
use crate::credentials::appointment::Office;
use crate::credentials::founder::FounderKey;
use crate::credentials::revocations::{MAX_REVOKED, RevocationUpdate};
use crate::credentials::secret;
use crate::store::manifest_file::Known;

/// What a revocation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevocationReport {
    /// Of this run.
    pub run: RunId,
    /// How many peers are revoked now.
    pub count: usize,
    /// Whether this one was not before.
    pub is_new: bool,
}

/// Writes down in `data_dir`, where a running node looks, that `peer` has to go: by the founder's key in the file `key`, or in the
/// data directory.
///
/// # Errors
/// If the key is not there or not that of a run that is, or there is no room in its list.
pub fn revoke(data_dir: &Path, key: Option<&Path>, peer: PeerId) -> Result<RevocationReport, DataDirError> {
    let path = key_file(data_dir, key);
    let Some(key) = FounderKey::load(&path)? else { return Err(DataDirError::NoFounderKey(path)) };
    let known = Known::load(data_dir)?.manifests;
    let is_its = |run: RunId, founder| Office::load(data_dir, run, founder).holder() == key.public();
    let runs = known.iter().map(|manifest| (manifest.run_id(), manifest.founder));
    let Some((run, _)) = runs.into_iter().find(|(run, founder)| founder.is_some_and(|it| is_its(*run, it))) else {
        return Err(DataDirError::OtherFounder(path));
    };
    let before = RevocationUpdate::load(data_dir, run)?;
    let count = before.as_ref().map_or(0, |before| before.list.peers.len());
    let is_out = before.as_ref().is_some_and(|before| before.list.names(&peer));
    if is_out {
        return Ok(RevocationReport { run, count, is_new: false });
    }
    if count >= MAX_REVOKED {
        return Err(DataDirError::TooManyRevoked(MAX_REVOKED));
    }
    // A public run has none.
    let secret = secret::load(data_dir, run)?.secret;
    let renewal = RevocationUpdate::after(before.as_ref(), &key, run, peer, secret);
    renewal.store(data_dir, run)?;
    Ok(RevocationReport { run, count: renewal.list.peers.len(), is_new: true })
}
