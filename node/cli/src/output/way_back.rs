//! What is said of the way into a run, and of the way back to one: whom it asks, what they say, whom it waits for.

use starling::Report;
use starling::parts::{ReturnKind, WaitReason};

use super::format;

/// Peers that are named; of more, only their number is told.
const MAX_NAMED: usize = 3;

/// The lines for a report that tells of it; none for others.
pub(super) fn lines(report: &Report) -> Vec<String> {
    match report {
        Report::Connecting { peers } => vec![format!("connecting to {}", names(peers))],
        Report::Asking { peers } => vec![format!("asking {} who still trains this run", names(peers))],
        Report::Answered { peer, live, stable_step, trouble } => {
            let held = stable_step.map_or_else(
                || "it holds no stable checkpoint".to_owned(),
                |step| format!("its newest stable checkpoint is after step {step}"),
            );
            vec![match (trouble, live) {
                (Some(reason), _) => format!("{peer} does not answer: {reason}"),
                (None, true) => format!("{peer} trains this run"),
                (None, false) => format!("{peer} is there and trains nothing now; {held}"),
            }]
        }
        Report::BegunFrom { run, step } => {
            vec![format!("begins a new run with the state after step {step} of run {}", format::digest(run))]
        }
        Report::Returning { way, peers } => vec![returning(*way, peers)],
        Report::Awaiting { peers, why, for_s } => {
            let why = match (why, peers.len()) {
                (WaitReason::Return, 1) => ", which stayed when this one left",
                (WaitReason::Return, _) => ", who stayed when this one left",
                (WaitReason::Admission, _) => " to let this one in",
                (WaitReason::Download, _) => " to fetch the last state (Ctrl-C ends this)",
                (_, _) => "",
            };
            let since = if *for_s == 0 { String::new() } else { format!(" (for {for_s} s now)") };
            vec![format!("waiting for {}{why}{since}", names(peers))]
        }
        Report::Stopped => vec!["stopped before it took part in a run".to_owned()],
        _ => Vec::new(),
    }
}

fn returning(way: ReturnKind, peers: &[String]) -> String {
    match (way, peers.len()) {
        (ReturnKind::Join, 0 | 1) => "a member still trains this run; joining it".to_owned(),
        (ReturnKind::Join, count) => format!("{count} members still train this run; joining them"),
        (ReturnKind::Seat, 0) => "comes back to its place in the run".to_owned(),
        (ReturnKind::Seat, _) => format!("comes back to its place in the run, beside {}", names(peers)),
        (ReturnKind::Alone, _) => {
            "nobody else was in its view when it ended: it goes on from there, unforked".to_owned()
        }
        (ReturnKind::Fork, 0) => "goes on alone, as a fork of the run".to_owned(),
        (ReturnKind::Fork, _) => format!("goes on alone, as a fork of the run, without {}", names(peers)),
        (ReturnKind::Serve, _) => format!(
            "the run is complete, and {} lacks its last state: this machine stays until it is fetched (`--alone` ends at once)",
            names(peers)
        ),
        (ReturnKind::Ask, _) => format!("asks {} to be let in again", names(peers)),
        (ReturnKind::Wait, _) => format!(
            "{} stayed in the run when this one left: it waits for one of them (`--alone` goes on alone, as a fork)",
            names(peers)
        ),
        (other, _) => format!("comes back to the run: {other:?}"),
    }
}

/// As in `A, B and 3 others`, by their whole ids: whoever shows a line calls peers as it does in all others.
fn names(peers: &[String]) -> String {
    let mut named: Vec<String> = peers.iter().take(MAX_NAMED).cloned().collect();
    match peers.len().saturating_sub(MAX_NAMED) {
        0 => {}
        1 => named.push("1 other".to_owned()),
        more => named.push(format!("{more} others")),
    }
    match named.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => named.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_peers_are_counted_and_few_are_named() {
        let peers: Vec<String> = (0..5).map(|number| format!("12D3KooWpeer0{number}")).collect();
        assert_eq!(names(&peers[..1]), "12D3KooWpeer00");
        assert_eq!(names(&peers[..2]), "12D3KooWpeer00 and 12D3KooWpeer01");
        assert_eq!(names(&peers[..4]), "12D3KooWpeer00, 12D3KooWpeer01, 12D3KooWpeer02 and 1 other");
        assert_eq!(names(&peers), "12D3KooWpeer00, 12D3KooWpeer01, 12D3KooWpeer02 and 2 others");
    }

    #[test]
    fn whoever_waits_says_for_whom() {
        let peers = vec!["12D3KooWabcbc4xyz".to_owned()];
        let first = lines(&Report::Awaiting { peers: peers.clone(), why: WaitReason::Return, for_s: 0 });
        assert_eq!(first, ["waiting for 12D3KooWabcbc4xyz, which stayed when this one left"]);
        let later = lines(&Report::Awaiting { peers: peers.clone(), why: WaitReason::Admission, for_s: 20 });
        assert_eq!(later, ["waiting for 12D3KooWabcbc4xyz to let this one in (for 20 s now)"]);
        let answer = Report::Answered { peer: peers[0].clone(), live: false, stable_step: Some(7), trouble: None };
        assert!(lines(&answer)[0].contains("after step 7"), "{:?}", lines(&answer));
    }
}
