//! A simulated machine: its disk, with checkpoints and contacts, and its key stay while its processes come and go.

pub mod checkpoints;
pub mod contacts;
pub mod disk;
pub mod host;
pub mod notary;
