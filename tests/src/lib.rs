//! Fixtures for tests of the real binary: processes over real sockets, killed with real signals.
//!
//! A [`Peer`] is one `starling` process on loopback with a data directory of its own. It is told to print JSON, which
//! a thread reads; tests wait for events, with a deadline, never for a time. Every process is killed when its fixture
//! is dropped.
//!
//! [`data`] makes small data sets in the formats that users have.

pub mod data;
mod peer;

pub use peer::{Outcome, Peer, PeerOptions, audit, starling};

use std::path::PathBuf;

/// The `starling` binary that was built beside this test.
///
/// # Panics
/// If it is not there.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("tests run from <profile>/deps");
    let binary = profile.join(format!("starling{}", std::env::consts::EXE_SUFFIX));
    assert!(
        binary.exists(),
        "{} is not built; run `tests/run`, or `cargo build --release` before `cargo test --release`",
        binary.display()
    );
    binary
}

/// The checkout.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the checkout").to_owned()
}
