//! How others are reached.

use crate::membership::Membership;
use crate::membership::interface::Output;
use crate::message::{Contact, MAX_MEMBERS};
use crate::time::Time;
use crate::vote::proposal::Proposal;

/// How many contacts are remembered.
pub(in crate::membership) const MAX_CONTACTS: usize = 2 * MAX_MEMBERS;

impl Membership {
    pub(in crate::membership) fn learn(&mut self, contact: Contact) {
        let room = self.contacts.len() < MAX_CONTACTS || self.contacts.contains_key(&contact.peer);
        if contact.peer != self.me.peer && room {
            self.contacts.insert(contact.peer, contact.clone());
            self.outbox.push(Output::Learn(contact));
        }
    }

    /// How to reach those who are in the view of `proposal`, and whom `contacts` tell of besides: they may come back.
    pub(in crate::membership) fn learn_all(&mut self, now: Time, contacts: Vec<Contact>, proposal: &Proposal) {
        // First, so that there is room for them, whoever else was told of meanwhile.
        self.forget_others(proposal);
        self.note_parted(contacts.iter().map(|contact| contact.peer), &proposal.view);
        for contact in contacts.into_iter().chain(proposal.joiners.iter().map(|joiner| joiner.contact.clone())) {
            let peer = contact.peer;
            self.learn(contact);
            if !proposal.view.contains(peer) {
                self.probe_later(now, peer);
            }
        }
        self.forget_others(proposal);
        self.answered.clear();
        self.joiners.retain(|peer, _| !proposal.view.contains(*peer));
        self.lost.retain(|peer, _| !proposal.view.contains(*peer));
        self.look_for_parted(now);
    }

    fn forget_others(&mut self, proposal: &Proposal) {
        let (me, view, lost, parted) = (self.me.peer, &proposal.view, &self.lost, &self.parted);
        let is_missed = |peer| lost.contains_key(&peer) || (view.forked && parted.contains(peer));
        self.contacts.retain(|peer, _| *peer == me || view.contains(*peer) || is_missed(*peer));
    }

    /// A member that came back may listen elsewhere; whoever is sent to it must find it.
    pub(in crate::membership) fn locate(&mut self, contact: Contact) {
        if let Some(known) = self.contacts.get_mut(&contact.peer).filter(|known| known.peer != self.me.peer) {
            *known = contact;
        }
    }
}
