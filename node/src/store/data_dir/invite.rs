//! A ticket of the run whose node is at work in a data directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use starling_topology::{PeerId, RunId};

use super::DataDirError;
use crate::credentials::appointment::Office;
use crate::credentials::founder::FounderKey;
use crate::credentials::invitation::{InvitationKey, InvitationSpec, Role, now_s};
use crate::credentials::revocations::RevocationUpdate;
use crate::credentials::ticket::Ticket;
use crate::observe::status::Status;
use crate::store::manifest_file;

/// Whom an invitation is for, as far as its user says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InviteOptions {
    /// What it lets its bearer be.
    pub role: Option<Role>,
    /// Within which time it must be used first.
    pub expires: Option<Duration>,
    /// Whether it admits one bearer only.
    pub once: bool,
    /// The one peer that it admits.
    pub whom: Option<PeerId>,
    /// How many of those who come by it may have a vote at a time.
    pub voters: Option<u16>,
}

impl InviteOptions {
    fn is_special(&self) -> bool {
        *self != Self::default()
    }

    fn terms(self, epoch: u64) -> InvitationSpec {
        let Self { role, expires, once, whom, voters } = self;
        let expires = expires.map(|expires| now_s().saturating_add(expires.as_secs()));
        let open = InvitationSpec::open(epoch);
        InvitationSpec { role: role.unwrap_or(open.role), expires, once, whom, voters: voters.or(open.voters), epoch }
    }
}

/// A ticket to hand on.
#[derive(Debug)]
pub struct InvitationTicket {
    /// It.
    pub ticket: Ticket,
    /// On which terms it admits; `None` if it holds no invitation of the founder's.
    pub terms: Option<InvitationSpec>,
    /// How the node is doing.
    pub status: Status,
}

/// The ticket that the node in `data_dir` tells, or one with an invitation by the founder's key, in the file `key` or in the data
/// directory.
///
/// # Errors
/// If no node runs there that can be reached, or the key is needed and not there.
pub fn invite(data_dir: &Path, key: Option<&Path>, wanted: InviteOptions) -> Result<InvitationTicket, DataDirError> {
    if wanted.role == Some(Role::Keeper) {
        if wanted.once {
            return Err(DataDirError::KeeperOnce);
        }
        if wanted.voters.is_some() {
            return Err(DataDirError::KeeperVotes);
        }
    }
    let status = Status::read(data_dir)?.ok_or_else(|| DataDirError::NoStatus(data_dir.to_owned()))?;
    let none = |reason: String| DataDirError::NoInvitation { dir: data_dir.to_owned(), reason };
    if status.is_running() == Some(false) {
        return Err(none(if status.phase.is_last() {
            format!("the node has {}; start it again, then invite", status.phase)
        } else {
            "the node was killed; start it again, then invite".to_owned()
        }));
    }
    let Ok(ticket) = status.ticket.parse::<Ticket>() else {
        return Err(none("the node can't be reached yet; try again in a moment".to_owned()));
    };
    // What the founder has just said, a node may still have to hear.
    let renewal = RevocationUpdate::load(data_dir, ticket.run)?;
    let founder = manifest_file::load(data_dir, ticket.run).ok().and_then(|manifest| manifest.founder);
    let office = founder.map(|founder| Office::load(data_dir, ticket.run, founder));
    let ticket = match &renewal {
        Some(renewal) => renewed(ticket, renewal, office.as_ref()),
        None => ticket,
    };
    if ticket.peers.is_empty() {
        return Err(none("its peers are revoked".to_owned()));
    }
    // What the node tells admits everybody as well: no other one is made for that.
    let told = ticket.invitation.as_ref().map(|grant| grant.invitation.terms);
    let told = told.filter(|terms| !wanted.is_special() && terms.expires.is_none());
    let (ticket, terms) = match founders_key(data_dir, key, ticket.run)? {
        Some(_) if told.is_some() => (ticket, told),
        Some(key) => {
            let terms = wanted.terms(office.map_or(0, |office| office.epoch(renewal.as_ref())));
            let grant = InvitationKey::sign(&key, ticket.run, terms);
            (ticket.with_invitation(Some(grant)), Some(terms))
        }
        None if wanted.is_special() => return Err(DataDirError::NoFounderKey(key_file(data_dir, key))),
        None if ticket.invitation.is_none() && founder.is_some() && ticket.secret.is_some() => {
            let reason = "this machine has no invitation that others may come by; only the founder's key can sign one: ask \
                          whoever founded the run, or pass --key";
            return Err(none(reason.to_owned()));
        }
        None => (ticket, None),
    };
    Ok(InvitationTicket { ticket, terms, status })
}

/// A ticket as it is once everybody has heard of a list: with the secret since, and without those whom it names.
fn renewed(mut ticket: Ticket, renewal: &RevocationUpdate, office: Option<&Office>) -> Ticket {
    ticket.peers.retain(|contact| !renewal.list.names(&contact.peer));
    ticket.secret = ticket.secret.map(|known| renewal.secrets.first().copied().unwrap_or(known));
    ticket.invitation = ticket
        .invitation
        .filter(|grant| office.is_some_and(|office| !office.has_ended(&grant.invitation, Some(renewal))));
    ticket
}

/// Where the founder's key is: in the file that was named, or in the data directory.
pub(super) fn key_file(data_dir: &Path, named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| FounderKey::file(data_dir), Path::to_owned)
}

/// The key of the run's founder, if it is there.
fn founders_key(data_dir: &Path, named: Option<&Path>, run: RunId) -> Result<Option<FounderKey>, DataDirError> {
    let path = key_file(data_dir, named);
    let founder =
        manifest_file::load(data_dir, run)?.founder.map(|founder| Office::load(data_dir, run, founder).holder());
    match FounderKey::load(&path)? {
        Some(key) if Some(key.public()) == founder => Ok(Some(key)),
        // That of another run, which was founded here.
        Some(_) if named.is_none() => Ok(None),
        Some(_) => Err(DataDirError::OtherFounder(path)),
        None if named.is_some() => Err(DataDirError::NoFounderKey(path)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::Contact;

    use super::*;
    use crate::credentials::appointment::Line;

    #[test]
    fn a_ticket_that_is_made_after_a_revocation_names_nobody_revoked() {
        let (key, run) = (FounderKey::generate(), RunId([3; 32]));
        let [a, b] = [1, 2].map(|name| Contact { peer: PeerId([name; 32]), addresses: Vec::new() });
        let before = Ticket::new([a.clone(), b.clone()], run, Some([9; 32]));
        let before = before.with_invitation(Some(InvitationKey::sign(&key, run, InvitationSpec::default())));
        let renewal = RevocationUpdate::after(None, &key, run, b.peer, before.secret);
        let office = Office { run, founder: key.public(), line: Line::default() };
        let after = renewed(before.clone(), &renewal, Some(&office));
        assert_eq!((after.peers, after.secret, after.invitation), (vec![a], renewal.secrets.first().copied(), None));
    }
}
