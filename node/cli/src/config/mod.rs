//! From what a user wrote, in a file, in the environment, in flags, to what a node takes.
//!
//! [`Layers`] collects what was written, one layer over the other, and remembers for each key where its value came
//! from. [`Loaded`] is the outcome: a value for each key that has one, plus origins. Its methods check the rest and build the
//! node's own types ([`Settings`](starling::Settings), [`FoundOptions`](starling::FoundOptions)). What there is, the node's table of
//! [keys](starling_node::settings::keys) says.

mod checked;
mod error;
mod file;
mod idle;
mod layers;
mod show;
mod target;

#[cfg(test)]
mod tests;

pub use checked::{Loaded, LogSettings};
pub use error::ConfigError;
pub use layers::{FlagValue, Layers, Origin};
pub use show::{commented_file, show_json, show_toml};
pub use target::{parse_secret, parse_target, parse_ticket};

/// The configuration file that is read from the working directory if it is there.
pub const FILE_NAME: &str = "starling.toml";
