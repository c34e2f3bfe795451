//! How a run's loss and measures went over its steps, as lines of JSON in the data directory: what `starling metrics` reads.
//!
//! There is one file for each run, `metrics-<run>.jsonl`, with a line for each [`Row`]. Names and units stay as they are from
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
use crate::observe::clock;
use crate::observe::report::{Observer, Report};

/// How many lines of training a run has at most, if it never goes back: of a longer one, not every step is told.
const MAX_TRAINING: u64 = 4096;
/// A file that is longer takes no more lines, and is not read beyond it.
const MAX_BYTES: u64 = 64 << 20;
/// The longest line that is read.
const MAX_LINE: u64 = 64 << 10;
/// Rows that wait for the disk; more are dropped.
const MAX_WAITING: usize = 64;
/// What the last lines may take to be written.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// What was measured after a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Row {
    /// When, in UTC: RFC 3339 with milliseconds.
    pub time: String,
    /// After this step.
    pub step: u64,
    /// How training goes; `None` of an evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
    /// Of an evaluation: means over the held-out samples, by name. `loss` is among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held_out: BTreeMap<String, f64>,
}

/// How training goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Training {
    /// Of this pass over the data, counted from 0.
    pub epoch: u64,
    /// Mean loss over the step's global batch; `None` if it is no finite number.
    pub loss: Option<f32>,
    /// Samples of the global batch per second, over the last ten seconds in which steps ran.
    pub samples_per_s: f64,
    /// Share of those seconds spent waiting for the others, 0 to 1.
    pub waiting_share: f64,
    /// How many members took the step.
    pub members: usize,
    /// How many steps of the run were skipped so far.
    pub skipped: u64,
}

impl Row {
    /// What is to be noted of a report; `None` if nothing is.
    fn of(at: SystemTime, report: &Report) -> Option<Self> {
        let time = clock::utc(at);
        match report {
            Report::Progress { step, epoch, loss, samples_per_s, waiting_share, members, skipped, .. } => {
                let (epoch, samples_per_s, waiting_share) = (*epoch, *samples_per_s, *waiting_share);
                let loss = Some(*loss).filter(|loss| loss.is_finite());
                let training =
                    Training { epoch, loss, samples_per_s, waiting_share, members: *members, skipped: *skipped };
                Some(Self { time, step: *step, training: Some(training), held_out: BTreeMap::new() })
            }
            Report::Evaluated { step, loss, measures } => {
                let all = measures.iter().map(|(name, mean)| (name.clone(), *mean));
                let held_out: BTreeMap<_, _> = all.chain([("loss".to_owned(), *loss)]).collect();
                let held_out = held_out.into_iter().filter(|(_, mean)| mean.is_finite()).collect();
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
    pub rows: Vec<Row>,
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
        let Some(path) = newest(data_dir, run).map_err(|error| NodeError::file("read", data_dir, error))? else {
            return Ok(None);
        };
        let mut metrics = Self { path, ..Self::default() };
        metrics.read_on()?;
        Ok(Some(metrics))
    }

    /// What was added to the file since it was read last.
    ///
    /// # Errors
    /// [`NodeError::File`] if it can't be read.
    pub fn read_more(&mut self) -> Result<Vec<Row>, NodeError> {
        let before = std::mem::take(&mut self.rows);
        let read = self.read_on();
        let more = std::mem::replace(&mut self.rows, before);
        more.iter().for_each(|row| self.add(row.clone()));
        read.map(|()| more)
    }

    fn read_on(&mut self) -> Result<(), NodeError> {
        self.read_lines().map_err(|error| NodeError::file("read", &self.path, error))
    }

    fn read_lines(&mut self) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.end))?;
        let (mut lines, mut line) = (BufReader::new(file), Vec::new());
        while self.end < MAX_BYTES {
            line.clear();
            let length = io::Read::take(&mut lines, MAX_LINE).read_until(b'\n', &mut line)? as u64;
            // A line without an end is still being written.
            if length == 0 || (line.last() != Some(&b'\n') && length < MAX_LINE) {
                break;
            }
            self.end += length;
            match serde_json::from_slice(&line) {
                Ok(row) => self.add(row),
                Err(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Err(_) => self.damaged += 1,
            }
        }
        Ok(())
    }

    fn add(&mut self, row: Row) {
        // An evaluation comes behind the training of its step.
        let is_again = |last: &Row| match row.training {
            Some(_) => last.step >= row.step,
            None => last.step > row.step || (last.step == row.step && last.training.is_none()),
        };
        while self.rows.last().is_some_and(is_again) {
            self.rows.pop();
        }
        self.rows.push(row);
    }
}

/// The file that was written last, of those that are asked for.
fn newest(data_dir: &Path, run: Option<&str>) -> io::Result<Option<PathBuf>> {
    let mut found: Option<(SystemTime, PathBuf)> = None;
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
            let written = metadata.modified()?;
            found = found.filter(|(latest, _)| *latest >= written).or_else(|| Some((written, entry.path())));
        }
    }
    Ok(found.map(|(_, path)| path))
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
    /// What comes next is of this run, of so many steps.
    Run(String, u64),
    Row(Row),
}

impl MetricsFile {
    /// For the node of this process. Nothing is written before the run is known.
    pub(crate) fn new(data_dir: &Path) -> Self {
        let (queue, entries) = sync_channel(MAX_WAITING);
        let data_dir = data_dir.to_owned();
        let writer = std::thread::spawn(move || write(&data_dir, &entries));
        Self { queue: Mutex::new(Some(queue)), writer: Mutex::new(Some(writer)) }
    }

    /// Writes what is left. Reports that come later are not written.
    pub(crate) fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let until = Instant::now() + LAST_WRITE;
        while writer.as_ref().is_some_and(|writer| !writer.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Observer for MetricsFile {
    fn report(&self, report: &Report) {
        self.report_at(SystemTime::now(), report);
    }

    fn report_at(&self, at: SystemTime, report: &Report) {
        let entry = match report {
            Report::Started { run, steps, .. } => Some(Entry::Run(run.clone(), *steps)),
            report => Row::of(at, report).map(Entry::Row),
        };
        if let (Some(entry), Some(queue)) = (entry, &*self.queue.lock().unwrap_or_else(PoisonError::into_inner)) {
            // A disk that hangs costs its lines.
            let _ = queue.try_send(entry);
        }
    }
}

/// Writes until nobody can tell more, or a line can't be written.
fn write(data_dir: &Path, entries: &Receiver<Entry>) {
    let mut open: Option<Lines> = None;
    for entry in entries {
        let written = match entry {
            Entry::Run(run, steps) => Lines::open(data_dir, &run, steps).map(|lines| open = Some(lines)),
            Entry::Row(row) => open.as_mut().map_or(Ok(()), |lines| lines.add(&row)),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "the metrics of this run are not written any more");
            return;
        }
    }
}

/// The file of a run.
struct Lines {
    file: File,
    /// How far apart steps are that are told, at least.
    stride: u64,
    /// The last one that was told.
    last: Option<u64>,
}

impl Lines {
    fn open(data_dir: &Path, run: &str, steps: u64) -> io::Result<Self> {
        let id = run.get(..16).unwrap_or(run);
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(data_dir.join(format!("{PREFIX}{id}{SUFFIX}")))?;
        // Who was killed may have left half a line.
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            io::Read::read_exact(&mut file, &mut last)?;
        }
        if last != [b'\n'] {
            file.write_all(b"\n")?;
        }
        Ok(Self { file, stride: steps.div_ceil(MAX_TRAINING).max(1), last: None })
    }

    fn add(&mut self, row: &Row) -> io::Result<()> {
        let is_due = |last: u64| row.step < last || row.step - last >= self.stride;
        if row.training.is_some() && !self.last.is_none_or(is_due) {
            return Ok(());
        }
        if self.file.metadata()?.len() > MAX_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the file has more than {MAX_BYTES} bytes"),
            ));
        }
        if row.training.is_some() {
            self.last = Some(row.step);
        }
        let mut line = serde_json::to_vec(row)?;
        line.push(b'\n');
        // In one piece: who follows it reads whole lines.
        self.file.write_all(&line)
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
            members: 2,
            eta_s: 1.0,
            skipped: 0,
        }
    }

    fn evaluated(step: u64, loss: f64) -> Report {
        Report::Evaluated { step, loss, measures: BTreeMap::from([("accuracy".to_owned(), 0.25)]) }
    }

    fn written(dir: &Path, steps: u64, reports: &[Report]) {
        let file = MetricsFile::new(dir);
        let entry = Entry::Run(RUN.to_owned(), steps);
        file.queue.lock().expect("sound").as_ref().expect("open").send(entry).expect("it listens");
        for report in reports {
            // Not `report`: that drops what a busy machine is too slow for.
            let row = Row::of(SystemTime::UNIX_EPOCH, report).expect("noted");
            file.queue.lock().expect("sound").as_ref().expect("open").send(Entry::Row(row)).expect("it listens");
        }
        file.queue.lock().expect("sound").take();
        let writer = file.writer.lock().expect("sound").take().expect("it runs");
        writer.join().expect("it ends");
    }

    fn steps(metrics: &Metrics) -> Vec<(u64, bool)> {
        metrics.rows.iter().map(|row| (row.step, row.training.is_some())).collect()
    }

    #[test]
    fn what_was_measured_is_read_back_also_behind_half_a_line_and_steps_taken_twice_once() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Metrics::read(dir.path(), None).expect("read"), None);
        written(dir.path(), 600, &[progress(1), progress(2), evaluated(2, 1.5), progress(3)]);
        let path = dir.path().join("metrics-0123456789abcdef.jsonl");
        OpenOptions::new().append(true).open(&path).and_then(|mut file| file.write_all(b"{\"step\":")).expect("torn");
        let before = Metrics::read(dir.path(), Some("0123")).expect("read").expect("there");
        assert_eq!((steps(&before), before.damaged), (vec![(1, true), (2, true), (2, false), (3, true)], 0));
        // From the checkpoint of step 1.
        let mut following = before;
        written(dir.path(), 600, &[progress(2), evaluated(2, f64::NAN)]);
        let metrics = Metrics::read(dir.path(), None).expect("read").expect("there");
        assert_eq!((steps(&metrics), metrics.damaged), (vec![(1, true), (2, true), (2, false)], 1));
        let [.., first, last] = &metrics.rows[..] else { panic!("{metrics:?}") };
        assert_eq!(first.training.as_ref().and_then(|training| training.loss), Some(0.25));
        assert_eq!(last.held_out, BTreeMap::from([("accuracy".to_owned(), 0.25)]), "no number is left out");
        assert_eq!(first.time, "1970-01-01T00:00:00.000Z");
        assert_eq!(following.read_more().expect("read").len(), 2);
        assert_eq!(following.read_more().expect("read"), []);
        assert_eq!(Metrics::read(dir.path(), Some("ffff")).expect("read"), None);
    }

    #[test]
    fn long_runs_tell_some_steps() {
        let dir = tempfile::tempdir().expect("a directory");
        let reports: Vec<_> = (1..=30).map(progress).chain([evaluated(30, 1.0), evaluated(31, 1.0)]).collect();
        written(dir.path(), 10 * MAX_TRAINING, &reports);
        let metrics = Metrics::read(dir.path(), None).expect("read").expect("there");
        assert_eq!(steps(&metrics), [(1, true), (11, true), (21, true), (30, false), (31, false)]);
    }
}
