//! Ctrl-C, SIGTERM, and SIGHUP: a terminal that goes away.

use std::io::{self, Write};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::observe::stdout::within;

/// With this code a process ends that was told so twice.
pub const EXIT_INTERRUPTED: u8 = 130;
/// How long it waits for a terminal that takes what it is told.
const TOLD_LIMIT: Duration = Duration::from_millis(200);

/// What asks this process to end.
#[derive(Debug)]
pub struct SignalSet {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    /// `None` where it is to be ignored, as under `nohup`: this process is to outlive its terminal.
    #[cfg(unix)]
    hang_up: Option<tokio::signal::unix::Signal>,
}

impl SignalSet {
    /// From now on, signals come here instead of ending the process.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn listen() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hang_up: heeds_hang_up().then(|| signal(SignalKind::hangup())).transpose()?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = async { self.hang_up.as_mut()?.recv().await } => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            // No signals on this system: never.
            std::future::pending::<()>().await;
        }
    }
}

/// Whether SIGHUP would end this process, as far as the system tells.
#[cfg(unix)]
fn heeds_hang_up() -> bool {
    // proc(5): the signals that are ignored, as a hexadecimal mask whose lowest bit is signal 1, which is SIGHUP.
    const FIELD: &str = "SigIgn:";
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix(FIELD));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 0)
}

/// From now on, the first signal cancels `stop`, and `told` says so, which may block: a terminal that does not read keeps nobody
/// here. The second ends the process at once. Within a runtime.
///
/// # Errors
/// If the system does not allow it.
pub fn heed_signals(stop: CancellationToken, told: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = SignalSet::listen()?;
    tokio::spawn(async move {
        signals.next().await;
        stop.cancel();
        within(TOLD_LIMIT, told);
        signals.next().await;
        within(TOLD_LIMIT, || {
            let _ = io::stdout().flush();
        });
        std::process::exit(i32::from(EXIT_INTERRUPTED));
    });
    Ok(())
}
