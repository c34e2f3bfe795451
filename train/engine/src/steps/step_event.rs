//! What the steps have to say to the membership machine, until somebody asks.

use starling_topology::{Digest, Progress};

/// What the driver is to know, in the order in which it is told. What a download replaces is never told of what comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEvent {
    /// The state that was asked for is loaded, and all results after it are applied: say
    /// [`Input::Synced`](starling_topology::Input::Synced).
    Synced,
    /// More results wait for the state than fit in memory: the state can't be had in this view.
    TooFarBehind,
    /// This member brings nothing to a step, because its data is still on its way: say [`Input::Starved`](starling_topology::Input::Starved).
    Starved {
        /// The step.
        step: u64,
    },
    /// The steps stand, as the hold asked.
    Held(Progress),
    /// The state after `step` has this digest: say [`Input::Digest`](starling_topology::Input::Digest).
    Digest {
        /// The step.
        step: u64,
        /// The state's digest.
        digest: Digest,
    },
    /// All steps are applied: say [`Input::Finished`](starling_topology::Input::Finished).
    Finished {
        /// The last step.
        step: u64,
        /// The state's digest.
        digest: Digest,
        /// Whether the state is on this member's disk.
        is_saved: bool,
    },
}

/// What was not told yet. A newer word of a kind replaces an older one, so that there are at most six.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub(super) is_synced: bool,
    pub(super) is_too_far_behind: bool,
    pub(super) starved: Option<u64>,
    pub(super) held: Option<Progress>,
    pub(super) digest: Option<(u64, Digest)>,
    pub(super) finished: Option<(u64, Digest, bool)>,
}

impl Notices {
    pub(super) fn is_empty(&self) -> bool {
        let Self { is_synced, is_too_far_behind, starved, held, digest, finished } = self;
        let has_flag = *is_synced || *is_too_far_behind;
        !has_flag && starved.is_none() && held.is_none() && digest.is_none() && finished.is_none()
    }

    pub(super) fn take(&mut self) -> Option<StepEvent> {
        // That a state is here comes first: all others are about it.
        if std::mem::take(&mut self.is_synced) {
            return Some(StepEvent::Synced);
        }
        if std::mem::take(&mut self.is_too_far_behind) {
            return Some(StepEvent::TooFarBehind);
        }
        // Before where it stands: what it says there of its contributions rests on it.
        if let Some(step) = self.starved.take() {
            return Some(StepEvent::Starved { step });
        }
        let held = self.held.take().map(StepEvent::Held);
        let digest = || self.digest.take().map(|(step, digest)| StepEvent::Digest { step, digest });
        let word = held.or_else(digest);
        let finished = |(step, digest, is_saved)| StepEvent::Finished { step, digest, is_saved };
        word.or_else(|| self.finished.take().map(finished))
    }
}
