//! Who cleans up after this program, if it can't.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::OwnedChild;

/// What it does once nobody can write to its standard input any more: processes are being killed just then.
const CLEAN: &str = r#"
cat
for state in "$1"/*/state; do fsfreeze --unfreeze "$state"; while umount --lazy "$state"; do :; done; done
for try in $(seq 50); do rm -rf "$1" && exit; sleep 0.1; done
"#;

/// A process that removes a folder, and what is mounted in it, when this program ends before this is dropped, however it
/// ends.
#[derive(Debug)]
pub(super) struct Janitor(#[expect(dead_code, reason = "it is there to be dropped")] OwnedChild);

impl Janitor {
    /// The one of a folder.
    pub(super) fn of(folder: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", CLEAN, "sh"]).arg(folder).stdin(Stdio::piped());
        // In a group of its own, so that Ctrl-C is not for it.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("can't start sh")?;
        Ok(Self(child.into()))
    }
}
