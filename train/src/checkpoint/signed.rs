//! Who vouches for a checkpoint: members of a view co-sign its head, and a quorum of them makes it stable.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use starling_topology::ledger::MAX_SHARES;
use starling_topology::{Digest, PeerId, RunId, ViewId};

use super::{CheckpointError, CheckpointInfo, CheckpointStore, write_atomically};
use crate::bytes::Reader;
use crate::snapshot::parse_digest;

const MAGIC: &[u8; 8] = b"STRLHD01";
/// The format's name and version.
const FORMAT: &str = "starling-signatures-1";
/// The longest file of signatures, in bytes: that of the largest view has 270 for each of its members.
const MAX_FILE_BYTES: u64 = 512 << 10;

/// What is signed: the state that the members of a view hold after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: u64,
    /// The view whose members sign.
    pub view: ViewId,
    /// The state's digest.
    pub digest: Digest,
    /// The checkpoint's name: blake3 of its manifest.
    pub manifest: Digest,
}

/// A member and its Ed25519 signature of a head's canonical bytes.
pub type Signature = (PeerId, [u8; 64]);

/// A head with what was collected for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// What is signed.
    pub head: Head,
    /// By whom, by ascending peer. Each was verified when it was added.
    pub signatures: Vec<Signature>,
    /// Whether a quorum of the view has signed.
    pub stable: bool,
}

impl Head {
    /// How long the canonical bytes are.
    pub const BYTES: usize = 8 + 32 + 8 + 32 + 32 + 32;

    /// The canonical bytes: what is signed.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (step, mut at) = (self.step.to_le_bytes(), 0);
        for part in [&MAGIC[..], &self.run.0, &step, &self.view.0, &self.digest.0, &self.manifest.0] {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes
    }

    /// Reads a head from its canonical bytes; `None` if they are not exactly one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::BYTES {
            return None;
        }
        let mut rest = Reader::new(bytes);
        (rest.array()? == *MAGIC).then_some(())?;
        Some(Self {
            run: RunId(rest.array()?),
            step: rest.u64()?,
            view: ViewId(rest.array()?),
            digest: Digest(rest.array()?),
            manifest: Digest(rest.array()?),
        })
    }
}

impl CheckpointStore {
    /// Adds signatures to the checkpoint that `head` names, and marks it as stable once there are `quorum` of them. Those
    /// that `verify` refuses, given the signer, the signed bytes and the signature, are left out: it is to say whether
    /// the peer is a member of the head's view and whether the signature is its own.
    ///
    /// A stable checkpoint stays stable under the head that made it so. Another head, as after a change of view, begins
    /// anew.
    ///
    /// # Errors
    /// If there is no such checkpoint, it is not of the run, step and digest that `head` says, or a file cannot be
    /// written.
    pub fn sign(
        &self,
        head: &Head,
        signatures: &[Signature],
        quorum: usize,
        verify: impl Fn(PeerId, &[u8], &[u8; 64]) -> bool,
    ) -> Result<Signed, CheckpointError> {
        let Some((info, _)) = self.find(head.manifest)? else {
            return Err(self.not_found(Some(head.step))?);
        };
        if (info.run, info.step, info.digest) != (head.run, head.step, head.digest) {
            let reason =
                format!("the signed head is of run {}, step {} and digest {}", head.run, head.step, head.digest);
            return Err(CheckpointError::Malformed { path: info.path, reason });
        }
        let before = self.signed(&info);
        let mut signed = match &before {
            Some(signed) if signed.head == *head => signed.clone(),
            Some(signed) if signed.stable => return Ok(signed.clone()),
            Some(_) | None => Signed { head: *head, signatures: Vec::new(), stable: false },
        };
        let message = head.encode();
        for (peer, signature) in signatures {
            let place = signed.signatures.binary_search_by_key(peer, |(peer, _)| *peer);
            if let Err(at) = place
                && signed.signatures.len() < MAX_SHARES
                && verify(*peer, &message, signature)
            {
                signed.signatures.insert(at, (*peer, *signature));
            }
        }
        signed.stable |= signed.signatures.len() >= quorum.max(1);
        if before.as_ref() != Some(&signed) {
            write_atomically(&signatures_path(&info.path), &encode(&signed))?;
        }
        Ok(signed)
    }

    /// The signatures of a checkpoint, if it has any. A file that cannot be read counts for none: they come again.
    pub fn signed(&self, checkpoint: &CheckpointInfo) -> Option<Signed> {
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

    /// The last checkpoint that is stable and intact, every byte read and hashed. `None` if there is none.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn newest_stable(&self) -> Result<Option<CheckpointInfo>, CheckpointError> {
        let mut candidates = self.intact()?;
        candidates.retain(|(info, _)| self.is_stable(info));
        let found = candidates.into_iter().rev().find(|(info, manifest)| self.read_state(manifest, &info.path).is_ok());
        Ok(found.map(|(info, _)| info))
    }

    pub(super) fn is_stable(&self, checkpoint: &CheckpointInfo) -> bool {
        self.signed(checkpoint).is_some_and(|signed| signed.stable)
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
    stable: bool,
    signatures: Vec<(String, String)>,
}

fn encode(signed: &Signed) -> Vec<u8> {
    let signatures = signed.signatures.iter().map(|(peer, signature)| (peer.to_string(), hex::encode(signature)));
    let json = Json {
        format: FORMAT.to_owned(),
        head: hex::encode(signed.head.encode()),
        stable: signed.stable,
        signatures: signatures.collect(),
    };
    serde_json::to_vec_pretty(&json).expect("invariant: signatures have no type that cannot be JSON")
}

fn decode(bytes: &[u8]) -> Option<Signed> {
    let json: Json = serde_json::from_slice(bytes).ok()?;
    (json.format == FORMAT && json.signatures.len() <= MAX_SHARES).then_some(())?;
    let head = Head::decode(&hex::decode(json.head).ok()?)?;
    let signature = |(peer, signature): &(String, String)| {
        let mut bytes = [0; 64];
        hex::decode_to_slice(signature, &mut bytes).ok()?;
        Some((PeerId(parse_digest(peer)?.0), bytes))
    };
    let signatures = json.signatures.iter().map(signature).collect::<Option<Vec<_>>>()?;
    signatures.is_sorted_by(|(a, _), (b, _)| a < b).then_some(Signed { head, signatures, stable: json.stable })
}
