//! What a benchmark measures of this package: links and reducer without a run.

mod member;

pub use member::{LinkError, LinkedMember, Member, MemberContact, ReductionSpec};
pub use starling_links::bench::{WireCost, process_time};
