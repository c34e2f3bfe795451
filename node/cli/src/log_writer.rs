//! Logs on their way to stderr: whoever logs never waits for whoever reads.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::output::Console;

/// Lines that wait to be written; more are dropped.
const MAX_WAITING: usize = 1024;
/// How long the last lines may take to be written.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Hands lines to a thread that writes them, and drops those that there is no room for: their count is told before the next one.
#[derive(Debug, Clone)]
pub(crate) struct LogWriter {
    entries: SyncSender<Entry>,
    /// How many lines were dropped since the last one that was not. It is locked from there until the next one is in the queue.
    dropped: Arc<Mutex<u64>>,
    is_json: bool,
}

#[derive(Debug)]
enum Entry {
    /// To be written.
    Line(Vec<u8>),
    /// To be answered once all that came before is written.
    Flush(SyncSender<()>),
}

impl LogWriter {
    /// Starts the thread, which writes to the terminal.
    ///
    /// # Errors
    /// If the system has no thread.
    pub(crate) fn start(console: Console, is_json: bool) -> io::Result<Self> {
        let (writer, entries) = Self::with_queue(is_json);
        let write = move || {
            write_all(&entries, |line| {
                // A closed stderr is no reason to end.
                let _ = console.make_writer().write_all(line);
            });
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(writer)
    }

    fn with_queue(is_json: bool) -> (Self, Receiver<Entry>) {
        let (entries, waiting) = sync_channel(MAX_WAITING);
        (Self { entries, dropped: Arc::default(), is_json }, waiting)
    }

    /// Waits until everything is written, or for a short while if that is stuck.
    pub(crate) fn flush_all(&self) {
        let (done, flushed) = sync_channel(1);
        if self.entries.try_send(Entry::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(FLUSH_LIMIT);
        }
    }

    /// What is said of lines that were dropped, before a line.
    fn head(&self, dropped: u64) -> String {
        let message = format!("{dropped} lines of the log are left out, since nobody read those before them");
        match (dropped, self.is_json) {
            (0, _) => String::new(),
            (_, true) => format!("{{\"level\":\"WARN\",\"fields\":{{\"message\":\"{message}\"}}}}\n"),
            (_, false) => format!("{message}\n"),
        }
    }
}

/// Writes until nobody can log any more.
fn write_all(entries: &Receiver<Entry>, mut write: impl FnMut(&[u8])) {
    for entry in entries {
        match entry {
            Entry::Line(line) => write(&line),
            // Nobody waits any more if it took too long.
            Entry::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let line = [self.head(*dropped).as_bytes(), bytes].concat();
        *dropped = match self.entries.try_send(Entry::Line(line)) {
            Ok(()) => 0,
            Err(_) => dropped.saturating_add(1),
        };
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let (mut writer, entries) = LogWriter::with_queue(false);
        (0..MAX_WAITING + 3).for_each(|number| {
            writer.write_all(format!("{number}\n").as_bytes()).expect("it takes all");
        });
        // One is read, so that there is room for another.
        assert!(matches!(entries.recv(), Ok(Entry::Line(line)) if line == b"0\n"));
        writer.write_all(b"later\n").expect("it takes all");
        drop(writer);
        let mut lines = Vec::new();
        write_all(&entries, |line| lines.push(String::from_utf8_lossy(line).into_owned()));
        assert_eq!(lines.len(), MAX_WAITING);
        assert!(lines[MAX_WAITING - 1].starts_with("3 lines of the log"), "{}", lines[MAX_WAITING - 1]);
        assert!(lines[MAX_WAITING - 1].ends_with("\nlater\n"), "{}", lines[MAX_WAITING - 1]);
    }
}
