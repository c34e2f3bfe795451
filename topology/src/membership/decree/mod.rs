//! How the members of a view decide the next one. One proposes (`proposing`, what it has heard is in `drafting`), the others promise and
//! accept (`voting`, once `judging` finds nothing against it); `proposal_inputs` says what the next view is by the promises, from what is
//! believed of them (`claims`), lost (`losses`), let vote (`votes`) and measured (`link_matrix`); `installing` enters it, `beginning` where nobody
//! holds a state. Nothing is said before `storing` has it on disk. `agreement` is a model of it, for tests.

pub(super) mod agreement;
pub(super) mod beginning;
pub(super) mod claims;
pub(super) mod drafting;
pub(super) mod installing;
pub(super) mod judging;
pub(super) mod link_matrix;
pub(super) mod losses;
pub(super) mod proposal_inputs;
pub(super) mod proposing;
pub(super) mod storing;
pub(super) mod votes;
pub(super) mod voting;
