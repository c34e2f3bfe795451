//! What `starling join` is pointed at, and the secret that goes with it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use starling::{Target, Ticket};
use starling_node::credentials::invitation::InvitationKey;
use starling_node::credentials::secret;

use super::error::ConfigError;

/// The longest target that is quoted back in an error, in characters.
const QUOTED_CHARS: usize = 40;
/// More than a secret with an invitation takes in any form, line end included.
const MAX_SECRET_BYTES: u64 = 512;

/// A ticket, or an address that ends in `/p2p/<peer id>`.
///
/// # Errors
/// [`ConfigError::Target`], saying what is wrong with the kind of target that it looks like.
pub fn parse_target(text: &str) -> Result<Target, ConfigError> {
    let text = text.trim();
    let fail = |reason: String| {
        let mut target: String = text.chars().take(QUOTED_CHARS).collect();
        if target.len() < text.len() {
            target.push('…');
        }
        ConfigError::Target { target, reason }
    };
    if !text.starts_with('/') {
        return text
            .parse::<Ticket>()
            .map(Target::Ticket)
            .map_err(|error| fail(format!("{error}; an address looks like /ip4/192.0.2.1/tcp/4001/p2p/<peer id>")));
    }
    let address: Multiaddr = text.parse().map_err(|error| fail(format!("as an address, {error}")))?;
    match address.iter().last() {
        Some(Protocol::P2p(_)) => Ok(Target::Address(address)),
        Some(_) | None => {
            Err(fail("an address to join by ends in /p2p/<peer id>; copy it from what `starling run` printed".into()))
        }
    }
}

/// A ticket, which names the run; an address does not.
///
/// # Errors
/// [`ConfigError::Target`] if it is none.
pub fn parse_ticket(text: &str) -> Result<Ticket, ConfigError> {
    match parse_target(text)? {
        Target::Ticket(ticket) => Ok(ticket),
        Target::Address(address) => {
            let reason = "an address does not say of which run; use a ticket (`starling invite` prints one)".to_owned();
            Err(ConfigError::Target { target: address.to_string(), reason })
        }
    }
}

/// The secret in the file at `path`: 64 hex digits, or what a member's data directory keeps, with an invitation if one is there.
///
/// # Errors
/// [`ConfigError::Read`] if there is no such file, [`ConfigError::Secret`] if it holds something else.
pub fn parse_secret(path: &Path) -> Result<([u8; 32], Option<InvitationKey>), ConfigError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_SECRET_BYTES).read_to_end(&mut bytes))
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    if let Some(kept) = secret::parse(&bytes) {
        return Ok(kept);
    }
    let mut secret = [0; 32];
    hex::decode_to_slice(bytes.trim_ascii(), &mut secret)
        .map_err(|error| ConfigError::Secret { path: path.to_owned(), reason: error.to_string() })?;
    Ok((secret, None))
}
