//! Files that only their owner may read: keys, secrets, and unless they are made for others, all that a node writes.

use std::io::{ErrorKind, Write};
use std::path::Path;

use atomic_write_file::OpenOptions;

use crate::error::NodeError;

/// What the user's other programs keep from others in files that they make, as the bits of a mode.
#[cfg(unix)]
static USERS_MASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();

/// Has this process keep all that it makes from now on to its owner. To be called once, before there are threads.
pub fn keep_to_owner() {
    #[cfg(unix)]
    {
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let _ = USERS_MASK.set(before.as_raw_mode());
    }
}

/// Writes a file, or a folder of files, that is the user's and not the node's: a new one has the mode that any other program
/// would give it; one that was there, its own.
///
/// # Errors
/// What `write` says.
pub fn for_others<T, E>(path: &Path, write: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let (was_there, folder) = (path.is_file(), path.metadata().ok().filter(std::fs::Metadata::is_dir));
    let written = write()?;
    #[cfg(unix)]
    if let (false, Some(users)) = (was_there, USERS_MASK.get()) {
        use std::os::unix::fs::PermissionsExt as _;
        let mask = folder.map_or(*users, |folder| users | !folder.permissions().mode());
        // A folder comes about anew each time. What is in it comes first: it is opened with what it contains.
        let inside = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in inside.chain([path.to_owned()]) {
            let mode = if path.is_dir() { 0o777 } else { 0o666 };
            if let Err(error) = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode & !mask)) {
                tracing::warn!(%error, "{} is for its owner alone", path.display());
            }
        }
    }
    Ok(written)
}

/// The largest private file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// The content of `path`; `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, NodeError> {
    read_up_to(path, MAX_BYTES)
}

/// The same for a file that may be longer.
pub(crate) fn read_up_to(path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>, NodeError> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            // A pipe or a device would never end.
            let source = std::io::Error::new(ErrorKind::InvalidData, "it is no regular file");
            return Err(NodeError::file("read", path, source));
        }
        Ok(metadata) if metadata.len() > max_bytes => {
            let source = std::io::Error::new(ErrorKind::InvalidData, "the file is too large for what it should hold");
            return Err(NodeError::file("read", path, source));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(_) | Err(_) => {}
    }
    std::fs::read(path).map(Some).map_err(|source| NodeError::file("read", path, source))
}

/// Writes `path` whole or not at all, with mode 0600, and makes its folder if needed.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), NodeError> {
    let write = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = OpenOptions::new();
        #[cfg(unix)]
        {
            use atomic_write_file::unix::OpenOptionsExt as _;
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600).preserve_mode(false);
        }
        let mut file = options.open(path)?;
        file.write_all(bytes)?;
        file.commit()
    };
    write().map_err(|source| NodeError::file("write", path, source))
}
