//! What is drawn of letters: curves, gauges, tables.

mod curve;
mod gauge;
mod table;

pub use curve::{LEAST_POINTS, curve};
pub use gauge::Gauge;
pub use table::{COLUMNS, table};
