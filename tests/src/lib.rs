//! Fixtures for tests of the real binary: processes over real sockets, killed with real signals.
//!
//! A [`Peer`] is one `starling` process with a data directory of its own, on loopback or, about half of them, listening by
//! default on a machine that the test made. It is told to print JSON, which a thread reads; tests wait for events, with a deadline, never for a time. Every process is killed when its fixture
//! is dropped.
//!
//! [`data`] makes small data sets in the formats that users have. A [`Machine`] has several addresses, a [`Lan`] is a
//! network of its own, with links that can be cut and slowed down, a [`Wan`] one whose hosts are far from each other.
//! [`chaos`] holds experiments with many processes that are killed, stopped and cut off.

pub mod chaos;
pub mod data;
mod hostile;
pub mod networks;
mod patience;
mod processes;

pub use hostile::impostor::Impostor;
pub use hostile::leaf_liar::{GivenWork, LeafLiar};
pub use hostile::liar::{Liar, Pen};
pub use hostile::strangers::Strangers;
pub use hostile::ticket_holder::TicketHolder;
pub use networks::lan::{Host, Lan};
pub use networks::machine::{Machine, Shared};
pub use networks::namespace::mounting;
pub use networks::ports::free_port;
pub use networks::switch;
pub use networks::wan::{FarLink, Wan};
pub use patience::eventually;
pub use processes::feed::{Ear, Feed, Heard, Word};
pub use processes::frozen_disk::FrozenDisk;
pub use processes::owned_child::OwnedChild;
pub use processes::peer::{Outcome, Peer, PeerOptions, audit, checkpoints, newest, newest_stable, starling, told};

use std::path::PathBuf;

/// The `starling` binary that was built beside this program, which is a test or a binary.
///
/// # Panics
/// If it is not there.
pub fn binary() -> PathBuf {
    built("starling")
}

/// A binary that was built beside this program.
///
/// # Panics
/// If it is not there.
pub fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program knows its own path");
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    // Tests run from <profile>/deps, binaries from <profile>.
    let mut places = program.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    places.find(|place| place.is_file()).unwrap_or_else(|| {
        panic!("{name} is not built beside {}; run `tests/run`, or `cargo build --release` first", program.display())
    })
}

/// The checkout.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the checkout").to_owned()
}
