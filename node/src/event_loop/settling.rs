//! What a member stays for although it could end: the signatures of the last state, by which who is killed now finds that the run
//! is complete, and those who have yet to load a state that nobody else holds.

use starling_topology::Event;
use tokio::time::Instant;

use super::{End, EventLoop};
use crate::identity::to_libp2p;
use crate::report::Report;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// The last step whose state is stable.
    stable: u64,
    /// The run is complete with this step, and until when its signatures are waited for.
    complete: Option<(Event, u64, Instant)>,
}

impl Settling {
    /// The state after `step` is stable.
    pub(super) fn note_stable(&mut self, step: u64) {
        self.stable = self.stable.max(step);
    }

    /// What was stable on the branch that is left says nothing of another one.
    pub(super) fn forget(&mut self) {
        self.stable = 0;
    }

    /// Whether the run is complete, and nothing but signatures is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.is_some()
    }
}

impl EventLoop {
    /// The run is complete. `Some` if this process need not stay.
    pub(super) fn complete(&mut self, event: Event, step: u64) -> Option<End> {
        if !self.is_saved || self.settling.stable >= step {
            return Some(End::Event(event));
        }
        self.settling.complete = Some((event, step, Instant::now() + self.config.max_stall));
        // It takes no part any more: whoever comes back and asks must not wait for it.
        self.shelves.checkpoints.leave();
        None
    }

    /// Whether the last state of a run that is complete is stable by now, or has had its time.
    pub(super) fn settled(&mut self) -> Option<End> {
        let (stable, now) = (self.settling.stable, Instant::now());
        let (event, _, _) = self.settling.complete.take_if(|(_, step, until)| stable >= *step || now >= *until)?;
        Some(End::Event(event))
    }

    /// Our user wants to leave, and nobody has answered for long. `None` if others have yet to load the state that nobody else holds:
    /// the user hears of it, and may end this process all the same.
    pub(super) fn give_up(&mut self) -> Option<End> {
        if let Some((event, ..)) = self.settling.complete.take() {
            return Some(End::Event(event));
        }
        let heirs: Vec<String> = self.membership.heirs().into_iter().map(|peer| to_libp2p(peer).to_string()).collect();
        if heirs.is_empty() || self.membership.has_ended() {
            return Some(End::LeftAlone);
        }
        let message = format!(
            "{} still loads the state, which nobody else holds: this machine leaves once that is done; Ctrl-C again ends it at once",
            heirs.join(", ")
        );
        self.observer.report(&Report::Warning { message });
        None
    }
}
