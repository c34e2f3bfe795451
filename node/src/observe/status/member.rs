//! One member of the view, as this one sees it.

use serde::{Deserialize, Serialize};

use super::Status;
use crate::observe::report::MemberPaceReport;

/// What is known of a member.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its peer id.
    pub peer: String,
    /// Its name; `None` if it told none.
    pub name: Option<String>,
    /// Samples that it computes per second, counting only the time in which it computes.
    pub samples_per_s: Option<f64>,
    /// Its share of the samples of the last steps, 0 to 1.
    pub share: Option<f64>,
    /// Share of the time in which it did not compute, 0 to 1: it waited for the others, for most of it.
    pub waiting_share: Option<f64>,
    /// How segments travel between it and this member; `None` if they don't.
    pub link: Option<String>,
    /// What gets to it from here, or where the plan has it send most, in millions of bits per second.
    pub mbit: Option<f64>,
    /// There and back over the same link, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Whether it still downloads the state.
    pub syncing: bool,
    /// Whether it lacked the data of its samples in one of the last steps, and computed nothing in that.
    #[serde(default)]
    pub starved: bool,
}

impl Status {
    /// A row for each member of the view, in ring order.
    pub fn rows(&self) -> Vec<Member> {
        let samples: u64 = self.paces.iter().map(|pace| pace.samples).sum();
        let row = |peer: &String| {
            let pace = self.paces.iter().find(|pace| pace.peer == *peer);
            let links = self.links.as_ref();
            let link = links.and_then(|links| links.to.get(peer).or_else(|| links.from.get(peer)));
            let agreed = self.busiest.get(peer).and_then(|link| link.agreed);
            let cost = self.measured.get(peer).copied().or(agreed);
            let told =
                |figure: fn(&MemberPaceReport) -> f64| pace.filter(|pace| pace.samples_per_s.is_some()).map(figure);
            Member {
                peer: peer.clone(),
                name: self.names.get(peer).cloned(),
                samples_per_s: pace.and_then(|pace| pace.samples_per_s),
                share: pace.filter(|_| samples > 0).map(|pace| pace.samples as f64 / samples as f64),
                waiting_share: told(|pace| 1.0 - pace.computing_share),
                link: link.map(ToString::to_string),
                mbit: cost.map(|cost| cost.mbit),
                rtt_ms: cost.map(|cost| cost.rtt_ms),
                syncing: pace.is_some_and(|pace| pace.syncing),
                starved: pace.is_some_and(|pace| pace.starved),
            }
        };
        self.members.iter().map(row).collect()
    }
}
