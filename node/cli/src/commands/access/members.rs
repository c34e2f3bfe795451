//! `starling members`: who is in the run, how each came, and where it is.

use std::io::{self, IsTerminal};

use serde_json::json;
use starling_node::store::data_dir::{MemberRecord, MemberTable, members as of_directory};

use crate::cli::{KeyFlags, LOOK};
use crate::commands::{CommandError, Context, EXIT_DONE, print};
use crate::output::{self, Gauge, Names, clock, format};

const HEAD: [&str; 5] = ["member", "role", "since", "invited", "samples/s"];

pub(crate) fn members(context: &Context, flags: &KeyFlags<LOOK>) -> Result<u8, CommandError> {
    let dir = context.load(flags.values())?.data_dir()?;
    let members = of_directory(&dir)?;
    print(
        context.global.json,
        || {
            let MemberTable { status, rows, revoked } = &members;
            json!({ "run": status.run, "running": status.is_running(), "quorum": status.quorum, "members": rows, "revoked": revoked })
        },
        || page(&members, io::stdout().is_terminal()),
    )?;
    Ok(EXIT_DONE)
}

/// The table, and lines to copy from. Only on a terminal it is wrapped.
fn page(MemberTable { status, rows, revoked }: &MemberTable, is_terminal: bool) -> String {
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
        ]
        .map(|cell| format::visible(&cell))
    };
    let (cells, texts, is_ascii) = (rows.iter().map(row).collect::<Vec<_>>(), [0_usize, 1, 2, 3], Gauge::is_ascii());
    let mut text = match is_terminal {
        true => output::table(HEAD, cells, &texts, is_ascii),
        false => output::wide_table(HEAD, cells, &texts, is_ascii),
    };
    text.push('\n');
    for MemberRecord { peer, addresses, .. } in rows {
        // The whole ids and addresses, to be copied: a table would break them.
        text.push_str(&format!("  {} is {}\n", names.show(peer), format::visible(peer)));
        if let Some(address) = addresses.first() {
            text.push_str(&format!("    at {}\n", format::visible(address)));
        }
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

    /// Too long for a column of 80.
    const ADDRESS: &str = "/ip6/2001:db8:1234:5678:9abc:def0:1234:5678/udp/49152/quic-v1";

    #[test]
    fn a_row_is_a_line_where_it_is_piped() {
        let row = MemberRecord {
            peer: Identity::generate().peer_id().to_string(),
            name: Some("x".repeat(32)),
            role: Role::Member,
            since: Some("2026-11-22T23:59:59.000Z".to_owned()),
            invitation: Some("once"),
            samples_per_s: Some(1e9),
            addresses: Vec::new(),
        };
        let status = Status { names: [(row.peer.clone(), "x".repeat(32))].into(), ..Status::default() };
        let piped = page(&MemberTable { status, rows: vec![row], revoked: Vec::new() }, false);
        let is_whole = |line: &str| line.contains(&"x".repeat(32)) && line.trim_end().ends_with("1 000 000 000");
        assert!(piped.lines().any(is_whole), "{piped}");
    }

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
            addresses: vec![ADDRESS.to_owned()],
        };
        let table = MemberTable { status: Status::default(), rows: vec![row], revoked: vec![b.clone()] };
        let page = page(&table, true);
        for part in ["once", "member", &format!("at {ADDRESS}\n"), &a, &format!("revoked {b}")] {
            assert!(page.contains(part), "{part} is missing from\n{page}");
        }
    }
}
