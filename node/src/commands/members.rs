//! `starling members`: who is in the run, how each came, and where it is.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::json;
use starling_topology::{Contact, PeerId, RunId};

use super::{CommandError, Context, EXIT_DONE, print};
use crate::access;
use crate::cli::DataDirFlag;
use crate::contacts_file::{Contacts, ContactsFile};
use crate::identity::{from_libp2p, to_libp2p};
use crate::invitation::{Presented, Role};
use crate::output::{self, Gauge, Names, clock, format};
use crate::revocations::Renewal;
use crate::roster::Roster;
use crate::status::Status;

const HEAD: [&str; 6] = ["member", "role", "since", "invited", "samples/s", "address"];

/// One who is in the run.
#[derive(Debug, Serialize)]
struct Row {
    peer: String,
    name: Option<String>,
    role: Role,
    /// When it was first seen in a view, in UTC; `None` if nobody here saw that.
    since: Option<String>,
    /// By what it came: `open`, `once` or `for`; `None` if it needed no invitation, or did not show it here.
    invitation: Option<&'static str>,
    samples_per_s: Option<f64>,
    addresses: Vec<String>,
}

pub(super) fn members(context: &Context, flags: &DataDirFlag) -> Result<u8, CommandError> {
    let dir = context.load(&flags.values())?.data_dir()?;
    let status = Status::read(&dir)?.ok_or_else(|| CommandError::NoStatus(dir.clone()))?;
    let mut run = RunId([0; 32]);
    // A node that failed early does not know its run.
    let is_known = hex::decode_to_slice(&status.run, &mut run.0).is_ok();
    let rows = if is_known { rows(&dir, run, &status)? } else { Vec::new() };
    let renewal = if is_known { Renewal::load(&dir, run)? } else { None };
    let revoked = renewal.map(|renewal| renewal.list.peers).unwrap_or_default();
    let revoked: Vec<String> = revoked.into_iter().map(|peer| to_libp2p(peer).to_string()).collect();
    print(
        context.global.json,
        || json!({ "run": status.run, "running": status.is_running(), "quorum": status.quorum, "members": rows, "revoked": revoked }),
        || page(&status, &rows, &revoked),
    )?;
    Ok(EXIT_DONE)
}

fn rows(dir: &Path, run: RunId, status: &Status) -> Result<Vec<Row>, CommandError> {
    let roster = access::roster(dir, run)?;
    // What can't be read is told by a node.
    let known = ContactsFile::new(dir, run).load().ok().flatten().unwrap_or_default();
    let members = status.rows().into_iter().map(|member| {
        let (since, invitation) = came(&roster, &member.peer);
        let addresses =
            if member.peer == status.peer { status.addresses.clone() } else { places(&known, &member.peer) };
        let (name, samples_per_s) = (member.name, member.samples_per_s);
        Row { peer: member.peer, name, role: Role::Member, since, invitation, samples_per_s, addresses }
    });
    let keepers = known.keepers().iter().map(|keeper| {
        let peer = to_libp2p(keeper.peer).to_string();
        let name = status.names.get(&peer).cloned();
        let addresses = keeper.addresses.clone();
        Row { peer, name, role: Role::Keeper, since: None, invitation: None, samples_per_s: None, addresses }
    });
    Ok(members.chain(keepers).collect())
}

fn came(roster: &Roster, peer: &str) -> (Option<String>, Option<&'static str>) {
    let Some(entry) = peer_of(peer).and_then(|peer| roster.get(&peer)) else { return (None, None) };
    let since = clock::utc(UNIX_EPOCH + Duration::from_secs(entry.since.min(u64::from(u32::MAX))));
    let kind = |presented: &Presented| match (presented.invitation.terms.whom, presented.invitation.terms.once) {
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

fn page(status: &Status, rows: &[Row], revoked: &[String]) -> String {
    let mut names = Names::default();
    status.names.iter().for_each(|(peer, name)| names.learn(peer, name));
    let none = || "-".to_owned();
    let row = |row: &Row| {
        [
            names.show(&row.peer),
            row.role.to_string(),
            row.since.as_deref().map_or_else(none, clock::local_of),
            row.invitation.map_or_else(none, str::to_owned),
            row.samples_per_s.map_or_else(none, |speed| format::thousands(speed.round() as u64)),
            row.addresses.first().cloned().unwrap_or_else(none),
        ]
        .map(|cell| format::visible(&cell))
    };
    let mut text = output::table(HEAD, rows.iter().map(row).collect(), &[0, 1, 2, 3, 5], Gauge::is_ascii());
    text.push('\n');
    for Row { peer, .. } in rows {
        // The whole ids, to be copied.
        text.push_str(&format!("  {} is {}\n", names.show(peer), format::visible(peer)));
    }
    for peer in revoked {
        text.push_str(&format!("  revoked {peer}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::founder::FounderKey;
    use crate::identity::Identity;
    use crate::invitation::{Grant, Terms};

    #[test]
    fn each_has_a_row_that_says_how_it_came() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let (run, key) = (RunId([3; 32]), FounderKey::generate());
        let [a, b] = [(); 2].map(|()| Identity::generate().peer_id());
        let mut roster = Roster::default();
        let once = Grant::sign(&key, run, Terms { once: true, ..Terms::default() });
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
        let page = page(&status, &rows, &[b.to_string()]);
        for part in ["once", "member", "/ip4/192.0.2.1/tcp/1", &a.to_string(), &format!("revoked {b}")] {
            assert!(page.contains(part), "{part} is missing from\n{page}");
        }
    }
}
