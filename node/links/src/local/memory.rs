//! Memory that two processes of one user on one machine share: the only module that touches it.
//!
//! It is an anonymous file (memfd) that its maker has sealed against changes of size, so that nobody can pull a page
//! from under the other. The other end finds it through the maker's process, which the system allows only to the same
//! user, and knows it by a token that only the two ends of one handshake can have.
//!
//! The other process may write at any time, whatever the protocol says. So nothing here lends out a reference to the
//! memory, except to counters that are atomic: all else is copied in and out.
#![allow(unsafe_code, reason = "mapping memory, and copying from and to what another process may change")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// How the file is called in `/proc`.
const NAME: &str = "starling-link";

/// Where the other end finds a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) process: u32,
    pub(crate) descriptor: u32,
}

/// A file in memory, until the other end has mapped it too.
#[derive(Debug)]
pub(crate) struct Shared {
    file: File,
}

impl Shared {
    /// Makes a file of `bytes` zeros.
    ///
    /// # Errors
    /// If the system has no such files, or no memory.
    pub(crate) fn make(bytes: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(NAME, flags)?);
        file.set_len(bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, seals())?;
        Ok(Self { file })
    }

    pub(crate) fn place(&self) -> io::Result<Place> {
        let descriptor = u32::try_from(self.file.as_raw_fd()).map_err(io::Error::other)?;
        Ok(Place { process: std::process::id(), descriptor })
    }

    /// Opens the file of another process of this user, if it is one of ours and has `bytes`.
    ///
    /// # Errors
    /// If there is none, or it could change its size.
    pub(crate) fn open(place: Place, bytes: usize) -> io::Result<Self> {
        let path = PathBuf::from(format!("/proc/{}/fd/{}", place.process, place.descriptor));
        // Looked at first: to open some other kind of file could have consequences.
        let target = std::fs::read_link(&path)?;
        if !target.to_string_lossy().starts_with(&format!("/memfd:{NAME}")) {
            return Err(io::Error::other("it is no memory of a link"));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
        let is_fixed = rustix::fs::fcntl_get_seals(&file)?.contains(seals());
        if is_ours && is_fixed && u64::try_from(stat.st_size) == Ok(bytes as u64) {
            Ok(Self { file })
        } else {
            Err(io::Error::other("it is memory of another user, of another size, or could change its size"))
        }
    }

    /// Maps all of it.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn map(&self) -> io::Result<Mapping> {
        let bytes = usize::try_from(self.file.metadata()?.len()).map_err(io::Error::other)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the system chooses, replaces nothing.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, access, flags, self.file.as_fd(), 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at nothing"))?;
        Ok(Mapping { start, bytes })
    }
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Mapped memory. Positions are in bytes from its start.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is plain memory, not bound to a thread; no method gives out anything but copies and atomics.
unsafe impl Send for Mapping {}

// SAFETY: through a shared reference it is only read, and counted in atomically.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn at(&self, position: usize, length: usize) -> *mut u8 {
        let end = position.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "a position is within the memory");
        // SAFETY: the position was just checked to be within the mapping.
        unsafe { self.start.as_ptr().add(position) }
    }

    /// The counter at `position`.
    ///
    /// # Panics
    /// If it is out of bounds, or not a multiple of its size.
    pub(crate) fn counter(&self, position: usize) -> &AtomicU64 {
        assert!(position.is_multiple_of(size_of::<AtomicU64>()), "a counter is aligned");
        let counter = self.at(position, size_of::<AtomicU64>()).cast();
        // SAFETY: in bounds and aligned, since a mapping starts at a page; valid as long as `self`. Both processes use
        // this memory as an atomic only, and any bits are a number.
        unsafe { AtomicU64::from_ptr(counter) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If there is no such place.
    pub(crate) fn write(&mut self, position: usize, bytes: &[u8]) {
        let into = self.at(position, bytes.len());
        // SAFETY: in bounds; `bytes` is ordinary memory of this process, so the two don't overlap. The other process
        // may read meanwhile, which only harms what it reads.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len()) }
    }

    /// Copies values in, as they lie in memory.
    ///
    /// # Panics
    /// If there is no such place.
    pub(crate) fn write_values(&mut self, position: usize, values: &[f32]) {
        let into = self.at(position, size_of_val(values));
        // SAFETY: as for `write`; floats have no padding.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast(), into, size_of_val(values)) }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If there is no such place.
    pub(crate) fn read(&self, position: usize, into: &mut [u8]) {
        let from = self.at(position, into.len());
        // SAFETY: in bounds; `into` is ordinary memory of this process. The other process may write meanwhile: then the
        // copy holds some bytes of either, each of which is a number.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from the mapping any more, and its bounds are those of `mmap`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        if let Err(error) = unmapped {
            tracing::warn!(%error, "can't unmap the memory of a link");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_one_end_writes_the_other_reads() {
        let made = Shared::make(8192).expect("made");
        let opened = Shared::open(made.place().expect("a place"), 8192).expect("ours");
        let (mut here, there) = (made.map().expect("mapped"), opened.map().expect("mapped"));
        drop((made, opened));
        here.write(100, &[1, 2, 3]);
        here.write_values(4096, &[1.5]);
        here.counter(8).store(7, Ordering::Release);
        let mut bytes = [0; 3];
        there.read(100, &mut bytes);
        assert_eq!((bytes, there.counter(8).load(Ordering::Acquire)), ([1, 2, 3], 7));
        let mut value = [0; 4];
        there.read(4096, &mut value);
        assert_eq!(value, 1.5f32.to_ne_bytes());
    }

    #[test]
    fn other_files_are_not_mapped() {
        let place = |file: &File| Place {
            process: std::process::id(),
            descriptor: u32::try_from(file.as_raw_fd()).expect("a descriptor"),
        };
        let made = Shared::make(4096).expect("made");
        Shared::open(made.place().expect("a place"), 8192).expect_err("another size");
        Shared::open(place(&tempfile::tempfile().expect("a file")), 0).expect_err("an ordinary file");
        let unsealed = rustix::fs::memfd_create(NAME, MemfdFlags::ALLOW_SEALING).expect("made");
        let unsealed = File::from(unsealed);
        unsealed.set_len(4096).expect("sized");
        Shared::open(place(&unsealed), 4096).expect_err("it could shrink");
        Shared::open(Place { process: u32::MAX, descriptor: 0 }, 4096).expect_err("no such process");
        // A sealed file can't shrink under the other end.
        made.file.set_len(0).expect_err("sealed");
    }

    #[test]
    #[should_panic(expected = "within the memory")]
    fn nothing_is_read_beyond_the_end() {
        Shared::make(4096).expect("made").map().expect("mapped").read(4090, &mut [0; 8]);
    }
}
