//! How a run's loss and measures went over its steps, as lines of JSON in the data directory: what `starling metrics` reads.
//!
//! There is one file for each run, `metrics-<run>.jsonl`, with a line for each [`MetricsRecord`]. Names and units stay as they are from
//! version to version; new ones may come.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::NodeError;
use crate::observe::report::{Observer, Report};
use crate::observe::{clock, figures};
use crate::start::host;

/// How many lines of training a run has at most, and as many of evaluations, if it never goes back: of a longer one, not every
/// step is told.
const MAX_LINES: u64 = 4096;
/// A file that is longer takes no more lines, and is not read beyond it.
const MAX_BYTES: u64 = 64 << 20;
/// The longest line that is read.
const MAX_LINE: u64 = 64 << 10;
/// Rows that wait for the disk; more are dropped.
const MAX_WAITING: usize = 64;
/// What the last lines may take to be written.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// What was measured after a step; or if nothing was, that the machine goes on from there: what it measured behind it does not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MetricsRecord {
    /// When, in UTC: RFC 3339 with milliseconds.
    pub time: String,
    /// After this step.
    pub step: u64,
    /// How training goes; `None` of an evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingMetrics>,
    /// Of an evaluation: means over the held-out samples, by name, no number where it came to none. `loss` is among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "figures::read_all")]
    pub held_out: BTreeMap<String, f64>,
}

/// How training goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrainingMetrics {
    /// Of this pass over the data, counted from 0.
    pub epoch: u64,
    /// Mean loss over the step's global batch; `None` if it is no finite number.
    pub loss: Option<f32>,
    /// Samples of the global batch per second, over the last ten seconds in which steps ran.
    pub samples_per_s: f64,
    /// Share of those seconds spent waiting for the others, 0 to 1.
    pub waiting_share: f64,
    /// Share of those seconds in which nothing was done here but to load samples, 0 to 1.
    #[serde(default)]
    pub data_wait_share: f64,
    /// How many members took the step.
    pub members: usize,
    /// How many steps of the run were skipped so far.
    pub skipped: u64,
}

impl MetricsRecord {
    /// Whether anything was measured.
    fn is_measured(&self) -> bool {
        self.training.is_some() || !self.held_out.is_empty()
    }

    /// What is to be noted of a report; `None` if nothing is.
    fn of(at: SystemTime, report: &Report) -> Option<Self> {
        let time = clock::utc(at);
        match report {
            Report::Progress {
                step,
                epoch,
                loss,
                samples_per_s,
                waiting_share,
                data_wait_share,
                members,
                skipped,
                ..
            } => {
                let training = TrainingMetrics {
                    epoch: *epoch,
                    loss: Some(*loss).filter(|loss| loss.is_finite()),
                    samples_per_s: *samples_per_s,
                    waiting_share: *waiting_share,
                    data_wait_share: *data_wait_share,
                    members: *members,
                    skipped: *skipped,
                };
                Some(Self { time, step: *step, training: Some(training), held_out: BTreeMap::new() })
            }
            Report::Evaluated { step, loss, measures } => {
                let all = measures.iter().map(|(name, mean)| (name.clone(), *mean));
                let held_out = all.chain([("loss".to_owned(), *loss)]).collect();
                Some(Self { time, step: *step, training: None, held_out })
            }
            _ => None,
        }
    }
}

/// What is known of a run over its steps.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// The file.
    pub path: PathBuf,
    /// By step. Of steps that were taken twice, since the run went back to a checkpoint, only the later times.
    pub rows: Vec<MetricsRecord>,
    /// How many lines could not be read: those of a machine that lost its power, say.
    pub damaged: usize,
    /// Up to where the file was read.
    end: u64,
}

impl Metrics {
    /// Those of the run that was measured last in a data directory, or of the one whose id begins with `run`. `None` if there
    /// are none.
    ///
    /// # Errors
    /// [`NodeError::File`] if the directory or the file can't be read.
    pub fn read(data_dir: &Path, run: Option<&str>) -> Result<Option<Self>, NodeError> {
        let Some(path) = find(data_dir, run).map_err(|error| NodeError::file("read", data_dir, error))? else {
            return Ok(None);
        };
        let mut metrics = Self { path, ..Self::default() };
        metrics.read_more()?;
        Ok(Some(metrics))
    }

    /// How the run's id begins.
    pub fn run(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)).unwrap_or_default()
    }

    /// What was added to the file since it was read last.
    ///
    /// # Errors
    /// [`NodeError::File`] if it can't be read.
    pub fn read_more(&mut self) -> Result<Vec<MetricsRecord>, NodeError> {
        self.read_lines().map_err(|error| NodeError::file("read", &self.path, error))
    }

    fn read_lines(&mut self) -> io::Result<Vec<MetricsRecord>> {
        let mut file = open_to(&self.path, OpenOptions::new().read(true))?;
        file.seek(SeekFrom::Start(self.end))?;
        let (mut lines, mut line, mut more) = (BufReader::new(file), Vec::new(), Vec::new());
        while self.end < MAX_BYTES {
            line.clear();
            let length = io::Read::take(&mut lines, MAX_LINE).read_until(b'\n', &mut line)? as u64;
            // A line without an end is still being written.
            if length == 0 || (line.last() != Some(&b'\n') && length < MAX_LINE) {
                break;
            }
            self.end += length;
            match serde_json::from_slice::<MetricsRecord>(&line) {
                Ok(row) => {
                    more.extend(row.is_measured().then(|| row.clone()));
                    self.add(row);
                }
                Err(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Err(_) => self.damaged += 1,
            }
        }
        Ok(more)
    }

    fn add(&mut self, row: MetricsRecord) {
        if !row.is_measured() {
            while self.rows.last().is_some_and(|last| last.step > row.step) {
                self.rows.pop();
            }
            return;
        }
        let is_training = row.training.is_some();
        // An evaluation may be told behind the training of later steps. It comes behind that of its own, whichever is told first.
        let first = self.rows.partition_point(|other| other.step < row.step);
        let end = self.rows.partition_point(|other| other.step <= row.step);
        match self.rows[first..end].iter().position(|other| other.training.is_some() == is_training) {
            Some(again) => self.rows[first + again] = row,
            None if is_training => self.rows.insert(first, row),
            None => self.rows.insert(end, row),
        }
    }
}

/// The file that was written last, or that of the run that is asked for.
fn find(data_dir: &Path, run: Option<&str>) -> io::Result<Option<PathBuf>> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let entries = match std::fs::read_dir(data_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)) else { continue };
        let is_asked = run.is_none_or(|run| run.starts_with(id) || id.starts_with(run));
        let metadata = entry.metadata()?;
        if is_asked && metadata.is_file() {
            found.push((metadata.modified()?, entry.path()));
        }
    }
    if run.is_some() && found.len() > 1 {
        let reason = format!("the ids of {} runs in it begin so; pass more of the one that is meant", found.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    Ok(found.into_iter().max().map(|(_, path)| path))
}

const PREFIX: &str = "metrics-";
const SUFFIX: &str = ".jsonl";

/// Writes what it is told to the file of its run, on a thread of its own.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    queue: Mutex<Option<SyncSender<Entry>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Entry {
    Begun(Begun),
    Row(MetricsRecord),
}

/// What comes next is of this run.
#[derive(Debug)]
struct Begun {
    run: String,
    /// Its last step.
    steps: u64,
    /// The machine goes on from this one.
    step: u64,
    time: String,
}

impl MetricsFile {
    /// For the node of this process. Nothing is written before something was measured.
    pub(crate) fn new(data_dir: &Path) -> Self {
        let (queue, entries) = sync_channel(MAX_WAITING);
        let data_dir = data_dir.to_owned();
        let writer = host::thread("metrics", move || write(&data_dir, &entries));
        let writer = writer.map_err(|error| tracing::warn!(%error, "nothing that is measured is kept")).ok();
        Self { queue: Mutex::new(Some(queue)), writer: Mutex::new(writer) }
    }

    /// Writes what is left. Reports that come later are not written.
    pub(crate) fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        writer.map(|writer| host::join_until(writer, Instant::now() + LAST_WRITE));
    }
}

impl Observer for MetricsFile {
    fn report(&self, report: &Report) {
        self.report_at(SystemTime::now(), report);
    }

    fn report_at(&self, at: SystemTime, report: &Report) {
        let entry = match report {
            Report::Started { run, steps, step, .. } => {
                let time = clock::utc(at);
                Some(Entry::Begun(Begun { run: run.clone(), steps: *steps, step: *step, time }))
            }
            report => MetricsRecord::of(at, report).map(Entry::Row),
        };
        if let (Some(entry), Some(queue)) = (entry, &*self.queue.lock().unwrap_or_else(PoisonError::into_inner)) {
            // A disk that hangs costs its lines.
            let _ = queue.try_send(entry);
        }
    }
}

/// Writes until nobody can tell more.
fn write(data_dir: &Path, entries: &Receiver<Entry>) {
    let mut lines: Option<Lines> = None;
    let finish = |lines: &mut Option<Lines>| lines.iter_mut().for_each(Lines::finish);
    for entry in entries {
        match entry {
            Entry::Begun(begun) => {
                finish(&mut lines);
                lines = Some(Lines::new(data_dir, begun));
            }
            Entry::Row(row) => lines.iter_mut().for_each(|lines| lines.add(row.clone())),
        }
    }
    finish(&mut lines);
}

/// The file of a run.
struct Lines {
    path: PathBuf,
    begun: Begun,
    /// Once something was written.
    file: Option<File>,
    /// How far apart steps are that are told, at least.
    stride: u64,
    /// The last step of which training was told, and an evaluation.
    last: [Option<u64>; 2],
    /// What came since, and was too soon: it is told if nothing comes after it.
    held: [Option<MetricsRecord>; 2],
    /// Whether the file says from where the machine goes on.
    is_begun: bool,
    has_failed: bool,
}

impl Lines {
    fn new(data_dir: &Path, begun: Begun) -> Self {
        let id = begun.run.get(..16).unwrap_or(&begun.run);
        let path = data_dir.join(format!("{PREFIX}{id}{SUFFIX}"));
        let stride = begun.steps.div_ceil(MAX_LINES).max(1);
        Self {
            path,
            begun,
            file: None,
            stride,
            last: [None; 2],
            held: [None, None],
            is_begun: false,
            has_failed: false,
        }
    }

    fn add(&mut self, row: MetricsRecord) {
        let kind = usize::from(row.training.is_none());
        let newest = self.held[kind].as_ref().map(|held| held.step).max(self.last[kind]);
        if newest.is_some_and(|newest| row.step < newest) {
            self.go_back(&row);
        }
        let is_due = |last: u64| row.step - last >= self.stride || row.step >= self.begun.steps;
        if !self.last[kind].is_none_or(is_due) {
            self.held[kind] = Some(row);
            return;
        }
        self.held[kind] = None;
        self.last[kind] = Some(row.step);
        self.tell(&row);
    }

    /// Nothing follows.
    fn finish(&mut self) {
        let mut held: Vec<MetricsRecord> = std::mem::take(&mut self.held).into_iter().flatten().collect();
        held.sort_by_key(|row| row.step);
        held.iter().for_each(|row| self.tell(row));
    }

    /// The machine has gone back, and takes the step of `row` again: what was measured from there on does not count.
    fn go_back(&mut self, row: &MetricsRecord) {
        self.held = [None, None];
        self.last = self.last.map(|last| last.filter(|last| *last < row.step));
        let step = row.step.saturating_sub(1);
        self.tell(&MetricsRecord { time: row.time.clone(), step, training: None, held_out: BTreeMap::new() });
    }

    /// Writes a line. A disk that does not take it costs it that line.
    fn tell(&mut self, row: &MetricsRecord) {
        if let Err(error) = self.write(row) {
            self.file = None;
            if !std::mem::replace(&mut self.has_failed, true) {
                tracing::warn!(%error, "not all that is measured can be kept in {}", self.path.display());
            }
        }
    }

    fn write(&mut self, row: &MetricsRecord) -> io::Result<()> {
        let mut text = Vec::new();
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let mut file = open_to(&self.path, OpenOptions::new().create(true).append(true).read(true))?;
                // Who was killed, or had no room, may have left half a line.
                if file.metadata()?.len() > 0 {
                    let mut last = [0];
                    file.seek(SeekFrom::End(-1))?;
                    io::Read::read_exact(&mut file, &mut last)?;
                    text.extend((last != *b"\n").then_some(b'\n'));
                }
                self.file.insert(file)
            }
        };
        if file.metadata()?.len() > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {MAX_BYTES} bytes")));
        }
        if !self.is_begun {
            let Begun { time, step, .. } = &self.begun;
            let from = MetricsRecord { time: time.clone(), step: *step, training: None, held_out: BTreeMap::new() };
            serde_json::to_writer(&mut text, &from)?;
            text.push(b'\n');
        }
        serde_json::to_writer(&mut text, row)?;
        text.push(b'\n');
        // In one piece: who follows it reads whole lines.
        file.write_all(&text)?;
        self.is_begun = true;
        Ok(())
    }
}

/// Opens a file that nobody else made a link, a pipe or a device.
fn open_to(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0123456789abcdef0123";

    fn progress(step: u64) -> Report {
        Report::Progress {
            step,
            generation: 1,
            steps: 600,
            epoch: 0,
            loss: step as f32 / 8.0,
            samples_per_s: 10.0,
            waiting_share: 0.5,
            data_wait_share: 0.01,
            members: 2,
            eta_s: 1.0,
            skipped: 0,
        }
    }

    fn evaluated(step: u64, loss: f64) -> Report {
        Report::Evaluated { step, loss, measures: BTreeMap::from([("accuracy".to_owned(), 0.25)]) }
    }

    /// Has a process that goes on from `step` write what it reports.
    fn written(dir: &Path, (steps, step): (u64, u64), reports: &[Report]) {
        let (queue, entries) = sync_channel(reports.len() + 1);
        let begun = Begun { run: RUN.to_owned(), steps, step, time: clock::utc(SystemTime::UNIX_EPOCH) };
        queue.send(Entry::Begun(begun)).expect("room");
        for report in reports {
            let row = MetricsRecord::of(SystemTime::UNIX_EPOCH, report).expect("noted");
            queue.send(Entry::Row(row)).expect("room");
        }
        drop(queue);
        write(dir, &entries);
    }

    fn read(dir: &Path) -> Metrics {
        Metrics::read(dir, None).expect("read").expect("there")
    }

    fn steps(metrics: &Metrics) -> Vec<(u64, bool)> {
        metrics.rows.iter().map(|row| (row.step, row.training.is_some())).collect()
    }

    #[test]
    fn what_was_measured_is_read_back_also_behind_half_a_line_and_behind_a_checkpoint_once() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Metrics::read(dir.path(), None).expect("read"), None);
        // Training may be told behind the evaluation of its step.
        written(dir.path(), (600, 0), &[progress(1), evaluated(2, 1.5), progress(2), progress(3), progress(5)]);
        let path = dir.path().join("metrics-0123456789abcdef.jsonl");
        OpenOptions::new().append(true).open(&path).and_then(|mut file| file.write_all(b"{\"step\":")).expect("torn");
        let mut before = Metrics::read(dir.path(), Some("0123")).expect("read").expect("there");
        let all = [(1, true), (2, true), (2, false), (3, true), (5, true)];
        assert_eq!((steps(&before), before.damaged), (all.to_vec(), 0));
        // It goes on from the checkpoint of step 2, and tells step 4 next.
        written(dir.path(), (600, 2), &[progress(4), evaluated(4, f64::NAN)]);
        let metrics = read(dir.path());
        assert_eq!(steps(&metrics), [(1, true), (2, true), (2, false), (4, true), (4, false)]);
        let [.., first, last] = &metrics.rows[..] else { panic!("{metrics:?}") };
        assert_eq!(first.training.as_ref().and_then(|training| training.loss), Some(0.5));
        assert!(last.held_out["accuracy"] == 0.25 && last.held_out["loss"].is_nan(), "{last:?}");
        assert_eq!(first.time, "1970-01-01T00:00:00.000Z");
        assert_eq!(before.read_more().expect("read").len(), 2);
        assert_eq!((before.read_more().expect("read"), steps(&before)), (Vec::new(), steps(&metrics)));
        // Half a line is none.
        assert_eq!(metrics.damaged, 1);
        assert_eq!(Metrics::read(dir.path(), Some("ffff")).expect("read"), None);
        std::fs::copy(&path, dir.path().join("metrics-0123ffff.jsonl")).expect("copied");
        let error = Metrics::read(dir.path(), Some("0123")).expect_err("two").to_string();
        assert!(error.contains("the ids of 2 runs"), "{error}");
    }

    /// It is no line that says from where a process goes on, behind which nothing counts.
    #[test]
    fn an_evaluation_that_came_to_no_number_at_all_is_one_all_the_same() {
        let dir = tempfile::tempdir().expect("a directory");
        let none = Report::Evaluated { step: 2, loss: f64::NAN, measures: [("r2".to_owned(), f64::INFINITY)].into() };
        written(dir.path(), (600, 0), &[progress(1), progress(2), none, progress(3)]);
        let metrics = read(dir.path());
        assert_eq!((steps(&metrics), metrics.damaged), (vec![(1, true), (2, true), (2, false), (3, true)], 0));
        let text = std::fs::read_to_string(&metrics.path).expect("read");
        assert!(text.contains(r#""held_out":{"loss":null,"r2":null}"#), "{text}");
        assert!(metrics.rows[2].held_out.values().all(|mean| mean.is_nan()), "{metrics:?}");
    }

    #[test]
    fn long_runs_tell_some_steps_and_the_last() {
        let dir = tempfile::tempdir().expect("a directory");
        let reports: Vec<_> = (1..=30).flat_map(|step| [progress(step), evaluated(step, 1.0)]).collect();
        written(dir.path(), (10 * MAX_LINES, 0), &reports);
        let told = [1, 11, 21, 30].map(|step| [(step, true), (step, false)]).concat();
        assert_eq!(steps(&read(dir.path())), told);
    }

    /// An evaluation takes longer than a step.
    #[test]
    fn an_evaluation_that_is_told_late_is_in_its_place_and_takes_nothing_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let late = |step: u64| (5..=20).contains(&step) && step % 3 == 2;
        let reports = (1..=25).flat_map(|step| [Some(progress(step)), late(step).then(|| evaluated(step - 2, 1.0))]);
        written(dir.path(), (10 * MAX_LINES, 0), &reports.flatten().collect::<Vec<_>>());
        let told = [(1, true), (3, false), (11, true), (15, false), (18, false), (21, true), (25, true)];
        assert_eq!(steps(&read(dir.path())), told);
    }

    #[test]
    fn what_a_machine_measured_before_it_went_back_does_not_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let before = (1..=8).map(progress).chain([evaluated(6, 2.0)]);
        let reports: Vec<Report> = before.chain([progress(4), evaluated(4, 1.0), progress(5)]).collect();
        written(dir.path(), (600, 0), &reports);
        assert_eq!(steps(&read(dir.path())), [(1, true), (2, true), (3, true), (4, true), (4, false), (5, true)]);
    }

    #[test]
    fn what_cannot_be_written_is_left_out_and_the_rest_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("metrics-0123456789abcdef.jsonl");
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, "mine").expect("written");
        let begun = |step| Begun { run: RUN.to_owned(), steps: 600, step, time: clock::utc(SystemTime::UNIX_EPOCH) };
        let row = |step| MetricsRecord::of(SystemTime::UNIX_EPOCH, &progress(step)).expect("noted");
        let mut lines = Lines::new(dir.path(), begun(0));
        #[cfg(unix)]
        std::os::unix::fs::symlink(&elsewhere, &path).expect("linked");
        #[cfg(not(unix))]
        std::fs::create_dir(&path).expect("in the way");
        lines.add(row(1));
        assert_eq!(std::fs::read(&elsewhere).expect("read"), b"mine", "a link leads nowhere");
        #[cfg(unix)]
        std::fs::remove_file(&path).expect("removed");
        #[cfg(not(unix))]
        std::fs::remove_dir(&path).expect("removed");
        lines.add(row(2));
        assert_eq!(steps(&read(dir.path())), [(2, true)]);
    }
}
