//! Parquet files: the columns of a table as the cells of its rows.
//!
//! Numbers, texts, and dates and times as texts; columns that hold several values are refused by name. What joiners get is the table as text:
//! no machine reads a Parquet file of another one.

pub(crate) mod row_groups;

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use ::parquet::basic::Compression;
use ::parquet::file::metadata::ParquetMetaData;
use arrow_array::cast::AsArray;
use arrow_array::types::{self, ArrowPrimitiveType};
use arrow_array::{Array, PrimitiveArray, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Schema, TimeUnit};
use atomic_write_file::AtomicWriteFile;
use starling_run::Kind;
use starling_run::manifest::MAX_FEATURES;
use starling_run::panics::said;

use crate::error::DataError;
use crate::samples::raw::Raw;
use crate::shorten;
use crate::source::Source;
use crate::table::csv::{self, PieceIterator, Placing, RowsSource, TableForm, TableLimits};
use crate::table::form::RowForm;
use crate::table::pieces::{MAX_ROW_BYTES, Piece};
use crate::table::row_text::{BadRow, END_OF_NAMES, END_OF_ROW, RowSource, RowText, push};
use crate::table::rows::Text;
use crate::table::survey::bad_rows::BadRowsReport;
use crate::{DataOptions, Delimiter};
use row_groups::RowGroups;

/// How such a file begins and ends.
const MAGIC: &[u8; 4] = b"PAR1";
/// Rows that are decoded at once, and about how many bytes of them are given at once.
const AT_ONCE: usize = 1024;
const GIVEN_BYTES: usize = 1 << 20;

/// The reader of a Parquet file.
#[derive(Debug)]
pub(crate) struct Parquet;

impl Source for Parquet {
    /// What it reads is a table like others.
    fn kinds(&self) -> &'static [Kind] {
        &[]
    }

    fn without_columns(&self, _: &str) -> Result<Option<&'static str>, DataError> {
        Ok(None)
    }

    fn knows(&self, source: &str) -> Result<bool, DataError> {
        is_one(Path::new(source))
    }

    /// What others get has to be made first.
    fn files(&self, _: &str) -> Result<(Kind, Vec<PathBuf>), DataError> {
        Ok((csv::KIND, Vec::new()))
    }

    fn shared(&self, options: &DataOptions, folder: &Path) -> Result<(Kind, Vec<PathBuf>), DataError> {
        let mut rows = RowText::new(Rows::open(Path::new(&options.source))?);
        let path = folder.join(csv::KIND.files[0]);
        let mut written = || {
            fs::create_dir_all(folder)?;
            let mut file = AtomicWriteFile::open(&path)?;
            let mut out = BufWriter::new(&mut file);
            io::copy(&mut rows, &mut out)?;
            out.flush()?;
            drop(out);
            file.commit()
        };
        written().map_err(|source| DataError::Unwritable { path: path.clone(), source })?;
        Ok((csv::KIND, vec![path]))
    }

    fn bad_rows(&self, options: &DataOptions, most: usize) -> Result<BadRowsReport, DataError> {
        let path = Path::new(&options.source);
        let groups = Arc::new(RowGroups::open(path, options.held_bytes)?);
        csv::bad_rows(&ParquetSource(groups), path, TableForm::of(options), most)
    }

    fn read(&self, options: &DataOptions) -> Result<Raw, DataError> {
        let path = Path::new(&options.source);
        if options.held_out_file.is_some() {
            let reason = "it is a Parquet file, which takes no --held-out-file: save both as CSV, or say by a column which rows are held out (--split-by)";
            return Err(DataError::File { path: path.to_owned(), reason: reason.to_owned() });
        }
        if options.max_file_bytes < u64::MAX {
            let reason = "it is a Parquet file, but members share such a table as text".to_owned();
            return Err(fault(path, reason));
        }
        let groups = Arc::new(RowGroups::open(path, options.held_bytes)?);
        let read = csv::read(
            &ParquetSource(groups.clone()),
            path,
            TableForm::of(options),
            TableLimits::of(options),
            Placing::Groups(groups.clone()),
        );
        // Of a file that has changed meanwhile, whatever is wrong is wrong for that.
        groups.check()?;
        read
    }
}

/// A file of which the rows are read.
struct ParquetSource(Arc<RowGroups>);

impl RowsSource<'static> for ParquetSource {
    fn start(&self) -> Result<Text<'static>, DataError> {
        text(self.0.path())
    }

    fn form(&self, _: Delimiter, _: bool) -> Result<RowForm, DataError> {
        Ok(RowForm::Made)
    }

    fn pieces(&self, _: &RowForm) -> Result<PieceIterator<'static>, DataError> {
        self.0.pieces(None, AT_ONCE)
    }
}

/// The rows of a file, those that are decoded together as a piece.
pub(super) struct RowPieces {
    rows: Rows,
    path: PathBuf,
    at: u64,
}

impl RowPieces {
    /// The same of these rows, without their names. `path` is for messages.
    pub(super) fn of(rows: Rows, path: &Path) -> Self {
        Self { rows: Rows { are_named: true, ..rows }, path: path.to_owned(), at: 0 }
    }
}

impl Iterator for RowPieces {
    type Item = Result<Piece, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Vec::new();
        match self.rows.more(&mut bytes) {
            Ok(false) => None,
            Ok(true) => {
                let (at, ends) = (self.at, vec![bytes.len()]);
                self.at += bytes.len() as u64;
                Some(Ok(Piece { at, is_first: at == 0, bytes, ends }))
            }
            Err(error) => {
                let path = self.path.clone();
                Some(Err(match BadRow::of(&error) {
                    // Rows are told from the piece on that would begin here.
                    Some(BadRow { column, reason, .. }) => {
                        DataError::Row { path, row: 1, column: column.clone(), reason: reason.clone() }
                    }
                    None => DataError::Unreadable { path, source: error },
                }))
            }
        }
    }
}

/// Whether the file at `path` begins as one does.
pub(crate) fn is_one(path: &Path) -> Result<bool, DataError> {
    let unreadable = |source| DataError::Unreadable { path: path.to_owned(), source };
    let mut start = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(unreadable)?;
    Ok(start == MAGIC)
}

/// The table in the file at `path`.
pub(crate) fn text(path: &Path) -> Result<Text<'static>, DataError> {
    Ok(Text::of_rows(Rows::open(path)?))
}

/// The rows of a file.
pub(crate) struct Rows {
    batches: ParquetRecordBatchReader,
    names: Vec<String>,
    are_named: bool,
    /// The columns of the rows that were decoded together, and those of them that were not given yet.
    decoded: Vec<Cells>,
    left: Range<usize>,
    /// How many rows were given.
    given: u64,
}

impl Rows {
    /// # Errors
    /// If it can't be read, is damaged, or has a column whose cells hold several values.
    fn open(path: &Path) -> Result<Self, DataError> {
        let (file, metadata) = opened(path)?;
        Self::with(file, metadata, None, AT_ONCE).map_err(|reason| fault(path, reason))
    }

    /// The rows of such a file, or of one of its row groups, of which `most` are decoded at once, or fewer.
    ///
    /// # Errors
    /// If it is damaged, as a sentence.
    pub(super) fn with(
        file: File,
        metadata: ArrowReaderMetadata,
        group: Option<usize>,
        most: usize,
    ) -> Result<Self, String> {
        let damaged = |error: ::parquet::errors::ParquetError| damaged(&error.to_string());
        let opened = caught(|| {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
            let names = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
            let builder = match group {
                Some(group) => builder.with_row_groups(vec![group]),
                None => builder,
            };
            let batches = builder.with_batch_size(most.clamp(1, AT_ONCE)).build().map_err(damaged)?;
            Ok(Self { batches, names, are_named: false, decoded: Vec::new(), left: 0..0, given: 0 })
        });
        opened.and_then(|opened| opened)
    }
}

/// The file at `path`, and what it says of its columns and row groups.
///
/// # Errors
/// If it can't be read, is damaged, or has a column whose cells hold several values.
pub(super) fn opened(path: &Path) -> Result<(File, ArrowReaderMetadata), DataError> {
    let unreadable = |source| DataError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let metadata = caught(|| metadata(&file, length)).and_then(|metadata| metadata);
    Ok((file, metadata.map_err(|reason| fault(path, reason))?))
}

fn metadata(file: &File, length: u64) -> Result<ArrowReaderMetadata, String> {
    let damaged = |error: ::parquet::errors::ParquetError| damaged(&error.to_string());
    // What a program has noted of its own types, such as categories, is left alone: the columns say what they hold.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let found = ArrowReaderMetadata::load(file, options.clone()).map_err(damaged)?;
    check_places(found.metadata(), length)?;
    check_codecs(found.metadata())?;
    // A text that many rows have is there once, however long it is.
    let shown = found.schema().fields().iter().map(|field| match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
        _ => field.clone(),
    });
    let schema = Arc::new(Schema::new(shown.collect::<Vec<_>>()));
    let found = ArrowReaderMetadata::try_new(found.metadata().clone(), options.with_schema(schema)).map_err(damaged)?;
    let fields = found.schema().fields();
    if fields.len() > MAX_FEATURES as usize {
        return Err(format!("it has {} columns, too many to be data", fields.len()));
    }
    if let Some(field) = fields.iter().find(|field| !is_cell(field.data_type())) {
        let (name, kind) = (shorten(field.name()), shorten(&field.data_type().to_string()));
        return Err(format!(
            "its column `{name}` is of type {kind}, but a cell holds a number, a truth, a text, a date or a time: leave it out when you \
             write the file, or take it apart into columns"
        ));
    }
    Ok(found)
}

impl RowSource for Rows {
    fn more(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        if !std::mem::replace(&mut self.are_named, true) {
            push(self.names.iter().map(String::as_str), END_OF_NAMES, into);
            return Ok(true);
        }
        let bad = |column: Option<&String>, reason| {
            let column = column.map(|name| format!("column `{}`", shorten(name)));
            io::Error::other(BadRow { row: self.given + 1, column, reason })
        };
        if self.left.is_empty() {
            let batch = match caught(|| self.batches.next()) {
                Ok(None) => return Ok(false),
                Ok(Some(Ok(batch))) => batch,
                Ok(Some(Err(error))) => return Err(bad(None, damaged(&error.to_string()))),
                Err(reason) => return Err(bad(None, reason)),
            };
            let columns = self.names.iter().zip(batch.columns()).map(|(name, column)| {
                caught(|| Cells::of(column)).and_then(|cells| cells).map_err(|reason| bad(Some(name), reason))
            });
            (self.decoded, self.left) = (columns.collect::<io::Result<_>>()?, 0..RecordBatch::num_rows(&batch));
        }
        let start = into.len();
        while !self.left.is_empty() && into.len() - start <= GIVEN_BYTES {
            let (row, before) = (self.left.start, into.len());
            let cells = || self.decoded.iter().map(|column| column.get(row));
            let is_long = cells().map(str::len).fold(0, usize::saturating_add) >= MAX_ROW_BYTES;
            if !is_long {
                push(cells(), END_OF_ROW, into);
            }
            // As it is written, so that others can read it.
            if is_long || into.len() - before >= MAX_ROW_BYTES {
                into.truncate(before);
                if before > start {
                    // Where its own piece would begin, its number is known.
                    return Ok(true);
                }
                let reason = format!("it has more than {} MiB, too much for one row", MAX_ROW_BYTES >> 20);
                return Err(io::Error::other(BadRow { row: self.given + 1, column: None, reason }));
            }
            (self.left.start, self.given) = (row + 1, self.given + 1);
        }
        Ok(true)
    }
}

/// Checks that columns are where the file is: memory is taken for what it says of them. A page of a column says itself what it unpacks
/// to, which is 2 GiB at most.
fn check_places(metadata: &ParquetMetaData, length: u64) -> Result<(), String> {
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let first = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let end = u64::try_from(first).ok().zip(u64::try_from(column.compressed_size()).ok());
        let end = end.and_then(|(first, length)| first.checked_add(length));
        if end.is_none_or(|end| end > length) {
            return Err(damaged("a column is beyond its end"));
        }
    }
    Ok(())
}

/// Checks that its pages can be unpacked, before a row is asked for.
fn check_codecs(metadata: &ParquetMetaData) -> Result<(), String> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let unknown = columns.map(|column| column.compression()).find_map(|compression| match compression {
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) => None,
        Compression::GZIP(_) => Some("gzip"),
        Compression::LZO => Some("LZO"),
        Compression::BROTLI(_) => Some("Brotli"),
        Compression::LZ4 | Compression::LZ4_RAW => Some("LZ4"),
    });
    match unknown {
        Some(codec) => Err(format!(
            "its pages are compressed by {codec}, which is not read here: write it with Snappy or Zstandard, or save it as CSV"
        )),
        None => Ok(()),
    }
}

/// Whether values of this type become cells.
fn is_cell(kind: &DataType) -> bool {
    use DataType::{
        Boolean, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, LargeUtf8, Null, Time32, Time64,
        Timestamp, Utf8, Utf8View,
    };
    kind.is_integer()
        || kind.is_floating()
        || matches!(kind, Null | Boolean | Utf8 | LargeUtf8 | Utf8View | Date32 | Date64 | Time32(_) | Time64(_))
        || matches!(kind, Timestamp(..) | Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..))
}

/// A column as cells.
enum Cells {
    /// As they are in the file: many may be one.
    Texts(StringViewArray),
    Made(Vec<String>),
}

impl Cells {
    fn of(column: &dyn Array) -> Result<Self, String> {
        match column.as_string_view_opt() {
            Some(texts) => Ok(Self::Texts(texts.clone())),
            None => made(column).map(Self::Made),
        }
    }

    /// The cell of a row: where there is nothing, an empty one.
    fn get(&self, row: usize) -> &str {
        match self {
            Self::Texts(texts) if texts.is_null(row) => "",
            Self::Texts(texts) => texts.value(row),
            Self::Made(cells) => &cells[row],
        }
    }
}

/// A column of other things than texts as cells.
fn made(column: &dyn Array) -> Result<Vec<String>, String> {
    macro_rules! numbers {
        ($kind:ident) => {
            of(column, |column: &PrimitiveArray<types::$kind>, row| Some(format!("{:?}", column.value(row))))
        };
    }
    macro_rules! times {
        ($kind:ident, $value:ident) => {
            of(column, |column: &PrimitiveArray<types::$kind>, row| Some(column.$value(row)?.to_string()))
        };
    }
    macro_rules! decimals {
        ($kind:ident) => {
            of(column, |column: &PrimitiveArray<types::$kind>, row| Some(column.value_as_string(row)))
        };
    }
    let texts = |text: &dyn Fn(usize) -> String| {
        Ok((0..column.len()).map(|row| if column.is_null(row) { String::new() } else { text(row) }).collect())
    };
    match column.data_type() {
        DataType::Null => Ok(vec![String::new(); column.len()]),
        DataType::Boolean => texts(&|row| column.as_boolean().value(row).to_string()),
        DataType::Int8 => numbers!(Int8Type),
        DataType::Int16 => numbers!(Int16Type),
        DataType::Int32 => numbers!(Int32Type),
        DataType::Int64 => numbers!(Int64Type),
        DataType::UInt8 => numbers!(UInt8Type),
        DataType::UInt16 => numbers!(UInt16Type),
        DataType::UInt32 => numbers!(UInt32Type),
        DataType::UInt64 => numbers!(UInt64Type),
        DataType::Float16 => numbers!(Float16Type),
        DataType::Float32 => numbers!(Float32Type),
        DataType::Float64 => numbers!(Float64Type),
        DataType::Decimal32(..) => decimals!(Decimal32Type),
        DataType::Decimal64(..) => decimals!(Decimal64Type),
        DataType::Decimal128(..) => decimals!(Decimal128Type),
        DataType::Decimal256(..) => decimals!(Decimal256Type),
        DataType::Date32 => times!(Date32Type, value_as_date),
        DataType::Date64 => times!(Date64Type, value_as_date),
        DataType::Time32(TimeUnit::Second) => times!(Time32SecondType, value_as_time),
        DataType::Time32(_) => times!(Time32MillisecondType, value_as_time),
        DataType::Time64(TimeUnit::Microsecond) => times!(Time64MicrosecondType, value_as_time),
        DataType::Time64(_) => times!(Time64NanosecondType, value_as_time),
        DataType::Timestamp(TimeUnit::Second, _) => times!(TimestampSecondType, value_as_datetime),
        DataType::Timestamp(TimeUnit::Millisecond, _) => times!(TimestampMillisecondType, value_as_datetime),
        DataType::Timestamp(TimeUnit::Microsecond, _) => times!(TimestampMicrosecondType, value_as_datetime),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => times!(TimestampNanosecondType, value_as_datetime),
        other => Err(format!("its type {other} is none of a cell")),
    }
}

/// A column of numbers as cells, each by `cell`.
fn of<T: ArrowPrimitiveType>(
    column: &dyn Array,
    cell: impl Fn(&PrimitiveArray<T>, usize) -> Option<String>,
) -> Result<Vec<String>, String> {
    let column = column.as_primitive_opt::<T>().ok_or("it is not of the type that it is said to be of")?;
    let cells = (0..column.len()).map(|row| match column.is_null(row) {
        true => Some(String::new()),
        false => cell(column, row),
    });
    cells.collect::<Option<_>>().ok_or_else(|| "a date or a time in it is beyond all calendars".to_owned())
}

/// What `work` returns; a panic of the decoder is its error.
fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| damaged(said(&*payload).unwrap_or("without a word")))
}

fn damaged(reason: &str) -> String {
    format!("it is no whole Parquet file ({}); write it anew, or save it as CSV", shorten(reason))
}

fn fault(path: &Path, reason: String) -> DataError {
    DataError::File { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::file::properties::WriterProperties;
    use arrow_array::builder::{Int32Builder, ListBuilder};
    use arrow_array::{
        ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int64Array,
        StringArray, TimestampMicrosecondArray,
    };
    use starling_topology::SplitMix64Generator;

    use super::*;
    use crate::Dataset;

    fn written(columns: Vec<(&str, ArrayRef)>, compression: Compression) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter(columns).expect("equally long");
        let properties = WriterProperties::builder().set_compression(compression).build();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).expect("in memory");
        writer.write(&batch).expect("in memory");
        writer.close().expect("in memory");
        bytes
    }

    fn read(bytes: &[u8]) -> Result<String, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("table.parquet");
        fs::write(&path, bytes).expect("written");
        let mut all = String::new();
        let rows = Rows::open(&path).map_err(|error| error.to_string())?;
        RowText::new(rows).read_to_string(&mut all).map_err(|error| error.to_string())?;
        Ok(all)
    }

    fn table() -> Vec<(&'static str, ArrayRef)> {
        vec![
            ("area", Arc::new(Float64Array::from(vec![Some(50.5), None, Some(1e300), Some(0.1)]))),
            ("rooms", Arc::new(Int64Array::from(vec![2, -3, i64::MAX, 0]))),
            ("new", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]))),
            ("kind", Arc::new(StringArray::from(vec!["a", "b, \"c\"", "a", "b\nd"]))),
        ]
    }

    /// A kilobyte that stands for a gigabyte: no more of it is there at once than one row, and a piece.
    #[test]
    fn a_long_text_that_many_rows_have_is_there_once() {
        let long = "x".repeat(MAX_ROW_BYTES / 4);
        let values: ArrayRef = Arc::new(StringArray::from(vec![&*long]));
        // More than the offsets of one array of texts could say.
        let texts = DictionaryArray::<types::Int32Type>::new(vec![0; 600].into(), values);
        let texts: ArrayRef = Arc::new(texts);
        let bytes = written(vec![("text", texts)], Compression::ZSTD(Default::default()));
        assert!(bytes.len() < 64 << 10, "{}", bytes.len());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("table.parquet");
        fs::write(&path, bytes).expect("written");
        let mut rows = Rows { are_named: true, ..Rows::open(&path).expect("a table") };
        let (mut into, mut given) = (Vec::new(), 0);
        while rows.more(&mut into).expect("rows") {
            assert!(into.len() <= long.len() + GIVEN_BYTES + 3, "{}", into.len());
            given += into.iter().filter(|byte| **byte == END_OF_ROW).count();
            into.clear();
            if given > 50 {
                break;
            }
        }
        for long in ["x".repeat(MAX_ROW_BYTES), "\"".repeat(MAX_ROW_BYTES / 2)] {
            let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", &long]));
            let error =
                read(&written(vec![("text", texts)], Compression::ZSTD(Default::default()))).expect_err("too long");
            assert!(error.contains("row 3") && error.contains("16 MiB"), "{error}");
        }
    }

    #[test]
    fn columns_become_cells_however_they_are_compressed() {
        let expected = "\"area\",\"rooms\",\"new\",\"kind\"\r\"50.5\",\"2\",\"true\",\"a\"\n\"\",\"-3\",\"false\",\"b, \"\"c\"\"\"\n\
             \"1e300\",\"9223372036854775807\",\"\",\"a\"\n\"0.1\",\"0\",\"true\",\"b d\"\n";
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())] {
            assert_eq!(read(&written(table(), compression)).expect("a table"), expected);
        }
        let others: Vec<(&str, ArrayRef)> = vec![
            ("small", Arc::new(Float32Array::from(vec![0.1]))),
            ("day", Arc::new(Date32Array::from(vec![19_000]))),
            ("time", Arc::new(TimestampMicrosecondArray::from(vec![1_500_000]).with_timezone("UTC"))),
            ("money", Arc::new(Decimal128Array::from(vec![-12_345]).with_precision_and_scale(9, 2).expect("possible"))),
        ];
        let text = read(&written(others, Compression::SNAPPY)).expect("a table");
        assert_eq!(
            text,
            "\"small\",\"day\",\"time\",\"money\"\r\"0.1\",\"2022-01-08\",\"1970-01-01 00:00:01.500\",\"-123.45\"\n"
        );
    }

    #[test]
    fn it_is_the_same_data_as_a_table_of_text_and_is_shared_as_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.parquet"), written(table(), Compression::SNAPPY)).expect("written");
        let text = "area;rooms;new;kind\n50.5;2;true;a\n;-3;false;\"b, \"\"c\"\"\"\n1e300;9223372036854775807;;a\n0.1;0;true;b d\n";
        fs::write(path("a.csv"), text).expect("written");
        let options = |path: PathBuf| DataOptions { source: path.display().to_string(), ..DataOptions::default() };
        let load = |path| Dataset::load(&options(path)).expect("a table");
        let (ours, theirs) = (load(path("a.parquet")), load(path("a.csv")));
        assert_eq!(ours.description().in_form_of(&theirs.description()), theirs.description());
        let (kind, made) = crate::shared_files(&options(path("a.parquet")), &path("deep/here")).expect("made");
        assert_eq!((kind.name, &*made), ("csv", &[path("deep/here/table.csv")][..]));
        assert_eq!(load(made[0].clone()).description(), ours.description());
        let from_others = DataOptions { max_file_bytes: 1 << 20, ..options(path("a.parquet")) };
        let error = Dataset::load(&from_others).expect_err("not from others").to_string();
        assert!(error.contains("members share such a table as text"), "{error}");
    }

    #[test]
    fn columns_of_several_values_are_refused_by_name() {
        let mut lists = ListBuilder::new(Int32Builder::new());
        lists.append_value([Some(1), Some(2)]);
        let columns: Vec<(&str, ArrayRef)> =
            vec![("a", Arc::new(Int64Array::from(vec![1]))), ("some\u{1b}list", Arc::new(lists.finish()))];
        let error = read(&written(columns, Compression::SNAPPY)).expect_err("a list");
        assert!(error.contains("its column `some") && error.contains("List") && !error.contains('\u{1b}'), "{error}");
    }

    /// No writer of these is there: what a column says of its codec is changed, behind its name and before how many values it has.
    #[test]
    fn codecs_that_are_not_read_are_named() {
        let valid = written(table(), Compression::SNAPPY);
        let of = |codec: u8| [&b"\x04kind\x15"[..], &[codec], b"\x16"].concat();
        let snappy = of(2);
        let at = valid.windows(snappy.len()).position(|bytes| bytes == snappy).expect("a column's codec");
        for (codec, name) in [(4, "gzip"), (6, "LZO"), (8, "Brotli"), (10, "LZ4"), (14, "LZ4")] {
            let mut bytes = valid.clone();
            bytes[at..at + snappy.len()].copy_from_slice(&of(codec));
            let error = read(&bytes).expect_err("a codec that is not read");
            assert!(
                error.contains(&format!("compressed by {name},")) && error.contains("Snappy or Zstandard"),
                "{error}"
            );
            assert!(!error.contains("no whole"), "{error}");
        }
    }

    #[test]
    fn damaged_files_are_refused_and_never_panic() {
        let valid = written(table(), Compression::SNAPPY);
        for length in [0, 4, 8, 12, valid.len() / 2, valid.len() - 1] {
            let error = read(&valid[..length]).expect_err("cut off");
            assert!(error.contains("no whole Parquet file"), "{error}");
        }
        let mut generator = SplitMix64Generator::new(31);
        let mut read_anyway = 0;
        for _ in 0..500 {
            let mut bytes = valid.clone();
            for _ in 0..=generator.below(3) {
                let at = generator.below(bytes.len() as u32) as usize;
                bytes[at] = generator.next_u64() as u8;
            }
            read_anyway += usize::from(read(&bytes).is_ok());
        }
        assert!(read_anyway > 0, "some damage is harmless");
    }
}
