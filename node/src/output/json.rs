//! Reports for programs: one JSON object per line on stdout.

use super::print_line;
use crate::report::{Observer, Report};

/// Prints each report as it is. The last one is the summary.
#[derive(Debug, Clone, Copy)]
pub struct Json;

impl Observer for Json {
    fn report(&self, report: &Report) {
        print_line(&serde_json::to_string(report).expect("invariant: a report is plain data"));
    }
}
