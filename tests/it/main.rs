//! Tests of the real binary, and of the house rules. One test binary, so that it links once.

mod attempts;
mod bench;
mod checkpoints;
mod churn;
mod disks;
mod fuzz;
mod keepers;
mod links;
mod members;
mod numbers;
mod partitions;
mod refusals;
mod restarts;
mod returns;
mod screens;
mod secrets;
mod sharing;
mod starts;
mod strangers;
mod swarms;
mod tables;
mod ticket_holders;
mod tidy;
mod together;
mod training;
mod twins;
