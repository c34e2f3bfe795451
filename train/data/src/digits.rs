//! The embedded handwritten digits.
//!
//! 1,797 images of 8x8 pixels with values 0 to 16: the test part of "Optical Recognition of Handwritten Digits" by
//! E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository, <https://doi.org/10.24432/C50P49>, licensed under
//! [CC BY 4.0](https://creativecommons.org/licenses/by/4.0/). The values are unchanged; the file was compressed.

use std::path::Path;

use super::Delimiter;
use super::csv::{self, Form};
use super::error::DataError;
use super::raw::{Raw, Scaling};

const DIGITS: &[u8] = include_bytes!("../digits.csv.gz");

/// Reads the embedded file: 64 pixels and the digit per row.
pub(super) fn read() -> Result<Raw, DataError> {
    let form = Form { label: None, header: Some(false), delimiter: Some(Delimiter::Comma) };
    let raw = csv::parse(DIGITS, Path::new("digits (embedded)"), form, u64::MAX)?;
    let (origin, scaling) = ("digits".to_owned(), Scaling::Divide(16.0));
    Ok(Raw { kind: super::DIGITS, origin, shape: [1, 8, 8], scaling, columns: None, doubts: Vec::new(), ..raw })
}
