//! Who decides which view, and who goes where.

pub(super) mod damped_links;
pub(super) mod led_away;
pub(super) mod monotonic_generation;
pub(super) mod no_split_brain;
pub(super) mod one_decision;
pub(super) mod twin_told;
pub(super) mod votes_given;
