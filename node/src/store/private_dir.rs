//! A data directory that only its owner may enter, whatever it was before.

use std::path::Path;

use crate::error::NodeError;

/// What a node puts into its data directory, by name or by what the name begins with.
#[cfg(unix)]
const OWN: [&str; 15] = [
    "lock",
    "identity.key",
    "status.json",
    "founder.key",
    "secret-",
    "revocations-",
    "appointments-",
    "consent-",
    "roster-",
    "contacts-",
    "view-",
    "manifest-",
    "preprocessing-",
    "metrics-",
    "checkpoints",
];
/// A folder of ours whose name others use too.
#[cfg(unix)]
const DATA: &str = "data";
/// The bits of a mode that are for others than the owner.
#[cfg(unix)]
const OTHERS: u32 = 0o077;
/// Whoever may write into a directory with this bit is not to keep the others out of it: it is the system's.
#[cfg(unix)]
const STICKY: u32 = 0o1000;

/// Makes a directory that only its owner may enter. One that is there is closed to others if nothing else lies in it than what
/// a node puts there; else what a node puts there is closed to them, and a warning says so.
///
/// # Errors
/// [`NodeError::File`] if it can't be made.
pub fn create(dir: &Path) -> Result<(), NodeError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(|error| NodeError::file("make the data directory", dir, error))?;
    #[cfg(unix)]
    if let Err(error) = close(dir) {
        // A file system without modes, say: the run is no worse off than the user's other files there.
        tracing::warn!(%error, "can't keep other users of this machine out of {}", dir.display());
    }
    Ok(())
}

#[cfg(unix)]
fn close(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    let (mut own, mut data, mut is_shared) = (Vec::new(), None, false);
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        // A file that is being written has a dot in front, and more behind.
        let name = name.to_string_lossy().trim_start_matches('.').to_owned();
        let is_of = |own: &&str| name.strip_prefix(*own).is_some_and(|rest| own.ends_with('-') || is_end(rest));
        let kind = entry.file_type()?;
        match (OWN.iter().any(is_of), name == DATA) {
            (true, _) if kind.is_file() || kind.is_dir() => own.push(entry.path()),
            (true, _) => {}
            (false, true) => data = Some(entry.path()),
            (false, false) => is_shared = true,
        }
    }
    own.extend(data.filter(|_| !is_shared));
    own.iter().try_for_each(|path| close_one(path))?;
    let mode = std::fs::metadata(dir)?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    if is_shared || mode & STICKY != 0 {
        tracing::warn!(
            "other users of this machine may enter {}, which holds more than a node's files; those alone are closed to them",
            dir.display()
        );
        return Ok(());
    }
    // As a path, not as a link to it.
    close_one(&dir.join("."))
}

/// What follows the whole name of a file.
#[cfg(unix)]
fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('.')
}

/// Takes the rights of others away from a file or directory, never through a link.
#[cfg(unix)]
fn close_one(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};

    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let mode = opened.metadata()?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    opened.set_permissions(std::fs::Permissions::from_mode(mode & !OTHERS))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn a_directory_of_before_is_closed_with_all_that_is_in_it() {
        let temp = tempfile::tempdir().expect("a temp dir");
        let dir = temp.path().join("state");
        std::fs::create_dir_all(dir.join("checkpoints")).expect("made");
        std::fs::write(dir.join("secret-0123"), "s").expect("written");
        for (path, before) in [(dir.clone(), 0o755), (dir.join("checkpoints"), 0o755), (dir.join("secret-0123"), 0o644)]
        {
            set(&path, before);
        }
        create(&dir).expect("closed");
        assert_eq!((mode(&dir), mode(&dir.join("checkpoints")), mode(&dir.join("secret-0123"))), (0o700, 0o700, 0o600));
    }

    #[test]
    fn a_directory_that_holds_more_stays_open_and_what_is_a_nodes_does_not() {
        let temp = tempfile::tempdir().expect("a temp dir");
        let (thesis, key) = (temp.path().join("thesis.tex"), temp.path().join("identity.key"));
        for path in [&thesis, &key] {
            std::fs::write(path, "").expect("written");
            set(path, 0o644);
        }
        set(temp.path(), 0o755);
        create(temp.path()).expect("warned");
        assert_eq!((mode(temp.path()), mode(&thesis), mode(&key)), (0o755, 0o644, 0o600));
        // What everybody writes to is never taken from them.
        let common = temp.path().join("common");
        std::fs::create_dir(&common).expect("made");
        set(&common, 0o1777);
        create(&common).expect("warned");
        assert_eq!(mode(&common), 0o1777);
    }

    #[test]
    fn no_link_leads_out_of_it() {
        let temp = tempfile::tempdir().expect("a temp dir");
        let (dir, elsewhere) = (temp.path().join("state"), temp.path().join("elsewhere"));
        std::fs::create_dir(&dir).expect("made");
        std::fs::write(&elsewhere, "").expect("written");
        set(&elsewhere, 0o644);
        std::os::unix::fs::symlink(&elsewhere, dir.join("status.json")).expect("linked");
        create(&dir).expect("closed");
        assert_eq!(mode(&elsewhere), 0o644);
    }
}
