//! Times as people read them: local ones.

use std::fmt;
use std::time::SystemTime;

use chrono::{DateTime, Local};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// `23:59:59`, in the zone that this machine is set to.
pub fn of_day(at: SystemTime) -> String {
    DateTime::<Local>::from(at).format("%H:%M:%S").to_string()
}

/// `2026-11-22 23:59:59`, in the zone that this machine is set to, of what programs read; as it is if that is something else.
pub fn local_of(utc: &str) -> String {
    let local = |at: DateTime<_>| at.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S").to_string();
    DateTime::parse_from_rfc3339(utc).map_or_else(|_| utc.to_owned(), local)
}

/// Gives lines of the log the same time as those of reports.
#[derive(Debug, Clone, Copy)]
pub struct OfDay;

impl FormatTime for OfDay {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&of_day(SystemTime::now()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use starling_node::observe::clock::utc;

    use super::*;

    #[test]
    fn times_have_their_forms_in_every_zone() {
        let at = UNIX_EPOCH + Duration::from_millis(1_795_391_999_123);
        assert_eq!(utc(at), "2026-11-22T23:59:59.123Z");
        let day = of_day(at);
        assert!(day.len() == 8 && day.ends_with(":59"), "{day}");
        let local = local_of(&utc(at));
        assert!(local.starts_with("2026-11-2") && local.ends_with(&day), "{local}");
        assert_eq!(local_of("soon"), "soon");
    }
}
