//! The parsers, for whoever gives them hostile bytes. Nothing else sees them: the feature `fuzz` does.

use std::path::Path;

use crate::Dataset;
use crate::files::bounded;
use crate::idx;
use crate::images;
use crate::table::csv::{self, TableForm};

/// A data set of the table that these bytes are, gzipped or not, and have no more than `max` unpacked; `None` if they are none.
pub fn csv(bytes: &[u8], max: u64) -> Option<Dataset> {
    let raw = csv::parse(|| Ok(bytes), Path::new("table.csv"), TableForm::default(), max).ok()?;
    Dataset::build(raw, 200, 42).ok()
}

/// The same of IDX files of images and labels.
pub fn idx(images: &[u8], labels: &[u8], max: u64) -> Option<Dataset> {
    Dataset::build(idx::parse(images, labels, max).ok()?, 200, 42).ok()
}

/// The same of a file of decoded images.
pub fn images(bytes: &[u8], max: u64) -> Option<Dataset> {
    let path = Path::new("images.pack");
    Dataset::build(images::parse(bounded(bytes, path, max).ok()?, path).ok()?, 200, 42).ok()
}
