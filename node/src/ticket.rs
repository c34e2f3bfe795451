//! The string that lets a machine join a run.

use std::fmt;
use std::str::FromStr;

use libp2p::{Multiaddr, PeerId};
use serde::{Deserialize, Serialize};
use starling_topology::RunId;
use thiserror::Error;

/// What every ticket begins with, so that people and shells can tell it from an address.
const PREFIX: &str = "starling1";
/// The longest ticket that is looked at, in characters.
const MAX_CHARS: usize = 4096;
/// The most addresses that a ticket lists.
pub const MAX_ADDRESSES: usize = 8;

/// A member, where it is, the run, and for a private run its secret. Whoever holds it may join.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The member to join through.
    pub peer: PeerId,
    /// Where it is, in the order to try.
    pub addresses: Vec<Multiaddr>,
    /// The run.
    pub run: RunId,
    /// The run's secret; `None` for a public run.
    pub secret: Option<[u8; 32]>,
}

/// Why a string is no ticket.
#[derive(Debug, Error)]
pub enum TicketError {
    /// It does not begin like one.
    #[error("a ticket begins with `{PREFIX}`; copy the whole line that `starling run` or `starling invite` printed")]
    Prefix,
    /// A character is missing, changed or too many.
    #[error("the ticket is damaged ({0}); copy the whole line that `starling run` or `starling invite` printed")]
    Damaged(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Body {
    peer: Vec<u8>,
    addresses: Vec<Vec<u8>>,
    run: RunId,
    secret: Option<[u8; 32]>,
}

/// Tells a mistyped ticket from a wrong one.
fn check(bytes: &[u8]) -> [u8; 4] {
    *blake3::hash(bytes).as_bytes().first_chunk().expect("invariant: a hash has 32 bytes")
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = Body {
            peer: self.peer.to_bytes(),
            addresses: self.addresses.iter().take(MAX_ADDRESSES).map(|address| address.to_vec()).collect(),
            run: self.run,
            secret: self.secret,
        };
        let mut bytes = postcard::to_allocvec(&body).expect("invariant: a ticket always encodes");
        bytes.extend(check(&bytes));
        write!(f, "{PREFIX}{}", bs58::encode(bytes).into_string())
    }
}

impl fmt::Debug for Ticket {
    /// Leaves the secret out: debug output ends in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("peer", &self.peer).field("run", &self.run).finish_non_exhaustive()
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(TicketError::Prefix)?;
        if encoded.len() > MAX_CHARS {
            return Err(TicketError::Damaged("too long"));
        }
        let bytes = bs58::decode(encoded).into_vec().map_err(|_| TicketError::Damaged("a letter is none of base58"))?;
        let (bytes, received) = bytes.split_last_chunk().ok_or(TicketError::Damaged("it is too short"))?;
        if check(bytes) != *received {
            return Err(TicketError::Damaged("its check does not match"));
        }
        let (body, rest) = postcard::take_from_bytes::<Body>(bytes)
            .map_err(|_| TicketError::Damaged("its content is not a ticket's"))?;
        if !rest.is_empty() || body.addresses.len() > MAX_ADDRESSES {
            return Err(TicketError::Damaged("it holds more than a ticket does"));
        }
        let addresses = body.addresses.into_iter().map(Multiaddr::try_from).collect::<Result<_, _>>();
        Ok(Self {
            peer: PeerId::from_bytes(&body.peer).map_err(|_| TicketError::Damaged("its peer id is none"))?,
            addresses: addresses.map_err(|_| TicketError::Damaged("one of its addresses is none"))?,
            run: body.run,
            secret: body.secret,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    fn ticket() -> Ticket {
        Ticket {
            peer: Identity::generate().peer_id(),
            addresses: vec!["/ip4/127.0.0.1/tcp/4001".parse().expect("an address")],
            run: RunId([3; 32]),
            secret: Some([9; 32]),
        }
    }

    #[test]
    fn a_ticket_survives_the_trip() {
        let ticket = ticket();
        assert_eq!(ticket.to_string().parse::<Ticket>().expect("a ticket"), ticket);
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
        for text in
            ["", "starling1", "/ip4/127.0.0.1/tcp/1", "starling1\u{0}", &format!("starling1{}", "z".repeat(9999))]
        {
            let error = text.parse::<Ticket>().expect_err("no ticket").to_string();
            assert!(error.contains("copy the whole line"), "{error}");
        }
    }

    #[test]
    fn debug_output_hides_the_secret() {
        assert!(!format!("{:?}", ticket()).contains("9, 9"));
    }
}
