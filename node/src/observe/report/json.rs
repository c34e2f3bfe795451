//! Reports for programs: one JSON object per line on stdout.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::{Observer, Report};
use crate::observe::clock;
use crate::observe::stdout::print_line;

/// Prints each report as it is, with its time. The last one is the summary.
#[derive(Debug, Clone, Copy)]
pub struct JsonObserver;

impl Observer for JsonObserver {
    fn report(&self, report: &Report) {
        self.report_at(SystemTime::now(), report);
    }

    fn report_at(&self, at: SystemTime, report: &Report) {
        print_line(&line(at, &serde_json::to_string(report).expect("invariant: a report is plain data")));
    }
}

/// An object's text with its time behind the rest, so that the kind of an event stays in front.
pub fn line(at: SystemTime, object: &str) -> String {
    let fields = object.strip_suffix('}').unwrap_or(object);
    format!("{fields},\"time\":\"{}\"}}", clock::utc(at))
}

/// An object with its time, in UTC.
pub fn timed(at: SystemTime, mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.insert("time".to_owned(), json!(clock::utc(at)));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_its_time_and_is_still_a_report() {
        let report = Report::Synced { step: 7 };
        let object = timed(SystemTime::UNIX_EPOCH, json!(report));
        assert_eq!(object, json!({ "event": "synced", "step": 7, "time": "1970-01-01T00:00:00.000Z" }));
        assert_eq!(serde_json::from_value::<Report>(object).expect("a report"), report);
        assert_eq!(timed(SystemTime::UNIX_EPOCH, json!([1])), json!([1]));
        let text = line(SystemTime::UNIX_EPOCH, "{\"event\":\"synced\",\"step\":7}");
        assert_eq!(text, "{\"event\":\"synced\",\"step\":7,\"time\":\"1970-01-01T00:00:00.000Z\"}");
    }
}
