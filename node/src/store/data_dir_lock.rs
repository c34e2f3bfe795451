//! One node per data directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::error::NodeError;
use crate::store::private_dir;

const FILE: &str = "lock";
/// A process's number has at most so many digits.
const MAX_DIGITS: u64 = 20;

/// Keeps other nodes out of a data directory for as long as it lives. The system takes the lock back when the process
/// ends, however it ends.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

impl DataDirLock {
    /// Makes the directory if needed (for its owner alone) and locks it.
    ///
    /// # Errors
    /// [`NodeError::InUse`] if another node has it, [`NodeError::File`] if it can't be made or written.
    pub fn acquire(data_dir: &Path) -> Result<Self, NodeError> {
        private_dir::create(data_dir)?;
        let path = data_dir.join(FILE);
        let failed = |error| NodeError::file("lock", &path, error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // Whoever may read it may hold it; and where others may write, a link could lead anywhere.
            options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        }
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The holder's number is only for the message: without it the message is still right.
                let _ = file.take(MAX_DIGITS).read_to_string(&mut holder);
                let holder = holder.trim();
                let is_number = !holder.is_empty() && holder.bytes().all(|byte| byte.is_ascii_digit());
                let by = if is_number { format!(" by process {holder}") } else { String::new() };
                return Err(NodeError::InUse { dir: data_dir.to_owned(), by });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_node_is_refused_until_the_first_is_gone() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let data_dir = dir.path().join("state");
        let first = DataDirLock::acquire(&data_dir).expect("free");
        let error = DataDirLock::acquire(&data_dir).expect_err("taken").to_string();
        assert!(error.contains("state") && error.contains("in use"), "{error}");
        assert!(error.contains(&format!("by process {}", std::process::id())), "{error}");
        drop(first);
        drop(DataDirLock::acquire(&data_dir).expect("free again"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_no_lock() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let (data_dir, elsewhere) = (dir.path().join("state"), dir.path().join("elsewhere"));
        std::fs::create_dir(&data_dir).expect("made");
        std::fs::write(&elsewhere, "theirs").expect("written");
        std::os::unix::fs::symlink(&elsewhere, data_dir.join(FILE)).expect("linked");
        DataDirLock::acquire(&data_dir).expect_err("refused");
        assert_eq!(std::fs::read_to_string(&elsewhere).expect("read"), "theirs");
    }

    #[test]
    fn a_place_that_can_not_be_made_is_named() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("written");
        let error = DataDirLock::acquire(&file.join("state")).expect_err("no folder").to_string();
        assert!(error.contains("file"), "{error}");
    }
}
