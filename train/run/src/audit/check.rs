//! Holding the audit files of several members against each other.
//!
//! The files are read side by side, a line of each at a time, so a million steps need no more memory than one: a bit
//! for each sample of the current epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use starling_topology::PeerId;

use super::chain::{Chain, ChainBuilder, Passage, Standing, ViewKey};
use super::line::{self, MAX_LINE_BYTES};
use super::{AuditError, AuditHeader, AuditRecord};

/// What the files prove: each step is there, told alike by all, and no sample of an epoch was lost or repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditReport {
    /// The first step of which there is a record.
    pub first_step: u64,
    /// How many steps there are.
    pub steps: u64,
    /// How many epochs were completed. The first one counts only from the run's first step on.
    pub epochs: u64,
    /// How many samples were contributed, those of all epochs counted.
    pub samples: u64,
    /// How many samples of complete epochs nobody contributed.
    pub samples_lost: u64,
    /// How many contributions were of samples contributed before in the same epoch.
    pub samples_repeated: u64,
    /// How many samples were left out of their epoch, as all agreed: whoever computed them came to numbers that no contribution
    /// may have.
    pub samples_dropped: u64,
    /// How many peers contributed.
    pub peers: u64,
}

/// Checks the audit files of members of one run. The end of the last epoch may be missing, and of the first one the
/// beginning, if no file begins with step 1.
///
/// # Errors
/// If a file cannot be read, files are of different runs or disagree, a step between the first and the last is missing,
/// or a sample was lost or repeated. The error names file and line of the first offence.
pub fn check(files: &[impl AsRef<Path>]) -> Result<AuditReport, AuditError> {
    let mut sources = Vec::new();
    let mut chain = ChainBuilder::default();
    for path in files {
        sources.push(Source::open(path.as_ref(), &mut chain)?);
    }
    let header = one_run(&sources)?;
    let chain = chain.build();
    for source in &mut sources {
        source.advance(&chain)?;
    }
    let mut books = Books::new(header);
    while let Some(at) =
        (0..sources.len()).filter(|at| sources[*at].head.is_some()).min_by_key(|at| sources[*at].step())
    {
        let step = sources[at].step();
        let mut told = Vec::new();
        for source in sources.iter_mut().filter(|source| source.step() == step) {
            told.extend(source.take(&chain)?);
        }
        if let Some(entry) = settle(told)? {
            books.enter(entry)?;
        }
    }
    books.close()
}

/// A record, and where it stands.
struct Entry {
    path: PathBuf,
    line: u64,
    record: AuditRecord,
    standing: Standing,
}

impl Entry {
    fn view(&self) -> ViewKey {
        (self.record.generation, self.record.view)
    }
}

/// What happened in a step, by those who are sure of it; if nobody is, by those who may know, in the newest view. `None` if
/// what is told of it is void.
fn settle(mut told: Vec<Entry>) -> Result<Option<Entry>, AuditError> {
    // In one view a step is committed once, whatever became of it.
    let mut of_view = BTreeMap::new();
    for entry in &told {
        agree(entry, of_view.entry(entry.view()).or_insert(entry))?;
    }
    let is_sure = |entry: &&Entry| entry.standing == Standing::Sure;
    let sure = told.iter().filter(is_sure).map(|entry| entry.record.generation).min();
    let best = if sure.is_some() { Standing::Sure } else { Standing::Unsure };
    let newest = told.iter().filter(|entry| entry.standing == best).map(Entry::view).max();
    told.retain(|entry| match entry.standing {
        Standing::Sure => true,
        // The others may have taken the step anew in a later view.
        Standing::Alone(until) => sure.is_some_and(|sure| until >= sure),
        Standing::Unsure => best == Standing::Unsure && Some(entry.view()) == newest,
        Standing::Void => false,
    });
    // Who is sure is named second, and taken.
    told.sort_by_key(|entry| entry.standing != best);
    let mut told = told.into_iter();
    let Some(first) = told.next() else { return Ok(None) };
    told.try_for_each(|other| agree(&other, &first))?;
    Ok(Some(first))
}

/// The header that all files share, but for the first step.
fn one_run(sources: &[Source]) -> Result<AuditHeader, AuditError> {
    let mut headers = sources.iter().flat_map(|source| source.headers.iter().map(move |found| (source, found)));
    let Some((_, (_, first))) = headers.next() else { return Err(AuditError::Empty) };
    for (source, (line, header)) in headers {
        let differences = [
            ("run", header.run.to_string(), first.run.to_string()),
            ("samples", header.samples.to_string(), first.samples.to_string()),
            ("batch_size", header.batch_size.to_string(), first.batch_size.to_string()),
            ("micro_batch", header.micro_batch.to_string(), first.micro_batch.to_string()),
            ("seed", header.seed.to_string(), first.seed.to_string()),
        ];
        if let Some((field, theirs, ours)) = differences.into_iter().find(|(_, theirs, ours)| theirs != ours) {
            let reason = format!("its {field} is {theirs}, theirs is {ours}");
            return Err(AuditError::OtherRun { path: source.path.clone(), line: *line, reason });
        }
    }
    Ok(*first)
}

/// Checks that two records of one step tell the same story. Who was in which view at the time may differ.
fn agree(one: &Entry, other: &Entry) -> Result<(), AuditError> {
    let (a, b) = (&one.record, &other.record);
    let what = if a.epoch != b.epoch {
        "the epoch"
    } else if a.contributions != b.contributions {
        "the contributions"
    } else if a.dropped != b.dropped {
        "what was left out"
    } else if a.digest.zip(b.digest).is_some_and(|(a, b)| a != b) {
        "the digest"
    } else {
        return Ok(());
    };
    Err(AuditError::Disagreement {
        path: one.path.clone(),
        line: one.line,
        other_path: other.path.clone(),
        other_line: other.line,
        step: a.step,
        what,
    })
}

/// One file, at its next record.
struct Source {
    path: PathBuf,
    lines: Lines,
    /// All headers of the file, with their lines.
    headers: Vec<(u64, AuditHeader)>,
    passages: Vec<Passage>,
    head: Option<Entry>,
    last_step: u64,
}

impl Source {
    /// Opens a file and reads where it has headers and changes of view: what is void shows only later in it, or in others.
    fn open(path: &Path, chain: &mut ChainBuilder) -> Result<Self, AuditError> {
        let mut headers = Vec::new();
        let mut lines = Lines::open(path)?;
        while let Some(line) = lines.next(path)? {
            if line == 1 || line::is_header(&lines.text) {
                let header = line::decode_header(&lines.text).map_err(|reason| malformed(path, line, reason))?;
                chain.header(line, &header);
                headers.push((line, header));
            } else if let Some((step, view)) = line::decode_place(&lines.text) {
                chain.record(step, view);
            }
        }
        let passages = chain.end();
        Ok(Self { path: path.to_owned(), lines: Lines::open(path)?, headers, passages, head: None, last_step: 0 })
    }

    fn step(&self) -> Option<u64> {
        self.head.as_ref().map(|entry| entry.record.step)
    }

    fn take(&mut self, chain: &Chain) -> Result<Option<Entry>, AuditError> {
        let taken = self.head.take();
        self.advance(chain)?;
        Ok(taken)
    }

    /// Goes to the next record that no later header makes void.
    fn advance(&mut self, chain: &Chain) -> Result<(), AuditError> {
        while let Some(line) = self.lines.next(&self.path)? {
            if line::is_header(&self.lines.text) {
                continue;
            }
            let record = line::decode_record(&self.lines.text);
            let record = record.map_err(|reason| malformed(&self.path, line, reason))?;
            let is_void = |(at, header): &(u64, AuditHeader)| *at > line && header.first_step <= record.step;
            if self.headers.iter().any(is_void) {
                continue;
            }
            if record.step <= self.last_step {
                let reason = format!("step {} comes after step {} without a new header", record.step, self.last_step);
                return Err(malformed(&self.path, line, reason));
            }
            self.last_step = record.step;
            let at = self.passages.partition_point(|passage| passage.end <= line);
            let standing = chain.standing(&record, &self.passages[at], at + 1 == self.passages.len());
            self.head = Some(Entry { path: self.path.clone(), line, record, standing });
            return Ok(());
        }
        Ok(())
    }
}

/// The complete lines of a file.
struct Lines {
    file: BufReader<File>,
    text: Vec<u8>,
    line: u64,
}

impl Lines {
    fn open(path: &Path) -> Result<Self, AuditError> {
        let file = File::open(path).map_err(AuditError::io("open", path))?;
        Ok(Self { file: BufReader::new(file), text: Vec::new(), line: 0 })
    }

    /// Reads the next line into `text` and gives its number. A last line without an end was cut short and is none.
    fn next(&mut self, path: &Path) -> Result<Option<u64>, AuditError> {
        self.text.clear();
        self.line += 1;
        let mut limited = self.file.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        limited.read_until(b'\n', &mut self.text).map_err(AuditError::io("read", path))?;
        if self.text.len() > MAX_LINE_BYTES {
            return Err(malformed(path, self.line, format!("it is longer than {MAX_LINE_BYTES} bytes")));
        }
        Ok((self.text.pop() == Some(b'\n')).then_some(self.line))
    }
}

fn malformed(path: &Path, line: u64, reason: String) -> AuditError {
    AuditError::Malformed { path: path.to_owned(), line, reason }
}

/// A first and a last step, and the line that tells of the first.
type Doubtful = (u64, u64, PathBuf, u64);

fn missing((from, to, path, line): Doubtful) -> AuditError {
    AuditError::Missing { from, to, path, line }
}

/// What the steps so far add up to.
struct Books {
    header: AuditHeader,
    report: AuditReport,
    peers: BTreeSet<PeerId>,
    epoch: u64,
    /// A bit for each position of the epoch that was contributed.
    done: Vec<u64>,
    /// How many bits are set.
    count: u64,
    /// Whether the epoch is known from its beginning.
    is_whole: bool,
    first_offence: Option<(PathBuf, u64, String)>,
    /// The steps that nobody is sure of.
    doubtful: Option<Doubtful>,
}

impl Books {
    fn new(header: AuditHeader) -> Self {
        let report = AuditReport {
            first_step: 0,
            steps: 0,
            epochs: 0,
            samples: 0,
            samples_lost: 0,
            samples_repeated: 0,
            samples_dropped: 0,
            peers: 0,
        };
        Self {
            done: vec![0; (header.samples as usize).div_ceil(64)],
            header,
            report,
            peers: BTreeSet::new(),
            epoch: 0,
            count: 0,
            is_whole: false,
            first_offence: None,
            doubtful: None,
        }
    }

    fn enter(&mut self, entry: Entry) -> Result<(), AuditError> {
        let Entry { path, line, record, .. } = &entry;
        if self.report.steps == 0 {
            self.report.first_step = record.step;
            self.epoch = record.epoch;
            self.is_whole = record.step == 1;
        }
        let expected = self.report.first_step + self.report.steps;
        if record.step != expected {
            return Err(AuditError::Missing { from: expected, to: record.step - 1, path: path.clone(), line: *line });
        }
        self.report.steps += 1;
        if entry.standing != Standing::Sure {
            self.doubtful.get_or_insert_with(|| (record.step, record.step, path.clone(), *line)).1 = record.step;
        }
        if record.epoch != self.epoch {
            if self.epoch.checked_add(1) != Some(record.epoch) {
                if let Some(doubtful) = self.doubtful.take() {
                    return Err(missing(doubtful));
                }
                let reason = format!("epoch {} comes after epoch {}", record.epoch, self.epoch);
                return Err(malformed(path, *line, reason));
            }
            self.turn(path, *line);
        }
        let (mut batch, unit) = (0, self.header.micro_batch.max(1));
        let is_border = |at: u32| at == self.header.samples || at.is_multiple_of(unit);
        for range in record.contributions.iter().flat_map(|(_, ranges)| ranges).chain(&record.dropped) {
            if range.start >= range.end || range.end > self.header.samples {
                let (start, end) = (range.start, range.end);
                return Err(malformed(path, *line, format!("[{start},{end}] is not a range of samples")));
            }
            if !is_border(range.start) || !is_border(range.end) {
                let (start, end) = (range.start, range.end);
                return Err(malformed(path, *line, format!("[{start},{end}] cuts a micro-batch of {unit} samples")));
            }
            batch += u64::from(range.end - range.start);
        }
        if batch > u64::from(self.header.batch_size) {
            let reason = format!("its batch has {batch} samples, but at most {} are possible", self.header.batch_size);
            return Err(malformed(path, *line, reason));
        }
        for (peer, ranges) in &record.contributions {
            self.peers.insert(*peer);
            ranges.iter().for_each(|range| self.visit(range.clone(), &entry));
        }
        let contributed = self.report.samples;
        record.dropped.iter().for_each(|range| self.visit(range.clone(), &entry));
        self.report.samples_dropped += self.report.samples - contributed;
        self.report.samples = contributed;
        Ok(())
    }

    /// Notes the samples at some positions as contributed.
    fn visit(&mut self, range: Range<u32>, entry: &Entry) {
        for position in range {
            let (word, bit) = (position as usize / 64, 1_u64 << (position % 64));
            if self.done[word] & bit != 0 {
                self.report.samples_repeated += 1;
                let reason = format!("position {position} of epoch {} was contributed before", self.epoch);
                self.first_offence.get_or_insert_with(|| (entry.path.clone(), entry.line, reason));
            } else {
                self.done[word] |= bit;
                self.count += 1;
                self.report.samples += 1;
            }
        }
    }

    /// Ends the epoch: the next one begins with the record at `line`.
    fn turn(&mut self, path: &Path, line: u64) {
        let lost = u64::from(self.header.samples) - self.count;
        if self.is_whole {
            self.report.epochs += 1;
            self.report.samples_lost += lost;
        }
        if self.is_whole && lost > 0 {
            let reason = format!("epoch {} ended, but {lost} of its samples were not contributed", self.epoch);
            self.first_offence.get_or_insert_with(|| (path.to_owned(), line, reason));
        }
        self.epoch += 1;
        self.is_whole = true;
        self.count = 0;
        self.done.fill(0);
    }

    fn close(mut self) -> Result<AuditReport, AuditError> {
        if self.report.steps == 0 {
            return Err(AuditError::Empty);
        }
        self.report.peers = self.peers.len() as u64;
        if self.is_whole && self.count == u64::from(self.header.samples) {
            self.report.epochs += 1;
        }
        match (self.first_offence, self.doubtful) {
            (None, _) => Ok(self.report),
            // They were steps of a branch that lost, most likely, and nobody tells what the others did.
            (Some(_), Some(doubtful)) => Err(missing(doubtful)),
            (Some((path, line, reason)), None) => {
                let (lost, repeated) = (self.report.samples_lost, self.report.samples_repeated);
                Err(AuditError::Samples { lost, repeated, path, line, reason })
            }
        }
    }
}
