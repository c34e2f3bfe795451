//! What links cost, as members measured them and as their view says, and what of it each plan counts.

pub(super) mod link_costs;
pub(super) mod loads;
pub(super) mod view_costs;
pub(super) mod weights;
