//! What a snapshot consists of.

use serde::{Deserialize, Serialize};
use starling_topology::{Digest, Lineage, RunId};

use super::{CHUNK_BYTES, SnapshotError, hash};

/// The longest encoded manifest, in bytes: enough for the chunks of the largest state, at 72 bytes each.
pub const MAX_SNAPSHOT_MANIFEST_BYTES: usize = 3 << 20;
/// The format's name and version.
const FORMAT: &str = "starling-checkpoint-4";

/// What a replicated state consists of when it is stored or sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotManifest {
    /// The run it belongs to.
    pub run: RunId,
    /// The last step it includes.
    pub step: u64,
    /// The view in which that step was committed: the state's lineage.
    pub lineage: Lineage,
    /// The state's digest: blake3 of its canonical bytes.
    pub digest: Digest,
    /// blake3 over its [values](crate::ReplicatedState::values) alone.
    pub values: Digest,
    /// How long the canonical bytes are.
    pub bytes: u64,
    /// blake3 of each chunk, in order. Chunks may be equal.
    pub chunks: Vec<Digest>,
}

/// The manifest as JSON, with hashes as people and tools write them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    format: String,
    run: String,
    step: u64,
    lineage: String,
    digest: String,
    values: String,
    bytes: u64,
    chunks: Vec<String>,
}

impl SnapshotManifest {
    /// The canonical bytes: JSON, as a checkpoint's manifest file has it.
    pub fn encode(&self) -> Vec<u8> {
        let json = Json {
            format: FORMAT.to_owned(),
            run: self.run.to_string(),
            step: self.step,
            lineage: self.lineage.to_string(),
            digest: self.digest.to_string(),
            values: self.values.to_string(),
            bytes: self.bytes,
            chunks: self.chunks.iter().map(Digest::to_string).collect(),
        };
        let mut bytes =
            serde_json::to_vec_pretty(&json).expect("invariant: a manifest has no type that cannot be JSON");
        bytes.push(b'\n');
        bytes
    }

    /// The snapshot's name: blake3 of the canonical bytes.
    pub fn id(&self) -> Digest {
        hash(&self.encode())
    }

    /// Reads a manifest from its canonical bytes.
    ///
    /// # Errors
    /// If the bytes are too long, or not exactly one manifest whose chunks make up its bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let fail = |reason: String| SnapshotError::Manifest { reason };
        if bytes.len() > MAX_SNAPSHOT_MANIFEST_BYTES {
            return Err(fail(format!("it is longer than {MAX_SNAPSHOT_MANIFEST_BYTES} bytes")));
        }
        let json: Json = serde_json::from_slice(bytes).map_err(|error| fail(error.to_string()))?;
        if json.format != FORMAT {
            // The text is another machine's: `{:?}` shows what it does to a terminal without doing it.
            return Err(fail(format!("its format is {:?}, but this release reads {FORMAT:?}", json.format)));
        }
        let digest = |text: &str| parse_digest(text).ok_or_else(|| fail(format!("{text:?} is not a blake3 hash")));
        let manifest = Self {
            run: RunId(digest(&json.run)?.0),
            step: json.step,
            lineage: lineage(&json.lineage).ok_or_else(|| fail(format!("{:?} is no lineage", json.lineage)))?,
            digest: digest(&json.digest)?,
            values: digest(&json.values)?,
            bytes: json.bytes,
            chunks: json.chunks.iter().map(|chunk| digest(chunk)).collect::<Result<_, _>>()?,
        };
        if manifest.bytes.div_ceil(CHUNK_BYTES as u64) != manifest.chunks.len() as u64 {
            return Err(fail(format!("{} bytes do not make {} chunks", manifest.bytes, manifest.chunks.len())));
        }
        if manifest.encode() != bytes {
            return Err(fail("it is not in its canonical form".to_owned()));
        }
        Ok(manifest)
    }

    /// How long the chunk at this place is, in bytes.
    pub fn chunk_len(&self, at: usize) -> u64 {
        (self.bytes - (at * CHUNK_BYTES) as u64).min(CHUNK_BYTES as u64)
    }
}

/// A lineage as [`Lineage`] writes it.
fn lineage(text: &str) -> Option<Lineage> {
    let mut bytes = [0; Lineage::BYTES];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(Lineage::from_bytes(bytes))
}

/// A hash written as 64 lowercase hexadecimal digits.
pub(crate) fn parse_digest(text: &str) -> Option<Digest> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    // One hash has one name.
    (!text.bytes().any(|byte| byte.is_ascii_uppercase())).then_some(Digest(bytes))
}
