//! What users and programs are told: reports as they happen, the status file, what limits the speed.

pub mod clock;
pub(crate) mod figures;
pub(crate) mod limits;
pub(crate) mod lossy;
pub mod metrics;
pub(crate) mod repeats;
pub mod report;
pub(crate) mod reporter;
pub mod status;
pub mod stdout;
