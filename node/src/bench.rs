//! What a benchmark measures of this package: links and reducer without a run, and what each byte costs at least.

mod clock;
mod floor;
mod member;

pub use clock::process_time;
pub use floor::{Floor, cipher};
pub use member::{LinkError, Linked, Member, Place, Reduction};
