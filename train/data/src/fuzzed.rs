//! The parsers, for whoever gives them hostile bytes. Nothing else sees them: the feature `fuzz` does.

use std::fs;
use std::path::Path;

use starling_run::TokenizerSpec;

use crate::files::bounded;
use crate::idx;
use crate::images;
use crate::table::csv::{self, TableForm, TableLimits};
use crate::text::folder::Told;
use crate::text::shard::{MAX_SHARD_BYTES, ShardHeader};
use crate::{DataOptions, Dataset, Tokenizer};

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

/// Whether these bytes are a tar archive of images, by the names in it, each of which lies in it.
pub fn archive(bytes: &[u8]) -> bool {
    in_a_file("images.tar", bytes, |path| {
        let Ok(listed) = images::archived(path, true) else { return false };
        for image in &listed.images {
            let read = image.bytes(path).expect("it was found there");
            assert!(read.len() <= bytes.len(), "it is longer than the archive");
            assert!(image.class.is_some_and(|class| (class as usize) < listed.classes.len()), "its class is none");
        }
        true
    })
}

/// A data set of the Parquet file that these bytes are, held or, of several row groups, in its file; `None` if they are none.
pub fn parquet(bytes: &[u8], is_held: bool) -> Option<Dataset> {
    in_a_file("table.parquet", bytes, |path| {
        let held_bytes = if is_held { HELD_BYTES } else { PLACED_BYTES };
        let options = DataOptions { source: path.display().to_string(), held_bytes, ..DataOptions::default() };
        let dataset = Dataset::load(&options).ok()?;
        let all: Vec<u32> = (0..dataset.training().len() as u32).collect();
        let _ = dataset.training().read(&all);
        Some(dataset)
    })
}

/// What a table may take that is to stay in its file.
const PLACED_BYTES: u64 = 150;

/// A Parquet file with numbers, gaps, texts and classes in row groups of four rows.
pub fn parquet_file(is_packed: bool) -> Vec<u8> {
    use std::sync::Arc;

    use ::parquet::arrow::ArrowWriter;
    use ::parquet::basic::Compression;
    use ::parquet::file::properties::WriterProperties;
    use arrow_array::{ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray};

    const ROWS: i32 = 20;
    let sizes = (0..ROWS).map(|row| (row % 5 != 0).then(|| f64::from(row) * 1.5));
    let colors = (0..ROWS).map(|row| ["red", "blue"][row as usize % 3 % 2]);
    let columns: [(&str, ArrayRef); 3] = [
        ("size", Arc::new(sizes.collect::<Float64Array>())),
        ("color", Arc::new(StringArray::from_iter_values(colors))),
        ("kind", Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| row % 2)))),
    ];
    let compression = if is_packed { Compression::SNAPPY } else { Compression::UNCOMPRESSED };
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(4)).set_compression(compression);
    let batch = RecordBatch::try_from_iter(columns).expect("equally long");
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).expect("in memory");
    writer.write(&batch).expect("in memory");
    writer.close().expect("in memory");
    bytes
}

/// Whether these bytes are a `tokenizer.json`: what it makes of a text are tokens that it has.
pub fn tokenizer(bytes: &[u8]) -> bool {
    let Ok(json) = std::str::from_utf8(bytes) else { return false };
    let Ok(tokenizer) = Tokenizer::open(&TokenizerSpec { json: json.to_owned(), end: 0 }) else { return false };
    if let Ok(tokens) = tokenizer.encode("a text, of some words\n\u{1f600}") {
        let _spelled: usize = tokens.iter().map(|token| tokenizer.spelled(*token).len()).sum();
        assert!(tokens.iter().all(|token| *token < tokenizer.tokens()), "it makes tokens that it has not");
    }
    true
}

/// A `tokenizer.json` of all bytes and a few merges.
pub fn tokenizer_file() -> Vec<u8> {
    let made = Tokenizer::of_merges(&[(116, 104), (257, 101), (32, 258)]).expect("a few merges");
    made.spec().json.clone().into_bytes()
}

/// What becomes of bytes as a file of this name, which is gone then.
fn in_a_file<T>(name: &str, bytes: &[u8], take: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("there is room for a file");
    take(&path)
}
