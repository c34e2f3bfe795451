//! What the membership machine asks of whoever knows who may be here.

use std::collections::BTreeSet;

use starling_topology::{Joiner, Notary, PeerId};

use super::Access;
use crate::identity::{Identity, has_signed};
use crate::invitation::{Denial, Presented};

/// Passes of joiners that are remembered as right.
const MAX_KNOWN: usize = 256;

/// Signs what the machine says, and judges whom others propose to let in.
#[derive(Debug)]
pub(crate) struct Clerk {
    pub(crate) identity: Identity,
    pub(crate) access: Access,
}

impl Notary for Clerk {
    fn sign(&self, statement: &[u8]) -> [u8; 64] {
        self.identity.sign(statement)
    }

    fn is_signed(&self, signer: PeerId, statement: &[u8], signature: &[u8; 64]) -> bool {
        has_signed(signer, statement, signature)
    }

    fn pass(&self) -> Vec<u8> {
        self.access.lock().pass.presented.as_ref().map(Presented::encode).unwrap_or_default()
    }

    fn is_invited(&self, joiner: &Joiner) -> bool {
        self.access.invited(joiner).is_ok()
    }

    fn admits(&self, joiners: &[Joiner]) -> bool {
        self.access.admits(joiners)
    }
}

impl Access {
    /// By what a joiner comes, if the founder has ever invited it. All members find the same, as long as their users let in the
    /// same keys.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn invited(&self, joiner: &Joiner) -> Result<Option<Presented>, Denial> {
        let peer = joiner.contact.peer;
        let id = *blake3::hash(&[&peer.0[..], &joiner.pass].concat()).as_bytes();
        let (parties, is_needed, is_proven) = {
            let state = self.lock();
            (state.founder.zip(state.run), state.needs_invitation(&peer), state.proven.contains(&id))
        };
        let Some(parties) = parties else { return Ok(None) };
        // Not under the lock: signatures take time, and one proposal is looked at often.
        let look = || {
            let presented = Presented::decode(&joiner.pass).ok_or(Denial::NotInvited)?;
            presented.invitation.is_for(peer)?;
            if is_proven { Ok(presented) } else { presented.check(parties, peer).map(|()| presented) }
        };
        match look() {
            Ok(presented) => {
                let mut state = self.lock();
                if state.proven.len() >= MAX_KNOWN {
                    state.proven.clear();
                }
                state.proven.insert(id);
                Ok(Some(presented))
            }
            Err(denial) if is_needed => Err(denial),
            Err(_) => Ok(None),
        }
    }

    /// Whether all of these may be let in now, as far as we know, and no two of them by one invitation for one.
    pub(super) fn admits(&self, joiners: &[Joiner]) -> bool {
        let mut used = BTreeSet::new();
        joiners.iter().all(|joiner| {
            let Ok(presented) = self.invited(joiner) else { return false };
            let peer = joiner.contact.peer;
            let state = self.lock();
            let once = presented.as_ref().map(|it| &it.invitation).filter(|it| it.terms.once).map(|it| it.key);
            if state.is_revoked(&peer) || once.is_some_and(|key| !used.insert(key)) {
                return false;
            }
            state.is_open() || state.is_known(&peer) || state.invites(peer, &Ok(presented)).is_ok()
        })
    }
}
