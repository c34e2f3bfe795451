//! What a member keeps of a run's views, so that it can come back after its process was killed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES, MAX_MEMBERS};
use starling_topology::record::MAX_RECORD_BYTES;
use starling_topology::{Contact, Record, RunId};

use crate::error::NodeError;
use crate::private_file;

const PREFIX: &str = "view-";
/// The longest file, in bytes.
const MAX_BYTES: u64 = (MAX_RECORD_BYTES + 2 * MAX_MEMBERS * (64 + MAX_ADDRESSES * (MAX_ADDRESS_BYTES + 2))) as u64;

/// The record of one run in a data directory.
#[derive(Debug, Clone)]
pub(crate) struct RecordFile {
    path: PathBuf,
    run: RunId,
}

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) record: Record,
    pub(crate) contacts: Vec<Contact>,
    /// Members needed to take steps.
    pub(crate) min_members: usize,
    /// Where others can reach this one, if it comes back to where it was.
    pub(crate) listened: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    record: Vec<u8>,
    contacts: Vec<Contact>,
    min_members: u32,
    listened: Vec<String>,
}

impl RecordFile {
    pub(crate) fn new(data_dir: &Path, run: RunId) -> Self {
        Self { path: data_dir.join(format!("{PREFIX}{}", &run.to_string()[..16])), run }
    }

    /// The run whose record in `data_dir` was written last.
    pub(crate) fn last_run(data_dir: &Path) -> Option<RunId> {
        let entries = std::fs::read_dir(data_dir).ok()?.filter_map(Result::ok);
        let records = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
        let newest = records.max_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok())?;
        let bytes = private_file::read_up_to(&newest.path(), MAX_BYTES).ok()??;
        let content: Content = postcard::from_bytes(&bytes).ok()?;
        Some(Record::decode(&content.record).ok()?.view.run)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps it. On disk when this returns.
    pub(crate) fn store(&self, kept: Kept) -> Result<(), NodeError> {
        let Kept { record, contacts, min_members, listened } = kept;
        let min_members = u32::try_from(min_members).unwrap_or(u32::MAX);
        let content = Content { record: record.encode(), contacts, min_members, listened };
        let bytes = postcard::to_allocvec(&content).expect("invariant: a record always encodes");
        private_file::write(&self.path, &bytes)
    }

    /// What is kept; `None` if nothing is, or if it can't be used. A peer without a record joins anew, so nothing is lost
    /// but time.
    pub(crate) fn load(&self) -> Option<Kept> {
        let unusable = |reason: String| {
            tracing::warn!(path = %self.path.display(), reason, "the record of the last view can't be used");
        };
        let bytes = match private_file::read_up_to(&self.path, MAX_BYTES) {
            Ok(bytes) => bytes?,
            Err(error) => {
                unusable(error.to_string());
                return None;
            }
        };
        let content: Content = match postcard::from_bytes(&bytes) {
            Ok(content) => content,
            Err(error) => {
                unusable(error.to_string());
                return None;
            }
        };
        match Record::decode(&content.record) {
            Ok(record) if record.view.run == self.run => {
                let contacts = content.contacts.into_iter().filter(Contact::is_bounded).take(2 * MAX_MEMBERS);
                let (contacts, min_members) = (contacts.collect(), content.min_members as usize);
                Some(Kept { record, contacts, min_members, listened: content.listened })
            }
            Ok(_) => {
                unusable("it is another run's".to_owned());
                None
            }
            Err(violation) => {
                unusable(violation.to_string());
                None
            }
        }
    }

    /// Forgets the run: this peer has left it, or it is complete.
    pub(crate) fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "can't remove the record of the last view");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::{PeerId, View};

    const RUN: RunId = RunId([7; 32]);

    #[test]
    fn a_record_comes_back_until_it_is_removed() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = RecordFile::new(dir.path(), RUN);
        assert!(file.load().is_none());
        let peer = PeerId([1; 32]);
        let record = Record { view: View::found(RUN, peer), origin: None, promised: None, accepted: None };
        let contacts = vec![Contact { peer, addresses: vec!["/ip4/127.0.0.1/tcp/1".to_owned()] }];
        let listened = vec!["/ip4/127.0.0.1/tcp/2".to_owned()];
        let kept = Kept { record, contacts, min_members: 3, listened };
        file.store(kept.clone()).expect("stored");
        assert_eq!(file.load(), Some(kept));
        assert_eq!(RecordFile::last_run(dir.path()), Some(RUN));
        file.remove();
        assert_eq!(RecordFile::last_run(dir.path()), None);
        assert!(file.load().is_none());
        file.remove();
    }

    #[test]
    fn what_is_damaged_or_of_another_run_is_as_good_as_none() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = RecordFile::new(dir.path(), RUN);
        let record =
            Record { view: View::found(RunId([8; 32]), PeerId([1; 32])), origin: None, promised: None, accepted: None };
        let (contacts, listened) = (Vec::new(), Vec::new());
        file.store(Kept { record, contacts, min_members: 1, listened }).expect("stored");
        assert!(file.load().is_none(), "another run's");
        std::fs::write(&file.path, b"nonsense").expect("written");
        assert!(file.load().is_none(), "damaged");
    }
}
