//! The manifest file of a checkpoint.

use serde::{Deserialize, Serialize};
use starling_topology::{Digest, RunId};

use super::CHUNK_BYTES;

/// The format's name and version.
const FORMAT: &str = "starling-checkpoint-1";

/// What a checkpoint consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) run: RunId,
    pub(super) step: u64,
    /// Of the state's canonical bytes.
    pub(super) digest: Digest,
    /// How long these are.
    pub(super) bytes: u64,
    /// Their chunks, in order.
    pub(super) chunks: Vec<Digest>,
}

/// The record as JSON, with hashes as people and tools write them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    format: String,
    run: String,
    step: u64,
    digest: String,
    bytes: u64,
    chunks: Vec<String>,
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let json = Json {
            format: FORMAT.to_owned(),
            run: self.run.to_string(),
            step: self.step,
            digest: self.digest.to_string(),
            bytes: self.bytes,
            chunks: self.chunks.iter().map(Digest::to_string).collect(),
        };
        let mut bytes = serde_json::to_vec_pretty(&json).expect("invariant: a record has no type that cannot be JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let json: Json = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if json.format != FORMAT {
            return Err(format!("its format is `{}`, but this release reads `{FORMAT}`", json.format));
        }
        let digest = |text: &str| parse_digest(text).ok_or_else(|| format!("`{text}` is not a blake3 hash"));
        let record = Self {
            run: RunId(digest(&json.run)?.0),
            step: json.step,
            digest: digest(&json.digest)?,
            bytes: json.bytes,
            chunks: json.chunks.iter().map(|chunk| digest(chunk)).collect::<Result<_, _>>()?,
        };
        if record.bytes.div_ceil(CHUNK_BYTES as u64) != record.chunks.len() as u64 {
            return Err(format!("{} bytes do not make {} chunks", record.bytes, record.chunks.len()));
        }
        Ok(record)
    }
}

/// A hash written as 64 lowercase hexadecimal digits.
pub(super) fn parse_digest(text: &str) -> Option<Digest> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    // One hash has one name.
    (!text.bytes().any(|byte| byte.is_ascii_uppercase())).then_some(Digest(bytes))
}
