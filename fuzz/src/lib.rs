//! Bytes that nobody sends by accident: every decoder of what comes from others, or lies on a disk, gets valid encodings that are
//! changed, and bytes that are none.
//!
//! A target takes bytes. It must not panic, and must not take more memory than a few times their length ([`Target::limit`]): who
//! sends a message pays for it. What decodes must encode to something that decodes to the same. All inputs follow from a seed.
//!
//! It needs no instrumented build, so that it runs with the tests; coverage comes from beginning with what is valid.
//!
//! Start reading at [`target`], then [`mutation`].

pub mod allocation;
pub mod corpus;
pub mod hex;
pub mod mutation;
pub mod runner;
pub mod seeds;
pub mod target;
pub mod targets;

pub use runner::{Failure, Tally, fuzz};
pub use target::Target;
