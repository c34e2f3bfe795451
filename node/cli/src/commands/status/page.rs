//! A node's status as people read it, within 80 columns.

use starling::MeasuredLink;
use starling::parts::Quorum;
use starling_node::observe::status::{Member, Phase, PhaseProgress, Status, UnitKind};

use crate::output::{self, Gauge, Names, clock, format, limit_of};

const HEAD: [&str; 7] = ["member", "samples/s", "share", "waiting", "link", "Mbit/s", "lag ms"];

/// Everything worth knowing, as lines.
pub(super) fn page(status: &Status) -> String {
    let mut names = Names::default();
    status.names.iter().for_each(|(peer, name)| names.learn(peer, name));
    let life = match status.is_running() {
        Some(true) => format!("running, process {}", status.process.pid),
        Some(false) if status.phase.is_last() => "ended".to_owned(),
        Some(false) => format!("killed, process {} is gone", status.process.pid),
        None => format!("process {}, this system does not tell whether it runs", status.process.pid),
    };
    let since =
        if status.began.is_empty() { String::new() } else { format!(", began {}", clock::local_of(&status.began)) };
    let mut text = format!("{}: {life}{since}\n", status.phase);
    for (name, value) in lines(status, &names) {
        text.push_str(&format!("  {name:<9} {value}\n"));
    }
    let rows = status.rows();
    // Who is alone knows all of itself from the lines above.
    if rows.len() > 1 && !status.phase.is_last() {
        text.push_str(&table(&rows, &names));
        text.push('\n');
    }
    // Last, because there may be many: a low screen shows the members.
    for address in &status.addresses {
        text.push_str(&format!("  {:<9} {}\n", "address", format::visible(address)));
    }
    text
}

fn lines<'a>(status: &'a Status, names: &Names) -> Vec<(&'a str, String)> {
    let unknown = || "not yet known".to_owned();
    let is_leaf = status.leaves.iter().any(|leaf| leaf.peer == status.peer);
    let mut lines = Vec::new();
    let mut line = |name: &'a str, value: String| lines.push((name, format::visible(&value)));
    if let Some(error) = &status.error {
        line("error", names.line(error));
    }
    // What it is at is told of whoever runs, or was killed at it.
    if let Some(progress) = &status.phase_progress
        && !status.phase.is_last()
    {
        let (name, value) = phase_line(progress, status.phase);
        line(name, value);
    }
    // A join that failed got to know neither.
    if !status.peer.is_empty() {
        // The whole id, to be copied.
        let name = status.names.get(&status.peer).map_or_else(String::new, |name| format!(" ({name})"));
        line("peer", format!("{}{name}", status.peer));
        line("run", status.run.clone());
        let left = status.eta_s.map_or_else(String::new, |eta| format!(", {} left", format::duration(eta)));
        line("step", format!("{} of {}{left}", status.step, status.steps));
        if status.rewritten > 0 {
            let what = "in which a member changed what others are told of this one";
            line("rewritten", format!("{} steps {what}", status.rewritten));
        }
        if status.skipped > 0 {
            let last = if status.skip.is_empty() { String::new() } else { format!(", the last one {}", status.skip) };
            line("skipped", format!("{} steps{last}", status.skipped));
        }
        line("stable", status.stable_step.map_or_else(unknown, |step| format!("checkpoint after step {step}")));
    }
    let trains = status.phase != Phase::Keeping && status.steps > 0 && (status.generation > 0 || status.loss.is_some());
    if trains {
        line("loss", status.loss.map_or_else(unknown, |loss| format::loss(f64::from(loss))));
        match status.measures.is_empty() {
            true => line("measures", unknown()),
            false => status.measures.iter().for_each(|(name, mean)| line(name, format::mean(name, *mean))),
        }
        let waiting = match status.members.len() {
            0 | 1 => String::new(),
            _ => format!(", waiting for the others {}", format::percent(status.waiting_share)),
        };
        let waiting = waiting + &format::data_wait(status.data_wait_share);
        line("speed", format!("{}{waiting}", format::rate(status.samples_per_s)));
        let place = format!("in generation {}, rank {} is here", status.generation, status.rank);
        match status.generation {
            0 if status.carrier.is_some() || is_leaf => {}
            0 => line("members", "no view yet".to_owned()),
            _ => {
                let newcomers = match status.newcomers.len() {
                    0 => String::new(),
                    newcomers => format!(", {newcomers} without a vote yet"),
                };
                line("members", format!("{} {place}{newcomers}", status.members.len()));
            }
        }
        if status.quorum == Quorum::TwoThirds && status.generation > 0 {
            let voters = status.members.len().saturating_sub(status.newcomers.len());
            let (needed, spare) = (status.quorum.needed(voters), status.quorum.spare(voters));
            let may_die = match spare {
                0 => "the first that dies stops the run".to_owned(),
                spare => format!("{spare} may die at once"),
            };
            line("quorum", format!("two-thirds: {needed} of {voters} decide, {may_die}"));
        }
    }
    if let Some(carrier) = &status.carrier {
        line("carrier", format!("{}: this machine is its leaf", names.show(carrier)));
    } else if is_leaf && !status.phase.is_last() {
        line("carrier", "none: this leaf asks the members that it knows".to_owned());
    }
    for leaf in &status.leaves {
        let (parts, samples) = (format::thousands(leaf.parts), format::thousands(leaf.samples));
        if leaf.peer == status.peer {
            line("brought", format!("{parts} parts, {samples} samples"));
        } else {
            let gone = if leaf.is_attached { "" } else { ", gone" };
            let late = if leaf.late > 0 { format!(", {} late", leaf.late) } else { String::new() };
            line("leaf", format!("{}: {parts} parts, {samples} samples{late}{gone}", names.show(&leaf.peer)));
        }
    }
    for (peer, what) in &status.misbehaved {
        line("HOSTILE", names.line(&format!("{peer} {what}")));
    }
    if let Some(limit) = &status.limit {
        line("SLOW", names.line(&limit_of(limit)));
    }
    if !status.change.is_empty() {
        line("change", names.line(&status.change));
    }
    if let Some(links) = &status.links {
        line("links", links.to_string());
        line("plan", links.reason.clone());
        if links.is_open() {
            line("WARNING", "gradients are NOT ENCRYPTED: whoever is on the way reads and changes them".to_owned());
        }
    }
    for (peer, MeasuredLink { rtt_ms, mbit }) in &status.measured {
        // Its row says it too.
        if !status.members.contains(peer) {
            line(
                "measured",
                format!("{} Mbit/s and {rtt_ms:.1} ms there and back to {}", rate(*mbit), names.show(peer)),
            );
        }
    }
    lines
}

/// How far that is which the node is at.
fn phase_line(progress: &PhaseProgress, phase: Phase) -> (&'static str, String) {
    let PhaseProgress { unit, done, of } = progress;
    match unit {
        UnitKind::Members if phase == Phase::Paused => ("paused", format!("{done} answer, {of} are needed")),
        UnitKind::Members => ("waiting", format!("{done} of {of} members here")),
        UnitKind::Bytes => {
            let name = if phase == Phase::Syncing { "state" } else { "data" };
            (name, format!("{} of {}", format::bytes(*done), format::bytes(*of)))
        }
        UnitKind::Samples => {
            let (done, of) = (format::thousands(*done), format::thousands(*of));
            ("evaluated", format!("{done} of {of} held-out samples"))
        }
    }
}

/// One row per member.
fn table(rows: &[Member], names: &Names) -> String {
    let none = || "-".to_owned();
    let row = |row: &Member| {
        let speed = row.samples_per_s.map(|speed| format::thousands(speed.round() as u64));
        let without = || match (row.syncing, row.starved) {
            (true, _) => "syncing".to_owned(),
            (false, true) => "starved".to_owned(),
            (false, false) => none(),
        };
        [
            names.show(&row.peer),
            speed.unwrap_or_else(without),
            row.share.map_or_else(none, format::percent),
            row.waiting_share.map_or_else(none, format::percent),
            row.link.clone().unwrap_or_else(none),
            row.mbit.map_or_else(none, rate),
            row.rtt_ms.map_or_else(none, |rtt| format!("{rtt:.1}")),
        ]
        .map(|cell| format::visible(&cell))
    };
    output::table(HEAD, rows.iter().map(row).collect(), &[0], Gauge::is_ascii())
}

fn rate(mbit: f64) -> String {
    if mbit < 10.0 { format!("{mbit:.1}") } else { format!("{mbit:.0}") }
}

#[cfg(test)]
mod tests {
    use starling::{LeafPaceReport, Limit, LinkSummary, MemberPaceReport, Transport};
    use starling_node::observe::status::Process;

    use super::*;

    fn stepping() -> Status {
        let peer = || starling_node::credentials::identity::Identity::generate().peer_id().to_string();
        let members = vec![peer(), peer(), peer()];
        let pace = |peer: &String| MemberPaceReport {
            peer: peer.clone(),
            samples: 21,
            samples_per_s: Some(123_456.7),
            computing_share: 0.25,
            syncing: false,
            starved: false,
        };
        Status {
            process: Process::this(),
            phase: Phase::Stepping,
            peer: members[0].clone(),
            run: "ab".repeat(32),
            paces: members.iter().map(pace).collect(),
            measured: [(members[1].clone(), MeasuredLink { rtt_ms: 40.25, mbit: 93.4 })].into(),
            names: [(members[1].clone(), "lab-2".to_owned()), (members[2].clone(), "x".repeat(32))].into(),
            members,
            generation: 3,
            steps: 600,
            ..Status::default()
        }
    }

    #[test]
    fn it_says_whether_the_node_lives() {
        let mut status = stepping();
        let lives = page(&status);
        if cfg!(target_os = "linux") {
            assert!(lives.starts_with(&format!("stepping: running, process {}", std::process::id())), "{lives}");
            status.process.started = Some(1);
            assert!(page(&status).contains("killed"), "{}", page(&status));
        }
        assert!(!page(&status).contains("NOT ENCRYPTED"));
        let links = |kind| [("peer".to_owned(), kind)].into();
        let (from, to) = (links(Transport::Direct), links(Transport::Plaintext));
        status.links = Some(LinkSummary { plan: "ring".to_owned(), reason: "as the run asks".to_owned(), from, to });
        assert!(page(&status).contains("ring over 2 links, 1 direct and 1 plaintext"), "{}", page(&status));
        assert!(page(&status).contains("NOT ENCRYPTED"), "{}", page(&status));
        status.phase = Phase::Failed;
        status.error = Some("peer x is lost".to_owned());
        let failed = page(&status);
        assert!(failed.starts_with("failed: ended") && failed.contains("peer x is lost"), "{failed}");
        assert!(failed.contains("0 of 600"), "{failed}");
    }

    #[test]
    fn what_is_waited_for_has_a_line() {
        let at = |phase, unit, done, of| {
            page(&Status { phase, phase_progress: Some(PhaseProgress { unit, done, of }), ..stepping() })
        };
        for (page, line) in [
            (at(Phase::Waiting, UnitKind::Members, 1, 3), "  waiting   1 of 3 members here\n"),
            (at(Phase::Paused, UnitKind::Members, 1, 2), "  paused    1 answer, 2 are needed\n"),
            (at(Phase::Downloading, UnitKind::Bytes, 1_024, 2_048), "  data      1.0 KiB of 2.0 KiB\n"),
            (at(Phase::Syncing, UnitKind::Bytes, 1_024, 2_048), "  state     1.0 KiB of 2.0 KiB\n"),
            (at(Phase::Evaluating, UnitKind::Samples, 64, 12_600), "  evaluated 64 of 12 600 held-out samples\n"),
        ] {
            assert!(page.contains(line), "{line} is missing from\n{page}");
        }
        assert!(!at(Phase::Failed, UnitKind::Bytes, 1, 2).contains("  data  "), "it is over");
    }

    #[test]
    fn every_member_has_a_row_that_fits() {
        let mut status = stepping();
        let limit = Limit::Member { peer: status.members[1].clone(), speed: 0.21 };
        (status.limit, status.eta_s) = (Some(limit), Some(3_600.0));
        let page = page(&status);
        for part in ["(lab-2)", "123 457", "33.3 %", "75.0 %", "93", "40.2", "1 h 0 min left"] {
            assert!(page.contains(part), "{part} is missing from\n{page}");
        }
        let slow = format!(
            "SLOW      {} (lab-2) computes at 0.2 x the median of the others",
            format::peer(&status.members[1])
        );
        assert!(page.contains(&slow), "{page}");
        let table: Vec<&str> = page.lines().skip_while(|line| !line.contains("lag ms")).collect();
        assert!(table.len() > 3 && table.iter().all(|line| line.chars().count() <= 80), "{page}");
        assert!(!page.contains(&status.members[1]), "whole ids are only to be copied:\n{page}");
    }

    #[test]
    fn a_carrier_shows_its_leaves_and_a_leaf_its_carrier() {
        let peer = || starling_node::credentials::identity::Identity::generate().peer_id().to_string();
        let mut status = stepping();
        let leaf = LeafPaceReport { peer: peer(), is_attached: true, parts: 1_200, samples: 96_000, late: 3 };
        status.leaves = vec![leaf.clone()];
        let expected = format!("leaf      {}: 1 200 parts, 96 000 samples, 3 late\n", format::peer(&leaf.peer));
        assert!(page(&status).contains(&expected), "{}", page(&status));
        let mut own = Status { generation: 0, members: Vec::new(), loss: Some(0.5), ..stepping() };
        own.leaves = vec![LeafPaceReport { peer: own.peer.clone(), late: 0, ..leaf }];
        own.carrier = Some(peer());
        let page = page(&own);
        assert!(page.contains(": this machine is its leaf") && page.contains("brought   1 200 parts"), "{page}");
        assert!(!page.contains("no view yet"), "{page}");
    }

    #[test]
    fn two_thirds_say_how_many_may_die() {
        let mut status = stepping();
        (status.generation, status.quorum) = (5, Quorum::TwoThirds);
        let few = page(&status);
        assert!(few.contains("quorum    two-thirds: 3 of 3 decide, the first that dies stops the run"), "{few}");
        status.members.push(starling_node::credentials::identity::Identity::generate().peer_id().to_string());
        let four = page(&status);
        assert!(four.contains("3 of 4 decide, 1 may die at once"), "{four}");
        status.newcomers = vec![status.members[1].clone(), status.members[2].clone()];
        let waiting = page(&status);
        assert!(waiting.contains("2 of 2 decide") && waiting.contains(", 2 without a vote yet"), "{waiting}");
        status.quorum = Quorum::Majority;
        assert!(!page(&status).contains("quorum"));
    }

    #[test]
    fn who_has_no_figures_shows_none() {
        let failed = Status { phase: Phase::Failed, error: Some("no".to_owned()), ..Status::default() };
        let text = page(&failed);
        assert!(
            !text.contains("peer") && !text.contains("run ") && !text.contains("step") && !text.contains("loss"),
            "{text}"
        );
        let keeper = Status { phase: Phase::Keeping, generation: 0, members: Vec::new(), ..stepping() };
        let text = page(&keeper);
        assert!(text.contains("stable") && !text.contains("loss") && !text.contains("members"), "{text}");
    }
}
