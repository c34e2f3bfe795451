//! The lines of an audit file.

use serde::{Deserialize, Serialize};
use starling_topology::ledger::{MAX_BATCH_SIZE, MAX_SHARES};
use starling_topology::{Generation, PeerId, RunId, ViewId};

use super::chain::ViewKey;
use super::{AuditHeader, AuditRecord, AuditView};
use crate::state::snapshot::parse_digest;

/// The longest line, in bytes: each sample of the largest batch in a range of its own.
pub(super) const MAX_LINE_BYTES: usize = MAX_SHARES * 128 + MAX_BATCH_SIZE as usize * 24 + 1024;
/// The format's name and version.
const FORMAT: &str = "starling-audit-1";
/// How every header begins.
const HEADER_START: &[u8] = b"{\"format\"";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonHeader {
    format: String,
    run: String,
    samples: u32,
    batch_size: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    micro_batch: u32,
    seed: u64,
    first_step: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    adopted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRecord {
    step: u64,
    generation: u64,
    view: String,
    epoch: u64,
    contributions: Vec<(String, Vec<(u32, u32)>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    last: bool,
}

/// Of a record, what says where it belongs.
#[derive(Deserialize)]
struct JsonPlace {
    step: u64,
    generation: u64,
    view: String,
}

pub(crate) fn encode_header(header: &AuditHeader) -> Vec<u8> {
    to_line(&JsonHeader {
        format: FORMAT.to_owned(),
        run: header.run.to_string(),
        samples: header.samples,
        batch_size: header.batch_size,
        micro_batch: header.micro_batch,
        seed: header.seed,
        first_step: header.first_step,
        adopted: header.adopted,
        generation: header.view.map(|view| view.generation.0),
        view: header.view.map(|view| view.view.to_string()),
        parent: header.view.and_then(|view| view.parent).map(|parent| parent.to_string()),
    })
}

pub(crate) fn encode_record(record: &AuditRecord) -> Vec<u8> {
    let contributions = record.contributions.iter().map(|(peer, ranges)| {
        let ranges = ranges.iter().map(|range| (range.start, range.end)).collect();
        (peer.to_string(), ranges)
    });
    to_line(&JsonRecord {
        step: record.step,
        generation: record.generation.0,
        view: record.view.to_string(),
        epoch: record.epoch,
        contributions: contributions.collect(),
        dropped: record.dropped.iter().map(|range| (range.start, range.end)).collect(),
        digest: record.digest.map(|digest| digest.to_string()),
        last: record.is_last,
    })
}

/// The first bytes of every audit file.
pub(super) fn header_start() -> Vec<u8> {
    [HEADER_START, b":\"", FORMAT.as_bytes()].concat()
}

/// Whether a line is a header, by its beginning alone.
pub(crate) fn is_header(line: &[u8]) -> bool {
    line.starts_with(HEADER_START)
}

/// Reads a header.
///
/// # Errors
/// What is wrong, as a sentence.
pub(crate) fn decode_header(line: &[u8]) -> Result<AuditHeader, String> {
    let json: JsonHeader = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if json.format != FORMAT {
        return Err(format!("its format is {:?}, but this release reads {FORMAT:?}", json.format));
    }
    let view_id = |text: &String| digest(text).map(ViewId);
    let parent = json.parent.as_ref().map(view_id).transpose()?;
    let view = json.view.as_ref().map(view_id).transpose()?;
    let header = AuditHeader {
        run: RunId(digest(&json.run)?),
        samples: json.samples,
        batch_size: json.batch_size,
        micro_batch: json.micro_batch,
        seed: json.seed,
        first_step: json.first_step,
        adopted: json.adopted,
        view: json.generation.zip(view).map(|(generation, view)| AuditView {
            generation: Generation(generation),
            view,
            parent,
        }),
    };
    if header.first_step == 0 { Err("steps count from 1".to_owned()) } else { Ok(header) }
}

/// Reads a record.
///
/// # Errors
/// What is wrong, as a sentence.
pub(crate) fn decode_record(line: &[u8]) -> Result<AuditRecord, String> {
    let json: JsonRecord = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let mut contributions = Vec::with_capacity(json.contributions.len());
    for (peer, ranges) in json.contributions {
        contributions.push((PeerId(digest(&peer)?), ranges.into_iter().map(|(start, end)| start..end).collect()));
    }
    Ok(AuditRecord {
        step: json.step,
        generation: Generation(json.generation),
        view: ViewId(digest(&json.view)?),
        epoch: json.epoch,
        contributions,
        dropped: json.dropped.into_iter().map(|(start, end)| start..end).collect(),
        digest: json.digest.map(|text| digest(&text)).transpose()?.map(starling_topology::Digest),
        is_last: json.last,
    })
}

/// Step and view of a record. `None` if it is none: who reads the rest of it says why.
pub(crate) fn decode_place(line: &[u8]) -> Option<(u64, ViewKey)> {
    let json: JsonPlace = serde_json::from_slice(line).ok()?;
    Some((json.step, (Generation(json.generation), ViewId(digest(&json.view).ok()?))))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    parse_digest(text).map(|digest| digest.0).ok_or_else(|| format!("{text:?} is not 64 hexadecimal digits"))
}

fn to_line(json: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(json).expect("invariant: a line has no type that cannot be JSON");
    line.push(b'\n');
    line
}
