//! Flags of whoever keeps checkpoints without taking part.

use clap::Args;

use super::{FETCH, KEEP, KeyFlags, TicketFlags};

/// `starling keep`.
#[derive(Debug, Clone, Args)]
pub struct KeepFlags {
    /// Which run to keep: the ticket that a member, or another keeper, printed.
    #[command(flatten)]
    pub ticket: TicketFlags,
    /// Where checkpoints go, and how others reach this machine.
    #[command(flatten)]
    pub keys: KeyFlags<KEEP>,
}

/// `starling checkpoint fetch`.
#[derive(Debug, Clone, Args)]
pub struct FetchFlags {
    /// Whom to ask: the ticket that a member or a keeper printed.
    #[command(flatten)]
    pub ticket: TicketFlags,
    /// Where the checkpoint goes.
    #[command(flatten)]
    pub keys: KeyFlags<FETCH>,
}
