//! One process in a data directory.

use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::data_dir_lock::DataDirLock;
use crate::error::NodeError;
use crate::listen;
use crate::report::{Observer, Summary, Tee};
use crate::settings::Settings;
use crate::status::StatusFile;

/// Threads for the network: the event loop, and what it waits for. What computes has threads of its own.
const THREADS: usize = 2;

/// What a node of a program runs on.
///
/// # Errors
/// [`NodeError::Thread`] if no thread can be started.
pub fn runtime() -> Result<Runtime, NodeError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().map_err(NodeError::Thread)
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
    let observer: Arc<dyn Observer> = Arc::new(Tee(vec![observer, Arc::<StatusFile>::clone(&status)]));
    let outcome = node(settings, observer).await;
    if let Err(error) = &outcome {
        status.fail(&error.to_string());
    }
    status.close();
    outcome
}
