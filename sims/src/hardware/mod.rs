//! What peers run on: machines with disks, and the network between them.

pub mod machine;
pub mod network;
