//! What takes a whole world to judge: who has a vote, and who may be put out.

mod damping;
mod honest;
mod hubs;
mod votes;

pub(super) use hubs::JudgedProposal;
