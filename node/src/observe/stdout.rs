//! What is written to stdout, whose reader may go away.

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Writes `text` to stdout.
///
/// # Errors
/// Whatever the write says, except that a closed pipe is no error: its reader has seen enough.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes a line to stdout, and lets it go if that is not possible: a run does not end for want of a reader.
pub fn print_line(line: &str) {
    let _ = print(&format!("{line}\n"));
}

/// Writes what a reader that does not read would stop, in a thread of its own, and waits for that until `limit` is over. Whether
/// it is written.
pub fn within(limit: Duration, write: impl FnOnce() + Send + 'static) -> bool {
    let (done, written) = sync_channel(1);
    let work = move || {
        write();
        // Nobody waits any more if it took too long.
        let _ = done.send(());
    };
    let started = std::thread::Builder::new().name("last words".to_owned()).spawn(work);
    started.is_ok() && written.recv_timeout(limit).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stopped_is_not_waited_for() {
        let (release, stopped) = sync_channel::<()>(0);
        let write = move || {
            let _ = stopped.recv();
        };
        assert!(!within(Duration::from_millis(10), write));
        drop(release);
        assert!(within(Duration::from_secs(60), || {}));
    }
}
