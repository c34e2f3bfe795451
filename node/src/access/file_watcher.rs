//! Files that users write while a node runs: `starling revoke` leaves the founder's list in the data directory, `starling appoint`
//! what this machine's user consents to.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use starling_topology::RunId;
use tokio_util::task::AbortOnDropHandle;

use super::Access;
use crate::credentials::appointment::Consent;
use crate::credentials::revocations::RevocationUpdate;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at the files as long as it is there.
pub(crate) type FileWatcher = AbortOnDropHandle<()>;

impl Access {
    /// Takes over what the founder, or this machine's user, leaves in this data directory.
    pub(crate) fn watch(&self, data_dir: PathBuf, run: RunId) -> FileWatcher {
        let access = self.clone();
        FileWatcher::new(tokio::spawn(async move {
            let mut seen: [Option<SystemTime>; 2] = [None; 2];
            loop {
                tokio::time::sleep(LOOK).await;
                let (data_dir, before) = (data_dir.clone(), seen);
                let look = move || {
                    let renewal = news(&RevocationUpdate::path(&data_dir, run), before[0]);
                    let consent = news(&Consent::path(&data_dir, run), before[1]);
                    let seen = [renewal.or(before[0]), consent.or(before[1])];
                    let renewal = renewal.and_then(|_| RevocationUpdate::load(&data_dir, run).ok().flatten());
                    (seen, renewal, consent.and_then(|_| Consent::load(&data_dir, run)))
                };
                let Ok((changed, renewal, consent)) = tokio::task::spawn_blocking(look).await else { return };
                seen = changed;
                if let Some(consent) = consent {
                    access.consent(&consent);
                }
                if let Some(renewal) = renewal {
                    access.adopt(renewal);
                }
            }
        }))
    }
}

/// When a file was written, if that is not when it was `before`.
fn news(path: &Path, before: Option<SystemTime>) -> Option<SystemTime> {
    let changed = std::fs::metadata(path).and_then(|it| it.modified()).ok();
    changed.filter(|_| changed != before)
}
