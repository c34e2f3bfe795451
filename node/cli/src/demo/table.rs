//! The table at the end of a demo.

use starling::Summary;

use super::Outcome;
use crate::output::{format, table};

const HEAD: [&str; 8] = ["peer", "steps", "samples/s", "waiting", "loss", "accuracy", "sent", "digest"];
/// Digests are compared before they are shown: this is enough for people.
const DIGEST_CHARS: usize = 8;

/// One row per peer.
pub fn render(outcome: &Outcome, is_ascii: bool) -> String {
    let row = |(number, summary): &(usize, Summary)| {
        [
            format!("{number} {}", format::peer(&summary.peer)),
            summary.steps.to_string(),
            format::thousands(summary.samples_per_s.round() as u64),
            format::percent(summary.waiting_share),
            summary.loss.map_or_else(|| "-".to_owned(), |loss| format::loss(f64::from(loss))),
            format::percent(summary.accuracy().unwrap_or_default()),
            format::bytes(summary.bytes_sent),
            summary.digest.chars().take(DIGEST_CHARS).collect(),
        ]
    };
    table(HEAD, outcome.peers.iter().map(row).collect(), &[0, HEAD.len() - 1], is_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::outcome::tests::outcome;

    #[test]
    fn every_peer_has_a_row_with_its_figures() {
        let table = render(&outcome(&["0123456789abcdef", "0123456789abcdef"]), false);
        let lines: Vec<&str> = table.lines().collect();
        for name in HEAD {
            assert!(lines[1].contains(name), "{name} is missing from {}", lines[1]);
        }
        let row = lines.iter().find(|line| line.contains("…Wpeer1")).expect("a row for each peer");
        for part in ["1 …Wpeer1", "400", "1 100", "25.0 %", "0.1250", "97.0 %", "1.0 MiB", "01234567"] {
            assert!(row.contains(part), "{part} is missing from {row}");
        }
        assert!(!table.contains("012345678"), "digests are cut");
    }

    #[test]
    fn it_fits_the_smallest_of_usual_terminals() {
        let mut outcome = outcome(&["0123456789abcdef"]);
        let summary = &mut outcome.peers[0].1;
        (summary.steps, summary.samples_per_s, summary.waiting_share) = (1_000_000, 1_234_567.0, 1.0);
        (summary.loss, summary.bytes_sent) = (Some(12.5), (1023 << 30) + (1 << 29));
        summary.measures.insert("accuracy".to_owned(), 1.0);
        for is_ascii in [false, true] {
            let table = render(&outcome, is_ascii);
            let widest = table.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            assert!((60..=80).contains(&widest), "{widest} columns:\n{table}");
            assert!(table.contains("1023.5 GiB") && table.contains("accuracy"), "nothing is cut:\n{table}");
        }
    }
}
