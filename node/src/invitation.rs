//! Who may come to a run, signed by its founder's key.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use starling_topology::{PeerId, RunId};
use thiserror::Error;

use crate::founder::FounderKey;
use crate::identity::has_signed;

/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling invites 1";
/// The longest encoded invitation, in bytes.
pub(crate) const MAX_BYTES: usize = 256;
/// By how much the clocks of the founder and of whoever admits may differ, in seconds.
const TOLERANCE_S: u64 = 300;

/// What an invitation lets its bearer be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// One that trains. It may store checkpoints as well.
    #[default]
    Member,
    /// One that only stores checkpoints.
    Keeper,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Member => "member",
            Self::Keeper => "keeper",
        })
    }
}

impl std::str::FromStr for Role {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "member" => Ok(Self::Member),
            "keeper" => Ok(Self::Keeper),
            _ => Err("must be member or keeper"),
        }
    }
}

/// Whom an invitation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Terms {
    /// What it lets its bearer be.
    pub role: Role,
    /// Until when it may be used first, in seconds since 1970.
    pub expires: Option<u64>,
    /// The name of one that admits one bearer only.
    pub once: Option<[u8; 16]>,
    /// The one peer that it admits.
    pub whom: Option<PeerId>,
    /// How many revocations there had been. One that names no peer ends with the next.
    pub epoch: u64,
}

/// An invitation. Anybody may hold it: what it is worth, [`Self::admits`] says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// Whom it is for.
    pub terms: Terms,
    /// The founder's, 64 bytes.
    signature: Vec<u8>,
}

/// Why a peer may not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Error)]
pub enum Denial {
    /// It shows no invitation, and nobody knows it as a member.
    #[error("it takes an invitation by the run's founder (`starling invite` there prints one)")]
    NotInvited,
    /// It shows one of somebody else's making.
    #[error("the invitation is not signed by this run's founder")]
    Forged,
    /// Too late.
    #[error("the invitation has expired; ask for another")]
    Expired,
    /// It is another's.
    #[error(
        "the invitation is for another peer (`starling id` prints the id of this one, `starling invite --for` takes it)"
    )]
    ForAnother,
    /// Somebody was revoked since.
    #[error("the invitation was made before somebody was revoked; ask for another")]
    Outdated,
    /// Another has come with it.
    #[error("the invitation admits one peer, and another has used it; ask for another")]
    Used,
    /// A keeper's.
    #[error("the invitation is a keeper's: it is good for `starling keep`, not for training")]
    KeepersOnly,
    /// The founder has put it out.
    #[error("the run's founder has revoked it")]
    Revoked,
}

impl Invitation {
    /// An invitation to `run` on these terms.
    pub fn sign(key: &FounderKey, run: RunId, terms: Terms) -> Self {
        Self { terms, signature: key.sign(&statement(run, &terms)) }
    }

    /// Whether the founder has signed it.
    pub(crate) fn is_of(&self, founder: PeerId, run: RunId) -> bool {
        let signature = <&[u8; 64]>::try_from(self.signature.as_slice());
        signature.is_ok_and(|signature| has_signed(founder, &statement(run, &self.terms), signature))
    }

    /// Whether `peer` may come by it now, after so many revocations, if nobody else has used it.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn admits(
        &self,
        (founder, run): (PeerId, RunId),
        peer: PeerId,
        now_s: u64,
        epoch: u64,
    ) -> Result<(), Denial> {
        let whom = self.terms.whom;
        if !self.is_of(founder, run) {
            return Err(Denial::Forged);
        }
        if whom.is_some_and(|whom| whom != peer) {
            return Err(Denial::ForAnother);
        }
        if self.is_over(now_s) {
            return Err(Denial::Expired);
        }
        if whom.is_none() && self.terms.epoch < epoch {
            return Err(Denial::Outdated);
        }
        Ok(())
    }

    /// Whether others than the first may come by it too, as members, so that it may be told.
    pub(crate) fn is_open(&self) -> bool {
        self.terms.role == Role::Member && self.terms.once.is_none() && self.terms.whom.is_none()
    }

    /// Whether nobody new can come by it any more.
    pub(crate) fn is_over(&self, now_s: u64) -> bool {
        self.terms.expires.is_some_and(|expires| now_s > expires.saturating_add(TOLERANCE_S))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: an invitation always encodes")
    }

    /// Reads one that came from elsewhere; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_BYTES {
            return None;
        }
        let (invitation, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        (rest.is_empty() && invitation.signature.len() == 64).then_some(invitation)
    }
}

fn statement(run: RunId, terms: &Terms) -> Vec<u8> {
    let terms = postcard::to_allocvec(terms).expect("invariant: terms always encode");
    [PURPOSE, &run.0, &terms].concat()
}

/// Seconds since 1970, by this machine's clock.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId([3; 32]);

    #[test]
    fn an_invitation_admits_whom_it_says() {
        let (key, other) = (FounderKey::generate(), FounderKey::generate());
        let [a, b] = [1, 2].map(|name| PeerId([name; 32]));
        let founder = (key.public(), RUN);
        let of = |terms| Invitation::sign(&key, RUN, terms);
        let open = of(Terms::default());
        assert_eq!(open.admits(founder, a, 1 << 40, 0), Ok(()));
        assert_eq!(open.admits(founder, a, 0, 1), Err(Denial::Outdated), "somebody was revoked");
        assert_eq!(open.admits((other.public(), RUN), a, 0, 0), Err(Denial::Forged));
        assert_eq!(open.admits((key.public(), RunId([4; 32])), a, 0, 0), Err(Denial::Forged), "of another run");
        let mut changed = open.clone();
        changed.terms.role = Role::Keeper;
        assert_eq!(changed.admits(founder, a, 0, 0), Err(Denial::Forged));
        let dated = of(Terms { expires: Some(1000), ..Terms::default() });
        assert_eq!(dated.admits(founder, a, 1000 + TOLERANCE_S, 0), Ok(()), "clocks differ");
        assert_eq!(dated.admits(founder, a, 1001 + TOLERANCE_S, 0), Err(Denial::Expired));
        let bound = of(Terms { whom: Some(a), ..Terms::default() });
        assert_eq!(bound.admits(founder, a, 0, 7), Ok(()), "revocations of others don't concern it");
        assert_eq!(bound.admits(founder, b, 0, 0), Err(Denial::ForAnother));
        let once = of(Terms { once: Some([5; 16]), ..Terms::default() });
        assert!(open.is_open() && !bound.is_open() && !once.is_open());
    }

    #[test]
    fn bytes_from_elsewhere_are_an_invitation_or_none() {
        let key = FounderKey::generate();
        let terms =
            Terms { expires: Some(u64::MAX), once: Some([255; 16]), whom: Some(PeerId([255; 32])), ..Terms::default() };
        let invitation = Invitation::sign(&key, RUN, Terms { epoch: u64::MAX, ..terms });
        let bytes = invitation.encode();
        assert!(bytes.len() <= MAX_BYTES);
        assert_eq!(Invitation::decode(&bytes), Some(invitation.clone()));
        assert_eq!(Invitation::decode(&[&bytes[..], &[0]].concat()), None);
        assert!((0..bytes.len()).all(|length| Invitation::decode(&bytes[..length]).is_none()));
        let short = Invitation { signature: vec![0; 63], ..invitation };
        assert_eq!(Invitation::decode(&short.encode()), None);
    }
}
