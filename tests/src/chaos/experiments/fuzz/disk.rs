//! A member's disk: a data directory that is wiped, restored, damaged, filled, frozen, and that can't be written for a while.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Error, Result, ensure};
use tempfile::{Builder, TempDir};

use crate::FrozenDisk;

/// How much fits on a disk of its own, as `mount` takes it.
const SIZE: &str = "64m";
/// The file that fills a disk.
const FILLER: &str = "filler";

/// A folder with the data directory `state` in it, which may be a file system of its own.
#[derive(Debug)]
pub(super) struct Disk {
    dir: Arc<TempDir>,
    is_mounted: bool,
    is_bound: bool,
    /// The file system, if it is one that can be frozen.
    freezable: Option<FrozenDisk>,
}

impl Disk {
    /// A fresh one in a folder, which outlives it.
    pub(super) fn new(folder: &Path, number: usize, mounts: bool) -> Result<Self> {
        let name = format!("member-{number}");
        let dir = Builder::new().prefix(&name).rand_bytes(0).disable_cleanup(true).tempdir_in(folder)?;
        let mut disk = Self { dir: Arc::new(dir), is_mounted: mounts, is_bound: false, freezable: None };
        if mounts {
            disk.freezable = FrozenDisk::mount(&disk.state());
            if disk.freezable.is_none() {
                let options = format!("size={SIZE},mode=0700");
                run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(disk.state()))?;
            }
            fs::set_permissions(disk.state(), fs::Permissions::from_mode(0o700))?;
        }
        Ok(disk)
    }

    /// Where the process works that has it.
    pub(super) fn dir(&self) -> Arc<TempDir> {
        self.dir.clone()
    }

    /// Whether it can be full, or read-only.
    pub(super) fn is_mounted(&self) -> bool {
        self.is_mounted
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn copied(&self) -> PathBuf {
        self.dir.path().join("copy")
    }

    /// Removes all that is on it.
    pub(super) fn wipe(&self) -> Result<()> {
        for entry in entries(&self.state())? {
            if entry.is_dir() { fs::remove_dir_all(&entry)? } else { fs::remove_file(&entry)? }
        }
        Ok(())
    }

    /// Keeps a copy. Whoever writes to it must stand still meanwhile.
    pub(super) fn copy(&self) -> Result<()> {
        let copy = self.copied();
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        run(Command::new("cp").arg("-a").args([&self.state(), &copy]))?;
        // What fills the disk is no part of what is on it.
        match fs::remove_file(copy.join(FILLER)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether there is a copy.
    pub(super) fn has_copy(&self) -> bool {
        self.copied().is_dir()
    }

    /// Makes it what it was when it was copied.
    pub(super) fn restore(&self) -> Result<()> {
        self.wipe()?;
        run(Command::new("cp").arg("-a").arg(self.copied().join(".")).arg(self.state()))
    }

    /// Changes one bit of one file, and says of which; nothing, if there is no file that holds anything.
    pub(super) fn flip(&self, file: usize, bit: usize) -> Result<Option<String>> {
        let mut files = Vec::new();
        list(&self.state(), &mut files)?;
        if files.is_empty() {
            return Ok(None);
        }
        files.sort();
        let (path, length) = &files[file % files.len()];
        let bit = bit as u64 % (length * 8);
        let mut opened = File::options().read(true).write(true).open(path)?;
        let mut byte = [0];
        opened.seek(SeekFrom::Start(bit / 8))?;
        opened.read_exact(&mut byte)?;
        byte[0] ^= 1 << (bit % 8);
        opened.seek(SeekFrom::Start(bit / 8))?;
        opened.write_all(&byte)?;
        let name = path.strip_prefix(self.state()).unwrap_or(path);
        Ok(Some(format!("bit {bit} of {}", name.display())))
    }

    /// Leaves no room on it.
    pub(super) fn fill(&self) -> Result<()> {
        ensure!(self.is_mounted, "it is no file system of its own");
        let mut filler = File::create(self.state().join(FILLER))?;
        let block = vec![1; 1 << 16];
        let filled = std::iter::repeat_with(|| filler.write(&block)).find(|written| !matches!(written, Ok(1..)));
        match filled {
            Some(Err(error)) if error.kind() != ErrorKind::StorageFull => Err(error).context("can't fill a disk"),
            _ => Ok(()),
        }
    }

    /// Lets nobody write to it.
    pub(super) fn protect(&mut self) -> Result<()> {
        ensure!(self.is_mounted, "it is no file system of its own");
        // The file system itself can't become read-only while a file is open for writing. A second mount of it can, as long
        // as nobody sees that one yet.
        let aside = self.dir.path().join("aside");
        fs::create_dir_all(&aside)?;
        run(Command::new("mount").arg("--bind").args([&self.state(), &aside]))?;
        run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&aside))?;
        run(Command::new("mount").arg("--move").args([&aside, &self.state()]))?;
        self.is_bound = true;
        Ok(())
    }

    /// Has whoever writes to it wait. False if it can't be frozen.
    pub(super) fn freeze(&self) -> Result<bool> {
        let Some(disk) = &self.freezable else { return Ok(false) };
        disk.freeze().map_err(Error::msg)?;
        Ok(true)
    }

    /// Lets those who wait go on, if it was frozen.
    pub(super) fn thaw(&self) {
        // One that is not frozen can't be thawed.
        let _ = self.freezable.as_ref().map(FrozenDisk::thaw);
    }

    /// Makes it as good as it was.
    pub(super) fn mend(&mut self) -> Result<()> {
        self.thaw();
        if self.is_bound {
            // Whoever reads a file goes on with it.
            run(Command::new("umount").arg("--lazy").arg(self.state()))?;
            self.is_bound = false;
        }
        match fs::remove_file(self.state().join(FILLER)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Leaves an ordinary folder with what is on it, if that is to be looked at. No process may have it any more.
    pub(super) fn unmount(&mut self, keep: bool) -> Result<()> {
        if !self.is_mounted {
            return Ok(());
        }
        self.mend()?;
        let kept = self.dir.path().join("kept");
        if keep {
            run(Command::new("cp").arg("-a").args([self.state(), kept.clone()]))?;
        }
        if self.freezable.take().is_none() {
            run(Command::new("umount").arg(self.state()))?;
        }
        self.is_mounted = false;
        if keep {
            fs::remove_dir(self.state())?;
            fs::rename(kept, self.state())?;
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Where it can't be, it ends with the namespace of this program.
        let _ = self.unmount(false);
    }
}

/// What is in a folder; nothing, if there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    Ok(entries.collect::<Result<_, _>>()?)
}

/// All files in a folder and those below that hold anything, with their lengths.
fn list(folder: &Path, files: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    for entry in entries(folder)? {
        let metadata = fs::symlink_metadata(&entry)?;
        if metadata.is_dir() {
            list(&entry, files)?;
        } else if metadata.is_file() && metadata.len() > 0 {
            files.push((entry, metadata.len()));
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("can't start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
