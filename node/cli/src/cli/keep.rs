//! Flags of whoever keeps checkpoints without taking part.

use clap::Args;

use super::{DataDirFlag, TicketFlags};

/// Flags of whoever asks others for checkpoints.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreFlags {
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: DataDirFlag,
    /// How many checkpoints to keep, besides the newest stable one [default: 3]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub checkpoint_keep: Option<String>,
}

/// `starling keep`.
#[derive(Debug, Clone, Args)]
pub struct KeepFlags {
    /// Which run to keep: the ticket that a member, or another keeper, printed.
    #[command(flatten)]
    pub ticket: TicketFlags,
    /// Where checkpoints go.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Multiaddr to listen on, repeatable [default: /ip4/0.0.0.0/tcp/0, /ip6/::/tcp/0]
    #[arg(long, value_name = "MULTIADDR")]
    pub listen: Vec<String>,
    /// Multiaddr to announce besides those, repeatable, for a forwarded port [default: none]
    #[arg(long, value_name = "MULTIADDR")]
    pub announce: Vec<String>,
    /// Look for peers on the local network by multicast [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub mdns: Option<String>,
    /// What people call this machine, told to the other members: 1 to 32 printable characters [default: the host's name; none
    /// in a public run]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The most members the run may have [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_peers: Option<String>,
    /// MiB of checkpoints to hand out per second; 0 sets no limit [default: 64]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    pub state_rate: Option<String>,
}

/// `starling checkpoint fetch`.
#[derive(Debug, Clone, Args)]
pub struct FetchFlags {
    /// Whom to ask: the ticket that a member or a keeper printed.
    #[command(flatten)]
    pub ticket: TicketFlags,
    /// Where the checkpoint goes.
    #[command(flatten)]
    pub store: StoreFlags,
}
