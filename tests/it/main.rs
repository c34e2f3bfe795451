//! Tests of the real binary, and of the house rules. One test binary, so that it links once.

mod bench;
mod checkpoints;
mod members;
mod refusals;
mod tidy;
mod training;
