//! A disk that hangs: a file system of its own that is frozen.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A file system in a file, mounted on a folder. Whoever writes to it while it is frozen stands until it is thawed.
#[derive(Debug)]
pub struct FrozenDisk {
    place: PathBuf,
    _image: TempDir,
}

impl FrozenDisk {
    /// Mounts a fresh one on `place`, which is made. `None` where that can't be done, and why is printed.
    pub fn mount(place: &Path) -> Option<Self> {
        // Beside it, so that whoever cleans up there takes both away.
        let beside = place.parent().expect("a folder has a parent");
        let image = TempDir::new_in(beside).expect("a temp dir");
        let file = image.path().join("image");
        let words = |path: &Path| path.to_str().expect("test paths are text").to_owned();
        std::fs::create_dir_all(place).expect("a folder");
        let made = run("truncate", &["-s", "64M", &words(&file)])
            .and_then(|()| run("mkfs.ext4", &["-q", "-F", &words(&file)]))
            .and_then(|()| run("mount", &["-o", "loop", &words(&file), &words(place)]));
        let disk = Self { place: place.to_owned(), _image: image };
        match made.and_then(|()| disk.freeze()).and_then(|()| disk.thaw()) {
            Ok(()) => Some(disk),
            Err(reason) => {
                eprintln!("skipped: no file system can be frozen here, which takes root and loop devices: {reason}");
                None
            }
        }
    }

    /// From now on, nothing is written.
    ///
    /// # Errors
    /// What the system says.
    pub fn freeze(&self) -> Result<(), String> {
        run("fsfreeze", &["--freeze", self.place.to_str().expect("test paths are text")])
    }

    /// All is written that waited.
    ///
    /// # Errors
    /// What the system says.
    pub fn thaw(&self) -> Result<(), String> {
        run("fsfreeze", &["--unfreeze", self.place.to_str().expect("test paths are text")])
    }
}

impl Drop for FrozenDisk {
    fn drop(&mut self) {
        // One that is not frozen can't be thawed, and one that is not mounted not unmounted.
        let _thawed = self.thaw();
        let _unmounted = run("umount", &["--lazy", self.place.to_str().expect("test paths are text")]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", said.trim())) }
}
