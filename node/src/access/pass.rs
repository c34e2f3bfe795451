//! What a peer shows when it connects.
//!
//! ```text
//!   section: tag u8 | length u16, little-endian | that many bytes
//!     1  its invitation
//!     2  for whom it speaks, whose visitor it is: the key, 32 bytes, and its signature, 64 bytes
//!     3  the number of the founder's list that it has, u64, little-endian
//!     4  how many it knows that have been members, u64, little-endian
//! ```

use starling_topology::{PeerId, RunId};

use super::Credentials;
use crate::identity::{from_libp2p, has_signed};
use crate::invitation::Invitation;
use crate::sections;

/// The longest pass, in bytes.
pub(crate) const MAX_PASS: usize = 1024;
/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling sends a visitor 1";

const INVITATION: u8 = 1;
const SPEAKS_FOR: u8 = 2;
const EPOCH: u8 = 3;
const KNOWN: u8 = 4;

/// What a peer shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pass {
    /// Whose it is. Not shown: the connection proves it.
    pub(super) me: Option<PeerId>,
    pub(super) invitation: Option<Invitation>,
    pub(super) speaks_for: Option<(PeerId, [u8; 64])>,
    pub(super) epoch: u64,
    pub(super) known: u64,
}

impl Pass {
    /// That of whoever connects as `me`.
    pub(super) fn of(me: libp2p::PeerId, run: Option<RunId>, credentials: &Credentials) -> Self {
        let Credentials { invitation, bearer, .. } = credentials;
        let bearer = bearer.as_ref().filter(|bearer| bearer.peer_id() != me);
        let speaks_for = bearer
            .zip(run)
            .and_then(|(bearer, run)| Some((from_libp2p(&bearer.peer_id())?, bearer.sign(&statement(run, me)))));
        Self { me: from_libp2p(&me), invitation: invitation.clone(), speaks_for, epoch: 0, known: 0 }
    }

    /// Who shows it: the peer at the other end, or the one that has sent it; `None` if it can be neither.
    pub(super) fn who(&self, peer: libp2p::PeerId, run: Option<RunId>) -> Option<PeerId> {
        match &self.speaks_for {
            None => from_libp2p(&peer),
            Some((sender, signature)) => {
                run.is_some_and(|run| has_signed(*sender, &statement(run, peer), signature)).then_some(*sender)
            }
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(invitation) = &self.invitation {
            sections::push(&mut bytes, INVITATION, &invitation.encode());
        }
        if let Some((sender, signature)) = &self.speaks_for {
            sections::push(&mut bytes, SPEAKS_FOR, &[&sender.0[..], signature].concat());
        }
        sections::push(&mut bytes, EPOCH, &self.epoch.to_le_bytes());
        sections::push(&mut bytes, KNOWN, &self.known.to_le_bytes());
        bytes
    }

    /// Reads one that came from elsewhere; `None` if it is none.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut pass = Self::default();
        while let Some(section) = sections::next(bytes) {
            let (tag, content, rest) = section.ok()?;
            bytes = rest;
            match tag {
                INVITATION => pass.invitation = Some(Invitation::decode(content)?),
                SPEAKS_FOR => {
                    let (sender, signature) = content.split_first_chunk()?;
                    pass.speaks_for = Some((PeerId(*sender), signature.try_into().ok()?));
                }
                EPOCH => pass.epoch = u64::from_le_bytes(content.try_into().ok()?),
                KNOWN => pass.known = u64::from_le_bytes(content.try_into().ok()?),
                _ => {}
            }
        }
        Some(pass)
    }
}

fn statement(run: RunId, visitor: libp2p::PeerId) -> Vec<u8> {
    [PURPOSE, &run.0, &visitor.to_bytes()].concat()
}
