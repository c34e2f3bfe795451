//! What a benchmark measures of this package: links and reducer without a run.

mod member;

pub use member::{LinkError, Linked, Member, Place, Reduction};
pub use starling_links::bench::{Floor, process_time};
