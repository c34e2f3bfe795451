//! The embedded handwritten digits.
//!
//! 1,797 images of 8x8 pixels with values 0 to 16: the test part of "Optical Recognition of Handwritten Digits" by
//! E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository, <https://doi.org/10.24432/C50P49>, licensed under
//! [CC BY 4.0](https://creativecommons.org/licenses/by/4.0/). The values are unchanged; the file was compressed.

use std::path::{Path, PathBuf};

use starling_run::Kind;
use starling_run::data::DIGITS;

use crate::error::DataError;
use crate::samples::raw::{Raw, Scaling};
use crate::source::Source;
use crate::table::csv::{self, TableForm, TableLimits};
use crate::{DataOptions, Delimiter};

pub(super) const ROWS: &[u8] = include_bytes!("../digits.csv.gz");

/// What has no file.
const KIND: Kind = Kind { name: DIGITS, files: &[], holds_out: false };

/// The reader of the embedded file: 64 pixels and the digit per row.
#[derive(Debug)]
pub(super) struct Digits;

impl Source for Digits {
    fn kinds(&self) -> &'static [Kind] {
        &[KIND]
    }

    fn without_columns(&self, _: &str) -> Result<Option<&'static str>, DataError> {
        Ok(Some("it stands for the built-in images of digits"))
    }

    fn knows(&self, source: &str) -> Result<bool, DataError> {
        Ok(source == DIGITS)
    }

    fn files(&self, _: &str) -> Result<(Kind, Vec<PathBuf>), DataError> {
        Ok((KIND, Vec::new()))
    }

    fn read(&self, options: &DataOptions) -> Result<Raw, DataError> {
        let form = TableForm { header: Some(false), delimiter: Some(Delimiter::Comma), ..TableForm::default() };
        let raw = csv::parse(|| Ok(ROWS), Path::new("digits (embedded)"), form, TableLimits::of(options))?;
        let (origin, scaling) = (DIGITS.to_owned(), Scaling::Divide(16.0));
        Ok(Raw {
            kind: KIND,
            origin,
            shape: [1, 8, 8],
            scaling,
            columns: None,
            doubts: Vec::new(),
            class_doubts: Vec::new(),
            ..raw
        })
    }
}
