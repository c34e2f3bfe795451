//! The table at the end of a demo.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::Outcome;
use crate::output::format;

const HEAD: [&str; 9] =
    ["peer", "rank", "steps", "samples/s", "waiting", "loss", "held-out accuracy", "sent", "digest"];

/// One row per peer.
pub fn render(outcome: &Outcome) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(HEAD);
    for (rank, summary) in &outcome.peers {
        table.add_row([
            format::peer(&summary.peer),
            rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            summary.steps.to_string(),
            format::thousands(summary.samples_per_s.round() as u64),
            format::percent(summary.waiting_share),
            summary.loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.4}")),
            format::percent(summary.accuracy),
            format::bytes(summary.bytes_sent),
            format::digest(&summary.digest),
        ]);
    }
    // Figures line up on the right; the names at both ends stay on the left.
    for column in table.column_iter_mut().skip(1).take(HEAD.len() - 2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::outcome::tests::outcome;

    #[test]
    fn every_peer_has_a_row_with_its_figures() {
        let table = render(&outcome(&["0123456789abcdef", "0123456789abcdef"]));
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 6, "{table}");
        for name in HEAD {
            assert!(lines[1].contains(name), "{name} is missing from {}", lines[1]);
        }
        for part in ["…Wpeer1", " 0 ", "400", "1 100", "25.0 %", "0.1250", "97.0 %", "1.0 MiB", "0123456789ab"] {
            assert!(lines[4].contains(part), "{part} is missing from {}", lines[4]);
        }
        assert!(!table.contains("0123456789abc"), "digests are cut");
    }
}
