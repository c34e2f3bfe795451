//! What whoever takes a member's steps does in its turns, whatever it holds: the part of the loop that a run that trains and a
//! program's own buffers have in common.

use std::sync::Arc;

use starling_collective::FeedbackState;
use starling_engine::{ActiveView, LearnerPosition};
use starling_run::{Manifest, ResultRecord, StateReplica};
use starling_topology::PeerId;
use tokio::sync::mpsc;

use super::TrainerEvent;
use crate::error::NodeError;
use crate::learner::contribution::{Brought, Contribution};
use crate::member::shared_steps::{CarrierInput, SharedSteps, Task};
use crate::member::snapshots::Snapshots;

/// One member's turns.
pub(crate) struct Turns {
    pub(crate) me: PeerId,
    pub(crate) at: LearnerPosition,
    pub(crate) shared_steps: Arc<SharedSteps>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) events: mpsc::Sender<TrainerEvent>,
    /// The largest number of a contribution.
    most: f32,
    /// What a lossy codec left to make up for; `None` if the run's loses nothing. It moves only when a step is applied.
    feedback: Option<FeedbackState>,
    /// Memory for what the next operation drops.
    spare: Vec<f32>,
}

/// What is left to do of a turn.
pub(crate) enum Turn {
    /// All of it.
    Own(Task),
    /// Another state is loaded.
    Loaded,
    /// Nothing.
    Done,
}

impl Turns {
    /// Of a member that stands after `step`.
    pub(crate) fn new(
        me: PeerId,
        manifest: &Manifest,
        step: u64,
        (shared_steps, snapshots): (Arc<SharedSteps>, Arc<Snapshots>),
        events: mpsc::Sender<TrainerEvent>,
    ) -> Self {
        let feedback = manifest.codec.is_lossy().then(|| FeedbackState::new(manifest.trained()));
        let most = manifest.most();
        Self {
            me,
            at: LearnerPosition::after(step),
            shared_steps,
            snapshots,
            events,
            most,
            feedback,
            spare: Vec::new(),
        }
    }

    /// Does what is the same for all.
    pub(crate) fn take(&mut self, task: Task, held: &mut dyn StateReplica) -> Result<Turn, NodeError> {
        match task {
            Task::Load(state) => {
                held.load(*state)?;
                // The steps that it made up for are not those of this state.
                self.feedback.iter_mut().for_each(FeedbackState::forget);
                return Ok(Turn::Loaded);
            }
            Task::Begin { members } => {
                if held.begin(&members) {
                    self.at.prepared = false;
                    self.shared_steps.carry(CarrierInput::Void);
                }
            }
            Task::Snapshot => self.snapshots.take(held.state()),
            own => return Ok(Turn::Own(own)),
        }
        Ok(Turn::Done)
    }

    /// What a lossy codec dropped of this member's numbers, to be added to the next ones.
    pub(crate) fn residual(&self) -> Option<starling_collective::Residual> {
        self.feedback.as_ref().map(|feedback| feedback.residual().clone())
    }

    /// Hands a contribution to the reducer of the view; it may still be coming about. False if that takes none from here.
    pub(crate) fn contribute(&mut self, active: &ActiveView, contribution: Contribution) -> bool {
        let contribution = contribution.within(self.most);
        self.submit(active, Brought::Coming(contribution))
    }

    /// The same with a buffer that is whole.
    pub(crate) fn submit(&mut self, active: &ActiveView, brought: Brought) -> bool {
        let dropped = self.feedback.as_ref().map(|feedback| feedback.dropped(std::mem::take(&mut self.spare)));
        self.shared_steps.submit(active, self.at.step + 1, brought, dropped)
    }

    /// A step is applied. If nobody uses its sum, it leaves nothing to make up for.
    pub(crate) fn settle(&mut self, step: u64, is_used: bool) {
        if let Some(feedback) = &mut self.feedback {
            self.spare = feedback.settle(self.shared_steps.dropped(step).filter(|_| is_used));
        }
    }

    /// A step is applied whose sum had nothing of what is to be made up for, or that nobody uses: that stays.
    pub(crate) fn pass(&self, step: u64) {
        drop(self.shared_steps.dropped(step));
    }

    /// What joiners may want is the state after the step of `record` from here on.
    pub(crate) fn reach(&self, record: &ResultRecord) {
        self.snapshots.applied(record);
    }

    /// Tells the event loop. It outlives whoever takes the steps, except when it panics; then nobody needs the news.
    pub(crate) fn tell(&self, event: TrainerEvent) {
        let _ = self.events.blocking_send(event);
    }
}
