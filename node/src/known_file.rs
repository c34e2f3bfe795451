//! Peers of a run that this machine wants to find again after its process was gone: a member its keepers, a keeper all that
//! it knows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES};
use starling_topology::{Contact, PeerId, RunId};

use crate::error::NodeError;
use crate::private_file;

const PREFIX: &str = "known-";
/// Peers in a file.
pub(crate) const MAX_KNOWN: usize = 64;
/// Keepers that a member knows of.
const MAX_KEEPERS: usize = 16;
/// The longest file, in bytes.
const MAX_BYTES: u64 = (MAX_KNOWN * (64 + MAX_ADDRESSES * (MAX_ADDRESS_BYTES + 2))) as u64;

/// The known peers of one run in a data directory.
#[derive(Debug, Clone)]
pub(crate) struct KnownFile {
    path: PathBuf,
}

impl KnownFile {
    pub(crate) fn new(data_dir: &Path, run: RunId) -> Self {
        Self { path: data_dir.join(format!("{PREFIX}{}", &run.to_string()[..16])) }
    }

    /// Who is known. Nobody, if the file can't be read: they tell where they are again.
    pub(crate) fn load(&self) -> Vec<Contact> {
        let bytes = match private_file::read_up_to(&self.path, MAX_BYTES) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "the list of known peers can't be used");
                Vec::new()
            }
        };
        let contacts: Vec<Contact> = postcard::from_bytes(&bytes).unwrap_or_default();
        contacts.into_iter().filter(Contact::is_bounded).take(MAX_KNOWN).collect()
    }

    /// Keeps them, as many as there is room for. On disk when this returns.
    pub(crate) fn store(&self, contacts: &[Contact]) -> Result<(), NodeError> {
        let kept = &contacts[..contacts.len().min(MAX_KNOWN)];
        let bytes = postcard::to_allocvec(kept).expect("invariant: contacts always encode");
        private_file::write(&self.path, &bytes)
    }
}

/// The keepers that a member knows of.
#[derive(Debug, Default)]
pub(crate) struct Keepers(BTreeMap<PeerId, Contact>);

impl Keepers {
    pub(crate) fn new(known: Vec<Contact>) -> Self {
        Self(known.into_iter().take(MAX_KEEPERS).map(|contact| (contact.peer, contact)).collect())
    }

    /// Takes in where a keeper is. True if that is news. Those that were there before stay if there are too many.
    pub(crate) fn learn(&mut self, contact: Contact) -> bool {
        let is_known = self.0.contains_key(&contact.peer);
        if (!is_known && self.0.len() >= MAX_KEEPERS) || self.0.get(&contact.peer) == Some(&contact) {
            return false;
        }
        self.0.insert(contact.peer, contact);
        true
    }

    pub(crate) fn all(&self) -> Vec<Contact> {
        self.0.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(name: u8, port: u16) -> Contact {
        Contact { peer: PeerId([name; 32]), addresses: vec![format!("/ip4/127.0.0.1/tcp/{port}")] }
    }

    #[test]
    fn who_was_known_is_found_again() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = KnownFile::new(dir.path(), RunId([7; 32]));
        assert!(file.load().is_empty());
        let contacts: Vec<Contact> = (0..=MAX_KNOWN as u8).map(|name| contact(name, 1)).collect();
        file.store(&contacts).expect("stored");
        assert_eq!(file.load(), contacts[..MAX_KNOWN]);
        assert!(KnownFile::new(dir.path(), RunId([8; 32])).load().is_empty(), "another run's");
        let long = Contact { addresses: vec!["x".repeat(MAX_ADDRESS_BYTES + 1)], ..contact(1, 1) };
        file.store(&[long, contact(2, 2)]).expect("stored");
        assert_eq!(file.load(), [contact(2, 2)], "within bounds");
        std::fs::write(&file.path, b"nonsense").expect("written");
        assert!(file.load().is_empty(), "damaged");
    }

    #[test]
    fn a_member_knows_a_few_keepers_and_where_they_are_now() {
        let mut keepers = Keepers::new(vec![contact(0, 1)]);
        assert!(!keepers.learn(contact(0, 1)));
        assert!(keepers.learn(contact(0, 2)), "it has moved");
        let learnt = (1..=MAX_KEEPERS as u8).filter(|name| keepers.learn(contact(*name, 1))).count();
        assert_eq!((learnt, keepers.all().len()), (MAX_KEEPERS - 1, MAX_KEEPERS));
        assert!(keepers.learn(contact(0, 3)) && keepers.all().contains(&contact(0, 3)));
    }
}
