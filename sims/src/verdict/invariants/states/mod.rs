//! What members hold and keep: one state for a step, and none that is stable is lost.

pub(super) mod bitwise_agreement;
pub(super) mod end_is_kept;
pub(super) mod last_checkpoint;
pub(super) mod nothing_undone;
pub(super) mod own_branch;
pub(super) mod stable_survives;
pub(super) mod verified_checkpoints;
pub(super) mod what_most_name;
