//! Logs: to stderr, above any progress bar.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::config::LogSettings;
use crate::output::Console;

/// Sends this process's logs to stderr, as `settings` say. To be called once.
///
/// # Errors
/// If the level can't be used, or logs already go somewhere.
pub fn init(settings: &LogSettings, console: &Console) -> io::Result<()> {
    let filter = EnvFilter::try_new(&settings.level).map_err(io::Error::other)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(console.clone()).with_ansi(false);
    let outcome = if settings.json { builder.json().try_init() } else { builder.try_init() };
    outcome.map_err(io::Error::other)
}
