//! What holds of leaves, and of those who carry them.

pub(super) mod leaf_counts_once;
pub(super) mod leaf_goes_on;
pub(super) mod leaf_is_no_member;
pub(super) mod leaf_state;
