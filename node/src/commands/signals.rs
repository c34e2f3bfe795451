//! Ctrl-C and SIGTERM.

use std::io::{self, Write};

use tokio_util::sync::CancellationToken;

use super::{CommandError, EXIT_INTERRUPTED};
use crate::output::Console;

/// What asks this process to end.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// From now on, signals come here instead of ending the process.
    ///
    /// # Errors
    /// [`CommandError::Io`] if the system does not allow it.
    pub fn listen() -> Result<Self, CommandError> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let listen = |kind| signal(kind).map_err(CommandError::io("listen for signals"));
            Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
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
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            // No signals on this system: never.
            std::future::pending::<()>().await;
        }
    }
}

/// A token that the first signal cancels. The second ends the process at once.
pub(super) fn stop_on_signals(console: Console) -> Result<CancellationToken, CommandError> {
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let first = stop.clone();
    tokio::spawn(async move {
        signals.next().await;
        console.line("leaving in order; Ctrl-C again to quit at once");
        first.cancel();
        signals.next().await;
        let _ = io::stdout().flush();
        std::process::exit(i32::from(EXIT_INTERRUPTED));
    });
    Ok(stop)
}
