//! A file under way, which has its name once it is whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use starling_node::observe::status::Process;
use starling_node::start::signals::{EXIT_INTERRUPTED, SignalSet};
use starling_run::program::export;

/// How often a folder is removed before it is left.
const MAX_REMOVALS: u32 = 16;

/// What is written of a file until it is whole. It goes when it is dropped, and when a signal ends the process.
pub(super) struct Part {
    pub(super) file: File,
    part: PathBuf,
    place: PathBuf,
}

impl Part {
    /// Of the file that is to be at `place`, beside it.
    ///
    /// # Errors
    /// If there can be none, or the system tells of no signals.
    pub(super) fn begin(place: PathBuf) -> io::Result<Self> {
        let name = place.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
        let part = place.with_file_name(format!(".{}.{}.part", name.display(), std::process::id()));
        remove_when_told(part.clone())?;
        let file = File::options().write(true).create_new(true).open(&part)?;
        let begun = Self { file, part, place };
        // One that was there keeps its mode.
        if let Ok(there) = fs::metadata(&begun.place) {
            begun.file.set_permissions(there.permissions())?;
        }
        Ok(begun)
    }

    /// It is whole.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(super) fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.part, &self.place)?;
        // That the name is on disk, too, is wished for where the system can say so.
        let folder = self.place.parent().filter(|folder| !folder.as_os_str().is_empty());
        let _ = File::open(folder.unwrap_or_else(|| Path::new("."))).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.part);
    }
}

/// Has the first signal that asks this process to end remove what is under way of an export to `to`, and removes what others left of one
/// that were ended otherwise and run no more.
///
/// # Errors
/// If the system tells of no signals.
pub(crate) fn remove_export_when_told(to: &Path) -> io::Result<()> {
    let is_gone = |pid: u32| Process { pid, started: None }.is_alive() == Some(false);
    for (_, part) in export::parts(to).into_iter().filter(|(pid, _)| is_gone(*pid)) {
        // What stays is in nobody's way.
        let _ = export::remove_part(to, &part);
    }
    let to = to.to_owned();
    when_told(move || {
        let own = |(pid, part): (u32, PathBuf)| (pid == std::process::id()).then_some(part);
        // Who still writes may put a file there in the meantime.
        for _ in 0..MAX_REMOVALS {
            let parts: Vec<PathBuf> = export::parts(&to).into_iter().filter_map(own).collect();
            if parts.iter().all(|part| export::remove_part(&to, part).is_ok()) {
                break;
            }
        }
    })
}

/// Has the first signal that asks this process to end remove `part` before: a file, or a folder with what is in it.
///
/// # Errors
/// If the system tells of no signals.
pub(in crate::commands) fn remove_when_told(part: PathBuf) -> io::Result<()> {
    when_told(move || {
        let _ = fs::remove_file(&part);
        // Who still writes may put a file there in the meantime.
        for _ in 0..MAX_REMOVALS {
            if fs::remove_dir_all(&part).is_ok() || !part.exists() {
                break;
            }
        }
    })
}

/// Has the first signal that asks this process to end do this before.
fn when_told(clear: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (listens, heard) = mpsc::sync_channel(1);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            let signals = SignalSet::listen();
            let mut signals = match signals {
                Ok(signals) => signals,
                Err(error) => return drop(listens.send(Err(error))),
            };
            let _ = listens.send(Ok(()));
            signals.next().await;
            clear();
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        });
    })?;
    heard.recv().unwrap_or_else(|_| Err(io::Error::other("its thread is gone")))
}
