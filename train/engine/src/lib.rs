//! What one member of a run does, without threads, sockets, files or clocks: whoever drives it has those.
//!
//! A [`Member`] owns the machines of one that takes part, and says to each what it has to know of the others:
//! [`Membership`](starling_topology::Membership) decides who is in the run, [`Entry`] what is fetched before, or while, it takes
//! steps in a new view, [`Settling`] what it stays for when the run is complete, [`Lookout`] whom it asks while it has no quorum.
//! [`Steps`] decides when a step is computed, contributed, **committed** and applied, and where the steps are held: threads share it.
//! [`ResultFetch`] and [`Download`] are how a result and a state are fetched, [`Snapshots`] which states it has ready for others.
//!
//! [`Comeback`] is what a machine does before, from what its disk holds to how it takes part: it asks others, by a [`Search`], for
//! what is newer than its own checkpoints. Before that, [`TwinSearch`] looks whether another process is this machine.
//! `starling-node` executes what they say with threads and sockets, `starling-sims` with counts in virtual time.

pub mod comeback;
pub mod download;
pub mod member;
pub mod search;
mod steps;

pub use comeback::Comeback;
pub use comeback::returning::{Return, Returning};
pub use comeback::twin::TwinSearch;
pub use download::Download;
pub use download::result_fetch::ResultFetch;
pub use download::snapshots::{Availability, MAX_SNAPSHOTS, Snapshots, UNLIMITED_AFTER};
pub use member::entry::{Action, Entry};
pub use member::failed_links::FailedLinks;
pub use member::lookout::Lookout;
pub use member::settling::Settling;
pub use member::standstill::Standstill;
pub use member::watchdog::{Overdue, Watchdog, look_interval};
pub use member::{Farewell, Looked, Member, Output, Seen};
pub use search::Search;
pub use starling_run::training::contribution::words;
pub use steps::saving::{DIGEST_EVERY, LAST_TRIES, Saving};
pub use steps::skipping::{MAX_SKIPS, is_last_straw};
pub use steps::{ActiveView, CommitGate, Cursor, MIN_KEPT, Members, Notice, StepResult, Steps, Task, Turnout};
