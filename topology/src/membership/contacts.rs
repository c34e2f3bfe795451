//! How others are reached.

use super::Membership;
use crate::interface::Output;
use crate::message::{Contact, MAX_MEMBERS};

/// How many contacts are remembered.
const MAX_CONTACTS: usize = 2 * MAX_MEMBERS;

impl Membership {
    pub(super) fn learn(&mut self, contact: Contact) {
        let room = self.contacts.len() < MAX_CONTACTS || self.contacts.contains_key(&contact.peer);
        if contact.peer != self.me.peer && room {
            self.contacts.insert(contact.peer, contact.clone());
            self.outbox.push(Output::Learn(contact));
        }
    }

    /// A member that came back may listen elsewhere; whoever is sent to it must find it.
    pub(super) fn locate(&mut self, contact: Contact) {
        if let Some(known) = self.contacts.get_mut(&contact.peer).filter(|known| known.peer != self.me.peer) {
            *known = contact;
        }
    }
}
