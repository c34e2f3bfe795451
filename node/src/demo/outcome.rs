//! What a demo came to: the peers' summaries side by side.

use std::time::Duration;

use serde_json::{Value, json};

use crate::output::format;
use crate::report::{self, Summary};

/// All peers' ends.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Each peer's rank in its last view, and its summary.
    pub peers: Vec<(Option<u32>, Summary)>,
    /// From the first child's start to the last one's end.
    pub elapsed: Duration,
}

impl Outcome {
    /// Of peers in the order in which they were started; there is at least one.
    pub fn new(peers: Vec<(Option<u32>, Summary)>, elapsed: Duration) -> Self {
        Self { peers, elapsed }
    }

    /// Whether all peers ended with the same replicated state.
    pub fn digests_equal(&self) -> bool {
        let mut digests = self.summaries().map(|summary| &summary.digest);
        digests.next().is_some_and(|first| !first.is_empty() && digests.all(|digest| digest == first))
    }

    /// Whether all peers took all steps, and ended with the same replicated state.
    pub fn is_good(&self) -> bool {
        self.summaries().all(|summary| summary.outcome == report::Outcome::Complete) && self.digests_equal()
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
            "digests": digests,
        })
    }

    /// The figures as two lines.
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
        format!("{first}\n{second}")
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
        self.summaries().map(|summary| summary.accuracy).reduce(f64::min).unwrap_or(0.0)
    }

    fn mean(&self, figure: impl Fn(&Summary) -> f64) -> f64 {
        self.summaries().map(figure).sum::<f64>() / self.peers.len().max(1) as f64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::demo) fn outcome(digests: &[&str]) -> Outcome {
        let summary = |(index, digest): (usize, &&str)| Summary {
            peer: format!("12D3KooWpeer{index}"),
            run: "run".to_owned(),
            outcome: report::Outcome::Complete,
            steps: 400,
            world_size: 2,
            loss: Some(0.125),
            held_out_loss: 0.25,
            accuracy: 0.96 + index as f64 / 100.0,
            digest: (*digest).to_owned(),
            samples_per_s: 1000.0 + 100.0 * index as f64,
            waiting_share: 0.25,
            bytes_sent: 1 << 20,
            bytes_received: 1 << 20,
            stepping_s: 2.0,
        };
        let peers = digests.iter().enumerate().map(summary).enumerate();
        let peers = peers.map(|(index, summary)| (Some(1 - index as u32 % 2), summary)).collect();
        Outcome::new(peers, Duration::from_secs(3))
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
        left.peers[1].1.outcome = report::Outcome::Left;
        assert!(!left.is_good());
    }
}
