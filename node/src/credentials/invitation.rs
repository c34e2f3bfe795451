//! Who may come to a run, signed by its founder's key.
//!
//! Each invitation has a key of its own. Its private half is in the ticket, and whoever has that signs the id of the peer that
//! comes. So what is shown is worth nothing to whoever sees it, and is proof for all who are told of it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use libp2p::identity::ed25519;
use serde::{Deserialize, Serialize};
use starling_topology::{PeerId, RunId};
use thiserror::Error;

use crate::credentials::founder::FounderKey;
use crate::credentials::identity::has_signed;
use crate::net::frame;

/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling invites 3";
/// What the signature of an invitation's key says first.
const BEARER: &[u8] = b"starling comes by an invitation 1";
/// The longest encoded invitation, in bytes.
pub(crate) const MAX_BYTES: usize = 256;
/// How many vote who come by an invitation that says nothing else about it, the founder's own machine among them.
const VOTERS: u16 = 8;
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
pub struct InvitationSpec {
    /// What it lets its bearer be.
    pub role: Role,
    /// Until when it may be used first, in seconds since 1970.
    pub expires: Option<u64>,
    /// Whether it admits one bearer only.
    pub once: bool,
    /// How many of those who come by it may have a vote at a time; the others train without. `None`: all.
    pub voters: Option<u16>,
    /// The one peer that it admits.
    pub whom: Option<PeerId>,
    /// How many revocations there had been. One that names no peer ends with the next.
    pub epoch: u64,
}

impl InvitationSpec {
    /// Those that let in whoever holds it, after so many revocations, if nothing else is wanted.
    pub(crate) fn open(epoch: u64) -> Self {
        Self { voters: Some(VOTERS), epoch, ..Self::default() }
    }
}

/// An invitation. What it is worth to whoever shows it, [`PresentedInvitation`] says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// Whom it is for.
    pub terms: InvitationSpec,
    /// The public half of its own key, which names it as well.
    pub(crate) key: PeerId,
    /// The founder's, 64 bytes.
    signature: Vec<u8>,
}

/// An invitation with its private key, as tickets have it: whoever has that may come by it.
#[derive(Clone, PartialEq, Eq)]
pub struct InvitationKey {
    /// What the founder has signed.
    pub invitation: Invitation,
    seed: [u8; 32],
}

impl fmt::Debug for InvitationKey {
    /// Leaves the key out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InvitationKey").field("invitation", &self.invitation).finish_non_exhaustive()
    }
}

/// An invitation as one peer shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresentedInvitation {
    /// What the founder has signed.
    pub invitation: Invitation,
    /// That of the invitation's key, of the peer's id: 64 bytes.
    proof: Vec<u8>,
}

/// Why a peer may not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Error)]
pub enum DenialReason {
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
    /// It was copied from one who showed it.
    #[error("the invitation was shown by one that does not hold its key, which is in the ticket")]
    NotItsBearer,
}

impl InvitationKey {
    /// An invitation to `run` on these terms, with a key of its own.
    pub fn sign(key: &FounderKey, run: RunId, terms: InvitationSpec) -> Self {
        let seed = rand::random();
        let own = PeerId(keypair(seed).public().to_bytes());
        let signature = key.sign(&statement(run, &terms, own));
        Self { invitation: Invitation { terms, key: own, signature }, seed }
    }

    /// What `peer` shows that comes by it.
    pub(crate) fn present(&self, peer: PeerId) -> PresentedInvitation {
        let proof = keypair(self.seed).sign(&[BEARER, &peer.0].concat());
        PresentedInvitation { invitation: self.invitation.clone(), proof }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let invitation = postcard::to_allocvec(&self.invitation).expect("invariant: an invitation always encodes");
        [&self.seed[..], &invitation].concat()
    }

    /// Reads one that came from elsewhere; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (seed, rest) = bytes.split_first_chunk()?;
        let invitation = whole::<Invitation>(rest)?;
        // What is damaged here would be turned away there, with another reason.
        let is_its_key = PeerId(keypair(*seed).public().to_bytes()) == invitation.key;
        (is_its_key && invitation.signature.len() == 64).then_some(Self { invitation, seed: *seed })
    }
}

impl Invitation {
    /// Whether the founder has signed it.
    pub(crate) fn is_of(&self, (founder, run): (PeerId, RunId)) -> bool {
        let signature = <&[u8; 64]>::try_from(self.signature.as_slice());
        signature.is_ok_and(|signature| has_signed(founder, &statement(run, &self.terms, self.key), signature))
    }

    /// Whether `peer` may come by it now, after so many revocations, if nobody else has used it. Signatures are another matter.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn admits(&self, peer: PeerId, now_s: u64, epoch: u64) -> Result<(), DenialReason> {
        let whom = self.terms.whom;
        if whom.is_some_and(|whom| whom != peer) {
            return Err(DenialReason::ForAnother);
        }
        if self.is_over(now_s) {
            return Err(DenialReason::Expired);
        }
        if whom.is_none() && self.terms.epoch < epoch {
            return Err(DenialReason::Outdated);
        }
        Ok(())
    }

    /// Whether it may ever make a member of `peer`.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn is_for(&self, peer: PeerId) -> Result<(), DenialReason> {
        if self.terms.role == Role::Keeper {
            return Err(DenialReason::KeepersOnly);
        }
        if self.terms.whom.is_some_and(|whom| whom != peer) { Err(DenialReason::ForAnother) } else { Ok(()) }
    }

    /// Whether others than the first may come by it too, as members, so that its bearer may hand it on.
    pub(crate) fn is_open(&self) -> bool {
        self.terms.role == Role::Member && !self.terms.once && self.terms.whom.is_none()
    }

    /// Whether nobody new can come by it any more.
    pub(crate) fn is_over(&self, now_s: u64) -> bool {
        self.terms.expires.is_some_and(|expires| now_s > expires.saturating_add(TOLERANCE_S))
    }
}

impl PresentedInvitation {
    /// Whether the founder has signed it, and whoever holds its key says that `peer` comes by it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self, parties: (PeerId, RunId), peer: PeerId) -> Result<(), DenialReason> {
        if !self.invitation.is_of(parties) {
            return Err(DenialReason::Forged);
        }
        let proof = <&[u8; 64]>::try_from(self.proof.as_slice());
        let is_its = proof.is_ok_and(|proof| has_signed(self.invitation.key, &[BEARER, &peer.0].concat(), proof));
        if is_its { Ok(()) } else { Err(DenialReason::NotItsBearer) }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: an invitation always encodes")
    }

    /// Reads one that came from elsewhere; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        whole::<Self>(bytes).filter(|it| it.invitation.signature.len() == 64 && it.proof.len() == 64)
    }
}

fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    if bytes.len() <= MAX_BYTES { frame::decode(bytes).ok() } else { None }
}

fn keypair(mut seed: [u8; 32]) -> ed25519::Keypair {
    let secret = ed25519::SecretKey::try_from_bytes(&mut seed).expect("invariant: any 32 bytes are an Ed25519 key");
    ed25519::Keypair::from(secret)
}

fn statement(run: RunId, terms: &InvitationSpec, key: PeerId) -> Vec<u8> {
    let terms = postcard::to_allocvec(terms).expect("invariant: terms always encode");
    [PURPOSE, &run.0, &key.0, &terms].concat()
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
        let parties = (key.public(), RUN);
        let of = |terms| InvitationKey::sign(&key, RUN, terms).invitation;
        let open = of(InvitationSpec::default());
        assert_eq!(open.admits(a, 1 << 40, 0), Ok(()));
        assert_eq!(open.admits(a, 0, 1), Err(DenialReason::Outdated), "somebody was revoked");
        assert!(open.is_of(parties) && !open.is_of((other.public(), RUN)));
        assert!(!open.is_of((key.public(), RunId([4; 32]))), "of another run");
        let changed = [
            Invitation { terms: InvitationSpec { role: Role::Keeper, ..open.terms }, ..open.clone() },
            Invitation { key: of(InvitationSpec::default()).key, ..open.clone() },
        ];
        assert!(changed.iter().all(|changed| !changed.is_of(parties)));
        let dated = of(InvitationSpec { expires: Some(1000), ..InvitationSpec::default() });
        assert_eq!(dated.admits(a, 1000 + TOLERANCE_S, 0), Ok(()), "clocks differ");
        assert_eq!(dated.admits(a, 1001 + TOLERANCE_S, 0), Err(DenialReason::Expired));
        let bound = of(InvitationSpec { whom: Some(a), ..InvitationSpec::default() });
        assert_eq!(bound.admits(a, 0, 7), Ok(()), "revocations of others don't concern it");
        assert_eq!(bound.admits(b, 0, 0), Err(DenialReason::ForAnother));
        let once = of(InvitationSpec { once: true, ..InvitationSpec::default() });
        assert!(open.is_open() && !bound.is_open() && !once.is_open());
    }

    #[test]
    fn what_a_bearer_shows_is_worth_nothing_to_others() {
        let key = FounderKey::generate();
        let [a, b] = [1, 2].map(|name| PeerId([name; 32]));
        let parties = (key.public(), RUN);
        let grant = InvitationKey::sign(&key, RUN, InvitationSpec::default());
        let shown = grant.present(a);
        assert_eq!((shown.check(parties, a), shown.check(parties, b)), (Ok(()), Err(DenialReason::NotItsBearer)));
        // With the key of another invitation it is no better.
        let other = InvitationKey {
            invitation: grant.invitation.clone(),
            ..InvitationKey::sign(&key, RUN, InvitationSpec::default())
        };
        assert_eq!(other.present(b).check(parties, b), Err(DenialReason::NotItsBearer));
        assert_eq!(InvitationKey::decode(&other.encode()), None);
        let forged = InvitationKey::sign(&FounderKey::generate(), RUN, InvitationSpec::default()).present(a);
        assert_eq!(forged.check(parties, a), Err(DenialReason::Forged));
        assert!(!format!("{grant:?}").contains("seed"));
    }

    #[test]
    fn bytes_from_elsewhere_are_an_invitation_or_none() {
        let key = FounderKey::generate();
        let (whom, voters) = (Some(PeerId([255; 32])), Some(u16::MAX));
        let terms = InvitationSpec { expires: Some(u64::MAX), once: true, whom, voters, ..InvitationSpec::default() };
        let grant = InvitationKey::sign(&key, RUN, InvitationSpec { epoch: u64::MAX, ..terms });
        let shown = grant.present(PeerId([1; 32]));
        assert!(shown.encode().len() <= MAX_BYTES);
        let bytes = grant.encode();
        assert_eq!(
            (InvitationKey::decode(&bytes), PresentedInvitation::decode(&shown.encode())),
            (Some(grant.clone()), Some(shown.clone()))
        );
        assert_eq!(InvitationKey::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(PresentedInvitation::decode(&[&shown.encode()[..], &[0]].concat()), None);
        assert!((0..bytes.len()).all(|length| InvitationKey::decode(&bytes[..length]).is_none()));
        let short = PresentedInvitation { proof: vec![0; 63], ..shown };
        assert_eq!(PresentedInvitation::decode(&short.encode()), None);
    }
}
