//! What is drawn of letters: curves, gauges, tables.

mod curve;
mod gauge;
mod spinner;
mod table;

pub use curve::{LEAST_POINTS, curve};
pub use gauge::Gauge;
pub use spinner::Spinner;
pub use table::{COLUMNS, table, wide_table};
