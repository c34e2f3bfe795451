//! All rows of a table, on all cores, in their order.

use std::path::PathBuf;

use ::csv::ByteRecord;

use super::form::RowForm;
use super::pieces::Piece;
use crate::error::DataError;
use crate::files::in_order::in_order;

/// How a table is gone through.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    /// For messages.
    pub(crate) path: PathBuf,
    /// The file that the rows behind those of `path` are in, if there is one.
    pub(crate) joined: Option<PathBuf>,
    pub(crate) form: RowForm,
    /// Whether its first row holds names.
    pub(crate) is_header: bool,
}

/// What the rows of a piece came to.
pub(crate) struct Walked<T> {
    pub(crate) of_rows: T,
    /// Whether it is the first of its file.
    pub(crate) is_first: bool,
    /// Where the piece begins, and its blocks end in it.
    pub(crate) at: u64,
    pub(crate) ends: Vec<usize>,
    /// How many rows each block has, without the header.
    pub(crate) rows: Vec<u32>,
    /// Which block that is in.
    pub(crate) header: Option<usize>,
    /// How many lines lie before it.
    pub(crate) lines_before: u64,
    lines: u64,
    fault: Option<DataError>,
}

impl Walk {
    /// Goes through the rows of all pieces: `begin` something for each piece, `note` each of its rows in it, and `take` what it has come
    /// to, piece after piece.
    ///
    /// # Errors
    /// The first one of all these, with its row.
    pub(crate) fn fold<T: Send>(
        &self,
        pieces: impl Iterator<Item = Result<Piece, DataError>>,
        begin: impl Fn() -> T + Sync,
        note: impl Fn(&mut T, &ByteRecord) -> Result<(), DataError> + Sync,
        take: impl FnMut(Walked<T>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        self.fold_all(pieces, begin, note, |_, fault| Err(fault), take)
    }

    /// The same, and hands a block that can't be read to `pass_over`, which says whether it goes on behind it.
    ///
    /// # Errors
    /// As [`Self::fold`], and those of `pass_over`.
    pub(crate) fn fold_all<T: Send>(
        &self,
        pieces: impl Iterator<Item = Result<Piece, DataError>>,
        begin: impl Fn() -> T + Sync,
        note: impl Fn(&mut T, &ByteRecord) -> Result<(), DataError> + Sync,
        pass_over: impl Fn(&mut T, DataError) -> Result<(), DataError> + Sync,
        mut take: impl FnMut(Walked<T>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        // Of the present file.
        let (mut lines, mut files) = (0_u64, 0);
        in_order(
            pieces,
            |piece| self.piece(piece, begin(), &note, &pass_over),
            |walked| {
                let found = walked.as_ref().is_ok_and(|walked| walked.is_first);
                (lines, files) = if found { (0, files + 1) } else { (lines, files) };
                let told = |error: DataError| match self.joined.as_ref().filter(|_| files > 1) {
                    Some(path) => error.behind(lines).of_file(path),
                    None => error.behind(lines),
                };
                let mut walked = walked.map_err(told)?;
                let fault = walked.fault.take().map(told);
                walked.lines_before = lines;
                lines = lines.saturating_add(walked.lines);
                // What was noted before it counts.
                take(walked)?;
                fault.map_or(Ok(()), Err)
            },
        )
    }

    /// Goes through one piece, as if nothing came before it.
    fn piece<T>(
        &self,
        piece: Piece,
        mut of_rows: T,
        note: impl Fn(&mut T, &ByteRecord) -> Result<(), DataError>,
        pass_over: impl Fn(&mut T, DataError) -> Result<(), DataError>,
    ) -> Walked<T> {
        let Piece { at, is_first, bytes, ends } = piece;
        let (mut rows, mut lines, mut from) = (Vec::with_capacity(ends.len()), 0, 0);
        let mut record = ByteRecord::new();
        let (mut is_header, mut header) = (is_first && self.is_header, None);
        let mut block = |of_rows: &mut T, at: usize, from: usize, end: usize, lines: &mut u64| {
            let mut block = self.form.rows(&bytes[from..end], *lines);
            let mut count = 0;
            while block.next(&mut record, &self.path)? {
                if std::mem::take(&mut is_header) {
                    header = Some(at);
                } else {
                    note(of_rows, &record)?;
                    count += 1;
                }
            }
            *lines = block.lines();
            Ok(count)
        };
        let mut fault = None;
        for (place, end) in ends.iter().enumerate() {
            match block(&mut of_rows, place, from, *end, &mut lines) {
                Ok(count) => rows.push(count),
                Err(error) => {
                    if let Err(error) = pass_over(&mut of_rows, error) {
                        fault = Some(error);
                        break;
                    }
                    lines += memchr::memchr_iter(b'\n', &bytes[from..*end]).count() as u64;
                    rows.push(0);
                }
            }
            from = *end;
        }
        // Behind it, pieces are gone through beside this one, and none would know.
        if is_header && fault.is_none() {
            let reason = format!("it begins with {} bytes of blank lines; remove them", bytes.len());
            fault = Some(DataError::File { path: self.path.clone(), reason });
        }
        Walked { of_rows, is_first, at, ends, rows, header, lines_before: 0, lines, fault }
    }
}
