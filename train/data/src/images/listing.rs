//! One image of a folder or an archive.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::decode;
use crate::error::DataError;
use crate::files::opened::KnownFile;

/// One image.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Where it is in the folder, or in its archive.
    pub(crate) path: PathBuf,
    /// Its class, if it is asked for.
    pub(crate) class: Option<u32>,
    /// Where its bytes are, if it is in an archive.
    pub(crate) part: Option<ArchivePart>,
}

/// A file in an archive.
#[derive(Debug)]
pub(crate) struct ArchivePart {
    pub(crate) archive: Arc<KnownFile>,
    pub(crate) place: u64,
    pub(crate) bytes: u64,
}

impl Listing {
    /// What names it in messages, if it was listed in `source`.
    pub(crate) fn told(&self, source: &Path) -> PathBuf {
        match &self.part {
            Some(part) => part.archive.path().join(&self.path),
            None => source.join(&self.path),
        }
    }

    /// What it is called for the user of what comes of it: in a folder of archives, with its archive.
    pub(crate) fn shown(&self, source: &Path) -> PathBuf {
        match &self.part {
            Some(part) if part.archive.path() != source => {
                Path::new(part.archive.path().file_name().unwrap_or_default()).join(&self.path)
            }
            _ => self.path.clone(),
        }
    }

    /// Its bytes, not decoded.
    ///
    /// # Errors
    /// If they can't be read, are too many for one image, or have changed.
    pub(crate) fn bytes(&self, source: &Path) -> Result<Vec<u8>, DataError> {
        let path = self.told(source);
        let Some(part) = &self.part else { return decode::bytes(&path) };
        decode::check_length(part.bytes, &path)?;
        let mut bytes = vec![0; usize::try_from(part.bytes).expect("invariant: it is short")];
        part.archive.read_at(&mut bytes, part.place)?;
        Ok(bytes)
    }
}
