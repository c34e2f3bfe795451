//! One process in a data directory.

use std::sync::Arc;

use crate::data_dir_lock::DataDirLock;
use crate::error::NodeError;
use crate::listen;
use crate::output::Tee;
use crate::report::{Observer, Summary};
use crate::settings::Settings;
use crate::status::StatusFile;

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
