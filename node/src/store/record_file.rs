//! What a member keeps of a run's views, so that it can come back after its process was killed: a file of two
//! [slots](starling_topology::vote::slot), each half of it.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES, MAX_MEMBERS};
use starling_topology::vote::record::MAX_RECORD_BYTES;
use starling_topology::vote::slot::{self, HEADER_BYTES, Slot};
use starling_topology::{Contact, PeerId, Record, RunId};

use crate::error::NodeError;
use crate::store::mark_file::MarkFile;
use crate::store::private_file;
use crate::store::slot_file;

const PREFIX: &str = "view-";
/// The longest payload, in bytes.
const MAX_PAYLOAD: usize = MAX_RECORD_BYTES + 2 * MAX_MEMBERS * (64 + MAX_ADDRESSES * (MAX_ADDRESS_BYTES + 2));
/// The smallest slot, in bytes: room for some thirty members. Each larger one is twice as long.
const LEAST_SLOT: usize = 16 * 1024;
/// The longest file, in bytes: what is stored has half of a new slot at most, so that it has room to grow.
const MAX_BYTES: u64 = 2 * (2 * (HEADER_BYTES + MAX_PAYLOAD)).next_power_of_two() as u64;

/// The record of one run in a data directory.
#[derive(Debug, Clone)]
pub(crate) struct RecordFile {
    path: PathBuf,
    run: RunId,
    me: PeerId,
    /// What the member had saved: there is a note of that before there is a record.
    pub(crate) marks: MarkFile,
}

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedMembership {
    pub(crate) record: Record,
    pub(crate) contacts: Vec<Contact>,
    /// Members needed to take steps.
    pub(crate) min_members: usize,
    /// Where others can reach this one, if it comes back to where it was.
    pub(crate) listened: Vec<String>,
}

/// What a file has to say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) kept: Option<SavedMembership>,
    /// What is wrong with it. If nothing is kept besides, there was something that is lost.
    pub(crate) damage: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    record: Vec<u8>,
    contacts: Vec<Contact>,
    min_members: u32,
    listened: Vec<String>,
}

/// What lies in a file.
struct Slots {
    /// The bytes of each, if the file is two slots long.
    size: Option<usize>,
    found: [Option<Slot>; 2],
}

impl Slots {
    fn read(bytes: &[u8]) -> Self {
        let half = bytes.len() / 2;
        let size = (bytes.len().is_multiple_of(2) && half >= LEAST_SLOT && half.is_power_of_two()).then_some(half);
        Self { size, found: [Slot::decode(bytes), size.and_then(|size| Slot::decode(&bytes[size..]))] }
    }

    fn versions(&self, is_ours: impl Fn(&Slot) -> bool) -> [Option<u64>; 2] {
        self.found.each_ref().map(|slot| slot.as_ref().filter(|slot| is_ours(slot)).map(|slot| slot.version))
    }
}

impl RecordFile {
    pub(crate) fn new(data_dir: &Path, run: RunId, me: PeerId) -> Self {
        let (path, marks) =
            (data_dir.join(format!("{PREFIX}{}", &run.to_string()[..16])), MarkFile::new(data_dir, run, me));
        Self { path, run, me, marks }
    }

    /// The run whose record in `data_dir` was written last.
    pub(crate) fn last_run(data_dir: &Path) -> Option<RunId> {
        let entries = std::fs::read_dir(data_dir).ok()?.filter_map(Result::ok);
        let records = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
        let newest = records.max_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok())?;
        let bytes = private_file::read_up_to(&newest.path(), MAX_BYTES).ok()??;
        Slots::read(&bytes).found.into_iter().flatten().next().map(|slot| slot.run)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn is_ours(&self, slot: &Slot) -> bool {
        slot.run == self.run && slot.peer == self.me
    }

    /// Keeps it. In both slots, and synced, when this returns; if it fails, what was kept before still is, or this is.
    pub(crate) fn store(&self, kept: SavedMembership) -> Result<(), NodeError> {
        let SavedMembership { record, contacts, min_members, listened } = kept;
        let min_members = u32::try_from(min_members).unwrap_or(u32::MAX);
        let content = Content { record: record.encode(), contacts, min_members, listened };
        let payload = postcard::to_allocvec(&content).expect("invariant: a record always encodes");
        let before = match private_file::read_up_to(&self.path, MAX_BYTES) {
            Ok(None) => {
                self.marks.begin()?;
                Vec::new()
            }
            // What can't be read is replaced as a whole.
            before => before.ok().flatten().unwrap_or_default(),
        };
        let slots = Slots::read(&before);
        let versions = slots.versions(|slot| self.is_ours(slot));
        let version = versions.into_iter().flatten().max().unwrap_or(0) + 1;
        let bytes = Slot { run: self.run, peer: self.me, version, payload }.encode();
        let write_over = |size| slot_file::overwrite(&self.path, size, slot::order(versions), &bytes);
        match slots.size.filter(|size| bytes.len() <= *size) {
            Some(size) if 2 * bytes.len() <= size => write_over(size),
            // Larger slots are made while these do, so that a disk may be full by the time that they are needed.
            Some(size) => self.write_anew(&bytes).or_else(|_| write_over(size)),
            None => self.write_anew(&bytes),
        }
    }

    /// In slots that are twice as long, at the least.
    fn write_anew(&self, bytes: &[u8]) -> Result<(), NodeError> {
        let size = (2 * bytes.len()).next_power_of_two().max(LEAST_SLOT);
        slot_file::create(&self.path, size, bytes)
    }

    /// What is kept. A peer without a record joins anew, so nothing is lost but time.
    pub(crate) fn load(&self) -> Loaded {
        match private_file::read_up_to(&self.path, MAX_BYTES) {
            Ok(None) => Loaded::default(),
            Ok(Some(bytes)) => self.read(&bytes),
            Err(error) => Loaded { kept: None, damage: Some(format!("{error}; {LOST}")) },
        }
    }

    pub(crate) fn read(&self, bytes: &[u8]) -> Loaded {
        let mut slots = Slots::read(bytes);
        let versions = slots.versions(|slot| self.is_ours(slot));
        let newest = slot::newest(versions).and_then(|at| slots.found[at].take());
        let kept = newest.and_then(|slot| self.kept(&slot.payload));
        let path = self.path.display();
        let damage = match &kept {
            Some(_) if versions.iter().all(Option::is_some) => None,
            Some(_) => Some(format!(
                "one of the two copies of this member's vote in {path} is not whole, as after a loss of power; the other one counts"
            )),
            None => Some(format!("{path} is damaged, or another run's; {LOST}")),
        };
        Loaded { kept, damage }
    }

    pub(crate) fn kept(&self, payload: &[u8]) -> Option<SavedMembership> {
        let content: Content = postcard::from_bytes(payload).ok()?;
        let record = Record::decode(&content.record).ok().filter(|record| record.view.run == self.run)?;
        let contacts = content.contacts.into_iter().filter(Contact::is_bounded).take(2 * MAX_MEMBERS).collect();
        let (min_members, listened) = (content.min_members as usize, content.listened);
        Some(SavedMembership { record, contacts, min_members, listened })
    }

    /// Forgets the run: this peer has left it, or it is complete. It does not come back with the power.
    pub(crate) fn remove(&self) {
        let removed = std::fs::remove_file(&self.path).and_then(|()| {
            #[cfg(unix)]
            if let Some(folder) = self.path.parent() {
                std::fs::File::open(folder)?.sync_all()?;
            }
            Ok(())
        });
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "can't remove the record of the last view");
        }
    }
}

/// What follows from a record that is gone.
const LOST: &str = "this member has no vote in its view any more, and asks the others to be let in anew";

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::{Ballot, View};

    const RUN: RunId = RunId([7; 32]);
    const ME: PeerId = PeerId([1; 32]);

    fn kept(attempt: u64) -> SavedMembership {
        let promised = Some(Ballot { attempt, proposer: ME });
        let record = Record {
            view: View::found(RUN, ME),
            origin: None,
            certificate: None,
            chain: Vec::new(),
            root: starling_topology::Root::default(),
            promised,
            accepted: None,
            echoed: None,
        };
        let contacts = vec![Contact { peer: ME, addresses: vec!["/ip4/127.0.0.1/tcp/1".to_owned()] }];
        SavedMembership { record, contacts, min_members: 3, listened: vec!["/ip4/127.0.0.1/tcp/2".to_owned()] }
    }

    fn file(dir: &tempfile::TempDir) -> RecordFile {
        RecordFile::new(dir.path(), RUN, ME)
    }

    fn whole(kept: SavedMembership) -> Loaded {
        Loaded { kept: Some(kept), damage: None }
    }

    #[test]
    fn a_record_comes_back_until_it_is_removed() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = file(&dir);
        assert_eq!(file.load(), Loaded::default());
        for attempt in 1..5 {
            file.store(kept(attempt)).expect("stored");
            assert_eq!(file.load(), whole(kept(attempt)));
        }
        assert_eq!(RecordFile::last_run(dir.path()), Some(RUN));
        file.remove();
        assert_eq!(RecordFile::last_run(dir.path()), None);
        assert_eq!(file.load(), Loaded::default());
        file.remove();
    }

    #[test]
    fn what_is_damaged_or_of_another_is_told_and_replaced() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let ours = file(&dir);
        let lost = |file: &RecordFile| file.load().kept.is_none() && file.load().damage.is_some();
        for other in
            [RecordFile { run: RunId([8; 32]), ..ours.clone() }, RecordFile { me: PeerId([2; 32]), ..ours.clone() }]
        {
            other.store(kept(1)).expect("stored");
            assert!(lost(&ours), "{other:?}");
        }
        for bytes in [&b""[..], b"nonsense", &[0; 2 * LEAST_SLOT]] {
            std::fs::write(&ours.path, bytes).expect("written");
            assert!(lost(&ours), "{} bytes", bytes.len());
        }
        ours.store(kept(2)).expect("stored");
        assert_eq!(ours.load(), whole(kept(2)));
        // Something that can't be replaced is no reason to panic.
        std::fs::remove_file(&ours.path).expect("removed");
        std::fs::create_dir_all(ours.path.join("in the way")).expect("made");
        assert!(lost(&ours) && ours.store(kept(3)).is_err());
    }

    #[test]
    fn no_flipped_bit_and_no_cut_makes_another_record() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = file(&dir);
        // Longer ones before, so that what follows the payload is not all zeros.
        let mut long = kept(1);
        long.listened = vec!["/ip4/127.0.0.1/tcp/3".to_owned(); 40];
        file.store(long).expect("stored");
        file.store(kept(9)).expect("stored");
        let bytes = std::fs::read(&file.path).expect("read");
        assert_eq!(bytes.len(), 2 * LEAST_SLOT);
        let (mut damaged, mut flipped) = (0, bytes.clone());
        for bit in 0..bytes.len() * 8 {
            flipped[bit / 8] ^= 1 << (bit % 8);
            let loaded = file.read(&flipped);
            assert_eq!(loaded.kept, Some(kept(9)), "bit {bit}");
            damaged += usize::from(loaded.damage.is_some());
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
        let used = Slot::decode(&bytes).expect("whole").encode().len();
        assert_eq!(damaged, 2 * 8 * used, "each bit that counts");
        for length in 0..bytes.len() {
            let expected = (length >= used).then(|| kept(9));
            assert_eq!(file.read(&bytes[..length]).kept, expected, "{length} bytes");
        }
    }

    /// The power goes at each byte of a store: what comes back is the record before or the new one, and the next store
    /// brings both copies up to date.
    #[test]
    fn a_store_may_be_cut_off_anywhere() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = file(&dir);
        file.store(kept(1)).expect("stored");
        let before = std::fs::read(&file.path).expect("read");
        file.store(kept(2)).expect("stored");
        let after = std::fs::read(&file.path).expect("read");
        let used = Slot::decode(&after).expect("whole").encode().len();
        let mut bytes = before;
        for at in [0, LEAST_SLOT] {
            for cut in 0..used {
                let found = file.read(&bytes).kept.expect("one is whole");
                let attempt = found.record.promised.map(|ballot| ballot.attempt);
                let is_new = bytes[..used] == after[..used];
                assert_eq!(attempt, Some(if is_new { 2 } else { 1 }), "slot at {at}, {cut} bytes");
                bytes[at + cut] = after[at + cut];
                if cut % 50 == 0 {
                    std::fs::write(&file.path, &bytes).expect("written");
                    file.store(kept(3)).expect("stored");
                    assert_eq!(file.load(), whole(kept(3)));
                }
            }
        }
        assert_eq!(bytes, after);
    }

    #[cfg(unix)]
    #[test]
    fn a_record_is_written_where_it_is_until_it_needs_more_room() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = file(&dir);
        let is_at = || std::fs::metadata(&file.path).map(|metadata| (metadata.ino(), metadata.len())).expect("there");
        file.store(kept(1)).expect("stored");
        let first = is_at();
        let mut large = kept(1);
        for attempt in (2..400).step_by(2) {
            large = kept(attempt);
            large.contacts = vec![kept(1).contacts[0].clone(); attempt as usize];
            file.store(large.clone()).expect("stored");
            assert_eq!(file.load(), whole(large.clone()));
            let fits = attempt < 100;
            assert!(is_at() == first || !fits, "{attempt}: {:?}", is_at());
        }
        assert!(is_at().1 > first.1, "it has grown");
        let files = std::fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(files, 2, "it, and the note of what is saved");
        drop(large);
    }
}
