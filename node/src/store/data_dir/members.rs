//! Who is in the run, how each came and where it is.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use starling_topology::{Contact, PeerId, RunId};

use super::DataDirError;
use crate::access;
use crate::access::roster::Roster;
use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::credentials::invitation::{PresentedInvitation, Role};
use crate::credentials::revocations::RevocationUpdate;
use crate::error::NodeError;
use crate::observe::clock;
use crate::observe::status::Status;
use crate::store::contacts_file::{Contacts, ContactsFile};

/// Who is in the run of a data directory.
#[derive(Debug)]
pub struct MemberTable {
    /// How the node is doing.
    pub status: Status,
    /// Members, then keepers.
    pub rows: Vec<MemberRecord>,
    /// Whom the founder has revoked, by their peer ids.
    pub revoked: Vec<String>,
}

/// One who is in the run.
#[derive(Debug, Serialize)]
pub struct MemberRecord {
    /// Its peer id.
    pub peer: String,
    /// What people call it.
    pub name: Option<String>,
    /// What it is there.
    pub role: Role,
    /// When it was first seen in a view, in UTC; `None` if nobody here saw that.
    pub since: Option<String>,
    /// By what it came: `open`, `once` or `for`; `None` if it needed no invitation, or did not show it here.
    pub invitation: Option<&'static str>,
    /// How fast it computes.
    pub samples_per_s: Option<f64>,
    /// Where it can be reached.
    pub addresses: Vec<String>,
}

/// Who is in the run whose node is or was at work in `data_dir`.
///
/// # Errors
/// If none was, or a file can't be read.
pub fn members(data_dir: &Path) -> Result<MemberTable, DataDirError> {
    let status = Status::read(data_dir)?.ok_or_else(|| DataDirError::NoStatus(data_dir.to_owned()))?;
    let mut run = RunId([0; 32]);
    // A node that failed early does not know its run.
    if hex::decode_to_slice(&status.run, &mut run.0).is_err() {
        return Ok(MemberTable { status, rows: Vec::new(), revoked: Vec::new() });
    }
    let rows = rows(data_dir, run, &status)?;
    let revoked = RevocationUpdate::load(data_dir, run)?.map(|renewal| renewal.list.peers).unwrap_or_default();
    let revoked = revoked.into_iter().map(|peer| to_libp2p(peer).to_string()).collect();
    Ok(MemberTable { status, rows, revoked })
}

fn rows(dir: &Path, run: RunId, status: &Status) -> Result<Vec<MemberRecord>, NodeError> {
    let roster = access::roster(dir, run)?;
    // What can't be read is told by a node.
    let known = ContactsFile::new(dir, run).load().ok().flatten().unwrap_or_default();
    let members = status.rows().into_iter().map(|member| {
        let (since, invitation) = came(&roster, &member.peer);
        let addresses =
            if member.peer == status.peer { status.addresses.clone() } else { places(&known, &member.peer) };
        let (name, samples_per_s) = (member.name, member.samples_per_s);
        MemberRecord { peer: member.peer, name, role: Role::Member, since, invitation, samples_per_s, addresses }
    });
    let keepers = known.keepers().iter().map(|keeper| {
        let peer = to_libp2p(keeper.peer).to_string();
        let name = status.names.get(&peer).cloned();
        let addresses = keeper.addresses.clone();
        MemberRecord { peer, name, role: Role::Keeper, since: None, invitation: None, samples_per_s: None, addresses }
    });
    Ok(members.chain(keepers).collect())
}

fn came(roster: &Roster, peer: &str) -> (Option<String>, Option<&'static str>) {
    let Some(entry) = peer_of(peer).and_then(|peer| roster.get(&peer)) else { return (None, None) };
    let since = clock::utc(UNIX_EPOCH + Duration::from_secs(entry.since.min(u64::from(u32::MAX))));
    let kind =
        |presented: &PresentedInvitation| match (presented.invitation.terms.whom, presented.invitation.terms.once) {
            (Some(_), _) => "for",
            (None, true) => "once",
            (None, false) => "open",
        };
    (Some(since), entry.presented.as_ref().map(kind))
}

fn places(known: &Contacts, peer: &str) -> Vec<String> {
    let is_it = |contact: &&Contact| Some(contact.peer) == peer_of(peer);
    known.members().iter().find(is_it).map(|contact| contact.addresses.clone()).unwrap_or_default()
}

fn peer_of(text: &str) -> Option<PeerId> {
    text.parse().ok().and_then(|peer| from_libp2p(&peer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::founder::FounderKey;
    use crate::credentials::identity::Identity;
    use crate::credentials::invitation::{InvitationKey, InvitationSpec};

    #[test]
    fn each_has_a_row_that_says_how_it_came() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let (run, key) = (RunId([3; 32]), FounderKey::generate());
        let [a, b] = [(); 2].map(|()| Identity::generate().peer_id());
        let mut roster = Roster::default();
        let once = InvitationKey::sign(&key, run, InvitationSpec { once: true, ..InvitationSpec::default() });
        let name = from_libp2p(&a).expect("a key");
        roster.enter(name, Some(Some(once.present(name))), 1_795_391_999, |_| false);
        access::store_roster(dir.path(), run, &roster).expect("stored");
        let status = Status {
            peer: a.to_string(),
            run: run.to_string(),
            members: vec![a.to_string(), b.to_string()],
            addresses: vec!["/ip4/192.0.2.1/tcp/1".to_owned()],
            ..Status::default()
        };
        let rows = rows(dir.path(), run, &status).expect("rows");
        assert_eq!((rows[0].invitation, rows[1].invitation), (Some("once"), None));
        assert_eq!(rows[0].since.as_deref(), Some("2026-11-22T23:59:59.000Z"));
        assert_eq!((&rows[0].addresses, rows[0].role), (&status.addresses, Role::Member));
    }
}
