//! Several observers as one.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Observer, Report};

/// Tells several observers, in order.
pub struct ObserverSet(pub Vec<Arc<dyn Observer>>);

impl fmt::Debug for ObserverSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverSet").field("observers", &self.0.len()).finish()
    }
}

impl Observer for ObserverSet {
    fn report(&self, report: &Report) {
        self.report_at(SystemTime::now(), report);
    }

    fn report_at(&self, at: SystemTime, report: &Report) {
        for observer in &self.0 {
            observer.report_at(at, report);
        }
    }
}
