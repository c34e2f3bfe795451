//! What members do and links cost, and what of it slows the steps down.

use serde::{Deserialize, Serialize};

use super::MeasuredLink;

/// What a member did in the last second or so of steps, as the speeds tell that travel in every reduction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberPaceReport {
    /// Its peer id.
    pub peer: String,
    /// Samples that it contributed.
    pub samples: u64,
    /// Samples that it computes per second, counting only the time in which it computed; `None` if it told none.
    pub samples_per_s: Option<f64>,
    /// Share of the time that it computed, 0 to 1: the rest it waited, or had something else to do.
    pub computing_share: f64,
    /// Whether it still downloads the state.
    pub syncing: bool,
    /// Whether it said in one of the steps that the data of its samples was still on its way, and computed nothing.
    #[serde(default)]
    pub starved: bool,
}

/// One link that the view's plan sends over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkCost {
    /// Who sends.
    pub from: String,
    /// Who receives.
    pub to: String,
    /// What goes over it in each step.
    pub bytes: u64,
    /// What it costs, as the members agreed; `None` if nobody had measured it then.
    pub agreed: Option<MeasuredLink>,
}

/// What makes the steps as slow as they are, where that is clear.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// A member computes much slower than the others.
    Member {
        /// Its peer id.
        peer: String,
        /// Its speed as a part of the others' median.
        speed: f64,
    },
    /// What a link carries takes most of the step.
    Link {
        /// Who sends.
        from: String,
        /// Who receives.
        to: String,
        /// The part of a step that its bytes take, 0 to 1.
        share: f64,
        /// The codec that would take less; `None` if the run's takes the least.
        codec: Option<String>,
        /// The part of the present bytes that it would take.
        codec_share: f64,
    },
}
