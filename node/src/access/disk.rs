//! What is kept of who may be here, for when this process is gone.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use starling_topology::RunId;

use super::{Access, Credentials};
use crate::error::NodeError;
use crate::revocations::Renewal;
use crate::roster::Roster;
use crate::{private_file, secret};

/// The longest roster on disk, in bytes.
const MAX_ROSTER_BYTES: u64 = 1 << 20;

impl Access {
    /// Writes down who has been a member, who has to go, and the secret since.
    pub(crate) fn store(&self) -> Result<(), NodeError> {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // A disk that hangs keeps nobody waiting who wants to know who may be here.
        let (data_dir, run, roster, renewal, credentials) = {
            let state = self.lock();
            let (Some(data_dir), Some(run)) = (state.data_dir.clone(), state.run) else { return Ok(()) };
            let secret = state.secrets.first().copied();
            let credentials = Credentials { secret, invitation: state.grant.clone(), bearer: None };
            (data_dir, run, state.roster.clone(), state.renewal.clone(), credentials)
        };
        store_roster(&data_dir, run, &roster)?;
        let Some(renewal) = renewal else { return Ok(()) };
        // The founder may just have written a newer one.
        let there = Renewal::load(&data_dir, run).ok().flatten();
        let is_same = |there: &Renewal| there.list == renewal.list && there.secrets.len() < renewal.secrets.len();
        if there.is_none_or(|there| renewal.list.precedes(&there.list) || is_same(&there)) {
            renewal.store(&data_dir, run)?;
        }
        secret::store(&data_dir, run, &credentials)
    }

    /// The same in a thread, as often as there is news and never twice at once.
    pub(crate) fn keep(&self) {
        if self.0.unkept.fetch_add(1, Ordering::AcqRel) > 0 {
            return; // Whoever writes now writes once more.
        }
        let access = self.clone();
        tokio::task::spawn_blocking(move || {
            loop {
                let news = access.0.unkept.load(Ordering::Acquire);
                if let Err(error) = access.store() {
                    tracing::warn!(%error, "who has been a member is not on disk");
                }
                if access.0.unkept.fetch_sub(news, Ordering::AcqRel) == news {
                    return;
                }
            }
        });
    }
}

/// Who has been a member of `run`, as `data_dir` has it.
pub(crate) fn roster(data_dir: &Path, run: RunId) -> Result<Roster, NodeError> {
    let Some(bytes) = private_file::read_up_to(&path(data_dir, run), MAX_ROSTER_BYTES)? else {
        return Ok(Roster::default());
    };
    // Whoever is not in it shows its invitation again.
    Ok(postcard::from_bytes(&bytes).unwrap_or_else(|error| {
        tracing::warn!(%error, "who has been a member can't be read");
        Roster::default()
    }))
}

pub(crate) fn store_roster(data_dir: &Path, run: RunId, roster: &Roster) -> Result<(), NodeError> {
    let bytes = postcard::to_allocvec(roster).expect("invariant: a roster always encodes");
    private_file::write(&path(data_dir, run), &bytes)
}

fn path(data_dir: &Path, run: RunId) -> PathBuf {
    data_dir.join(format!("roster-{}", &run.to_string()[..16]))
}
