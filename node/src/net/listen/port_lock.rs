//! One process at a time.

use std::time::Duration;

/// How long to wait for one's turn. Others have theirs for as long as a few system calls take.
const LIMIT: Duration = Duration::from_secs(2);
/// How often to ask.
const PAUSE: Duration = Duration::from_millis(5);

/// The right to open ports, of one process in this network namespace, until it is dropped. Two that start at once would
/// otherwise both see a port free.
#[derive(Debug)]
pub(crate) struct PortLock {
    #[cfg(target_os = "linux")]
    _name: Option<std::os::unix::net::UnixListener>,
}

impl PortLock {
    /// Waits for it. Whoever does not get it in time goes on without: somebody keeps others from it, and no port is lost.
    pub(crate) async fn take() -> Self {
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            match Self::try_take() {
                Some(turn) => return turn,
                None if tokio::time::Instant::now() >= deadline => {
                    tracing::debug!("ports are opened out of turn");
                    return Self {
                        #[cfg(target_os = "linux")]
                        _name: None,
                    };
                }
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// An abstract socket: its name is one process's in a network namespace, as a port is, and free again when that ends.
    #[cfg(target_os = "linux")]
    fn try_take() -> Option<Self> {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = SocketAddr::from_abstract_name("starling-opens-ports").ok()?;
        UnixListener::bind_addr(&name).ok().map(|name| Self { _name: Some(name) })
    }

    /// Where there is no such name, only those that start in the same instant see a port free that is not.
    #[cfg(not(target_os = "linux"))]
    fn try_take() -> Option<Self> {
        Some(Self {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn one_has_it_at_a_time() {
        // Another test of this machine may have it just now.
        let turn = loop {
            if let Some(turn) = PortLock::try_take() {
                break turn;
            }
            std::thread::yield_now();
        };
        assert!(PortLock::try_take().is_none());
        drop(turn);
    }
}
