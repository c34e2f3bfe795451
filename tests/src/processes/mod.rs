//! Processes of the real binary, what they say, and the disks below them.

pub(crate) mod feed;
pub(crate) mod frozen_disk;
pub(crate) mod owned_child;
pub(crate) mod peer;
