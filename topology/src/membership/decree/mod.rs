//! How the members of a view decide the next one: proposals, promises, votes, and what is judged of them.

pub(super) mod agreement;
pub(super) mod beginning;
pub(super) mod claims;
pub(super) mod drafting;
pub(super) mod installing;
pub(super) mod judging;
pub(super) mod losses;
pub(super) mod planning;
pub(super) mod proposing;
pub(super) mod rows;
pub(super) mod storing;
pub(super) mod votes;
pub(super) mod voting;
