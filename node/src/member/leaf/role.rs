//! What a machine takes part as: as its user says, as members find, and as it has gone so far.

use std::sync::{Mutex, PoisonError};

use starling_engine::leaf::reach_search::{PeerRole, ReachStatus, RolePolicy};
use starling_run::{Manifest, ModelSpec};
use starling_topology::Contact;

use super::reach;
use crate::access::Credentials;
use crate::credentials::identity::Identity;
use crate::error::NodeError;
use crate::observe::report::{Observer, Report};
use crate::settings::Settings;

/// So many members of which it knew at the end are asked besides those that its user names.
const MAX_REMEMBERED: usize = 16;

/// How it has gone so far, in this process.
#[derive(Debug, Default)]
pub(crate) struct RoleHistory {
    founds: bool,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    /// What it goes on as.
    decided: Option<PeerRole>,
    changes: u32,
    /// Members: those that its user has named may be gone.
    members: Vec<Contact>,
}

impl RoleHistory {
    /// Of a machine that is a member whatever happens.
    pub(crate) fn of_founder() -> Self {
        Self { founds: true, ..Self::default() }
    }

    /// Whether it may go on as something else.
    pub(crate) fn may_change(&self) -> bool {
        !self.founds
    }

    /// It goes on as this, when it takes part again.
    pub(crate) fn change(&self, role: PeerRole) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        (past.decided, past.changes) = (Some(role), past.changes.saturating_add(1));
    }

    /// These are members, as far as it knows.
    pub(crate) fn learn(&self, mut members: Vec<Contact>) {
        members.truncate(MAX_REMEMBERED);
        self.past.lock().unwrap_or_else(PoisonError::into_inner).members = members;
    }

    /// Members that it knew when it took part last.
    pub(crate) fn members(&self) -> Vec<Contact> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).members.clone()
    }

    /// How often it has changed its role.
    pub(crate) fn changes(&self) -> u32 {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).changes
    }

    fn decided(&self) -> Option<PeerRole> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).decided
    }
}

/// As what this machine takes part in a run with these members, and that takes steps with `min_members`. Who has a seat to come back to was a member, and is one again, unless it had
/// no place there.
///
/// # Errors
/// If its user wants it to be a leaf of a run that has none, or it can't listen.
pub(crate) async fn role(
    settings: &Settings,
    me: (&Identity, &Credentials),
    manifest: &Manifest,
    (members, min_members): (&[Contact], usize),
    (was_here, history): (bool, &RoleHistory),
    observer: &dyn Observer,
) -> Result<PeerRole, NodeError> {
    let can_hand_on = manifest.model != ModelSpec::Raw;
    match (settings.role, history.decided()) {
        (RolePolicy::Member, _) => return Ok(PeerRole::Member),
        (RolePolicy::Leaf, _) if !can_hand_on => return Err(NodeError::NoLeaves),
        (RolePolicy::Leaf, _) => return Ok(PeerRole::Leaf),
        (RolePolicy::Auto, Some(decided)) => return Ok(decided),
        (RolePolicy::Auto, None) if was_here || !can_hand_on => return Ok(PeerRole::Member),
        // They wait for one that counts, and who dials all of them may be one.
        (RolePolicy::Auto, None) if members.len() < min_members => return Ok(PeerRole::Member),
        (RolePolicy::Auto, None) => {}
    }
    match reach::reach(settings, me, manifest, members).await? {
        // It asks them again when it asks to be let in.
        ReachStatus::Reached | ReachStatus::Unknown => Ok(PeerRole::Member),
        ReachStatus::NotReached => {
            let message = "no member can dial this machine, so it takes part as a leaf, through one that it dials; to be a member, have its \
                           router forward a port to it, and start it with that port in --listen and the router's address in --announce: \
                           it asks again now and then whether they can, and becomes one then; --role leaf asks nobody"
                .to_owned();
            observer.report(&Report::Warning { message });
            Ok(PeerRole::Leaf)
        }
    }
}
