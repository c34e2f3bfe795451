//! What a benchmark measures of this package: what each byte of a link costs at least.

mod clock;
mod floor;

pub use clock::process_time;
pub use floor::{WireCost, cipher};
