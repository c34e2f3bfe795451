//! One process in a data directory.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tracing::Span;
use tracing::span::EnteredSpan;

use crate::error::NodeError;
use crate::net::listen;
use crate::observe::lossy::Lossy;
use crate::observe::metrics::MetricsFile;
use crate::observe::report::{Observer, ObserverSet, Summary};
use crate::observe::status::StatusFile;
use crate::settings::Settings;
use crate::store::data_dir_lock::DataDirLock;

/// Threads for the network: the event loop, and what it waits for. What computes has threads of its own.
const THREADS: usize = 2;

/// How often it is looked whether a thread has ended.
const LOOK: Duration = Duration::from_millis(1);

/// What a node of a program runs on, and the span that all of it logs in: `member`, with its data directory as `dir` and, as soon as it
/// is known, its `run`. So what members of one process log can be told apart. Who blocks on the runtime enters the span first.
///
/// # Errors
/// [`NodeError::Thread`] if no thread can be started.
pub fn runtime(data_dir: &Path) -> Result<(Runtime, Span), NodeError> {
    thread_local! {
        static ENTERED: RefCell<Option<EnteredSpan>> = const { RefCell::new(None) };
    }
    let span = tracing::info_span!("member", dir = %data_dir.display(), run = tracing::field::Empty);
    let all = span.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        // What tasks log has the span of their thread.
        .on_thread_start(move || ENTERED.set(Some(all.clone().entered())))
        .on_thread_stop(|| ENTERED.set(None))
        .build()
        .map_err(NodeError::Thread)?;
    Ok((runtime, span))
}

/// A thread beside the runtime's, which logs in the span of whoever starts it.
///
/// # Errors
/// If the system has none.
pub(crate) fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let span = Span::current();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || span.in_scope(work))
}

/// What a thread returned, or that it panicked; `None` if it runs on beyond `until`, as where a disk hangs.
pub(crate) fn join_until<T>(thread: JoinHandle<T>, until: Instant) -> Option<std::thread::Result<T>> {
    while !thread.is_finished() {
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(LOOK);
    }
    Some(thread.join())
}

/// Runs a node in its data directory: no other is there meanwhile, and what it reports to `observer` also goes into the status
/// file that `starling status` shows.
///
/// # Errors
/// What `node` says, or that the directory can't be had.
pub async fn alone_in_its_directory<Node>(
    settings: Settings,
    observer: Arc<dyn Observer>,
    node: impl FnOnce(Settings, Arc<dyn Observer>) -> Node,
) -> Result<Summary, NodeError>
where
    Node: Future<Output = Result<Summary, NodeError>>,
{
    // Before anything is made or said.
    listen::check(&settings.listen)?;
    let _lock = DataDirLock::acquire(&settings.data_dir)?;
    let status = Arc::new(StatusFile::new(&settings.data_dir));
    let metrics = Arc::new(MetricsFile::new(&settings.data_dir));
    // Who shows may be stopped by a terminal that does not read; the files go on without it.
    let shown = Lossy::start(observer)?;
    let all: [Arc<dyn Observer>; 3] = [status.clone(), metrics.clone(), shown.clone()];
    let observer: Arc<dyn Observer> = Arc::new(ObserverSet(all.into()));
    let outcome = node(settings, observer).await;
    if let Err(error) = &outcome {
        status.fail(&error.to_string());
    }
    metrics.close();
    status.close();
    // Showing may block for a moment.
    let _ = tokio::task::spawn_blocking(move || shown.finish()).await;
    outcome
}
