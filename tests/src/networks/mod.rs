//! Networks and machines that a test makes for itself.

pub(crate) mod lan;
pub(crate) mod machine;
pub(crate) mod namespace;
pub(crate) mod ports;
pub mod switch;
pub(crate) mod wan;
