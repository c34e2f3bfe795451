//! `starling members`: who is in the run, how each came, and where it is.

use serde_json::json;
use starling_node::store::data_dir::{MemberRecord, MemberTable, members as of_directory};

use crate::cli::{KeyFlags, LOOK};
use crate::commands::{CommandError, Context, EXIT_DONE, print};
use crate::output::{self, Gauge, Names, clock, format};

const HEAD: [&str; 6] = ["member", "role", "since", "invited", "samples/s", "address"];

pub(crate) fn members(context: &Context, flags: &KeyFlags<LOOK>) -> Result<u8, CommandError> {
    let dir = context.load(flags.values())?.data_dir()?;
    let members = of_directory(&dir)?;
    print(
        context.global.json,
        || {
            let MemberTable { status, rows, revoked } = &members;
            json!({ "run": status.run, "running": status.is_running(), "quorum": status.quorum, "members": rows, "revoked": revoked })
        },
        || page(&members),
    )?;
    Ok(EXIT_DONE)
}

fn page(MemberTable { status, rows, revoked }: &MemberTable) -> String {
    let mut names = Names::default();
    status.names.iter().for_each(|(peer, name)| names.learn(peer, name));
    let none = || "-".to_owned();
    let row = |row: &MemberRecord| {
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
    for MemberRecord { peer, .. } in rows {
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
    use starling_node::credentials::identity::Identity;
    use starling_node::credentials::invitation::Role;
    use starling_node::observe::status::Status;

    use super::*;

    #[test]
    fn each_has_a_row_and_its_whole_id() {
        let [a, b] = [(); 2].map(|()| Identity::generate().peer_id().to_string());
        let row = MemberRecord {
            peer: a.clone(),
            name: None,
            role: Role::Member,
            since: Some("2026-11-22T23:59:59.000Z".to_owned()),
            invitation: Some("once"),
            samples_per_s: None,
            addresses: vec!["/ip4/192.0.2.1/tcp/1".to_owned()],
        };
        let page = page(&MemberTable { status: Status::default(), rows: vec![row], revoked: vec![b.clone()] });
        for part in ["once", "member", "/ip4/192.0.2.1/tcp/1", &a, &format!("revoked {b}")] {
            assert!(page.contains(part), "{part} is missing from\n{page}");
        }
    }
}
