//! Who vouches for a checkpoint: members of a view co-sign its head, and a quorum of them makes it stable.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use starling_topology::heads::follower::{MAX_BRANCHES, branch};
use starling_topology::heads::retention::{CheckpointRecord, ForkStatus};
use starling_topology::ledger::MAX_SHARES;
use starling_topology::view::MAX_VIEW_BYTES;
use starling_topology::{Head, PeerId, Proof, Root, Signature, View};

use super::{CheckpointError, CheckpointStore, CheckpointSummary, write_atomically};
use crate::state::snapshot::parse_digest;

/// The format's name and version.
const FORMAT: &str = "starling-signatures-5";
/// The longest file of signatures, in bytes: that of the largest view has 270 for each of its members, and the view.
const MAX_FILE_BYTES: u64 = (512 << 10) + 2 * MAX_VIEW_BYTES as u64;

/// A head with what was collected for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHead {
    /// What is signed.
    pub head: Head,
    /// The view whose members sign.
    pub view: View,
    /// By whom, by ascending peer. Each was verified when it was added.
    pub signatures: Vec<Signature>,
    /// Whether a quorum of the view has signed.
    pub stable: bool,
}

impl SignedHead {
    /// What convinces others that the checkpoint is stable; `None` if it is not.
    pub fn proof(&self) -> Option<Proof> {
        let proof = Proof { head: self.head, view: self.view.clone(), signatures: self.signatures.clone() };
        self.stable.then_some(proof)
    }
}

impl CheckpointStore {
    /// Adds signatures to the checkpoint that `head` names, and marks it as stable once a quorum of `view`, which is the
    /// head's, has signed. Those of others are left out, and those that `verify` refuses, given the signer, the signed
    /// bytes and the signature: it is to say whether the signature is the peer's own.
    ///
    /// A stable checkpoint stays stable under the head that made it so. Another head, as after a change of view, begins
    /// anew.
    ///
    /// # Errors
    /// If there is no such checkpoint, it is not of the run, step and digest that `head` says, `view` is not the head's, or
    /// a file cannot be written.
    pub fn sign(
        &self,
        head: &Head,
        view: &View,
        signatures: &[Signature],
        verify: impl Fn(PeerId, &[u8], &[u8; 64]) -> bool,
    ) -> Result<SignedHead, CheckpointError> {
        let Some((info, _)) = self.find(head.manifest)? else {
            return Err(self.not_found(Some(head.step))?);
        };
        if (info.run, info.step, info.digest) != (head.run, head.step, head.digest) {
            let reason =
                format!("the signed head is of run {}, step {} and digest {}", head.run, head.step, head.digest);
            return Err(CheckpointError::Malformed { path: info.path, reason });
        }
        if view.id() != head.view {
            let reason = format!("the signed head is of view {}, not of {}", head.view, view.id());
            return Err(CheckpointError::Malformed { path: info.path, reason });
        }
        let before = self.signed(&info);
        let mut signed = match &before {
            Some(signed) if signed.head == *head => signed.clone(),
            Some(signed) if signed.stable => return Ok(signed.clone()),
            Some(_) | None => SignedHead { head: *head, view: view.clone(), signatures: Vec::new(), stable: false },
        };
        let message = head.encode();
        for (peer, signature) in signatures {
            let place = signed.signatures.binary_search_by_key(peer, |(peer, _)| *peer);
            if let Err(at) = place
                && view.contains(*peer)
                && verify(*peer, &message, signature)
            {
                signed.signatures.insert(at, (*peer, *signature));
            }
        }
        signed.stable |= view.has_quorum(&signed.signatures.iter().map(|(peer, _)| *peer).collect());
        if before.as_ref() != Some(&signed) {
            write_atomically(&signatures_path(&info.path), &encode(&signed))?;
        }
        Ok(signed)
    }

    /// The signatures of a checkpoint, if it has any. A file that cannot be read counts for none: they come again.
    pub fn signed(&self, checkpoint: &CheckpointSummary) -> Option<SignedHead> {
        let path = signatures_path(&checkpoint.path);
        let len = std::fs::metadata(&path).ok()?.len();
        if len > MAX_FILE_BYTES {
            return None;
        }
        let signed = decode(&std::fs::read(&path).ok()?)?;
        let (run, step, digest, id) = (checkpoint.run, checkpoint.step, checkpoint.digest, checkpoint.id);
        let is_its_own =
            (signed.head.run, signed.head.step, signed.head.digest, signed.head.manifest) == (run, step, digest, id);
        is_its_own.then_some(signed)
    }

    /// The last checkpoint that is stable and intact, every byte read and hashed, and that `root` admits; without a root, that
    /// was not put aside. `None` if there is none.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn newest_stable(&self, root: Option<&Root>) -> Result<Option<CheckpointSummary>, CheckpointError> {
        let (mut candidates, abandoned) = (self.intact()?, self.abandoned()?);
        let counts = |info: &CheckpointSummary| match root {
            Some(root) => root.admits(info.step, info.lineage),
            None => !abandoned.all.contains(&info.id),
        };
        candidates.retain(|(info, _)| counts(info) && self.is_stable(info));
        let found =
            candidates.into_iter().rev().find(|(info, manifest)| self.check_bytes(manifest, &info.path).is_ok());
        Ok(found.map(|(info, _)| info))
    }

    /// Who has signed the last stable checkpoint of each branch, newest first, for peers that want to fetch them: as many branches as
    /// keepers follow. Only those that are states: reads the chunks of what this process has not read before; each is verified again
    /// when it is handed out.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn newest_proofs(&self) -> Result<Vec<Proof>, CheckpointError> {
        let (candidates, abandoned) = (self.intact()?, self.abandoned()?);
        let usable = candidates.iter().rev().filter(|(info, _)| !abandoned.all.contains(&info.id));
        let mut found: Vec<Proof> = Vec::new();
        for (info, manifest) in usable {
            let Some(proof) = self.signed(info).and_then(|signed| signed.proof()) else { continue };
            let is_seen = found.iter().any(|newer| branch(&newer.view) == branch(&proof.view));
            let is_next = !is_seen && found.len() < MAX_BRANCHES;
            if is_next && (self.sound.has(info.id) || self.check_bytes(manifest, &info.path).is_ok()) {
                found.push(proof);
            }
        }
        Ok(found)
    }

    pub(super) fn is_stable(&self, checkpoint: &CheckpointSummary) -> bool {
        self.signed(checkpoint).is_some_and(|signed| signed.stable)
    }

    /// What decides whether it is gone on from, and whether it stays.
    pub(super) fn held_as(&self, checkpoint: &CheckpointSummary) -> CheckpointRecord {
        let signed = self.signed(checkpoint).filter(|signed| signed.stable);
        let stable = signed.map(|signed| ForkStatus(signed.view.forked));
        CheckpointRecord { step: checkpoint.step, lineage: checkpoint.lineage, stable }
    }
}

/// The file beside a manifest that holds its signatures.
pub(super) fn signatures_path(manifest: &Path) -> PathBuf {
    manifest.with_extension("signed.json")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    format: String,
    head: String,
    view: String,
    stable: bool,
    signatures: Vec<(String, String)>,
}

pub(crate) fn encode(signed: &SignedHead) -> Vec<u8> {
    let signatures = signed.signatures.iter().map(|(peer, signature)| (peer.to_string(), hex::encode(signature)));
    let json = Json {
        format: FORMAT.to_owned(),
        head: hex::encode(signed.head.encode()),
        view: hex::encode(signed.view.encode()),
        stable: signed.stable,
        signatures: signatures.collect(),
    };
    serde_json::to_vec_pretty(&json).expect("invariant: signatures have no type that cannot be JSON")
}

pub(crate) fn decode(bytes: &[u8]) -> Option<SignedHead> {
    let json: Json = serde_json::from_slice(bytes).ok()?;
    (json.format == FORMAT && json.signatures.len() <= MAX_SHARES).then_some(())?;
    let head = Head::decode(&hex::decode(json.head).ok()?)?;
    let view = View::decode(&hex::decode(json.view).ok()?).ok()?;
    let signature = |(peer, signature): &(String, String)| {
        let mut bytes = [0; 64];
        hex::decode_to_slice(signature, &mut bytes).ok()?;
        Some((PeerId(parse_digest(peer)?.0), bytes))
    };
    let signatures = json.signatures.iter().map(signature).collect::<Option<Vec<_>>>()?;
    let is_sound = signatures.is_sorted_by(|(a, _), (b, _)| a < b) && view.id() == head.view;
    let signed = SignedHead { head, view, signatures, stable: json.stable };
    // What says of itself that it is stable need not be.
    (is_sound && signed.proof().is_none_or(|proof| proof.is_quorum())).then_some(signed)
}
