//! A member of a run, which lives in threads of its own.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use starling_node::observe::report::ObserverSet;
use starling_node::start::signals::heed_signals;
use starling_node::{
    FoundOptions, JoinOptions, NodeError, Observer, Report, Settings, Summary, Ticket, alone_in_its_directory,
};
use starling_run::Program;
use tokio_util::sync::CancellationToken;

/// How long background work may take after the end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// How it takes part.
pub(crate) enum Way {
    Found(Box<FoundOptions>),
    Join(Box<JoinOptions>),
}

/// A member of a run. It trains in threads of its own until the run is complete or it [leaves](Self::leave). One that is
/// dropped leaves, too, but nobody waits for it.
pub struct Member {
    leave: LeaveHandle,
    told: Arc<Told>,
    thread: Option<JoinHandle<Result<Summary, NodeError>>>,
}

/// Has a [`Member`] leave, from wherever.
#[derive(Debug, Clone)]
pub struct LeaveHandle(CancellationToken);

impl LeaveHandle {
    /// Leaves in order: the others are told, and go on at once; the state is saved, and the model exported if a place for it is
    /// set. [`Member::wait`] returns when all is done.
    pub fn leave(&self) {
        self.0.cancel();
    }
}

impl Member {
    pub(crate) fn start(
        program: Arc<dyn Program>,
        settings: Settings,
        way: Way,
        ObserverSet(mut observers): ObserverSet,
        heeds_signals: bool,
    ) -> Result<Self, NodeError> {
        let (told, leave) = (Arc::<Told>::default(), LeaveHandle(CancellationToken::new()));
        observers.push(told.clone());
        let (observer, stop) = (Arc::new(ObserverSet(observers)), leave.0.clone());
        let ends = AtEnd(told.clone());
        let live = move || {
            let _ends = ends;
            let (runtime, span) = starling_node::runtime(&settings.data_dir)?;
            let _logs = span.enter();
            if heeds_signals {
                let _entered = runtime.enter();
                // Where signals can't be had, they end the process as ever.
                let _ = heed_signals(stop.clone(), || {});
            }
            let ended = runtime.block_on(alone_in_its_directory(settings, observer, |settings, observer| async {
                match way {
                    Way::Found(founding) => starling_node::found(settings, *founding, program, observer, stop).await,
                    Way::Join(joining) => starling_node::join(settings, *joining, program, observer, stop).await,
                }
            }));
            runtime.shutdown_timeout(SHUTDOWN_LIMIT);
            ended
        };
        let thread = std::thread::Builder::new().name("member".into()).spawn(live).map_err(NodeError::Thread)?;
        Ok(Self { leave, told, thread: Some(thread) })
    }

    /// With which others can join: the newest, which names other members too as soon as there are any. `None` if this one came to its
    /// end before it listened. Waits until it does.
    pub fn ticket(&self) -> Option<Ticket> {
        let mut state = self.told.lock();
        while state.ticket.is_none() && !state.has_ended {
            state = self.told.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ticket.clone()
    }

    /// The last step that it has taken; 0 before the first one. As it is told, which is a few times a second.
    pub fn step(&self) -> u64 {
        self.told.lock().step
    }

    /// As [`LeaveHandle::leave`].
    pub fn leave(&self) {
        self.leave.leave();
    }

    /// With which another thread can have it leave, while this one waits.
    pub fn leaver(&self) -> LeaveHandle {
        self.leave.clone()
    }

    /// Waits for the end, and tells how it went.
    ///
    /// # Errors
    /// Whatever kept it from the end: what, where, why, and what to do.
    pub fn wait(mut self) -> Result<Summary, NodeError> {
        let thread = self.thread.take().expect("invariant: a member is waited for once");
        // Steps are taken, and their panics caught, elsewhere: here a task was asked what it is.
        thread.join().unwrap_or_else(|payload| Err(NodeError::unprepared(&*payload)))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave.leave();
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("step", &self.step()).finish_non_exhaustive()
    }
}

/// What was told so far.
#[derive(Default)]
struct Told {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ticket: Option<Ticket>,
    step: u64,
    has_ended: bool,
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl Observer for Told {
    fn report(&self, report: &Report) {
        match report {
            Report::Listening { ticket, .. } | Report::Invitation { ticket } => {
                if let Ok(ticket) = ticket.parse() {
                    self.change(|state| state.ticket = Some(ticket));
                }
            }
            Report::Started { step, .. } | Report::Progress { step, .. } => self.change(|state| state.step = *step),
            Report::Finished(summary) => self.change(|state| state.step = summary.steps),
            _ => {}
        }
    }
}

/// Nobody waits for what an ended member would have told.
struct AtEnd(Arc<Told>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.change(|state| state.has_ended = true);
    }
}
