//! What a peer shows when it connects.
//!
//! ```text
//!   section: tag u8 | length u16, little-endian | that many bytes
//!     1  its invitation, signed for its bearer by the invitation's own key
//!     2  for whom it speaks, whose visitor it is: the key, 32 bytes, and its signature, 64 bytes
//!     3  the founder's list that it has: its number, u64, little-endian, and its hash, 32 bytes
//! ```

use starling_topology::{PeerId, RunId};

use super::Credentials;
use crate::credentials::identity::{from_libp2p, has_signed};
use crate::credentials::invitation::PresentedInvitation;
use crate::settings::sections;

/// The longest pass, in bytes.
pub(crate) const MAX_PASS: usize = 1024;
/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling sends a visitor 1";

const INVITATION: u8 = 1;
const SPEAKS_FOR: u8 = 2;
const LIST: u8 = 3;

/// The number of a list of the founder's, and what tells it apart from another one of that number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Edition {
    pub(crate) epoch: u64,
    pub(crate) mark: [u8; 32],
}

/// What a peer shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Whose it is. Not shown: the connection proves it.
    pub(crate) me: Option<PeerId>,
    pub(crate) presented: Option<PresentedInvitation>,
    pub(crate) speaks_for: Option<(PeerId, [u8; 64])>,
    pub(crate) list: Edition,
}

impl Pass {
    /// That of whoever connects as `me`.
    pub(crate) fn of(me: libp2p::PeerId, run: Option<RunId>, credentials: &Credentials) -> Self {
        let Credentials { invitation, bearer, .. } = credentials;
        let bearer = bearer.as_ref().filter(|bearer| bearer.peer_id() != me);
        let speaks_for = bearer
            .zip(run)
            .and_then(|(bearer, run)| Some((from_libp2p(&bearer.peer_id())?, bearer.sign(&statement(run, me)))));
        let who = speaks_for.map(|(sender, _)| sender).or_else(|| from_libp2p(&me));
        let presented = invitation.as_ref().zip(who).map(|(grant, who)| grant.present(who));
        Self { me: from_libp2p(&me), presented, speaks_for, ..Self::default() }
    }

    /// Who shows it: the peer at the other end, or the one that has sent it; `None` if it can be neither.
    pub(crate) fn who(&self, peer: libp2p::PeerId, run: Option<RunId>) -> Option<PeerId> {
        match &self.speaks_for {
            None => from_libp2p(&peer),
            Some((sender, signature)) => {
                run.is_some_and(|run| has_signed(*sender, &statement(run, peer), signature)).then_some(*sender)
            }
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(presented) = &self.presented {
            sections::push(&mut bytes, INVITATION, &presented.encode());
        }
        if let Some((sender, signature)) = &self.speaks_for {
            sections::push(&mut bytes, SPEAKS_FOR, &[&sender.0[..], signature].concat());
        }
        sections::push(&mut bytes, LIST, &[&self.list.epoch.to_le_bytes()[..], &self.list.mark].concat());
        bytes
    }

    /// Reads one that came from elsewhere; `None` if it is none.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut pass = Self::default();
        while let Some(section) = sections::next(bytes) {
            let (tag, content, rest) = section.ok()?;
            bytes = rest;
            match tag {
                INVITATION => pass.presented = Some(PresentedInvitation::decode(content)?),
                SPEAKS_FOR => {
                    let (sender, signature) = content.split_first_chunk()?;
                    pass.speaks_for = Some((PeerId(*sender), signature.try_into().ok()?));
                }
                LIST => {
                    let (epoch, mark) = content.split_first_chunk()?;
                    pass.list = Edition { epoch: u64::from_le_bytes(*epoch), mark: mark.try_into().ok()? };
                }
                _ => {}
            }
        }
        Some(pass)
    }
}

fn statement(run: RunId, visitor: libp2p::PeerId) -> Vec<u8> {
    [PURPOSE, &run.0, &visitor.to_bytes()].concat()
}
