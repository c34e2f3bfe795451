//! All targets.

mod machine;
mod reduction;
mod run;
mod topology;

use crate::target::Target;

/// All of them.
pub const ALL: &[Target] = &[
    topology::ENVELOPE,
    topology::VIEW,
    topology::RECORD,
    topology::SLOT,
    topology::HEAD,
    topology::LEDGER,
    run::STATE,
    run::RESULT,
    run::SNAPSHOT,
    run::MANIFEST,
    run::DATA,
    reduction::SEGMENTS,
    machine::MESSAGES,
];
