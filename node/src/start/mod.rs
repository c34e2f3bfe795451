//! How a process comes to take part: it asks who is there, learns what the run is, fetches data and state, and founds, joins or comes
//! back. Start reading at [`node`].

pub(crate) mod catch_up;
pub(crate) mod client;
pub mod dataset;
pub mod host;
mod initial;
pub mod node;
pub(crate) mod origin;
pub(crate) mod prepare;
pub mod signals;
pub(crate) mod way_back;
pub(crate) mod welcome;
