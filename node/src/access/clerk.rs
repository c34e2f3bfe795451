//! What the membership machine asks of whoever knows who may be here.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::{JoinRequest, PeerId, Signer, View};

use super::{Access, Card};
use crate::access::roster::Entry;
use crate::credentials::identity::{Identity, has_signed};
use crate::credentials::invitation::{DenialReason, PresentedInvitation};

/// Passes of joiners that are remembered as right.
const MAX_KNOWN: usize = 256;

/// Signs what the machine says, and judges whom others propose to let in.
#[derive(Debug)]
pub(crate) struct Clerk {
    pub(crate) identity: Identity,
    pub(crate) access: Access,
}

impl Signer for Clerk {
    fn sign(&self, statement: &[u8]) -> [u8; 64] {
        self.identity.sign(statement)
    }

    fn is_signed(&self, signer: PeerId, statement: &[u8], signature: &[u8; 64]) -> bool {
        has_signed(signer, statement, signature)
    }

    fn pass(&self) -> Vec<u8> {
        self.access.lock().pass.presented.as_ref().map(PresentedInvitation::encode).unwrap_or_default()
    }

    fn is_invited(&self, joiner: &JoinRequest) -> bool {
        self.access.invited(joiner).is_ok() || self.access.may_be_invited(joiner)
    }

    fn admits(&self, joiners: &[JoinRequest]) -> bool {
        self.access.admits(joiners)
    }

    fn may_vote(&self, newcomers: Vec<PeerId>, view: &View) -> Vec<PeerId> {
        self.access.may_vote(newcomers, view)
    }
}

impl Access {
    /// By what a joiner comes, if the founder has ever invited it. All members find the same, as long as their users let in the
    /// same keys.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn invited(&self, joiner: &JoinRequest) -> Card {
        let peer = joiner.contact.peer;
        let id = *blake3::hash(&[&peer.0[..], &joiner.pass].concat()).as_bytes();
        let (office, is_needed, proven) = {
            let state = self.lock();
            (state.office.clone(), state.needs_invitation(&peer), state.proven.get(&id).copied())
        };
        let Some(office) = office else { return Ok(None) };
        // Not under the lock: signatures take time, and one proposal is looked at often.
        let look = || {
            let presented = PresentedInvitation::decode(&joiner.pass).ok_or(DenialReason::NotInvited)?;
            presented.invitation.is_for(peer)?;
            let number = proven.map_or_else(|| office.check(&presented, peer), Ok)?;
            Ok((presented, number))
        };
        match look() {
            Ok(card) => {
                let mut state = self.lock();
                if state.proven.len() >= MAX_KNOWN {
                    state.proven.clear();
                }
                state.proven.insert(id, card.1);
                Ok(Some(card))
            }
            Err(denial) if is_needed => Err(denial),
            Err(_) => Ok(None),
        }
    }

    /// Whether a key has invited it to which our user has consented: it may have the founder's place elsewhere already.
    fn may_be_invited(&self, joiner: &JoinRequest) -> bool {
        let offices = self.lock().may_count();
        let presented =
            PresentedInvitation::decode(&joiner.pass).filter(|it| it.invitation.is_for(joiner.contact.peer).is_ok());
        presented.is_some_and(|it| offices.iter().any(|office| office.check(&it, joiner.contact.peer).is_ok()))
    }

    /// Of those who came by one invitation, as many as may vote by it. What the decree that let each in says counts.
    fn may_vote(&self, mut newcomers: Vec<PeerId>, view: &View) -> Vec<PeerId> {
        let state = self.lock();
        // Who comes by an invitation where nobody needs one has no fewer rights than the others.
        if state.office.is_none() || !state.is_private() {
            return newcomers;
        }
        let came_by = |peer: &PeerId| state.roster.get(peer).and_then(Entry::origin);
        let mut voting = BTreeMap::<PeerId, u16>::new();
        for invitation in view.voters().filter_map(|voter| came_by(&voter)) {
            let count = voting.entry(invitation.key).or_default();
            *count = count.saturating_add(1);
        }
        newcomers.retain(|peer| {
            // Who has to show how it came, and has not yet shown it here, waits.
            let Some(invitation) = came_by(peer) else { return !state.needs_invitation(peer) };
            let count = voting.entry(invitation.key).or_default();
            let may = invitation.terms.voters.is_none_or(|most| *count < most);
            *count = count.saturating_add(u16::from(may));
            may
        });
        newcomers
    }

    /// Whether all of these may be let in now, as far as we know, and no two of them by one invitation for one.
    pub(super) fn admits(&self, joiners: &[JoinRequest]) -> bool {
        let mut used = BTreeSet::new();
        joiners.iter().all(|joiner| {
            let Ok(card) = self.invited(joiner) else { return false };
            let peer = joiner.contact.peer;
            let state = self.lock();
            let once = card.as_ref().map(|(it, _)| &it.invitation).filter(|it| it.terms.once).map(|it| it.key);
            if state.is_revoked(&peer) || once.is_some_and(|key| !used.insert(key)) {
                return false;
            }
            state.is_open() || state.is_known(&peer) || state.invites(peer, &Ok(card)).is_ok()
        })
    }
}
