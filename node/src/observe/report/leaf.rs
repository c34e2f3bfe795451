//! What leaves do.

use serde::{Deserialize, Serialize};

/// What a leaf has brought to a member since the process that tells it began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeafPaceReport {
    /// Its peer id.
    pub peer: String,
    /// Whether it takes part now.
    pub is_attached: bool,
    /// Parts of shares that it brought in time.
    pub parts: u64,
    /// Samples of these.
    pub samples: u64,
    /// Parts that its carrier began to compute in its place.
    pub late: u64,
}
