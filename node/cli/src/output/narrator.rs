//! What happens in a run, as sentences.

use starling::parts::MissingState;
use starling::parts::Quorum;
use starling::{Limit, Outcome, Report, Summary};

use super::{Detail, Line, Names, Tone, format, way_back};

/// Turns reports into lines. It keeps what it said, so that it says a thing once, and how peers are called.
#[derive(Debug, Default)]
pub struct Narrator {
    detail: Detail,
    names: Names,
    /// This peer's id, once it is known.
    me: String,
    ticket: Option<String>,
    /// Of a keeper, who trains nothing.
    keeps: bool,
    /// The members of the newest view.
    members: usize,
    /// Which of them decide the next one.
    quorum: Quorum,
    /// The newest stable checkpoint's step.
    stable: Option<u64>,
    /// How segments travelled when that was last said.
    links: String,
    /// Whether something was said to slow the steps down.
    is_limited: bool,
    /// Whether it was said that data comes while this peer trains.
    has_data_coming: bool,
}

impl Narrator {
    /// Nothing was said yet.
    pub fn new(detail: Detail) -> Self {
        Self { detail, ..Self::default() }
    }

    /// How peers are called.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The lines for a report; none if it holds nothing new. Every peer is called as [`Names::show`] does.
    pub fn lines(&mut self, report: &Report) -> Vec<Line> {
        let mut lines = self.say(report);
        for line in &mut lines {
            line.text = self.names.line(&line.text);
        }
        lines
    }

    fn say(&mut self, report: &Report) -> Vec<Line> {
        let everything = self.detail == Detail::All;
        let plain = |text: String| vec![Line::new(Tone::Plain, text)];
        let good = |text: String| vec![Line::new(Tone::Good, text)];
        let bad = |text: String| vec![Line::new(Tone::Bad, text)];
        let only_if = |is_worth_it: bool, lines: Vec<Line>| if is_worth_it { lines } else { Vec::new() };
        match report {
            Report::Named { peer, name } => {
                self.names.learn(peer, name);
                only_if(everything, plain(format!("peer {} is called {name}", format::peer(peer))))
            }
            Report::Started {
                peer,
                run,
                model,
                parameters,
                samples,
                device,
                steps,
                batch_size,
                step,
                private,
                quorum,
            } => {
                self.quorum = *quorum;
                self.me.clone_from(peer);
                let kind = if *private { "private" } else { "public" };
                let from = if *step == 0 { String::new() } else { format!(", from step {step}") };
                let lines = [
                    format!("this is peer {peer}"),
                    format!("{kind} run {}: {model} on {device}", format::digest(run)),
                    format!(
                        "{} parameters, {} training samples, {steps} steps ({}){from}",
                        format::thousands(*parameters as u64),
                        format::thousands(*samples),
                        format::epochs(*steps, *samples, *batch_size)
                    ),
                ];
                let rule = (*quorum == Quorum::TwoThirds).then(|| {
                    "two-thirds quorums: with one to three members, the first that dies stops the run until it is back, and \
                     nothing is promised of what hostile members can do"
                        .to_owned()
                });
                lines.into_iter().chain(rule).flat_map(plain).collect()
            }
            Report::WarmingUp { device } => {
                plain(format!("warming up the device: {device} computes for the first time"))
            }
            Report::Downloading { bytes, of } => {
                plain(format!("data set: {} of {}", format::bytes(*bytes), format::bytes(*of)))
            }
            Report::Arriving { files, of, .. } if files == of => plain(format!("all {of} files of the data are here")),
            Report::Arriving { files, of, .. } => {
                let begins = format!("begins with {files} of {of} files of the data; the rest comes while it trains");
                let has_begun = std::mem::replace(&mut self.has_data_coming, true);
                if has_begun {
                    only_if(everything, plain(format!("{files} of {of} files of the data are here")))
                } else {
                    plain(begins)
                }
            }
            Report::Data(summary) => plain(summary.to_string()),
            Report::Connecting { .. }
            | Report::Asking { .. }
            | Report::Answered { .. }
            | Report::Returning { .. }
            | Report::BegunFrom { .. }
            | Report::Awaiting { .. }
            | Report::Stopped => way_back::lines(report).into_iter().flat_map(plain).collect(),
            Report::Founder { key } => plain(format!(
                "the founder's key, which invites and revokes, is {key}: keep a copy elsewhere, or move it there"
            )),
            // Whoever wants it asks for it: `starling invite`.
            Report::Listening { addresses, ticket } => self.listening(addresses, ticket),
            Report::Waiting { present, needed } => {
                let missing = needed.saturating_sub(*present);
                let noun = if missing == 1 { "peer" } else { "peers" };
                plain(format!("waiting for {missing} more {noun} ({present} of {needed} here)"))
            }
            // A view follows, and says more.
            Report::Joining { peer } => only_if(everything, plain(format!("peer {peer} asks to join"))),
            Report::JoinerLost { peer } => bad(format!("peer {peer} went away before it had joined")),
            Report::Turned { peer, reason } => bad(format!("turned away peer {peer}: {reason}")),
            Report::View { .. } => self.view(report),
            Report::Suspected { peer, evidence, seen_by, .. } => {
                let seen_by = seen_by.as_ref().map_or_else(String::new, |by| format!(" (seen by {by})"));
                bad(format!("peer {peer} may be lost: {evidence}{seen_by}"))
            }
            Report::Paused { present, needed, missed } => bad(paused(*present, *needed, *missed, self.quorum)),
            Report::Evicted { by } => bad(format!("the others go on without this peer, says {by}; joining again")),
            Report::SetBack { by } => bad(format!(
                "warning: peer {} has shown what this member signed and its vote record does not know: its data directory is an \
                 older copy, or another process uses its key; so it may vote twice. Never put a copy back, or start one, \
                 while the run goes on",
                self.names.show(by)
            )),
            Report::Syncing { step, bytes, of } => {
                plain(format!("state of step {step}: {} of {}", format::bytes(*bytes), format::bytes(*of)))
            }
            Report::Synced { step } => good(format!("the state is here, up to date after step {step}")),
            Report::Linked(links) => {
                let is_new = std::mem::replace(&mut self.links, links.to_string()) != self.links;
                let tone = if links.is_open() { Tone::Bad } else { Tone::Plain };
                only_if(is_new || everything, vec![Line::new(tone, format!("gradients go by {links}"))])
            }
            Report::Limit { limit: Some(limit) } => {
                self.is_limited = true;
                bad(limit_of(limit))
            }
            Report::Limit { limit: None } => only_if(
                std::mem::take(&mut self.is_limited),
                good("nothing stands out any more that slows the steps down".into()),
            ),
            Report::Progress { .. } => self.progress(report),
            Report::Skipped { step, reason, in_row, total } => {
                bad(format!("step {step} was skipped: {reason}; {in_row} in a row, {total} in all"))
            }
            Report::GaveUp { step, peer, samples } => bad(format!(
                "step {step}: the {samples} samples of peer {peer} could not be computed, or came to numbers that no contribution may have; others compute them"
            )),
            Report::Rewritten { step, said, told, total } => bad(format!(
                "step {step}: one of the members changes what others are told of this one: \"{told}\" instead of \"{said}\"; in {total} steps so far"
            )),
            Report::Dropped { step, epoch, count, samples } => bad(format!(
                "step {step}: {count} samples are left out for the rest of epoch {epoch}, since whoever computes them comes to numbers that no contribution may have: training samples {}",
                format::list(samples, *count as usize)
            )),
            Report::Evaluating { step, samples, of } => {
                let (samples, of) = (format::thousands(*samples), format::thousands(*of));
                plain(format!("step {step}: {samples} of {of} held-out samples evaluated"))
            }
            Report::Evaluated { step, loss, measures } => {
                let measures: String =
                    measures.iter().map(|measure| format!("{}, ", format::measure(measure))).collect();
                plain(format!("step {step}: held-out {measures}loss {}", format::loss(*loss)))
            }
            Report::Unevaluated { step, peers, count } => bad(match peers.first() {
                None => format!("step {step}: no held-out figures, since nobody was there to evaluate a part"),
                Some(peer) => {
                    let more = count.saturating_sub(1);
                    let others = if more > 0 { format!(" and of {more} more") } else { String::new() };
                    format!("step {step}: no held-out figures, since the part of peer {peer}{others} is missing")
                }
            }),
            Report::Rescaled { step, scale } => plain(format!(
                "step {step}: a gradient is too large for f16; losses are multiplied by {scale} from now on, and its samples come again"
            )),
            Report::Judged { step, loss, best_step, best_loss, without, falls, is_over } => {
                let (loss, best_loss) = (format::loss(*loss), format::loss(*best_loss));
                let fallen = match falls {
                    0 => String::new(),
                    1 => "; the learning rate has fallen once".to_owned(),
                    falls => format!("; the learning rate has fallen {falls} times"),
                };
                match (*without, *is_over) {
                    (0, _) => plain(format!("held-out loss {loss} after step {step}: the best so far{fallen}")),
                    (without, false) => plain(format!(
                        "held-out loss {loss} after step {step}: no better than {best_loss} after step {best_step}, {without} in a row{fallen}"
                    )),
                    (without, true) => plain(format!(
                        "held-out loss {loss} after step {step}: no better than {best_loss} after step {best_step}, {without} in a row; the run ends here, and its model is that after step {best_step}"
                    )),
                }
            }
            Report::Saved { step, digest } => only_if(
                everything,
                plain(format!("checkpoint after step {step} saved, digest {}", format::digest(digest))),
            ),
            Report::Stable { step, digest, signers } => self.stable(*step, digest, *signers),
            Report::Keeping { peer, run, steps, stable_step, private } => {
                self.keeps = true;
                let kind = if *private { "private" } else { "public" };
                let newest = stable_step.map_or_else(
                    || "no stable checkpoint yet".to_owned(),
                    |step| format!("the newest stable checkpoint is after step {step}"),
                );
                let lines = [
                    format!("this is peer {peer}"),
                    format!("keeps the checkpoints of the {kind} run {}, {steps} steps; {newest}", format::digest(run)),
                ];
                lines.into_iter().flat_map(plain).collect()
            }
            Report::Fetching { step, bytes, of } => {
                let line = format!("checkpoint after step {step}: {} of {}", format::bytes(*bytes), format::bytes(*of));
                // A keeper fetches all its life.
                only_if(everything || !self.keeps, plain(line))
            }
            Report::Fetched { step, digest } => good(format!(
                "another peer held a newer stable checkpoint: goes on after step {step}, digest {}",
                format::digest(digest)
            )),
            Report::Misbehaved { peer, what } => bad(format!("warning: peer {} {what}", self.names.show(peer))),
            Report::Warning { message } => bad(format!("warning: {message}")),
            Report::Finished(summary) if self.keeps => plain(match summary.digest.as_str() {
                "" => "stopped, without a stable checkpoint".to_owned(),
                digest => format!("stopped; holds the stable checkpoint after step {}, digest {digest}", summary.steps),
            }),
            Report::Finished(summary) => finished(summary).into_iter().flat_map(plain).collect(),
            Report::Attached { leaf, carrier } if *leaf == self.me => {
                good(format!("takes part as a leaf of {carrier}"))
            }
            Report::Attached { leaf, .. } => good(format!("{leaf} takes part as a leaf of this member")),
            Report::Detached { leaf, carrier, reason } if *leaf == self.me => {
                bad(format!("no leaf of {carrier} any more: {reason}"))
            }
            Report::Detached { leaf, reason, .. } => {
                bad(format!("{leaf} is no leaf of this member any more: {reason}"))
            }
            Report::Becomes { role, why } => good(format!("goes on as a {role}: {why}")),
            // Invitations, and figures for programs.
            _ => Vec::new(),
        }
    }

    fn listening(&mut self, addresses: &[String], ticket: &str) -> Vec<Line> {
        if self.ticket.as_deref() == Some(ticket) {
            return Vec::new();
        }
        self.ticket = Some(ticket.to_owned());
        let (what, verb) = match self.keeps {
            true => ("to fetch its newest stable checkpoint to another machine", "checkpoint fetch"),
            false => ("to join from another machine", "join"),
        };
        let listening = addresses.iter().map(|address| Line::new(Tone::Plain, format!("listening on {address}")));
        if ticket.is_empty() {
            let how = format!("{what}: `starling {verb} -` there, and the ticket that `starling invite` prints here");
            return listening.chain([Line::new(Tone::Plain, how)]).collect();
        }
        let empty = || Line::new(Tone::Copy, "");
        let how = Line::new(Tone::Plain, format!("{what}: `starling {verb} -` there, and paste"));
        listening.chain([empty(), how, Line::new(Tone::Copy, ticket), empty()]).collect()
    }

    /// Why it came and what it is, in one line.
    fn view(&mut self, report: &Report) -> Vec<Line> {
        let Report::View { generation, members, step, reason, took_ms, forked, .. } = report else { return Vec::new() };
        let count = members.len();
        let tone = match count.cmp(&self.members) {
            std::cmp::Ordering::Less => Tone::Bad,
            std::cmp::Ordering::Equal => Tone::Plain,
            std::cmp::Ordering::Greater => Tone::Good,
        };
        self.members = count;
        let fork = if *forked { " of a fork" } else { "" };
        let view = format!("generation {generation}{fork}: {}, after step {step}", format::members(count));
        let reason = if reason.is_empty() { String::new() } else { format!("{reason} ({took_ms} ms); ") };
        vec![Line::new(tone, format!("{reason}{view}"))]
    }

    fn progress(&self, report: &Report) -> Vec<Line> {
        let Report::Progress { epoch, .. } = report else { return Vec::new() };
        let mut figures = super::figures(report);
        figures.insert(1, format!("epoch {epoch}"));
        figures.extend(self.stable.map(|step| format!("stable {step}")));
        vec![Line::new(Tone::Plain, figures.join("  "))]
    }

    /// The first one is news; then lines of progress tell which it is.
    fn stable(&mut self, step: u64, digest: &str, signers: usize) -> Vec<Line> {
        let is_first = self.stable.is_none();
        self.stable = self.stable.max(Some(step));
        let more = if self.detail == Detail::All { "" } else { "; -v tells of each that follows" };
        if self.detail < Detail::All && !is_first {
            return Vec::new();
        }
        let digest = format::digest(digest);
        let signed = match (signers, self.members) {
            // Somebody who keeps checkpoints, or nobody knows how many there were.
            (signers, 0) => format!("{} signed", format::members(signers)),
            (1, 1) => "this member signed, the only one".to_owned(),
            (signers, members) if 2 * signers <= members => {
                format!("{signers} of {members} members signed, among them the casting vote")
            }
            (signers, members) => format!("{signers} of {} members signed", members.max(signers)),
        };
        vec![Line::new(Tone::Good, format!("checkpoint after step {step} is stable, digest {digest}: {signed}{more}"))]
    }
}

/// What slows the steps down, and what would help.
pub(crate) fn limit_of(limit: &Limit) -> String {
    match limit {
        Limit::Member { peer, speed } => format!("{peer} computes at {speed:.1} x the median of the others"),
        Limit::Link { from, to, share, codec, codec_share } => {
            let help = match codec {
                None => String::new(),
                Some(codec) if *codec_share == 0.5 => format!("; --codec {codec} would halve that"),
                Some(codec) => format!("; --codec {codec} would make it {codec_share:.2} of that"),
            };
            format!(
                "the link {from} to {to} is the limit: what it carries takes {} of a step{help}",
                format::percent(*share)
            )
        }
        other => format!("{other:?}"),
    }
}

/// What steps wait for, and who goes on meanwhile.
fn paused(present: usize, needed: usize, missed: Option<MissingState>, quorum: Quorum) -> String {
    let limit = if quorum == Quorum::Majority { ", or as a fork after --fork-after" } else { "" };
    let missing = match missed {
        Some(MissingState::State) => {
            return format!(
                "paused: of the members {present} answer, and none of those holds the run's state: they wait for the others that may \
                 hold it, and begin again before the first step once all have said that they don't{limit}; this peer does so at \
                 once, as a fork, if started with --alone"
            );
        }
        Some(MissingState::Unknown) => {
            "some of those have lost their checkpoints, or the note of what they had saved: it is waited for \
                                  whoever may hold a newer state"
                .to_owned()
        }
        Some(MissingState::Step(step)) => format!(
            "some of those had saved the state after step {step} and have lost it: it is waited for whoever may hold it still"
        ),
        None if present < needed => format!("{needed} are needed"),
        None if quorum == Quorum::TwoThirds => "not one who holds the newest state".to_owned(),
        None => "not the one whose vote counts among equals, or who holds the newest state".to_owned(),
    };
    let fork = if quorum == Quorum::Majority { " as a fork after --fork-after," } else { "" };
    format!(
        "paused: of the members {present} answer, and {missing}; the others go on if they are enough, this peer once they are \
         back,{fork} or alone if started with --alone"
    )
}

fn finished(summary: &Summary) -> Vec<String> {
    let head = match summary.outcome {
        Outcome::Complete if summary.forked => format!(
            "complete, as a fork: all of it committed step {}; members that could not be reached may have ended with another state",
            summary.steps
        ),
        Outcome::Complete => format!("complete: all members committed step {}", summary.steps),
        _ => format!("left in order after step {}", summary.steps),
    };
    let last = summary.loss.map_or_else(
        || "none, no step ran here".to_owned(),
        |loss| format!("{} (last batch)", format::loss(f64::from(loss))),
    );
    // Who sent nothing to anybody waited for nobody.
    let is_alone = summary.bytes_sent == 0 && summary.bytes_received == 0;
    let waiting = if is_alone {
        String::new()
    } else {
        format!(", waiting for the others {}", format::percent(summary.waiting_share))
    };
    let waiting = waiting + &format::data_wait(summary.data_wait_share);
    let traffic = format!(
        "  traffic   {} sent, {} received",
        format::bytes(summary.bytes_sent),
        format::bytes(summary.bytes_received)
    );
    let measures = summary
        .measures
        .iter()
        .map(|(name, mean)| format!("  {name:<8}  {} on held-out samples", format::mean(name, *mean)));
    let lines = [
        Some(match summary.held_out_loss {
            Some(held_out) => format!("  loss      {last}, {} (held-out)", format::loss(held_out)),
            None => format!("  loss      {last}"),
        }),
        Some(format!(
            "  steps     {}, {} in the last view",
            summary.steps,
            format::members(summary.world_size as usize)
        )),
        Some(format!("  speed     {} over {:.1} s{waiting}", format::rate(summary.samples_per_s), summary.stepping_s)),
        (!is_alone).then_some(traffic),
        Some(format!("  digest    {}", summary.digest)),
        (!summary.values.is_empty()).then(|| format!("  values    {}", summary.values)),
    ];
    std::iter::once(head).chain(measures).chain(lines.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(narrator: &mut Narrator, report: &Report) -> Vec<String> {
        narrator.lines(report).into_iter().map(|line| line.text).collect()
    }

    fn view(generation: u64, members: &[&str], reason: &str) -> Report {
        Report::View {
            generation,
            view: "00".repeat(32),
            rank: 0,
            members: members.iter().map(|member| (*member).to_owned()).collect(),
            newcomers: Vec::new(),
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
        let mut narrator = Narrator::new(Detail::Changes);
        let listening =
            Report::Listening { addresses: vec!["/ip4/192.0.2.1/tcp/1".to_owned()], ticket: "starling3abc".to_owned() };
        let lines = texts(&mut narrator, &listening);
        assert!(lines.contains(&"starling3abc".to_owned()) && lines[2].contains("`starling join -`"), "{lines:?}");
        assert!(texts(&mut narrator, &listening).is_empty());
    }

    #[test]
    fn a_ticket_that_is_not_to_be_told_is_asked_for() {
        let listening = Report::Listening { addresses: Vec::new(), ticket: String::new() };
        let lines = texts(&mut Narrator::new(Detail::Changes), &listening);
        assert!(lines.len() == 1 && lines[0].contains("`starling invite`"), "{lines:?}");
    }

    #[test]
    fn a_keeper_invites_to_fetch_and_ends_with_what_it_holds() {
        let mut narrator = Narrator::new(Detail::Changes);
        let (peer, run) = ("12D3KooWabcdef".to_owned(), "cd".repeat(32));
        texts(&mut narrator, &Report::Keeping { peer, run, steps: 600, stable_step: None, private: true });
        let listening = Report::Listening { addresses: Vec::new(), ticket: "starling3abc".to_owned() };
        let lines = texts(&mut narrator, &listening);
        assert!(
            lines.contains(&"starling3abc".to_owned()) && lines[1].contains("`starling checkpoint fetch -`"),
            "{lines:?}"
        );
        let mut summary = Summary::before_the_start();
        (summary.steps, summary.digest) = (40, "ab".repeat(32));
        let lines = texts(&mut narrator, &Report::Finished(summary));
        assert!(lines.len() == 1 && lines[0].contains("step 40") && lines[0].contains(&"ab".repeat(32)), "{lines:?}");
        let lines = texts(&mut narrator, &Report::Finished(Summary::before_the_start()));
        assert_eq!(lines, ["stopped, without a stable checkpoint"]);
    }

    #[test]
    fn a_view_says_why_it_came() {
        let mut narrator = Narrator::new(Detail::Changes);
        let founded = texts(&mut narrator, &view(1, &["a"], ""));
        assert_eq!(founded, ["generation 1: 1 member, after step 7"]);
        let lines = narrator.lines(&view(2, &["a", "b"], "peer b joined"));
        assert_eq!(lines, [Line::new(Tone::Good, "peer b joined (41 ms); generation 2: 2 members, after step 7")]);
    }

    #[test]
    fn an_evaluation_without_figures_says_whose_part_is_missing() {
        let lines = |peers: &[&str], count| {
            let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
            texts(&mut Narrator::new(Detail::Changes), &Report::Unevaluated { step: 20, peers, count }).join("\n")
        };
        assert_eq!(lines(&["a"], 1), "step 20: no held-out figures, since the part of peer a is missing");
        assert_eq!(
            lines(&["a", "b"], 2),
            "step 20: no held-out figures, since the part of peer a and of 1 more is missing"
        );
        assert!(lines(&[], 0).contains("nobody was there"));
    }

    #[test]
    fn the_last_evaluation_says_how_far_it_is() {
        let evaluating = Report::Evaluating { step: 3, samples: 1_024, of: 12_600 };
        let lines = texts(&mut Narrator::new(Detail::Changes), &evaluating);
        assert_eq!(lines, ["step 3: 1 024 of 12 600 held-out samples evaluated"]);
    }

    #[test]
    fn who_asks_for_two_thirds_is_told_what_that_costs() {
        let mut narrator = Narrator::new(Detail::Changes);
        let started = |quorum| Report::Started {
            peer: "12D3KooWabcdef".to_owned(),
            run: "cd".repeat(32),
            model: "mlp:64".to_owned(),
            parameters: 1,
            samples: 2,
            device: "cpu".to_owned(),
            steps: 600,
            batch_size: 64,
            step: 0,
            private: true,
            quorum,
        };
        let paused = Report::Paused { present: 2, needed: 3, missed: None };
        let missed = Report::Paused { present: 3, needed: 3, missed: Some(MissingState::Step(40)) };
        assert!(!texts(&mut narrator, &started(Quorum::Majority)).join("\n").contains("quorum"));
        assert!(texts(&mut narrator, &paused).join("\n").contains("--fork-after"));
        assert!(texts(&mut narrator, &missed).join("\n").contains("the state after step 40"));
        let missed = Report::Paused { present: 1, needed: 1, missed: Some(MissingState::State) };
        assert!(texts(&mut narrator, &missed).join("\n").contains("begin again before the first step"));
        let lines = texts(&mut narrator, &started(Quorum::TwoThirds)).join("\n");
        assert!(lines.contains("the first that dies stops the run"), "{lines}");
        let lines = texts(&mut narrator, &paused).join("\n");
        assert!(lines.contains("3 are needed") && !lines.contains("--fork-after"), "{lines}");
    }

    #[test]
    fn the_last_lines_hold_the_whole_digest() {
        let digest = "ab".repeat(32);
        let mut summary = Summary::before_the_start();
        (summary.run, summary.outcome, summary.digest) = ("cd".repeat(32), Outcome::Complete, digest.clone());
        (summary.steps, summary.world_size, summary.stepping_s) = (600, 4, 2.0);
        (summary.loss, summary.held_out_loss) = (Some(0.25), Some(0.5));
        summary.measures = [("accuracy".to_owned(), 0.97)].into();
        (summary.waiting_share, summary.bytes_sent, summary.bytes_received) = (0.25, 2048, 4096);
        summary.data_wait_share = 0.125;
        summary.values = "ef".repeat(32);
        let text = texts(&mut Narrator::new(Detail::Changes), &Report::Finished(summary)).join("\n");
        for part in
            [&digest, &"ef".repeat(32), "97.0 %", "0.2500", "0.5000", "600", "25.0 %", "loading data 12.5 %", "2.0 KiB"]
        {
            assert!(text.contains(part), "{part} is missing from:\n{text}");
        }
    }

    #[test]
    fn all_lines_call_a_peer_the_same() {
        let mut narrator = Narrator::new(Detail::Changes);
        let peer = starling_node::credentials::identity::Identity::generate().peer_id().to_string();
        narrator.lines(&Report::Named { peer: peer.clone(), name: "lab-2".to_owned() });
        let short = format!("{} (lab-2)", format::peer(&peer));
        let reports = [
            view(4, &["a"], &format!("peer {peer} lost: gone")),
            Report::Suspected { peer: peer.clone(), evidence: "gone".to_owned(), seen_by: Some(peer.clone()), step: 0 },
            Report::Turned { peer: peer.clone(), reason: "no".to_owned() },
            Report::Misbehaved { peer: peer.clone(), what: "sent nonsense".to_owned() },
            Report::Warning { message: format!("peer {peer} is known") },
            Report::Limit { limit: Some(Limit::Member { peer: peer.clone(), speed: 0.21 }) },
        ];
        for report in reports {
            let lines = texts(&mut narrator, &report).join("\n");
            assert!(lines.contains(&short) && !lines.contains(&peer), "{lines}");
        }
    }

    #[test]
    fn checkpoints_are_told_once_and_then_with_the_steps() {
        let saved = |step| Report::Saved { step, digest: "ab".repeat(32) };
        let stable = |step, signers| Report::Stable { step, digest: "ab".repeat(32), signers };
        let step = Report::Progress {
            step: 250,
            generation: 1,
            steps: 300,
            epoch: 2,
            loss: -0.000_01,
            samples_per_s: 1234.0,
            waiting_share: 0.5,
            data_wait_share: 0.0,
            members: 2,
            eta_s: 90.0,
            skipped: 0,
        };
        let mut narrator = Narrator::new(Detail::Changes);
        narrator.lines(&view(2, &["a", "b"], ""));
        assert!(narrator.lines(&saved(100)).is_empty());
        let first = texts(&mut narrator, &stable(100, 1)).join("\n");
        assert!(first.contains("1 of 2 members signed, among them the casting vote; -v tells"), "{first}");
        for step in (200..20_000).step_by(100) {
            assert!(narrator.lines(&saved(step)).is_empty() && narrator.lines(&stable(step, 2)).is_empty());
        }
        let line =
            "step 250/300  epoch 2  loss 0.0000  1 234 samples/s  1 min left  2 members  waiting 50.0 %  stable 19900";
        assert_eq!(texts(&mut narrator, &step), [line]);
        let mut all = Narrator::new(Detail::All);
        all.lines(&view(1, &["a"], ""));
        assert_eq!(all.lines(&saved(100)).len(), 1);
        assert!(texts(&mut all, &stable(100, 1))[0].ends_with("this member signed, the only one"));
        assert!(texts(&mut all, &stable(200, 3))[0].ends_with("3 of 3 members signed"), "some left since");
    }

    #[test]
    fn who_was_alone_waited_for_nobody() {
        let mut alone = Summary::before_the_start();
        (alone.run, alone.waiting_share, alone.world_size) = ("ab".repeat(32), 0.2, 1);
        let text = texts(&mut Narrator::new(Detail::Changes), &Report::Finished(alone)).join("\n");
        assert!(!text.contains("waiting") && !text.contains("traffic") && text.contains("1 member in"), "{text}");
        let stopped = texts(&mut Narrator::new(Detail::Changes), &Report::Stopped);
        assert_eq!(stopped, ["stopped before it took part in a run"]);
    }
}
