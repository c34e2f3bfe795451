//! Logs: to stderr, above any progress bar.

use std::io;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

use crate::config::LogSettings;
use crate::log_writer::LogWriter;
use crate::output::Console;
use crate::output::clock::OfDay;

/// Our own crates, as logs name them.
const OWN: [&str; 7] = [
    "starling_cli",
    "starling_node",
    "starling_links",
    "starling_train",
    "starling_run",
    "starling_collective",
    "starling_topology",
];

/// Where this process's logs go.
static WRITER: OnceLock<LogWriter> = OnceLock::new();

/// Sends this process's logs to stderr, as `settings` say. To be called once.
///
/// # Errors
/// If the level can't be used, or logs already go somewhere.
pub fn init(settings: &LogSettings, console: &Console) -> io::Result<()> {
    let filter = EnvFilter::try_new(directives(&settings.level)).map_err(io::Error::other)?;
    let writer = LogWriter::start(console.clone(), settings.json)?;
    let _ = WRITER.set(writer.clone());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    let outcome = if settings.json { builder.json().try_init() } else { builder.with_timer(OfDay).try_init() };
    outcome.map_err(io::Error::other)
}

/// Waits until what was logged is written, or for a short while if nobody reads it.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.flush_all();
    }
}

/// A bare level is for our own messages; libraries are one level quieter, because what worries them (a peer that hangs
/// up, say) is usually handled. Anything else is taken as it is.
fn directives(level: &str) -> String {
    let quieter = match level.to_ascii_lowercase().as_str() {
        "error" | "warn" => "error",
        "info" => "warn",
        "debug" => "info",
        "trace" => "debug",
        _ => return level.to_owned(),
    };
    let own: Vec<String> = OWN.iter().map(|target| format!("{target}={level}")).collect();
    format!("{quieter},{}", own.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_a_level_quieter() {
        assert!(directives("warn").starts_with("error,starling_cli=warn,"), "{}", directives("warn"));
        assert!(directives("TRACE").starts_with("debug,starling_cli=TRACE,"), "{}", directives("TRACE"));
        assert_eq!(directives("off"), "off");
        assert_eq!(directives("info,libp2p=debug"), "info,libp2p=debug");
        for level in ["off", "error", "warn", "info", "debug", "trace", "INFO", "warn,yamux=off"] {
            assert!(EnvFilter::try_new(directives(level)).is_ok(), "{level}");
        }
    }
}
