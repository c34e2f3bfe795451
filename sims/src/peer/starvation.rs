//! A member that lacks the data of what it is to compute, because that is still on its way. While others compute, it brings nothing, and the ledger
//! deals its part to them; where nobody computes anything, it waits a little first, and alone until the data is there.

use std::time::Duration;

use starling_engine::{ActiveView, LearnerPosition, is_out_of_data};
use starling_topology::{Ledger, PeerId, Time};

use super::{Call, Effect, Peer};
use crate::steps::state::State;
use crate::sweep::canary::Sabotage;
use crate::sweep::fault::FileSet;

/// How long it waits for data at a time.
const LOOK: Duration = Duration::from_millis(100);

/// What a member lacks, and what becomes of it.
#[derive(Debug)]
pub(super) struct Starvation {
    /// The files that are on their way.
    lacking: FileSet,
    /// Before which step it waits for them, and since when.
    since: Option<(u64, Time)>,
    /// Whether it waits until it looks again.
    waits: bool,
    /// Whether nobody computed anything in the last step, and somebody was starved.
    was_empty: bool,
    /// The step that it brings nothing to.
    nothing_to: Option<u64>,
}

impl Starvation {
    /// Of a member to which these files are on their way.
    pub(super) fn new(lacking: FileSet) -> Self {
        Self { lacking, since: None, waits: false, was_empty: false, nothing_to: None }
    }

    /// Whether it waits.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether it brings nothing to this step.
    pub(super) fn passes(&self, step: u64) -> bool {
        self.nothing_to == Some(step)
    }
}

impl Peer {
    /// These files are on their way to it from now on.
    pub fn lacks(&mut self, now: Time, files: FileSet) {
        self.starvation.lacking = files;
        self.look_for_data(now);
    }

    /// It may be here.
    pub fn look_for_data(&mut self, now: Time) {
        if std::mem::take(&mut self.starvation.waits) {
            self.go_on(now);
            self.obey(now);
        }
    }

    /// Whether it stands still for want of data.
    pub fn waits_for_data(&self) -> bool {
        self.starvation.waits
    }

    /// Whether data is missing for what it is to compute next. It waits for that, or brings nothing then.
    pub(super) fn is_starved(&mut self, now: Time) -> bool {
        let step = self.learner.cursor.step + 1;
        let lacking = self.starvation.lacking;
        let ledger = self.learner.state.as_ref().map(|state| &state.ledger).filter(|_| lacking != 0);
        let is_here = |sample: &u32| lacking & self.workload.file_of(*sample) == 0;
        if ledger.is_none_or(|ledger| next_samples(ledger, self.name, self.workload.ahead()).iter().all(is_here)) {
            (self.starvation.since, self.starvation.nothing_to) = (None, None);
            return false;
        }
        let is_alone = self.steps.active().is_some_and(ActiveView::is_alone);
        let since = self.starvation.since.filter(|(before, _)| *before == step).map_or(now, |(_, since)| since);
        let most = if self.starvation.was_empty { self.max_stall / 4 } else { Duration::ZERO };
        self.starvation.since = Some((step, since));
        if is_alone || now - since < most {
            self.starvation.waits = true;
            self.effects.push(Effect::CallBack(Call::Data, now + LOOK));
        } else {
            (self.starvation.nothing_to, self.learner.cursor.prepared) = (Some(step), true);
        }
        true
    }

    /// Whether it has nothing for the step that it contributes to next.
    pub(super) fn brings_nothing(&self) -> bool {
        self.starvation.passes(self.learner.cursor.step + 1)
    }

    /// It had nothing to bring beside others, and is alone now: it has to wait.
    pub(super) fn compute_anew(&mut self) {
        self.learner.cursor = LearnerPosition::after(self.learner.cursor.step);
        self.starvation.nothing_to = None;
    }

    /// It has taken a step. After so many with nothing in them it takes no more.
    pub(super) fn note_starved_step(&mut self, before: &State, after: &State) {
        let (were, are) = (before.ledger.starved(), after.ledger.starved());
        self.starvation.was_empty = are > 0;
        if are > were && is_out_of_data(are) && self.sabotage != Some(Sabotage::StarvesOn) {
            self.steps.end_after(after.step);
        }
    }
}

/// The samples of its share; of one that has none those that it may be dealt next: what another one gives back, and the next ones.
fn next_samples(ledger: &Ledger, me: PeerId, ahead: u32) -> Vec<u32> {
    match ledger.share_of(me) {
        _ if !ledger.is_assigned() => Vec::new(),
        [] => {
            let pending = ledger.shares().iter().flat_map(|(_, ranges)| ledger.indices(ranges));
            pending.chain(ledger.ahead(ahead)).collect()
        }
        share => ledger.indices(share),
    }
}
