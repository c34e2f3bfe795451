//! A task that is about to be trained.

use std::fmt;
use std::sync::Arc;

use starling_node::observe::report::ObserverSet;
use starling_node::{FoundOptions, JoinOptions, NodeError, Observer, Settings};
use starling_run::Program;
use starling_train::{ComputeSpec, Task, TaskProgram};

use crate::member::{Member, Way};

/// A task, what computes, and who watches. It becomes a [`Member`] of a run that it founds or joins.
pub struct Run<T> {
    task: T,
    compute: ComputeSpec,
    observers: Vec<Arc<dyn Observer>>,
    heeds_signals: bool,
}

impl<T: Task> Run<T> {
    /// Of this task, on the first GPU that works, or the CPU; nobody watches.
    pub fn new(task: T) -> Self {
        Self { task, compute: ComputeSpec::default(), observers: Vec::new(), heeds_signals: false }
    }

    /// Computes here.
    #[must_use]
    pub fn on(self, compute: impl Into<ComputeSpec>) -> Self {
        Self { compute: compute.into(), ..self }
    }

    /// Tells this observer, too, what happens.
    #[must_use]
    pub fn watched_by(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Leaves in order when the process is interrupted or asked to end (Ctrl-C, SIGTERM); the second time ends it at once.
    #[must_use]
    pub fn leaving_on_signals(self) -> Self {
        Self { heeds_signals: true, ..self }
    }

    /// Founds a run, or comes back to the one that these settings and this data directory name. The model is the task's,
    /// whatever the founding says.
    ///
    /// # Errors
    /// If no thread can be started. All else that can be wrong is what [`Member::wait`] says.
    pub fn found(self, settings: Settings, founding: FoundOptions) -> Result<Member, NodeError> {
        self.start(settings, Way::Found(Box::new(founding)))
    }

    /// Joins a run that others founded with the same task, or comes back to it.
    ///
    /// # Errors
    /// As [`Self::found`].
    pub fn join(self, settings: Settings, joining: JoinOptions) -> Result<Member, NodeError> {
        self.start(settings, Way::Join(Box::new(joining)))
    }

    fn start(self, settings: Settings, way: Way) -> Result<Member, NodeError> {
        let program: Arc<dyn Program> = Arc::new(TaskProgram::new(self.task, self.compute));
        Member::start(program, settings, way, ObserverSet(self.observers), self.heeds_signals)
    }
}

impl<T: Task> fmt::Debug for Run<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("task", &self.task.name()).field("compute", &self.compute).finish_non_exhaustive()
    }
}
