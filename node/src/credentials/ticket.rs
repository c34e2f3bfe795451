//! The string that lets a machine join a run.
//!
//! ```text
//!   "starling3" base58( section* | first 4 bytes of their blake3 )
//!   section: tag u8 | length u16, little-endian | that many bytes
//!     1  the run's id, 32 bytes                          once
//!     2  the run's secret, 32 bytes                      once, for a private run
//!     3  a peer to join through: id and addresses        at most three count, in the order to try
//!     4  the founder's invitation, behind its own key    at most once
//! ```
//!
//! A section with another tag is passed over, so that what later releases add cuts nobody off. Tickets of earlier releases
//! begin with `starling1` or `starling2`: their runs speak an earlier wire version, so they are told from damaged ones, and not read.

use std::fmt;
use std::str::FromStr;

use libp2p::{Multiaddr, PeerId};
use serde::{Deserialize, Serialize};
use starling_topology::message::MAX_ADDRESS_BYTES;
use starling_topology::{Contact, RunId};
use thiserror::Error;

use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::credentials::invitation::InvitationKey;
use crate::settings::sections;

/// What every ticket begins with, so that people and shells can tell it from an address.
const PREFIX: &str = "starling3";
/// What tickets of earlier releases begin with.
const OLD_PREFIXES: [&str; 2] = ["starling1", "starling2"];
/// The longest ticket that is looked at, in characters.
const MAX_CHARS: usize = 16 * 1024;
/// A run's id alone takes more, in characters.
const SHORTEST: usize = 40;
/// The most addresses of one peer that count.
pub const MAX_ADDRESSES: usize = 8;
/// The most peers that count.
pub const MAX_PEERS: usize = 3;

const RUN: u8 = 1;
const SECRET: u8 = 2;
const PEER: u8 = 3;
const INVITATION: u8 = 4;

/// Some members and where they are, the run, and for a private run its secret and an invitation, which says who may join.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Whom to join through: members, or a keeper that knows some. At least one, each once.
    pub peers: Vec<Contact>,
    /// The run.
    pub run: RunId,
    /// The run's secret; `None` for a public run.
    pub secret: Option<[u8; 32]>,
    /// Who may come by it; `None` is enough for whoever has been a member, and in runs that nobody has to be invited to.
    pub invitation: Option<InvitationKey>,
}

/// Why a string is no ticket.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TicketError {
    /// It does not begin like one.
    #[error("a ticket begins with `{PREFIX}`; copy the whole line that `starling run` or `starling invite` printed")]
    Prefix,
    /// A character is missing, changed or too many.
    #[error("the ticket is damaged ({0}); copy the whole line that `starling run` or `starling invite` printed")]
    Damaged(&'static str),
    /// It is of a run that an earlier release founded.
    #[error(
        "the ticket is of an earlier release of starling: its run goes on with that one alone; ask for a ticket of a run that this one founded"
    )]
    Earlier,
}

/// A peer as tickets have it.
#[derive(Serialize, Deserialize)]
struct Listed {
    peer: Vec<u8>,
    addresses: Vec<Vec<u8>>,
}

impl Ticket {
    /// A ticket that names these peers: each once, with no more and no longer addresses than one has.
    pub fn new(peers: impl IntoIterator<Item = Contact>, run: RunId, secret: Option<[u8; 32]>) -> Self {
        let mut distinct: Vec<Contact> = Vec::new();
        for mut contact in peers {
            let mut seen: Vec<String> = Vec::new();
            let is_new = |address: &String| {
                let fits = address.len() <= MAX_ADDRESS_BYTES && seen.len() < MAX_ADDRESSES;
                let is_new = fits && !seen.contains(address);
                if is_new {
                    seen.push(address.clone());
                }
                is_new
            };
            contact.addresses.retain(is_new);
            if distinct.len() < MAX_PEERS && distinct.iter().all(|known| known.peer != contact.peer) {
                distinct.push(contact);
            }
        }
        Self { peers: distinct, run, secret, invitation: None }
    }

    /// The same with this invitation, or without one.
    #[must_use]
    pub fn with_invitation(self, invitation: Option<InvitationKey>) -> Self {
        Self { invitation, ..self }
    }

    /// The ids of its peers.
    pub(crate) fn names(&self) -> Vec<String> {
        self.peers.iter().map(|contact| to_libp2p(contact.peer).to_string()).collect()
    }

    fn of_sections(mut bytes: &[u8]) -> Result<Self, TicketError> {
        let (mut run, mut secret, mut peers, mut invitation) = (None, None, Vec::new(), None);
        while let Some(section) = sections::next(bytes) {
            let (tag, content, rest) = section.map_err(|()| TicketError::Damaged("a part of it is cut off"))?;
            bytes = rest;
            let whole = || <[u8; 32]>::try_from(content).map_err(|_| TicketError::Damaged("a part of it is too long"));
            match tag {
                RUN if run.is_none() => run = Some(RunId(whole()?)),
                SECRET if secret.is_none() => secret = Some(whole()?),
                INVITATION if invitation.is_none() => {
                    let read = InvitationKey::decode(content);
                    invitation = Some(read.ok_or(TicketError::Damaged("its invitation is none"))?);
                }
                RUN | SECRET | INVITATION => return Err(TicketError::Damaged("a part of it is there twice")),
                PEER if peers.len() < MAX_PEERS => {
                    let (listed, rest) = postcard::take_from_bytes(content)
                        .map_err(|_| TicketError::Damaged("one of its peers is none"))?;
                    if !rest.is_empty() {
                        return Err(TicketError::Damaged("one of its peers holds more than a peer does"));
                    }
                    peers.push(contact(listed)?);
                }
                _ => {}
            }
        }
        let run = run.ok_or(TicketError::Damaged("it names no run"))?;
        if peers.is_empty() {
            return Err(TicketError::Damaged("it names no peer"));
        }
        Ok(Self::new(peers, run, secret).with_invitation(invitation))
    }
}

/// Whether a text is a ticket, however damaged, rather than a name that begins like one.
pub fn looks_like_one(text: &str) -> bool {
    let encoded = [PREFIX, OLD_PREFIXES[0], OLD_PREFIXES[1]].iter().find_map(|prefix| text.trim().strip_prefix(prefix));
    encoded.is_some_and(|encoded| encoded.len() > SHORTEST && encoded.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Whether a text must not be told: a private run's ticket, or what can't be read as one.
pub fn holds_secret(text: &str) -> bool {
    !text.is_empty() && text.parse::<Ticket>().map_or(true, |ticket| ticket.secret.is_some())
}

/// Reads a peer. Of more addresses than one may have, the first count.
fn contact(listed: Listed) -> Result<Contact, TicketError> {
    let peer = PeerId::from_bytes(&listed.peer).ok().and_then(|peer| from_libp2p(&peer));
    let addresses = listed.addresses.into_iter().take(MAX_ADDRESSES).map(Multiaddr::try_from);
    let addresses = addresses.map(|address| address.map(|address| address.to_string())).collect::<Result<_, _>>();
    Ok(Contact {
        peer: peer.ok_or(TicketError::Damaged("its peer id is none"))?,
        addresses: addresses.map_err(|_| TicketError::Damaged("one of its addresses is none"))?,
    })
}

/// The text of these bytes, whatever they are.
pub(crate) fn text(content: &[u8]) -> String {
    format!("{PREFIX}{}", bs58::encode([content, &check(content)].concat()).into_string())
}

/// The bytes that this is the text of, without their check.
#[cfg(feature = "fuzz")]
pub(crate) fn content(text: &str) -> Option<Vec<u8>> {
    let bytes = bs58::decode(text.strip_prefix(PREFIX)?).into_vec().ok()?;
    bytes.split_last_chunk::<4>().map(|(content, _)| content.to_vec())
}

/// Tells a mistyped ticket from a wrong one.
fn check(bytes: &[u8]) -> [u8; 4] {
    *blake3::hash(bytes).as_bytes().first_chunk().expect("invariant: a hash has 32 bytes")
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        let mut section = |tag, content: &[u8]| sections::push(&mut bytes, tag, content);
        section(RUN, &self.run.0);
        if let Some(secret) = &self.secret {
            section(SECRET, secret);
        }
        for Contact { peer, addresses } in self.peers.iter().take(MAX_PEERS) {
            let parsed = addresses.iter().filter(|address| address.len() <= MAX_ADDRESS_BYTES).take(MAX_ADDRESSES);
            let addresses = parsed.filter_map(|address| Some(address.parse::<Multiaddr>().ok()?.to_vec())).collect();
            let listed = Listed { peer: to_libp2p(*peer).to_bytes(), addresses };
            section(PEER, &postcard::to_allocvec(&listed).expect("invariant: a peer always encodes"));
        }
        if let Some(invitation) = &self.invitation {
            section(INVITATION, &invitation.encode());
        }
        f.write_str(&text(&bytes))
    }
}

impl fmt::Debug for Ticket {
    /// Leaves the secret out: debug output ends in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("peers", &self.peers).field("run", &self.run).finish_non_exhaustive()
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            let is_old = looks_like_one(text);
            return Err(if is_old { TicketError::Earlier } else { TicketError::Prefix });
        };
        if encoded.len() > MAX_CHARS {
            return Err(TicketError::Damaged("too long"));
        }
        let bytes = bs58::decode(encoded).into_vec().map_err(|_| TicketError::Damaged("a letter is none of base58"))?;
        let (bytes, received) = bytes.split_last_chunk().ok_or(TicketError::Damaged("it is too short"))?;
        if check(bytes) != *received {
            return Err(TicketError::Damaged("its check does not match"));
        }
        Self::of_sections(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::founder::FounderKey;
    use crate::credentials::identity::Identity;
    use crate::credentials::invitation::InvitationSpec;

    fn contact(addresses: &[&str]) -> Contact {
        let peer = from_libp2p(&Identity::generate().peer_id()).expect("an Ed25519 key");
        Contact { peer, addresses: addresses.iter().map(|&address| address.to_owned()).collect() }
    }

    fn ticket() -> Ticket {
        Ticket::new([contact(&["/ip4/127.0.0.1/tcp/4001"]), contact(&[])], RunId([3; 32]), Some([9; 32]))
    }

    /// A ticket with these bytes, however they came about.
    fn written(prefix: &str, bytes: &[u8]) -> String {
        format!("{prefix}{}", bs58::encode([bytes, &check(bytes)].concat()).into_string())
    }

    fn section(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag][..], &(content.len() as u16).to_le_bytes(), content].concat()
    }

    fn listed(contact: &Contact) -> Vec<u8> {
        let addresses = contact.addresses.iter().map(|address| address.parse::<Multiaddr>().expect("one").to_vec());
        let listed = Listed { peer: to_libp2p(contact.peer).to_bytes(), addresses: addresses.collect() };
        postcard::to_allocvec(&listed).expect("encoded")
    }

    #[test]
    fn a_ticket_survives_the_trip() {
        let ticket = ticket();
        assert_eq!(ticket.to_string().parse::<Ticket>().expect("a ticket"), ticket);
        let public = Ticket { secret: None, ..ticket.clone() };
        assert_eq!(public.to_string().parse::<Ticket>().expect("a ticket"), public);
        let invitation = InvitationKey::sign(&FounderKey::generate(), ticket.run, InvitationSpec::default());
        let invited = ticket.with_invitation(Some(invitation));
        assert_eq!(invited.to_string().parse::<Ticket>().expect("a ticket"), invited);
    }

    #[test]
    fn one_changed_letter_is_noticed() {
        let text = ticket().to_string();
        for at in PREFIX.len()..text.len() {
            let mut letters = text.clone().into_bytes();
            letters[at] = if letters[at] == b'z' { b'y' } else { b'z' };
            let changed = String::from_utf8(letters).expect("ascii");
            if changed != text {
                assert!(matches!(changed.parse::<Ticket>(), Err(TicketError::Damaged(_))), "{changed}");
            }
        }
    }

    #[test]
    fn what_is_no_ticket_says_what_to_do() {
        let run = section(RUN, &[3; 32]);
        let no_peer = written(PREFIX, &run);
        let no_run = written(PREFIX, &section(PEER, &listed(&contact(&[]))));
        let cut = written(PREFIX, &[&run[..], &[PEER, 9, 0, 1]].concat());
        let long = written(PREFIX, &section(RUN, &[3; 33]));
        let none = written(PREFIX, &[&run[..], &section(PEER, b"nobody")].concat());
        let endless = format!("{PREFIX}{}", "z".repeat(99_999));
        for text in [
            "",
            PREFIX,
            OLD_PREFIXES[0],
            "/ip4/127.0.0.1/tcp/1",
            "starling3\u{0}",
            &endless,
            &no_peer,
            &no_run,
            &cut,
            &long,
            &none,
        ] {
            let error = text.parse::<Ticket>().expect_err("no ticket").to_string();
            assert!(error.contains("copy the whole line"), "{error}");
        }
    }

    #[test]
    fn what_a_later_release_adds_is_passed_over() {
        let peer = contact(&["/ip4/127.0.0.1/tcp/4001"]);
        let bytes =
            [section(77, b"new"), section(RUN, &[3; 32]), section(PEER, &listed(&peer)), section(200, &[0; 999])];
        let read: Ticket = written(PREFIX, &bytes.concat()).parse().expect("a ticket");
        assert_eq!(read, Ticket { peers: vec![peer], run: RunId([3; 32]), secret: None, invitation: None });
    }

    #[test]
    fn a_ticket_of_an_earlier_release_is_told_from_a_damaged_one() {
        for prefix in OLD_PREFIXES {
            let text = written(prefix, &[section(RUN, &[3; 32]), section(PEER, &listed(&contact(&[])))].concat());
            let error = text.parse::<Ticket>().expect_err("another release's");
            assert!(matches!(error, TicketError::Earlier) && looks_like_one(&text) && holds_secret(&text), "{error}");
        }
    }

    #[test]
    fn too_many_addresses_and_the_same_again_are_left_out() {
        let many: Vec<String> = (1..=9).map(|port| format!("/ip4/127.0.0.1/tcp/{port}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let nine = contact(&many);
        let bytes = [section(RUN, &[3; 32]), section(PEER, &listed(&nine))].concat();
        let read: Ticket = written(PREFIX, &bytes).parse().expect("a ticket");
        assert_eq!(read.peers[0].addresses, nine.addresses[..MAX_ADDRESSES]);
        let twice = contact(&["/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/2"]);
        let peers = [twice.clone(), twice, contact(&[]), contact(&[]), contact(&[])];
        let ticket = Ticket::new(peers, RunId([3; 32]), None);
        assert_eq!((ticket.peers.len(), ticket.peers[0].addresses.len()), (MAX_PEERS, 2));
        let longest = format!("/dns4/{}/tcp/65535", "a".repeat(MAX_ADDRESS_BYTES - 16));
        let full = Ticket::new(
            (0..3).map(|_| Contact {
                addresses: (0..8).map(|at| longest.replacen('a', &at.to_string(), 1)).collect(),
                ..contact(&[])
            }),
            RunId([3; 32]),
            Some([9; 32]),
        );
        assert_eq!(full.to_string().parse::<Ticket>().expect("the longest that is printed can be read"), full);
    }

    #[test]
    fn debug_output_hides_the_secret() {
        assert!(!format!("{:?}", ticket()).contains("9, 9"));
    }
}
