//! How a file of two [slots](starling_topology::vote::slot) is written, each of which is half of it.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::NodeError;
use crate::store::private_file;

/// Makes it anew, or replaces it as a whole, with `bytes` in both of its slots of `size` bytes.
pub(crate) fn create(path: &Path, size: usize, bytes: &[u8]) -> Result<(), NodeError> {
    let mut whole = vec![0; 2 * size];
    for slot in whole.chunks_mut(size) {
        slot[..bytes.len()].copy_from_slice(bytes);
    }
    private_file::write(path, &whole)
}

/// Writes `bytes` over both of its slots of `size` bytes, in this order, the first one synced before the second begins. Takes no room
/// that the file does not have, so that a full disk can't refuse it.
pub(crate) fn overwrite(path: &Path, size: usize, order: [usize; 2], bytes: &[u8]) -> Result<(), NodeError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).open(path)?;
        for at in order {
            file.seek(SeekFrom::Start((at * size) as u64))?;
            file.write_all(bytes)?;
            file.sync_data()?;
        }
        Ok(())
    };
    write().map_err(|source| NodeError::file("write", path, source))
}
