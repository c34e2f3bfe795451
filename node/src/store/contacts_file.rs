//! Whom this machine knows of a run, kept apart from its place in it: members, keepers, and who stayed when it left.
//!
//! ```text
//!   "STRLCON3" | blake3 of what follows, with the run | postcard of `Contacts`
//! ```
//!
//! It outlives leaving, and a record that is lost: without it, a machine could not tell a run that was always its own from one
//! that others train on. So a file that can't be read is not the same as none.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use starling_engine::return_engine::LeaveRecord;
use starling_engine::return_engine::MAX_KEEPERS;
pub(crate) use starling_engine::return_engine::MAX_KNOWN;
use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES, MAX_MEMBERS};
use starling_topology::{Contact, Generation, PeerId, RunId, View, ViewId};

use crate::error::NodeError;
use crate::net::frame;
use crate::store::private_file;

const PREFIX: &str = "contacts-";
const MAGIC: &[u8; 8] = b"STRLCON3";
const HASH_BYTES: usize = 32;
/// Addresses that this machine listened at.
const MAX_LISTENED: usize = 16;
/// The longest file, in bytes.
const MAX_BYTES: u64 =
    ((MAX_KNOWN + MAX_KEEPERS + 1) * (64 + MAX_ADDRESSES * (MAX_ADDRESS_BYTES + 2)) + 64 * MAX_MEMBERS) as u64;

/// Who is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contacts {
    /// Those that were members when last seen, newest view first.
    members: Vec<Contact>,
    keepers: Vec<Contact>,
    /// Members needed to take steps.
    pub(crate) min_members: u32,
    /// Where this machine listened, so that it can be found there again.
    pub(crate) listened: Vec<String>,
    /// The view that this machine was in last.
    pub(crate) view: Option<(Generation, ViewId)>,
    /// Whether it has given its place in that view up, and how.
    pub(crate) left: Option<LeaveRecord>,
    /// Counts changes: an older list never takes the place of a newer one.
    version: u64,
}

impl Contacts {
    pub(crate) fn members(&self) -> &[Contact] {
        &self.members
    }

    pub(crate) fn keepers(&self) -> &[Contact] {
        &self.keepers
    }

    /// This machine goes on in `view`, among these members.
    /// True if that is news.
    pub(crate) fn enter(&mut self, me: PeerId, view: &View, members: Vec<Contact>, listened: Vec<String>) -> bool {
        let before = self.clone();
        let mut present = members;
        present.retain(|contact| contact.peer != me);
        self.members.retain(|known| present.iter().all(|contact| contact.peer != known.peer));
        present.append(&mut self.members);
        self.members = present;
        self.members.truncate(MAX_KNOWN);
        self.listened = listened;
        self.listened.truncate(MAX_LISTENED);
        self.view = Some((view.generation, view.id()));
        self.left = None;
        self.count(&before)
    }

    /// A peer is a member, or was one when it was last seen there. True if that is news. Those that were there before stay if
    /// there are too many.
    pub(crate) fn learn_member(&mut self, contact: Contact) -> bool {
        let before = self.clone();
        put(&mut self.members, contact, MAX_KNOWN);
        self.count(&before)
    }

    /// A member as the user names it: it is asked before all others, and takes the place of the last one if there are too many.
    pub(crate) fn name_member(&mut self, contact: Contact) {
        self.members.retain(|known| known.peer != contact.peer);
        self.members.insert(0, contact);
        self.members.truncate(MAX_KNOWN);
        self.version += 1;
    }

    /// Takes in where a keeper is. True if that is news. If there are too many, one that is gone makes room, the first of them.
    pub(crate) fn learn_keeper(&mut self, contact: Contact, is_gone: impl Fn(PeerId) -> bool) -> bool {
        let before = self.clone();
        let is_new = self.keepers.iter().all(|known| known.peer != contact.peer);
        if is_new
            && self.keepers.len() >= MAX_KEEPERS
            && let Some(at) = self.keepers.iter().position(|known| is_gone(known.peer))
        {
            self.keepers.remove(at);
        }
        put(&mut self.keepers, contact, MAX_KEEPERS);
        self.count(&before)
    }

    /// This machine has left, or finished.
    pub(crate) fn leave(&mut self, left: LeaveRecord) {
        self.left = Some(left);
        self.version += 1;
    }

    /// Drops a member that is gone, to make room.
    pub(crate) fn drop_member(&mut self, is_gone: impl Fn(PeerId) -> bool) {
        if self.members.len() >= MAX_KNOWN
            && let Some(at) = self.members.iter().rposition(|contact| is_gone(contact.peer))
        {
            self.members.remove(at);
            self.version += 1;
        }
    }

    /// Whether anything is new since `before`.
    fn count(&mut self, before: &Self) -> bool {
        let is_news = *self != *before;
        self.version += u64::from(is_news);
        is_news
    }

    /// Reads what came from a disk, within all bounds.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        frame::decode::<Self>(bytes).ok().map(Self::bounded)
    }

    fn bounded(mut self) -> Self {
        self.members.retain(Contact::is_bounded);
        self.members.truncate(MAX_KNOWN);
        self.keepers.retain(Contact::is_bounded);
        self.keepers.truncate(MAX_KEEPERS);
        self.listened.truncate(MAX_LISTENED);
        self.left.iter_mut().for_each(|left| left.stayed.truncate(MAX_MEMBERS));
        self
    }
}

/// Puts a contact in its peer's place, or at the end if there is room.
fn put(list: &mut Vec<Contact>, contact: Contact, room: usize) {
    if let Some(known) = list.iter_mut().find(|known| known.peer == contact.peer) {
        *known = contact;
    } else if list.len() < room {
        list.push(contact);
    }
}

/// The contacts of one run in a data directory. Clones are of the same file.
#[derive(Debug, Clone)]
pub(crate) struct ContactsFile {
    path: PathBuf,
    run: RunId,
    /// The newest list that was written.
    written: Arc<Mutex<Option<u64>>>,
}

/// Why a file is as good as none, but for what it says by being there: that others may be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damaged(pub(crate) String);

impl ContactsFile {
    pub(crate) fn new(data_dir: &Path, run: RunId) -> Self {
        let path = data_dir.join(format!("{PREFIX}{}", &run.to_string()[..16]));
        Self { path, run, written: Arc::default() }
    }

    /// Who is known; `None` if no file is there.
    pub(crate) fn load(&self) -> Result<Option<Contacts>, Damaged> {
        let damaged = |reason: &str| {
            Damaged(format!("the list of who else trains this run, {}, can't be used: {reason}", self.path.display()))
        };
        let bytes = match private_file::read_up_to(&self.path, MAX_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(error) => return Err(damaged(&error.to_string())),
        };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("it does not begin like one"))?;
        let (hash, content) = rest.split_first_chunk::<HASH_BYTES>().ok_or_else(|| damaged("it is cut off"))?;
        if self.hash(content).as_bytes() != hash {
            return Err(damaged("its check does not match"));
        }
        Contacts::decode(content).map(Some).ok_or_else(|| damaged("it is no list"))
    }

    /// Keeps them, unless newer ones are kept already. On disk when this returns.
    pub(crate) fn store(&self, contacts: &Contacts) -> Result<(), NodeError> {
        // A lock poisoned by a panic elsewhere still guards a number.
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.is_some_and(|written| written >= contacts.version) {
            return Ok(());
        }
        let content = postcard::to_allocvec(contacts).expect("invariant: contacts always encode");
        let bytes = [&MAGIC[..], self.hash(&content).as_bytes(), &content].concat();
        private_file::write(&self.path, &bytes)?;
        *written = Some(contacts.version);
        Ok(())
    }

    fn hash(&self, content: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.run.0).update(content);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId([7; 32]);
    const ME: PeerId = PeerId([255; 32]);

    fn contact(name: u8, port: u16) -> Contact {
        Contact { peer: PeerId([name; 32]), addresses: vec![format!("/ip4/127.0.0.1/tcp/{port}")] }
    }

    fn entered(names: &[u8]) -> Contacts {
        let mut contacts = Contacts::default();
        let members: Vec<Contact> = names.iter().map(|name| contact(*name, 1)).collect();
        let view = View::found(RUN, ME).succeed(members.iter().map(|contact| contact.peer).chain([ME]));
        contacts.enter(ME, &view, members, vec!["/ip4/127.0.0.1/tcp/9".to_owned()]);
        contacts
    }

    #[test]
    fn who_was_known_is_found_again_by_the_same_run() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = ContactsFile::new(dir.path(), RUN);
        assert_eq!(file.load(), Ok(None));
        let mut contacts = entered(&[1, 2]);
        contacts.learn_keeper(contact(9, 1), |_| false);
        contacts.leave(LeaveRecord {
            stayed: vec![PeerId([2; 32])],
            root: starling_topology::Root::default(),
            forked: false,
        });
        file.store(&contacts).expect("stored");
        assert_eq!(file.load(), Ok(Some(contacts)));
        assert_eq!(ContactsFile::new(dir.path(), RunId([8; 32])).load(), Ok(None), "another run's");
        std::fs::rename(&file.path, dir.path().join("contacts-0808080808080808")).expect("renamed");
        assert!(ContactsFile::new(dir.path(), RunId([8; 32])).load().is_err(), "another run's under this one's name");
    }

    #[test]
    fn no_damage_passes_for_a_list_or_for_none() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = ContactsFile::new(dir.path(), RUN);
        file.store(&entered(&[1])).expect("stored");
        let whole = std::fs::read(&file.path).expect("read");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&file.path, &bytes).expect("written");
            let Damaged(reason) = file.load().expect_err("damaged");
            assert!(reason.contains("contacts-0707070707070707"), "{reason}");
            std::fs::write(&file.path, &whole[..at]).expect("written");
            assert!(file.load().is_err(), "cut at {at}");
        }
        std::fs::write(&file.path, vec![0; MAX_BYTES as usize + 1]).expect("written");
        assert!(file.load().is_err(), "too long");
    }

    #[test]
    fn an_older_list_takes_no_newer_ones_place() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = ContactsFile::new(dir.path(), RUN);
        let old = entered(&[1]);
        let mut new = old.clone();
        new.leave(LeaveRecord {
            stayed: vec![PeerId([1; 32])],
            root: starling_topology::Root::default(),
            forked: false,
        });
        file.store(&new).expect("stored");
        file.clone().store(&old).expect("left out");
        assert_eq!(file.load(), Ok(Some(new)));
    }

    #[test]
    fn those_who_are_there_come_first_and_the_list_is_bounded() {
        let mut contacts = Contacts::default();
        let view = View::found(RUN, ME);
        for name in 0..100 {
            contacts.enter(ME, &view, vec![contact(name, 1)], Vec::new());
        }
        contacts.enter(ME, &view, vec![contact(3, 2), contact(99, 1), Contact { peer: ME, addresses: vec![] }], vec![]);
        assert_eq!(contacts.members()[..2], [contact(3, 2), contact(99, 1)]);
        assert_eq!(contacts.members().len(), MAX_KNOWN);
        assert!(contacts.members().iter().all(|known| known.peer != ME));
        let version = contacts.version;
        contacts.enter(ME, &view, vec![contact(3, 2), contact(99, 1)], vec![]);
        assert_eq!(contacts.version, version, "nothing new");
        contacts.learn_member(contact(99, 5));
        assert_eq!(contacts.members()[1], contact(99, 5), "it has moved");
    }

    #[test]
    fn a_member_knows_a_few_keepers_and_where_they_are_now() {
        let mut contacts = Contacts::default();
        let mut learn = |name: u8, port: u16| contacts.learn_keeper(contact(name, port), |_| false);
        assert!(learn(0, 1) && !learn(0, 1));
        assert!(learn(0, 2), "it has moved");
        let learnt = (1..=MAX_KEEPERS as u8).filter(|name| learn(*name, 1)).count();
        assert!(learn(0, 3), "it has moved again");
        assert_eq!((learnt, contacts.keepers().len()), (MAX_KEEPERS - 1, MAX_KEEPERS));
        assert!(contacts.keepers().contains(&contact(0, 3)));
        // Names that nobody bears any more keep no keeper out.
        assert!(contacts.learn_keeper(contact(99, 1), |peer| peer == PeerId([3; 32])));
        let there = |name| contacts.keepers().contains(&contact(name, 1));
        assert!(there(99) && there(2) && !there(3));
    }
}
