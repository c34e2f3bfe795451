//! A file that the founder writes while a node runs: `starling revoke` leaves its list in the data directory.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use starling_topology::RunId;
use tokio::task::JoinHandle;

use super::Access;
use crate::revocations::Renewal;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at the file as long as it is there.
#[derive(Debug)]
pub(crate) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Access {
    /// Takes over what the founder leaves in this data directory.
    pub(crate) fn watch(&self, data_dir: PathBuf, run: RunId) -> Watch {
        let access = self.clone();
        Watch(tokio::spawn(async move {
            let mut seen: Option<SystemTime> = None;
            loop {
                tokio::time::sleep(LOOK).await;
                let (data_dir, before) = (data_dir.clone(), seen);
                let look = move || {
                    let changed = std::fs::metadata(Renewal::path(&data_dir, run)).and_then(|it| it.modified()).ok();
                    if changed.is_none() || changed == before {
                        return (before, None);
                    }
                    (changed, Renewal::load(&data_dir, run).ok().flatten())
                };
                let Ok((changed, renewal)) = tokio::task::spawn_blocking(look).await else { return };
                seen = changed;
                if let Some(renewal) = renewal {
                    access.adopt(renewal);
                }
            }
        }))
    }
}
