//! Times as programs read them.

use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};

/// `2026-11-22T23:59:59.123Z`: RFC 3339, in UTC, with milliseconds.
pub fn utc(at: SystemTime) -> String {
    DateTime::<Utc>::from(at).to_rfc3339_opts(SecondsFormat::Millis, true)
}
