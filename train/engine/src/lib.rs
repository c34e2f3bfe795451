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
mod entry;
mod failed_links;
pub mod lookout;
mod member;
pub mod result_fetch;
mod returning;
mod saving;
pub mod search;
pub mod settling;
mod skipping;
mod snapshots;
mod standstill;
mod steps;
pub mod twin;
mod watchdog;

pub use comeback::Comeback;
pub use download::Download;
pub use entry::{Action, Entry};
pub use failed_links::FailedLinks;
pub use lookout::Lookout;
pub use member::{Farewell, Looked, Member, Output, Seen};
pub use result_fetch::ResultFetch;
pub use returning::{Return, Returning};
pub use saving::{DIGEST_EVERY, LAST_TRIES, Saving};
pub use search::Search;
pub use settling::Settling;
pub use skipping::{MAX_SKIPS, is_last_straw};
pub use snapshots::{Found, MAX_SNAPSHOTS, Snapshots, UNLIMITED_AFTER};
pub use standstill::Standstill;
pub use starling_run::training::contribution::words;
pub use steps::{ActiveView, Cursor, Gate, MIN_KEPT, Members, Notice, StepResult, Steps, Task, Turnout};
pub use twin::TwinSearch;
pub use watchdog::{Overdue, Watchdog, look_interval};
