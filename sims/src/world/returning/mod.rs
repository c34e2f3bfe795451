//! Who comes back, and finds out what went on meanwhile.

pub(super) mod coming_back;
pub(super) mod twins;
