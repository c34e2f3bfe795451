//! What happens in a run, as sentences.

use super::{format, way_back};
use crate::report::{Outcome, Report, Summary};

/// Turns reports into lines; remembers the ticket, so that it says it once.
#[derive(Debug, Default)]
pub struct Narrator {
    ticket: String,
    /// Of a keeper, who trains nothing.
    keeps: bool,
}

impl Narrator {
    /// Nothing was said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lines for a report; none if it holds nothing new.
    pub fn lines(&mut self, report: &Report) -> Vec<String> {
        match report {
            Report::Started { peer, run, model, parameters, samples, device, steps, step, private } => {
                let kind = if *private { "private" } else { "public" };
                let from = if *step == 0 { String::new() } else { format!(", from step {step}") };
                vec![
                    format!("peer {peer}"),
                    format!("{kind} run {}: {model} on {device}", format::digest(run)),
                    format!(
                        "{} parameters, {} training samples, {steps} steps{from}",
                        format::thousands(*parameters as u64),
                        format::thousands(*samples)
                    ),
                ]
            }
            Report::WarmingUp { device } => {
                vec![format!("warming up the device: {device} computes for the first time")]
            }
            Report::Downloading { bytes, of } => {
                vec![format!("data set: {} of {}", format::bytes(*bytes), format::bytes(*of))]
            }
            Report::Data(summary) => vec![summary.to_string()],
            Report::Connecting { .. }
            | Report::Asking { .. }
            | Report::Answered { .. }
            | Report::Returning { .. }
            | Report::BegunFrom { .. }
            | Report::Awaiting { .. }
            | Report::Stopped => way_back::lines(report),
            // Whoever wants it asks for it: `starling invite`.
            Report::Invitation { .. } => Vec::new(),
            Report::Listening { addresses, ticket } => self.listening(addresses, ticket),
            Report::Waiting { present, needed } => {
                let missing = needed.saturating_sub(*present);
                let noun = if missing == 1 { "peer" } else { "peers" };
                vec![format!("waiting for {missing} more {noun} ({present} of {needed} here)")]
            }
            Report::Joining { peer } => vec![format!("peer {} asks to join", format::peer(peer))],
            Report::JoinerLost { peer } => vec![format!("peer {} went away before it had joined", format::peer(peer))],
            Report::Turned { peer, reason } => vec![format!("turned away peer {}: {reason}", format::peer(peer))],
            Report::View { generation, rank, members, step, reason, took_ms, .. } => {
                view(*generation, *rank, members.len(), *step, reason, *took_ms)
            }
            Report::Suspected { peer, evidence, seen_by } => {
                let seen_by =
                    seen_by.as_ref().map_or_else(String::new, |by| format!(" (seen by {})", format::peer(by)));
                vec![format!("peer {} may be lost: {evidence}{seen_by}", format::peer(peer))]
            }
            Report::Paused { present, needed } => vec![format!(
                "paused: {present} members answer, {needed} are needed; the others go on if they are enough"
            )],
            Report::Evicted { by } => {
                vec![format!("the others go on without this peer, says {}; joining again", format::peer(by))]
            }
            Report::Syncing { step, bytes, of } => {
                vec![format!("state of step {step}: {} of {}", format::bytes(*bytes), format::bytes(*of))]
            }
            Report::Synced { step } => vec![format!("the state is here, up to date after step {step}")],
            Report::Linked(links) => vec![format!("gradients go by {links}")],
            Report::Measured { .. } => Vec::new(),
            Report::Progress { step, steps, epoch, loss, samples_per_s, waiting_share, .. } => vec![format!(
                "step {step}/{steps}  epoch {epoch}  loss {loss:.4}  {}  waiting {}",
                format::rate(*samples_per_s),
                format::percent(*waiting_share)
            )],
            Report::Evaluated { step, loss, accuracy } => {
                vec![format!("step {step}: held-out accuracy {}, loss {loss:.4}", format::percent(*accuracy))]
            }
            Report::Saved { step, digest } => {
                vec![format!("checkpoint after step {step} saved, digest {}", format::digest(digest))]
            }
            Report::Stable { step, digest, signers } => {
                let noun = if *signers == 1 { "member" } else { "members" };
                let digest = format::digest(digest);
                vec![format!("checkpoint after step {step} is stable, digest {digest}: {signers} {noun} signed")]
            }
            Report::Keeping { peer, run, steps, stable_step, private } => {
                self.keeps = true;
                let kind = if *private { "private" } else { "public" };
                let newest = stable_step.map_or_else(
                    || "no stable checkpoint yet".to_owned(),
                    |step| format!("the newest stable checkpoint is after step {step}"),
                );
                vec![
                    format!("peer {peer}"),
                    format!("keeps the checkpoints of the {kind} run {}, {steps} steps; {newest}", format::digest(run)),
                ]
            }
            Report::Fetching { step, bytes, of } => {
                vec![format!("checkpoint after step {step}: {} of {}", format::bytes(*bytes), format::bytes(*of))]
            }
            Report::Fetched { step, digest } => vec![format!(
                "another peer held a newer stable checkpoint: goes on after step {step}, digest {}",
                format::digest(digest)
            )],
            Report::Warning { message } => vec![format!("warning: {message}")],
            Report::Finished(summary) if self.keeps => vec![match summary.digest.as_str() {
                "" => "stopped, without a stable checkpoint".to_owned(),
                digest => format!("stopped; holds the stable checkpoint after step {}, digest {digest}", summary.steps),
            }],
            Report::Finished(summary) => finished(summary),
        }
    }

    fn listening(&mut self, addresses: &[String], ticket: &str) -> Vec<String> {
        if self.ticket == ticket {
            return Vec::new();
        }
        self.ticket = ticket.to_owned();
        let mut lines: Vec<String> = addresses.iter().map(|address| format!("listening on {address}")).collect();
        // On a line of its own and without decoration: it is there to be copied.
        let (what, verb) = match self.keeps {
            true => ("to fetch its newest stable checkpoint to another machine:", "checkpoint fetch"),
            false => ("to join from another machine:", "join"),
        };
        lines.extend([String::new(), what.to_owned(), format!("starling {verb} {ticket}"), String::new()]);
        lines
    }
}

fn view(generation: u64, rank: u32, count: usize, step: u64, reason: &str, took_ms: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if !reason.is_empty() {
        lines.push(format!("{reason} ({took_ms} ms)"));
    }
    let noun = if count == 1 { "member" } else { "members" };
    lines.push(format!("generation {generation}: {count} {noun}, rank {rank} is here, after step {step}"));
    lines
}

fn finished(summary: &Summary) -> Vec<String> {
    let head = match summary.outcome {
        Outcome::Complete => format!("complete: all members committed step {}", summary.steps),
        Outcome::Left => format!("left in order after step {}", summary.steps),
    };
    let loss =
        summary.loss.map_or_else(|| "none, no step ran here".to_owned(), |loss| format!("{loss:.4} (last batch)"));
    vec![
        head,
        format!("  accuracy  {} on held-out samples", format::percent(summary.accuracy)),
        format!("  loss      {loss}, {:.4} (held-out)", summary.held_out_loss),
        format!("  steps     {}, {} in the last view", summary.steps, format::peers(summary.world_size as usize)),
        format!(
            "  speed     {}, waiting for the ring {} of {:.1} s",
            format::rate(summary.samples_per_s),
            format::percent(summary.waiting_share),
            summary.stepping_s
        ),
        format!(
            "  traffic   {} sent, {} received",
            format::bytes(summary.bytes_sent),
            format::bytes(summary.bytes_received)
        ),
        format!("  digest    {}", summary.digest),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(generation: u64, members: &[&str], reason: &str) -> Report {
        Report::View {
            generation,
            view: "00".repeat(32),
            rank: 0,
            members: members.iter().map(|member| (*member).to_owned()).collect(),
            step: 7,
            reason: reason.to_owned(),
            promised: 2,
            of: 3,
            took_ms: 41,
            forked: false,
        }
    }

    #[test]
    fn a_ticket_is_told_once_on_a_line_of_its_own() {
        let mut narrator = Narrator::new();
        let listening =
            Report::Listening { addresses: vec!["/ip4/192.0.2.1/tcp/1".to_owned()], ticket: "starling1abc".to_owned() };
        let lines = narrator.lines(&listening);
        assert!(lines.contains(&"starling join starling1abc".to_owned()), "{lines:?}");
        assert!(narrator.lines(&listening).is_empty());
    }

    #[test]
    fn a_keeper_invites_to_fetch_and_ends_with_what_it_holds() {
        let mut narrator = Narrator::new();
        let (peer, run) = ("12D3KooWabcdef".to_owned(), "cd".repeat(32));
        narrator.lines(&Report::Keeping { peer, run, steps: 600, stable_step: None, private: true });
        let listening = Report::Listening { addresses: Vec::new(), ticket: "starling1abc".to_owned() };
        let lines = narrator.lines(&listening);
        assert!(lines.contains(&"starling checkpoint fetch starling1abc".to_owned()), "{lines:?}");
        let summary = Summary { steps: 40, digest: "ab".repeat(32), ..Summary::before_the_start() };
        let lines = narrator.lines(&Report::Finished(summary));
        assert!(lines.len() == 1 && lines[0].contains("step 40") && lines[0].contains(&"ab".repeat(32)), "{lines:?}");
        let lines = narrator.lines(&Report::Finished(Summary::before_the_start()));
        assert_eq!(lines, ["stopped, without a stable checkpoint"]);
    }

    #[test]
    fn a_view_says_why_it_came() {
        let mut narrator = Narrator::new();
        let founded = narrator.lines(&view(1, &["a"], ""));
        assert_eq!(founded, ["generation 1: 1 member, rank 0 is here, after step 7"]);
        let lines = narrator.lines(&view(2, &["a", "b"], "peer b joined"));
        assert_eq!(lines, ["peer b joined (41 ms)", "generation 2: 2 members, rank 0 is here, after step 7"]);
    }

    #[test]
    fn the_last_lines_hold_the_whole_digest() {
        let digest = "ab".repeat(32);
        let summary = Summary {
            peer: "12D3KooWabcdef".to_owned(),
            run: "cd".repeat(32),
            outcome: Outcome::Complete,
            steps: 600,
            world_size: 4,
            loss: Some(0.25),
            held_out_loss: 0.5,
            accuracy: 0.97,
            digest: digest.clone(),
            samples_per_s: 1000.0,
            waiting_share: 0.25,
            bytes_sent: 2048,
            bytes_received: 4096,
            stepping_s: 2.0,
        };
        let text = Narrator::new().lines(&Report::Finished(summary)).join("\n");
        for part in [&digest, "97.0 %", "0.2500", "0.5000", "600", "25.0 %", "2.0 KiB", "4.0 KiB"] {
            assert!(text.contains(part), "{part} is missing from:\n{text}");
        }
    }
}
