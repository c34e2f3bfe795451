//! How a peer begins.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use starling_engine::member::quorum_search::AbsenceReason;
use starling_topology::{Contact, Membership};

use super::Manners;
use crate::steps::state::{Commits, State};
use crate::sweep::canary::Sabotage;
use crate::sweep::fault::FileSet;

/// How a peer begins.
#[derive(Debug)]
pub struct Start {
    /// What steps came to, for all peers.
    pub commits: Rc<RefCell<Commits>>,
    /// Its name and addresses.
    pub contact: Contact,
    /// Its machine, newly made.
    pub machine: Membership,
    /// The state that it holds.
    pub state: Option<Rc<State>>,
    /// How many samples it computes per second, as far as the ledger is concerned.
    pub speed: u32,
    /// The files of the data that are still on their way to it.
    pub lacking: FileSet,
    /// What it does wrong, on purpose.
    pub sabotage: Option<Sabotage>,
    /// How it hands out what it has.
    pub manners: Manners,
    /// Whether it computes the last step only once it is [released](super::Peer::release).
    pub gated: bool,
    /// What its disk says of it, if it was a member and asks to be let in.
    pub apart: Option<AbsenceReason>,
    /// Whether it goes on as a leaf where it has no place.
    pub may_be_leaf: bool,
    /// The run's longest stall.
    pub max_stall: Duration,
}
