//! What one member of a run does, without threads, sockets, files or clocks: whoever drives it has those.
//!
//! A [`Member`] owns the machines of one that takes part, and says to each what it has to know of the others:
//! [`Membership`](starling_topology::Membership) decides who is in the run, [`EntryState`] what is fetched before, or while, it takes
//! steps in a new view, [`CompletionTracker`] what it stays for when the run is complete, [`QuorumSearch`] whom it asks while it has no quorum.
//! [`StepEngine`] decides when a step is computed, contributed, **committed** and applied, and where the steps are held: threads share it.
//! [`ResultDownload`] and [`Download`] are how a result and a state are fetched, [`SnapshotStore`] which states it has ready for others.
//!
//! [`CarrierEngine`] is what a member does for the peers that take part through it, and [`LeafEngine`] what one of those does ([`leaf`]).
//!
//! [`ReturnEngine`] is what a machine does before, from what its disk holds to how it takes part: it asks others, by a [`Search`], for
//! what is newer than its own checkpoints. Before that, [`TwinSearch`] looks whether another process is this machine.
//! `starling-node` executes what they say with threads and sockets, `starling-sims` with counts in virtual time.

pub mod download;
pub mod leaf;
pub mod member;
pub mod return_engine;
pub mod search;
mod steps;

pub use download::Download;
pub use download::result_download::ResultDownload;
pub use download::snapshots::{MAX_SNAPSHOTS, SnapshotStatus, SnapshotStore, UNLIMITED_AFTER};
pub use leaf::carrier::CarrierEngine;
pub use leaf::leaf_engine::LeafEngine;
pub use leaf::reach_search::ReachSearch;
pub use member::completion::CompletionTracker;
pub use member::entry::{Action, EntryState};
pub use member::failed_links::FailedLinkTracker;
pub use member::hang_detector::{HangDetector, OverdueAction, look_interval};
pub use member::quorum_search::QuorumSearch;
pub use member::stall_detector::StallDetector;
pub use member::{LeaveAction, Member, Output, StallStatus, StepStatus};
pub use return_engine::ReturnEngine;
pub use return_engine::returning::{ReturningMember, SeatDecision};
pub use return_engine::twin::TwinSearch;
pub use search::Search;
pub use starling_run::training::contribution::words;
pub use steps::save_schedule::{DIGEST_EVERY, LAST_TRIES, SaveSchedule};
pub use steps::skipping::{MAX_SKIPS, MAX_STARVED, is_last_straw, is_out_of_data};
pub use steps::{
    ActiveView, CommitGate, LearnerPosition, MIN_KEPT, MemberSet, StepEngine, StepEvent, StepResult, SyncDecision, Task,
};
