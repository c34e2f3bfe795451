//! How a run ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observe::figures;

/// The measure that is a share, and shown as one.
pub const ACCURACY: &str = "accuracy";

/// How a run ended for this peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// Our peer id.
    pub peer: String,
    /// The run's id, hex.
    pub run: String,
    /// Why: `complete` (last step committed by all), or `left` (in order, on request).
    pub outcome: Outcome,
    /// The last committed step.
    pub steps: u64,
    /// The members of the last view.
    pub world_size: u32,
    /// Whether that was a fork's: members who could not be reached may have ended with another state.
    #[serde(default)]
    pub forked: bool,
    /// Mean loss over the last global batch; `None` if no step ran here.
    pub loss: Option<f32>,
    /// Mean loss on held-out samples.
    pub held_out_loss: Option<f64>,
    /// What else the task measures on them, by name, no number where it came to none. Of a classifier: `accuracy`, the share classified right, 0 to 1.
    #[serde(default, deserialize_with = "figures::read_all")]
    pub measures: BTreeMap<String, f64>,
    /// Digest of the replicated state, hex: equal on all members that ended at one step.
    pub digest: String,
    /// Hash of its parameters, moments and scalars alone, hex: equal to that of another run that learned alike.
    #[serde(default)]
    pub values: String,
    /// Samples of the global batch per second, over the stepping time.
    pub samples_per_s: f64,
    /// Share of the stepping time spent waiting for the ring, 0 to 1.
    pub waiting_share: f64,
    /// Share of it in which nothing was done here but to load samples, 0 to 1.
    #[serde(default)]
    pub data_wait_share: f64,
    /// Gradient bytes sent over links for segments, headers included.
    pub bytes_sent: u64,
    /// Gradient bytes received over links for segments, headers included.
    pub bytes_received: u64,
    /// Wall-clock seconds in which steps ran.
    pub stepping_s: f64,
}

impl Summary {
    /// What a classifier is judged by; `None` if the task measures something else.
    pub fn accuracy(&self) -> Option<f64> {
        self.measures.get(ACCURACY).copied()
    }

    /// Of a peer that was stopped before it took part in anything.
    pub fn before_the_start() -> Self {
        Self {
            peer: String::new(),
            run: String::new(),
            outcome: Outcome::Left,
            steps: 0,
            world_size: 0,
            forked: false,
            loss: None,
            held_out_loss: None,
            measures: BTreeMap::new(),
            digest: String::new(),
            values: String::new(),
            samples_per_s: 0.0,
            waiting_share: 0.0,
            data_wait_share: 0.0,
            bytes_sent: 0,
            bytes_received: 0,
            stepping_s: 0.0,
        }
    }
}

/// Why a run ended for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// All members committed the last step.
    Complete,
    /// This peer left in order.
    Left,
}
