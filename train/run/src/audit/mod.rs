//! A record of who contributed which samples, step by step, and the proof from it that none was lost or repeated.
//!
//! ```text
//!   {"format":"starling-audit-1","run":"..","samples":1438,"batch_size":64,"seed":42,"first_step":1,
//!    "generation":3,"view":"..","parent":".."}
//!   {"step":1,"generation":3,"view":"..","epoch":0,"contributions":[["<peer>",[[0,32]]],["<peer>",[[32,64]]]]}
//!   ...                                                       positions in the epoch's order, ends excluded
//! ```
//!
//! Each member writes a line for each step that it knows to be committed by all, and at last, when it leaves in order, one
//! for the step that it left after, marked as the last: should the others have taken that one anew without it, what they say
//! counts. A member that starts again appends another
//! header: what its file said from that step on is void. So does one that took the state over from others, maybe because its
//! branch of the run lost; its header says so, and what the file said before counts only in views that led to the newest one.
//! So void is what a member said that was killed with all others and never came back, if those who did took the step anew.
//! [`check`] reads the files of several members of one run and holds them against each other.

mod chain;
mod check;
mod error;
pub(crate) mod line;

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use check::{AuditReport, check};
pub use error::AuditError;
use starling_topology::{Digest, Generation, PeerId, RunId, ViewId};

/// How many records may wait in memory for the file.
const RECORDS_PER_FLUSH: u32 = 64;

/// What an audit file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditHeader {
    /// The run.
    pub run: RunId,
    /// How many training samples it has.
    pub samples: u32,
    /// How many samples a full batch has.
    pub batch_size: u32,
    /// How many samples are contributed together; 0: each by itself.
    pub micro_batch: u32,
    /// The seed of the sample order.
    pub seed: u64,
    /// The first step that may follow. What the file says before this header of this step and later ones is void.
    pub first_step: u64,
    /// Whether the state before that step came from others. What the file says of earlier steps may be of a branch that
    /// lost.
    pub adopted: bool,
    /// The view in which the writer had the state before that step. `None` if it was not told.
    pub view: Option<AuditView>,
}

/// A view, and what it came after: so files that lack what came between fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditView {
    /// Its generation.
    pub generation: Generation,
    /// Its id.
    pub view: ViewId,
    /// The view before it, of the generation before.
    pub parent: Option<ViewId>,
}

impl AuditView {
    /// That of who is in none.
    pub const NONE: Self = Self { generation: Generation(0), view: ViewId::NONE, parent: None };
}

/// One committed step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// The step.
    pub step: u64,
    /// The generation of the view that the writer was in.
    pub generation: Generation,
    /// That view.
    pub view: ViewId,
    /// The epoch of the step's samples.
    pub epoch: u64,
    /// Who contributed which positions of the epoch's order, both ascending.
    pub contributions: Vec<(PeerId, Vec<Range<u32>>)>,
    /// Positions of the epoch that all agreed to leave out: their share was given up twice.
    pub dropped: Vec<Range<u32>>,
    /// The digest of the state after the step, if it was computed.
    pub digest: Option<Digest>,
    /// Whether the writer left after it, and does not know whether the others went on from it.
    pub is_last: bool,
}

/// Appends to an audit file.
#[derive(Debug)]
pub struct AuditWriter {
    path: PathBuf,
    header: AuditHeader,
    file: BufWriter<File>,
    waiting: u32,
    /// Whether this life of the process has written a header.
    has_begun: bool,
}

impl AuditWriter {
    /// Checks that there could be an audit file at `path`, so that nobody learns it only after a long run. Leaves nothing
    /// there that was not.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check_place(path: &Path) -> Result<(), AuditError> {
        let is_new = !path.exists();
        open_file(path)?;
        if is_new { std::fs::remove_file(path).map_err(AuditError::io("write", path)) } else { Ok(()) }
    }

    /// Opens the file at `path` behind what it holds already, or makes it. A last line that was cut short by a crash is
    /// removed. What comes first of [`Self::restart`], [`Self::adopt`] and a record writes a header, that of a record
    /// `header` as it is here: until then, all that the file says counts.
    ///
    /// # Errors
    /// If the file cannot be read or written, or what is there is not the beginning of an audit file.
    pub fn open(path: impl Into<PathBuf>, header: AuditHeader) -> Result<Self, AuditError> {
        let path = path.into();
        let mut file = open_file(&path)?;
        let end = end_of_last_line(&mut file).map_err(AuditError::io("read", &path))?;
        file.set_len(end).map_err(AuditError::io("write", &path))?;
        file.seek(SeekFrom::End(0)).map_err(AuditError::io("write", &path))?;
        Ok(Self { path, header, file: BufWriter::new(file), waiting: 0, has_begun: false })
    }

    /// Writes a header: in `view`, the next record is of `first_step` or later, and earlier ones of that step and later are void.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn restart(&mut self, first_step: u64, view: Option<AuditView>) -> Result<(), AuditError> {
        self.header = AuditHeader { first_step, adopted: false, view, ..self.header };
        self.begin()
    }

    /// As [`Self::restart`], with a state that came from others.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn adopt(&mut self, first_step: u64, view: Option<AuditView>) -> Result<(), AuditError> {
        self.header = AuditHeader { first_step, adopted: true, view, ..self.header };
        self.begin()
    }

    fn begin(&mut self) -> Result<(), AuditError> {
        let line = line::encode_header(&self.header);
        self.has_begun = true;
        self.write(&line)?;
        self.flush()
    }

    /// Writes a record. Every so many go to the file together.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record(&mut self, record: &AuditRecord) -> Result<(), AuditError> {
        if !self.has_begun {
            self.begin()?;
        }
        self.write(&line::encode_record(record))?;
        self.waiting += 1;
        if self.waiting >= RECORDS_PER_FLUSH { self.flush() } else { Ok(()) }
    }

    /// Hands everything to the system. To be called at the end.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&mut self) -> Result<(), AuditError> {
        self.waiting = 0;
        self.file.flush().map_err(AuditError::io("write", &self.path))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, line: &[u8]) -> Result<(), AuditError> {
        self.file.write_all(line).map_err(AuditError::io("write", &self.path))
    }
}

/// Opens or makes a file that is an audit file, or empty.
fn open_file(path: &Path) -> Result<File, AuditError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.map_err(AuditError::io("write", path))?;
    if !begins_as_audit(&mut file).map_err(AuditError::io("read", path))? {
        let reason = "it is something else; name another file".to_owned();
        return Err(AuditError::Malformed { path: path.to_owned(), line: 1, reason });
    }
    Ok(file)
}

/// Whether the file is empty or begins with a header, perhaps one that was cut short.
fn begins_as_audit(file: &mut File) -> std::io::Result<bool> {
    let start = line::header_start();
    let mut found = Vec::new();
    file.take(start.len() as u64).read_to_end(&mut found)?;
    Ok(start.starts_with(&found))
}

/// The offset behind the last line break; 0 if there is none. Leaves the file's position anywhere.
fn end_of_last_line(file: &mut File) -> std::io::Result<u64> {
    const BLOCK: u64 = 64 << 10;
    let mut block_end = file.seek(SeekFrom::End(0))?;
    let mut block = Vec::new();
    while block_end > 0 {
        let block_start = block_end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(block_start))?;
        block.clear();
        BufReader::new(&mut *file).take(block_end - block_start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(block_start + at as u64 + 1);
        }
        block_end = block_start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
