//! The parsers, for whoever gives them hostile bytes. Nothing else sees them: the feature `fuzz` does.

use std::path::Path;

use crate::Dataset;
use crate::files::bounded;
use crate::idx;
use crate::images;
use crate::table::csv::{self, TableForm, TableLimits};
use crate::text::folder::Told;
use crate::text::shard::{MAX_SHARD_BYTES, ShardHeader};

/// What the values of a table may take.
const HELD_BYTES: u64 = 64 << 20;

/// A data set of the table that these bytes are, gzipped or not, and have no more than `max` unpacked; `None` if they are none.
pub fn csv(bytes: &[u8], max: u64) -> Option<Dataset> {
    let limits = TableLimits { max, held: HELD_BYTES };
    let raw = csv::parse(|| Ok(bytes), Path::new("table.csv"), TableForm::default(), limits).ok()?;
    Dataset::build(raw, 200, 42).ok()
}

/// The same of IDX files of images and labels.
pub fn idx(images: &[u8], labels: &[u8], max: u64) -> Option<Dataset> {
    Dataset::build(idx::parse(images, labels, max).ok()?, 200, 42).ok()
}

/// The same of a file of decoded images.
pub fn images(bytes: &[u8], max: u64) -> Option<Dataset> {
    let path = Path::new("images.pack");
    Dataset::build(images::parse(bounded(bytes, path, max).ok()?, path, u64::MAX).ok()?, 200, 42).ok()
}

/// Whether these bytes are what a prepared text says of itself, or the header of a file of its tokens.
pub fn tokens(bytes: &[u8]) -> bool {
    let header = bytes.first_chunk().and_then(|header| ShardHeader::decode(header).ok());
    let is_header = header.is_some_and(|header| {
        let length = header.file_bytes();
        assert!(length <= MAX_SHARD_BYTES && bytes.starts_with(&header.encode()), "it reads as another one");
        true
    });
    let told = Told::decode(bytes);
    is_header || told.is_ok_and(|told| Told::decode(&told.encode()) == Ok(told))
}
