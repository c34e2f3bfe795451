//! `starling invite`: a ticket of the run on this machine. `starling id`: who this machine is.

use std::path::{Path, PathBuf};

use serde_json::json;
use starling_topology::RunId;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::appointment::Office;
use crate::cli::{IdFlags, InviteFlags};
use crate::founder::FounderKey;
use crate::identity::{Identity, to_libp2p};
use crate::invitation::{Grant, Role, Terms, now_s};
use crate::revocations::Renewal;
use crate::status::Status;
use crate::ticket::Ticket;
use crate::{manifest_file, private_dir};

pub(super) fn invite(context: &Context, flags: &InviteFlags) -> Result<u8, CommandError> {
    let dir = context.load(&flags.data_dir.values())?.data_dir()?;
    let status = Status::read(&dir)?.ok_or_else(|| CommandError::NoStatus(dir.clone()))?;
    let none = |reason: String| CommandError::NoInvitation { dir: dir.clone(), reason };
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
    let renewal = Renewal::load(&dir, ticket.run)?;
    let office = manifest_file::load(&dir, ticket.run).ok().and_then(|manifest| manifest.founder);
    let office = office.map(|founder| Office::load(&dir, ticket.run, founder));
    let ticket = match &renewal {
        Some(renewal) => renewed(ticket, renewal, office.as_ref()),
        None => ticket,
    };
    if ticket.peers.is_empty() {
        return Err(none("its peers are revoked".to_owned()));
    }
    // What the node tells admits everybody as well: no other one is made for that.
    let told = ticket.invitation.as_ref().map(|grant| grant.invitation.terms);
    let told = told.filter(|terms| !wants(flags) && terms.expires.is_none());
    let (ticket, terms) = match key(&dir, flags.key.as_deref(), ticket.run)? {
        Some(_) if told.is_some() => (ticket, told),
        Some(key) => {
            let terms = terms(flags, office.map_or(0, |office| office.epoch(renewal.as_ref())));
            let grant = Grant::sign(&key, ticket.run, terms);
            (ticket.with_invitation(Some(grant)), Some(terms))
        }
        None if wants(flags) => return Err(CommandError::NoFounderKey(path(&dir, flags.key.as_deref()))),
        None if ticket.invitation.is_none() && is_founded(&dir, ticket.run) && ticket.secret.is_some() => {
            let reason = "this machine has no invitation that others may come by; only the founder's key can sign one: ask \
                          whoever founded the run, or pass --key";
            return Err(none(reason.to_owned()));
        }
        None => (ticket, None),
    };
    let text = ticket.to_string();
    print(
        context.global.json,
        || {
            let mut value = json!({ "ticket": text, "run": status.run, "addresses": status.addresses });
            if let Some(Terms { role, expires, once, whom, .. }) = terms {
                value["role"] = json!(role);
                value["expires"] = json!(expires);
                value["once"] = json!(once);
                value["for"] = json!(whom.map(|whom| to_libp2p(whom).to_string()));
            }
            value
        },
        || format!("{text}\n"),
    )?;
    Ok(EXIT_DONE)
}

pub(super) fn id(context: &Context, flags: &IdFlags) -> Result<u8, CommandError> {
    let dir = context.load(&flags.data_dir.values())?.data_dir()?;
    if let Some(path) = &flags.key {
        let key = to_libp2p(FounderKey::load_or_make(path)?.public()).to_string();
        print(context.global.json, || json!({ "key": key, "file": path }), || format!("{key}\n"))?;
        return Ok(EXIT_DONE);
    }
    private_dir::create(&dir)?;
    let peer = Identity::load_or_create(&dir)?.peer_id().to_string();
    print(context.global.json, || json!({ "peer": peer, "data_dir": dir }), || format!("{peer}\n"))?;
    Ok(EXIT_DONE)
}

/// A ticket as it is once everybody has heard of a list: with the secret since, and without those whom it names.
fn renewed(mut ticket: Ticket, renewal: &Renewal, office: Option<&Office>) -> Ticket {
    ticket.peers.retain(|contact| !renewal.list.names(&contact.peer));
    ticket.secret = ticket.secret.map(|known| renewal.secrets.first().copied().unwrap_or(known));
    ticket.invitation = ticket
        .invitation
        .filter(|grant| office.is_some_and(|office| !office.has_ended(&grant.invitation, Some(renewal))));
    ticket
}

pub(super) fn path(dir: &Path, named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| FounderKey::file(dir), Path::to_owned)
}

/// The key of the run's founder, if it is there.
pub(super) fn key(dir: &Path, named: Option<&Path>, run: RunId) -> Result<Option<FounderKey>, CommandError> {
    let path = path(dir, named);
    let founder = manifest_file::load(dir, run)?.founder.map(|founder| Office::load(dir, run, founder).holder());
    match FounderKey::load(&path)? {
        Some(key) if Some(key.public()) == founder => Ok(Some(key)),
        // That of another run, which was founded here.
        Some(_) if named.is_none() => Ok(None),
        Some(_) => Err(CommandError::OtherFounder(path)),
        None if named.is_some() => Err(CommandError::NoFounderKey(path)),
        None => Ok(None),
    }
}

fn is_founded(dir: &Path, run: RunId) -> bool {
    manifest_file::load(dir, run).is_ok_and(|manifest| manifest.founder.is_some())
}

fn wants(flags: &InviteFlags) -> bool {
    flags.role.is_some() || flags.expires.is_some() || flags.once || flags.whom.is_some()
}

fn terms(flags: &InviteFlags, epoch: u64) -> Terms {
    Terms {
        role: flags.role.unwrap_or(Role::Member),
        expires: flags.expires.map(|expires| now_s().saturating_add(expires.as_secs())),
        once: flags.once,
        whom: flags.whom,
        epoch,
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::{Contact, PeerId};

    use crate::appointment::Line;

    use super::*;

    #[test]
    fn a_ticket_that_is_made_after_a_revocation_names_nobody_revoked() {
        let (key, run) = (FounderKey::generate(), RunId([3; 32]));
        let [a, b] = [1, 2].map(|name| Contact { peer: PeerId([name; 32]), addresses: Vec::new() });
        let before = Ticket::new([a.clone(), b.clone()], run, Some([9; 32]));
        let before = before.with_invitation(Some(Grant::sign(&key, run, Terms::default())));
        let renewal = Renewal::after(None, &key, run, b.peer, before.secret);
        let office = Office { run, founder: key.public(), line: Line::default() };
        let after = renewed(before.clone(), &renewal, Some(&office));
        assert_eq!((after.peers, after.secret, after.invitation), (vec![a], renewal.secrets.first().copied(), None));
    }
}
