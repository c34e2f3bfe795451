//! Why a link can't be made or used.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// What goes wrong with a direct connection. The link then falls back or breaks; no message is addressed to the user.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The socket.
    #[error("the direct connection failed: {0}")]
    Io(#[from] io::Error),
    /// The TLS session: not TLS, no certificate, or not the expected peer's.
    #[error("the direct connection's TLS handshake failed: {0}")]
    Tls(#[from] rustls::Error),
    /// The node's own certificate.
    #[error("no certificate can be made for direct connections: {0}")]
    Certificate(String),
    /// The other end is another peer than the ring's neighbour.
    #[error("the other end of the direct connection is not the ring's neighbour")]
    OtherPeer,
    /// The other end speaks TLS, but not this protocol.
    #[error("the other end of the direct connection speaks another protocol")]
    OtherProtocol,
    /// The other end connects for another view.
    #[error("the direct connection is for another view")]
    OtherView,
    /// It took too long.
    #[error("the direct connection was not ready in time")]
    Late,
    /// There is no address to connect to.
    #[error("the neighbour can't be reached by any direct address")]
    Unreachable,
    /// A record's length is none that a segment has.
    #[error("a record of {length} bytes where a segment has at most {longest}")]
    Length {
        /// What it declares.
        length: u64,
        /// The longest payload.
        longest: usize,
    },
    /// A record began and did not end.
    #[error("{filled} bytes of a record came, and not the rest of it within {} ms", limit.as_millis())]
    Slow {
        /// How much came.
        filled: usize,
        /// How long a record may take.
        limit: Duration,
    },
    /// The other end takes nothing.
    #[error("nothing of what was sent was taken for {} ms", limit.as_millis())]
    Stuck {
        /// How long that may be.
        limit: Duration,
    },
    /// A counter in shared memory says what can't be.
    #[error("a counter in the memory shared with the other end makes no sense")]
    Counter,
    /// The link must be local, and is not.
    #[error("the other end shares no memory with this one: it is on another machine, of another user, or not asked to")]
    NotLocal,
    /// A record is not what the other end sealed next.
    #[error("a record that was changed, repeated or moved on the way")]
    Forged,
}

/// Why a link failed.
#[derive(Debug)]
pub enum LinkFailure {
    /// It broke, or could not be opened.
    Broken(String),
    /// The neighbour sent what no correct peer sends.
    Misbehaved(String),
}
