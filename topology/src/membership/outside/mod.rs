//! Peers outside of the view, and this member while it is one of them. `join_attempt` is the side of who asks to be let in, `joining` that of the
//! members. `outsiders` meets those of other views: lost ones, other branches (`parted`, `schism`), and who says that we are outside;
//! `returning` is who comes back from a record, with what it has `forgotten` or has two processes for (`twins`). `contacts` has how to reach
//! them, `suspicion_reports` what members say of others, `beyond` views that are later than what is known, `revoking` whom the founder has put out.

pub(super) mod beyond;
pub(super) mod contacts;
pub(super) mod forgotten;
pub(super) mod join_attempt;
pub(super) mod joining;
pub(super) mod outsiders;
pub(super) mod parted;
pub(super) mod returning;
pub(super) mod revoking;
pub(super) mod schism;
pub(super) mod suspicion_reports;
pub(super) mod twins;
