//! What a round came to.

/// What a round came to.
#[derive(Debug, Default)]
pub struct Findings {
    /// Committed stable steps that the run went back behind.
    pub lost_stable: Vec<String>,
    /// Members with different states in one view, and runs that split.
    pub divergences: Vec<String>,
    /// What did not come to an end in time.
    pub hangs: Vec<String>,
    /// Processes that ended for no good reason, or panicked.
    pub unexpected_exits: Vec<String>,
    /// What the audit found.
    pub audits_failed: Vec<String>,
    /// What could not be judged or done, and why.
    pub unjudged: Vec<String>,
    /// The last committed step.
    pub step: u64,
}

impl Findings {
    /// Each kind of offence, by its name in the summary.
    pub fn offences(&self) -> [(&'static str, &[String]); 5] {
        [
            ("lost_stable", &self.lost_stable),
            ("divergences", &self.divergences),
            ("hangs", &self.hangs),
            ("unexpected_exits", &self.unexpected_exits),
            ("audits_failed", &self.audits_failed),
        ]
    }
}
