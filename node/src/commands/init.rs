//! `starling init`: a data directory with an identity, and a commented starling.toml.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::InitFlags;
use crate::config::{FILE_NAME, commented_file};
use crate::data_dir_lock::create_private;
use crate::identity::Identity;
use crate::settings::Resume;

pub(super) fn init(context: &Context, flags: &InitFlags) -> Result<u8, CommandError> {
    let loaded = context.load_from(None, &flags.keys.values())?;
    // Whatever is set in the new file must work.
    loaded.founding(Resume::Fresh)?;
    loaded.settings()?;
    let path = context.global.config.clone().unwrap_or_else(|| PathBuf::from(FILE_NAME));
    write_new(&path, &commented_file(&loaded), flags.force)?;
    let data_dir = loaded.data_dir()?;
    create_private(&data_dir)?;
    let peer = Identity::load_or_create(&data_dir)?.peer_id();
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

/// Writes a file that was not there, or may be overwritten.
fn write_new(path: &Path, text: &str, force: bool) -> Result<(), CommandError> {
    let mut options = OpenOptions::new();
    if force {
        options.write(true).create(true).truncate(true);
    } else {
        options.write(true).create_new(true);
    }
    match options.open(path).and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(CommandError::Exists(path.to_owned())),
        result => result.map_err(CommandError::io(format!("write {}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_stays_unless_forced() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join(FILE_NAME);
        write_new(&path, "one", false).expect("new");
        let error = write_new(&path, "two", false).expect_err("there").to_string();
        assert!(error.contains(FILE_NAME) && error.contains("--force"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "one");
        write_new(&path, "three", true).expect("forced");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "three");
    }
}
