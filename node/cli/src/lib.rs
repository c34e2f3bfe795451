//! The command line of Starling: what its verbs say and do, the configuration behind them, and what is shown of a run.
//!
//! What a run is and how it goes is decided elsewhere; the binary `starling` is a user of the crate `starling`, and of what that
//! does not show of a data directory. Start reading at [`commands`].

// Its readers have the sources: it is no crate for others.
#![allow(rustdoc::private_intra_doc_links)]

pub mod bench;
pub mod cli;
pub mod commands;
pub mod config;
pub mod demo;
mod log_writer;
pub mod output;
mod program;
pub mod telemetry;
