//! `starling init`: a data directory with an identity, and a commented starling.toml.

use std::io::Write;
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;
use libp2p::PeerId;
use serde_json::json;
use starling::ResumePolicy;
use starling_node::credentials::identity::Identity;
use starling_node::store::private_dir;
use starling_node::store::private_file::for_others;

use crate::cli::InitFlags;
use crate::commands::{CommandError, Context, EXIT_DONE, print};
use crate::config::{FILE_NAME, commented_file};

pub(crate) fn init(context: &Context, flags: &InitFlags) -> Result<u8, CommandError> {
    let loaded = context.load_from(None, flags.keys.values())?;
    // Whatever is set in the new file must work.
    loaded.founding(ResumePolicy::Fresh)?;
    loaded.settings()?;
    let path = context.global.config.clone().unwrap_or_else(|| PathBuf::from(FILE_NAME));
    let data_dir = loaded.data_dir()?;
    let peer = write_both(&path, &commented_file(&loaded), flags.force, &data_dir)?;
    print(
        context.global.json,
        || json!({ "config": path, "data_dir": data_dir, "peer": peer.to_string() }),
        || {
            format!(
                "wrote {}\ndata directory {}\nthis machine is peer {peer}\nnext: `starling run`\n",
                path.display(),
                data_dir.display()
            )
        },
    )?;
    Ok(EXIT_DONE)
}

/// Writes the configuration, and makes the data directory with this machine's identity: both, or nothing is left.
fn write_both(path: &Path, text: &str, force: bool, data_dir: &Path) -> Result<PeerId, CommandError> {
    if !force && path.exists() {
        return Err(CommandError::Exists(path.to_owned()));
    }
    let failed = || CommandError::io(format!("write {}", path.display()));
    // Until it is committed, it is a file without a name.
    let mut file = AtomicWriteFile::open(path).map_err(failed())?;
    file.write_all(text.as_bytes()).map_err(failed())?;
    let mut made = Made::before(data_dir);
    private_dir::create(data_dir)?;
    let peer = Identity::load_or_create(data_dir)?.peer_id();
    for_others(path, || file.commit()).map_err(failed())?;
    made.paths.clear();
    Ok(peer)
}

/// Takes back what was made, unless it is told to leave it.
struct Made {
    /// What was not there before, the innermost first.
    paths: Vec<PathBuf>,
}

impl Made {
    /// Looks at what is there before a data directory is made.
    fn before(data_dir: &Path) -> Self {
        let identity = Identity::file(data_dir);
        let missing = identity.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        Self { paths: missing.map(Path::to_owned).collect() }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.paths {
            // A directory only if it is empty: whatever else came into it is not ours.
            let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("a folder");
        entries.map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_that_is_there_stays_unless_forced() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let (path, data_dir) = (dir.path().join(FILE_NAME), dir.path().join("state"));
        let peer = write_both(&path, "one", false, &data_dir).expect("new");
        let error = write_both(&path, "two", false, &data_dir).expect_err("there").to_string();
        assert!(error.contains(FILE_NAME) && error.contains("--force"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "one");
        assert_eq!(write_both(&path, "three", true, &data_dir).expect("forced"), peer);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "three");
    }

    #[test]
    fn what_fails_half_way_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let (path, occupied) = (dir.path().join(FILE_NAME), dir.path().join("file"));
        std::fs::write(&occupied, "in the way").expect("written");
        write_both(&path, "one", false, &occupied.join("state")).expect_err("no folder");
        assert_eq!(names(dir.path()), ["file"]);
        // The configuration can't be written where a folder is.
        std::fs::create_dir(&path).expect("a folder");
        write_both(&path, "one", true, &dir.path().join("a").join("state")).expect_err("a folder");
        assert!(!dir.path().join("a").exists() && names(&path).is_empty());
    }
}
