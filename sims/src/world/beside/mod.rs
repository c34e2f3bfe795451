//! Machines that are no members: those that keep checkpoints, and those that take part through a member.

mod keeping;
mod leaves;
