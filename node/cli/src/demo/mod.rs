//! `starling demo`: several peers on this machine train one model, as separate processes over real sockets.
//!
//! The first child founds a run, the others join it by its ticket. Then one of them is killed, and another one joins: see
//! [`story`]. Each has its own data directory and speaks JSON on stdout, which this process shows, compares and sums up.

mod board;
mod child;
mod outcome;
mod story;
mod table;
mod tail;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use starling::{Report, Summary};
use starling_node::start::signals::{EXIT_INTERRUPTED, SignalSet};
use starling_run::audit::{self, AuditError};
use tokio::sync::mpsc;

pub use outcome::{Figures, Outcome};
pub use table::render;

use crate::commands::{CommandError, EXIT_DONE, EXIT_FAILED};
use crate::output::{self, Console, Detail, Gauge, Style, Tone};
use board::Board;
use child::{Child, Event};
use story::{Act, Story};

/// A child that says nothing for this long has failed.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Events on their way from all children.
const QUEUE: usize = 64;
/// Lines of a failed child's stderr that are shown.
const SHOWN_LINES: usize = 20;

/// What a demo does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many peers train.
    pub peers: usize,
    /// Whether one more takes part as a leaf of one of them.
    pub leaf: bool,
    /// How many steps they take.
    pub steps: u64,
    /// Of the choice whom to kill.
    pub seed: u64,
    /// What computes, as `--device` takes it.
    pub device: String,
    /// Where the peers' data directories stay; `None` removes them at the end.
    pub keep: Option<PathBuf>,
    /// How much is told.
    pub detail: Detail,
}

/// One child and what is known of it.
struct Peer {
    child: Child,
    summary: Option<Summary>,
    has_ended: bool,
    was_killed: bool,
    heard: Instant,
}

/// How a demo came to its end.
enum End {
    Outcome(Outcome),
    Interrupted,
}

/// Runs a demo. Returns the exit code: 0 if all peers finished with equal digests.
///
/// # Errors
/// [`CommandError`] if a child fails or can't be started. Whatever happens, all children are gone afterwards, and so
/// are their data directories unless they are to be kept.
pub async fn run(plan: &Plan, style: Style, console: &Console) -> Result<u8, CommandError> {
    let mut signals = SignalSet::listen().map_err(CommandError::io("listen for signals"))?;
    // Removed with all that is in it when this function ends, however it ends.
    let (root, _temporary) = match &plan.keep {
        Some(dir) => {
            make_empty(dir)?;
            let root = std::path::absolute(dir).map_err(CommandError::io(format!("find {}", dir.display())))?;
            (root, None)
        }
        None => {
            let dir = tempfile::Builder::new().prefix("starling-demo-").tempdir();
            let dir = dir.map_err(CommandError::io("make a folder for the demo"))?;
            (dir.path().to_owned(), Some(dir))
        }
    };
    let mut peers = Vec::with_capacity(plan.peers);
    let board = Board::new(style, console, plan);
    let ended = drive(plan, &root, &mut peers, board, &mut signals).await;
    for peer in &mut peers {
        peer.child.kill().await;
    }
    if let (Err(error), Some(failed)) = (&ended, peers.iter().find(|peer| peer.has_ended && peer.summary.is_none())) {
        let (error, lines) = (error.to_string(), failed.child.last_errors(SHOWN_LINES));
        // The error itself is told by whoever called.
        lines.iter().filter(|line| !error.contains(without_mark(line))).for_each(|line| console.line(line));
    }
    match ended? {
        End::Outcome(outcome) => show(&outcome, style, plan.detail),
        End::Interrupted => Ok(EXIT_INTERRUPTED),
    }
}

fn show(outcome: &Outcome, style: Style, detail: Detail) -> Result<u8, CommandError> {
    let text = match style {
        Style::Json => format!("{}\n", output::timed(SystemTime::now(), outcome.to_json())),
        Style::Terminal | Style::Plain if detail == Detail::Errors => String::new(),
        Style::Terminal | Style::Plain => format!("{}\n{}\n", render(outcome, Gauge::is_ascii()), outcome.verdict()),
    };
    output::print(&text).map_err(CommandError::io("write to stdout"))?;
    Ok(if outcome.is_good() { EXIT_DONE } else { EXIT_FAILED })
}

/// Starts the children and listens to them until all have ended.
async fn drive(
    plan: &Plan,
    root: &Path,
    peers: &mut Vec<Peer>,
    mut board: Board,
    signals: &mut SignalSet,
) -> Result<End, CommandError> {
    let started = Instant::now();
    let (sender, mut events) = mpsc::channel(QUEUE);
    let start = |index: usize, ticket: Option<&str>| {
        let child = Child::start(index, plan, root, ticket, sender.clone())
            .map_err(CommandError::io(format!("start peer {index}")))?;
        let heard = Instant::now();
        let (has_ended, was_killed) = (false, false);
        Ok::<_, CommandError>(Peer { child, summary: None, has_ended, was_killed, heard })
    };
    let mut story = Story::new(plan);
    let mut founded = String::new();
    peers.push(start(0, None)?);
    while peers.len() < plan.peers || peers.iter().any(|peer| !peer.has_ended) {
        let waiting = peers.iter().enumerate().filter(|(_, peer)| !peer.has_ended);
        let Some((silent, heard)) = waiting.map(|(index, peer)| (index, peer.heard)).min_by_key(|(_, heard)| *heard)
        else {
            // The first one can't end well before the others are there.
            return Err(CommandError::Demo("the first peer ended before the others could join".to_owned()));
        };
        tokio::select! {
            event = events.recv() => {
                let Some((index, event)) = event else { continue };
                peers[index].heard = Instant::now();
                match event {
                    Event::Report(report) => {
                        board.show(index, &report);
                        take(&mut peers[index], &report);
                        if let (Report::Listening { ticket, .. }, 0, 1) = (&*report, index, peers.len()) {
                            founded.clone_from(ticket);
                            for index in 1..plan.peers + usize::from(plan.leaf) {
                                peers.push(start(index, Some(ticket))?);
                            }
                        }
                        match story.hear(index, &report, Instant::now()) {
                            Some(Act::Kill(victim)) => {
                                peers[victim].was_killed = true;
                                story.killed(victim, Instant::now());
                                peers[victim].child.kill().await;
                                board.killed(victim);
                                board.tell(Tone::Bad, format!("killed peer {victim} (kill -9)"));
                            }
                            Some(Act::Join) => {
                                board.follow(story.figures());
                                board.tell(Tone::Plain, format!("peer {} starts, to join them", peers.len()));
                                story.started(peers.len(), Instant::now());
                                peers.push(start(peers.len(), Some(&founded))?);
                            }
                            None => board.follow(story.figures()),
                        }
                    }
                    Event::Ended => end(index, &mut peers[index]).await?,
                }
            }
            () = signals.next() => return Ok(End::Interrupted),
            () = tokio::time::sleep_until((heard + SILENCE_LIMIT).into()) => {
                let reason = format!("peer {silent} said nothing for {} s", SILENCE_LIMIT.as_secs());
                return Err(CommandError::Demo(reason));
            }
        }
    }
    let elapsed = started.elapsed();
    let finished = peers.iter().enumerate().filter_map(|(index, peer)| Some((index, peer.summary.clone()?))).collect();
    let files: Vec<_> = (0..peers.len()).map(|index| child::audit_file(root, index)).collect();
    let samples = match audit::check(&files) {
        Ok(report) => (report.samples_lost, report.samples_repeated),
        Err(AuditError::Samples { lost, repeated, .. }) => (lost, repeated),
        Err(error) => return Err(error.into()),
    };
    Ok(End::Outcome(Outcome::new(finished, elapsed, story.figures(), samples)))
}

/// Notes what a report says of a peer.
fn take(peer: &mut Peer, report: &Report) {
    if let Report::Finished(summary) = report {
        peer.summary = Some(summary.clone());
    }
}

/// Notes that a peer's process is over; an error if it should not be.
async fn end(index: usize, peer: &mut Peer) -> Result<(), CommandError> {
    peer.has_ended = true;
    if peer.was_killed {
        return Ok(());
    }
    let status = peer.child.wait().await.map_err(CommandError::io(format!("wait for peer {index}")))?;
    if status.success() && peer.summary.is_some() {
        return Ok(());
    }
    // So that this one's words are shown, whatever it had said before.
    peer.summary = None;
    let last = peer.child.last_errors(1).pop().map_or_else(String::new, |line| format!(": {}", without_mark(&line)));
    Err(CommandError::Demo(format!("peer {index} ended with {status}{last}")))
}

/// What a line of a child's stderr says, without the word that all errors begin with.
fn without_mark(line: &str) -> &str {
    line.strip_prefix("error: ").unwrap_or(line)
}

/// Makes `dir`, or checks that it is empty.
fn make_empty(dir: &Path) -> Result<(), CommandError> {
    let failed = || CommandError::io(format!("use the folder {}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed())?;
    match std::fs::read_dir(dir).map_err(failed())?.next() {
        Some(_) => Err(CommandError::NotEmpty(dir.to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_is_used() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let keep = dir.path().join("a/b");
        make_empty(&keep).expect("made");
        make_empty(&keep).expect("empty");
        std::fs::write(keep.join("file"), "").expect("written");
        let error = make_empty(&keep).expect_err("not empty");
        assert!(error.to_string().contains("--keep"), "{error}");
        assert_eq!(error.exit_code(), crate::commands::EXIT_USAGE);
    }
}
