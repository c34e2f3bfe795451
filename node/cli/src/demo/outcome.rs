//! What a demo came to: the peers' summaries side by side.

use std::time::Duration;

use serde_json::{Value, json};
use starling::Summary;

use crate::output::format;

/// What happened on the way. Times are milliseconds, as this process saw them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Peers that were killed.
    pub killed: usize,
    /// Peers that joined while the others trained.
    pub joined: usize,
    /// From the kill until a member suspected the killed one.
    pub detect_ms: Option<u64>,
    /// From the kill until the first peer was in a view without it.
    pub rering_ms: Option<u64>,
    /// From the kill until the next step was committed.
    pub recovery_ms: Option<u64>,
    /// From the start of the process that joined until it was a full member.
    pub join_ms: Option<u64>,
}

/// All peers' ends.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Each peer's number, and its summary.
    pub peers: Vec<(usize, Summary)>,
    /// From the first child's start to the last one's end.
    pub elapsed: Duration,
    /// What happened on the way.
    pub figures: Figures,
    /// Samples of whole epochs that nobody contributed, and contributions of samples that had been contributed before.
    pub samples: (u64, u64),
}

impl Outcome {
    /// Of peers in the order in which they were started; there is at least one.
    pub fn new(peers: Vec<(usize, Summary)>, elapsed: Duration, figures: Figures, samples: (u64, u64)) -> Self {
        Self { peers, elapsed, figures, samples }
    }

    /// Whether all peers ended with the same replicated state.
    pub fn digests_equal(&self) -> bool {
        let mut digests = self.summaries().map(|summary| &summary.digest);
        digests.next().is_some_and(|first| !first.is_empty() && digests.all(|digest| digest == first))
    }

    /// Whether all peers took all steps and ended with the same replicated state, and each sample counted once.
    pub fn is_good(&self) -> bool {
        self.samples == (0, 0)
            && self.summaries().all(|summary| summary.outcome == starling::Outcome::Complete)
            && self.digests_equal()
    }

    /// The figures as one JSON object.
    pub fn to_json(&self) -> Value {
        let digests: Vec<&str> = self.summaries().map(|summary| summary.digest.as_str()).collect();
        json!({
            "peers": self.peers.len(),
            "steps": self.steps(),
            "accuracy": self.accuracy(),
            "loss": self.summaries().find_map(|summary| summary.loss),
            "digests_equal": self.digests_equal(),
            "samples_per_s": self.mean(|summary| summary.samples_per_s),
            "waiting_share": self.mean(|summary| summary.waiting_share),
            "bytes_sent": self.summaries().map(|summary| summary.bytes_sent).sum::<u64>(),
            "elapsed_s": self.elapsed.as_secs_f64(),
            "killed": self.figures.killed,
            "joined": self.figures.joined,
            "detect_ms": self.figures.detect_ms,
            "rering_ms": self.figures.rering_ms,
            "recovery_ms": self.figures.recovery_ms,
            "join_ms": self.figures.join_ms,
            "samples_lost": self.samples.0,
            "samples_repeated": self.samples.1,
            "digests": digests,
        })
    }

    /// The figures as a few lines.
    pub fn verdict(&self) -> String {
        let peers = format::peers(self.peers.len());
        let first = format!(
            "{peers} took {} steps in {:.1} s; held-out accuracy {}",
            self.steps(),
            self.elapsed.as_secs_f64(),
            format::percent(self.accuracy())
        );
        let second = match (self.digests_equal(), self.peers.first()) {
            (true, Some((_, summary))) => format!("all digests are equal: {}", summary.digest),
            (true, None) | (false, _) => "the digests DIFFER: the peers do not hold the same model".to_owned(),
        };
        let lines = [first, self.events(), second];
        lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// What happened on the way, as two lines; nothing if nothing did.
    fn events(&self) -> String {
        let Figures { killed, detect_ms, rering_ms, recovery_ms, join_ms, .. } = self.figures;
        if killed == 0 {
            return String::new();
        }
        let ms = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let samples = match self.samples {
            (0, 0) => "no sample was lost, none was repeated".to_owned(),
            (lost, repeated) => format!("{lost} samples were LOST, {repeated} REPEATED"),
        };
        format!(
            "one was killed: seen after {}, a new ring after {}, the next step after {}\none joined within {}\n{samples}",
            ms(detect_ms),
            ms(rering_ms),
            ms(recovery_ms),
            ms(join_ms)
        )
    }

    fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.peers.iter().map(|(_, summary)| summary)
    }

    /// Steps that all have taken.
    fn steps(&self) -> u64 {
        self.summaries().map(|summary| summary.steps).min().unwrap_or(0)
    }

    /// The worst peer's; with equal digests, everybody's.
    fn accuracy(&self) -> f64 {
        self.summaries().filter_map(Summary::accuracy).reduce(f64::min).unwrap_or(0.0)
    }

    fn mean(&self, figure: impl Fn(&Summary) -> f64) -> f64 {
        self.summaries().map(figure).sum::<f64>() / self.peers.len().max(1) as f64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::demo) fn outcome(digests: &[&str]) -> Outcome {
        let summary = |(index, digest): (usize, &&str)| {
            let mut summary = Summary::before_the_start();
            summary.peer = format!("12D3KooWpeer{index}");
            summary.run = "run".to_owned();
            summary.outcome = starling::Outcome::Complete;
            (summary.steps, summary.world_size) = (400, 2);
            (summary.loss, summary.held_out_loss) = (Some(0.125), Some(0.25));
            summary.measures = [("accuracy".to_owned(), 0.96 + index as f64 / 100.0)].into();
            summary.digest = (*digest).to_owned();
            summary.samples_per_s = 1000.0 + 100.0 * index as f64;
            summary.waiting_share = 0.25;
            (summary.bytes_sent, summary.bytes_received) = (1 << 20, 1 << 20);
            summary.stepping_s = 2.0;
            summary
        };
        let peers = digests.iter().enumerate().map(summary).enumerate().collect();
        let figures = Figures {
            killed: 1,
            joined: 1,
            detect_ms: Some(2),
            rering_ms: Some(40),
            recovery_ms: Some(60),
            join_ms: Some(700),
        };
        Outcome::new(peers, Duration::from_secs(3), figures, (0, 0))
    }

    #[test]
    fn equal_digests_are_good() {
        let outcome = outcome(&["abc", "abc"]);
        assert!(outcome.is_good());
        let json = outcome.to_json();
        assert_eq!(json["peers"], 2);
        assert_eq!(json["steps"], 400);
        assert_eq!(json["accuracy"], 0.96);
        assert_eq!(json["loss"], 0.125);
        assert_eq!(json["digests_equal"], true);
        assert_eq!(json["samples_per_s"], 1050.0);
        assert_eq!(json["waiting_share"], 0.25);
        assert_eq!(json["bytes_sent"], 2 << 20);
        assert_eq!(json["elapsed_s"], 3.0);
        assert_eq!((&json["killed"], &json["joined"]), (&json!(1), &json!(1)));
        assert_eq!((&json["detect_ms"], &json["rering_ms"], &json["recovery_ms"]), (&json!(2), &json!(40), &json!(60)));
        assert_eq!(
            (&json["join_ms"], &json["samples_lost"], &json["samples_repeated"]),
            (&json!(700), &json!(0), &json!(0))
        );
        let verdict = outcome.verdict();
        assert!(verdict.contains("the next step after 60 ms") && verdict.contains("no sample was lost"), "{verdict}");
        assert_eq!(json["digests"], json!(["abc", "abc"]));
        assert!(outcome.verdict().contains("all digests are equal: abc"), "{}", outcome.verdict());
    }

    #[test]
    fn anything_else_is_not() {
        let differ = outcome(&["abc", "abd"]);
        assert!(!differ.is_good() && !differ.digests_equal());
        assert!(differ.verdict().contains("DIFFER"), "{}", differ.verdict());
        assert!(!outcome(&["", ""]).is_good(), "no digest is no proof");
        assert!(!outcome(&[]).is_good(), "nobody is no proof");
        let mut left = outcome(&["abc", "abc"]);
        left.peers[1].1.outcome = starling::Outcome::Left;
        assert!(!left.is_good());
        let lossy = Outcome { samples: (1, 0), ..outcome(&["abc", "abc"]) };
        assert!(!lossy.is_good() && lossy.verdict().contains("1 samples were LOST"), "{}", lossy.verdict());
        let quiet = Outcome { figures: Figures::default(), ..outcome(&["abc", "abc"]) };
        assert_eq!(quiet.verdict().lines().count(), 2, "{}", quiet.verdict());
    }
}
