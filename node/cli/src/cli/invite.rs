//! Flags of whoever invites.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use starling::parts::PeerId;
use starling_node::credentials::identity::from_libp2p;
use starling_node::credentials::invitation::Role;

use super::{KeyFlags, LOOK};

pub(super) const APPOINT_EXAMPLES: &str = "\
Examples:
  starling id --key founder2.key             makes a key, where whoever is to have the founder's place keeps it, and prints KEY
  starling appoint 12D3KooW…                 on the machine of each member that consents, in its data directory

Each member's user says it on its own machine; one alone changes nothing. Once a quorum of the members of the view has said the
same, all go by the new key: it invites and revokes (`--key founder2.key`), and the one before does not any more. What that has
revoked stays so; invitations that it has signed end with the new key's first revocation. Who has consented can't take that
back, but may consent to another key as well, up to three. Ask whoever is to have the place for KEY yourself: whose key it is,
nobody else checks.";

/// `starling invite`.
#[derive(Debug, Clone, Default, Args)]
pub struct InviteFlags {
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: KeyFlags<LOOK>,
    /// What its bearer may be: member, or keeper, which only stores checkpoints [default: member]
    #[arg(long, value_name = "ROLE")]
    pub role: Option<Role>,
    /// Within which time it must be used first, such as 90m, 12h or 2d; who has been a member may always come back [default: no
    /// limit]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub expires: Option<Duration>,
    /// It admits the first machine that becomes a member by it, and no other; not for keepers, which --for binds to a machine
    /// [default: whoever holds it]
    #[arg(long)]
    pub once: bool,
    /// It admits this peer alone, whoever is revoked meanwhile: `starling id` prints a machine's id [default: whoever holds it]
    #[arg(long = "for", value_name = "PEER", value_parser = parse_peer)]
    pub whom: Option<PeerId>,
    /// How many of those who come by it may have a vote at a time, 0 to 1024: the others train like them, and decide nothing
    /// [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024))]
    pub voters: Option<u16>,
    /// The founder's key [default: founder.key in the data directory]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// `starling revoke`.
#[derive(Debug, Clone, Args)]
pub struct RevokeFlags {
    /// Who has to go, by its peer id, as `starling members` and `starling status` tell it
    #[arg(value_name = "PEER", value_parser = parse_peer)]
    pub peer: PeerId,
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: KeyFlags<LOOK>,
    /// The founder's key [default: founder.key in the data directory]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// `starling appoint`.
#[derive(Debug, Clone, Args)]
pub struct AppointFlags {
    /// The key that is to have the founder's place, as `starling id --key FILE` prints it where that file is
    #[arg(value_name = "KEY", value_parser = parse_peer)]
    pub key: PeerId,
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: KeyFlags<LOOK>,
}

/// `starling id`.
#[derive(Debug, Clone, Default, Args)]
pub struct IdFlags {
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: KeyFlags<LOOK>,
    /// Print the public half of the founder's key in this file instead, which `starling appoint` takes; makes one if there is none
    /// [default: the machine's peer id]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// A peer id as people write it.
pub(super) fn parse_peer(text: &str) -> Result<PeerId, String> {
    let peer = text.parse::<libp2p::PeerId>().ok().and_then(|peer| from_libp2p(&peer));
    peer.ok_or_else(|| "must be a peer id, as `starling id` prints it".to_owned())
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a number with s, m, h or d, such as 12h or 2d".to_owned();
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = count.checked_mul(seconds).filter(|seconds| *seconds <= u64::from(u32::MAX)).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_unit() {
        assert_eq!(parse_duration("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(parse_duration("90m"), Ok(Duration::from_secs(5_400)));
        for text in ["", "d", "2", "2w", "-1h", "1.5h", "99999999999999999999d", "9999999d", "2\u{e9}"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
