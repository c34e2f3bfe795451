//! All targets.

mod data;
mod engine;
mod machine;
mod node;
mod reduction;
mod run;
mod topology;

use crate::target::Target;

/// All of them.
pub const ALL: &[Target] = &[
    topology::ENVELOPE,
    topology::LEAF,
    topology::CARRIER,
    topology::VIEW,
    topology::RECORD,
    topology::SLOT,
    topology::HEAD,
    topology::LEDGER,
    topology::MARK,
    topology::ANNALS,
    topology::WALK,
    run::STATE,
    run::RESULT,
    run::SNAPSHOT,
    run::MANIFEST,
    run::DATA,
    run::PREPROCESSING,
    run::SIGNATURES,
    run::AUDIT_LINE,
    data::CSV,
    data::IDX,
    data::IMAGES,
    data::TOKENS,
    data::ARCHIVE,
    data::PARQUET,
    data::TOKENIZER,
    reduction::SEGMENTS,
    machine::MESSAGES,
    engine::ENGINE,
    node::REQUEST,
    node::REPLY,
    node::WELCOME_REQUEST,
    node::WELCOME_REPLY,
    node::PRESENTED,
    node::SECRET,
    node::TICKET,
    node::UPDATE,
    node::DENIAL,
    node::PASS,
    node::HANDSHAKE,
    node::ANNOUNCEMENT,
    node::RENEWAL,
    node::ROSTER,
    node::APPOINTMENTS,
    node::CONTACTS,
    node::RECORD_FILE,
    node::MARK_FILE,
];
