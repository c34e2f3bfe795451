//! What is kept of who may be here, for when this process is gone.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use starling_topology::{PeerId, RunId};

use super::{Access, Credentials};
use crate::access::roster::Roster;
use crate::credentials::appointment::Office;
use crate::credentials::invitation::{InvitationKey, now_s};
use crate::credentials::revocations::RevocationUpdate;
use crate::credentials::secret;
use crate::error::NodeError;
use crate::store::private_file;

/// The longest roster on disk, in bytes.
const MAX_ROSTER_BYTES: u64 = 1 << 20;

impl Access {
    /// Writes down who has been a member, who has to go, and the secret since.
    pub(crate) fn store(&self) -> Result<(), NodeError> {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // A disk that hangs keeps nobody waiting who wants to know who may be here.
        let (data_dir, run, roster, renewal, taken, appointments) = {
            let state = self.lock();
            let (Some(data_dir), Some(run)) = (state.data_dir.clone(), state.run) else { return Ok(()) };
            let own = || Credentials {
                secret: state.secrets.first().copied(),
                invitation: state.grant.clone(),
                bearer: None,
            };
            let taken = state.is_taken().then(own);
            (data_dir, run, state.roster.clone(), state.renewal.clone(), taken, state.appointments())
        };
        store_roster(&data_dir, run, &roster)?;
        if let Some(appointments) = appointments {
            appointments.store(&data_dir, run)?;
        }
        if let Some(renewal) = &renewal {
            // The founder may just have written a newer one.
            let there = RevocationUpdate::load(&data_dir, run).ok().flatten();
            let is_same =
                |there: &RevocationUpdate| there.list == renewal.list && there.secrets.len() < renewal.secrets.len();
            if there.is_none_or(|there| self.is_older(&there, renewal) || is_same(&there)) {
                renewal.store(&data_dir, run)?;
            }
        }
        let kept = secret::load(&data_dir, run).unwrap_or_default();
        let is_taken = taken.is_some();
        let better = match (taken, renewal) {
            (Some(own), _) if own.invitation.as_ref().is_none_or(|grant| self.holds(grant)) => Some(own),
            // The founder has signed that this secret counts. What the ticket says besides may be worse than what is there.
            (taken, Some(renewal)) => {
                let invitation = kept.invitation.clone().or_else(|| taken.and_then(|own| own.invitation));
                Some(Credentials { secret: renewal.secrets.first().copied(), invitation, bearer: None })
            }
            (Some(_) | None, None) => None,
        };
        if let Some(better) = better.filter(|it| (it.secret, &it.invitation) != (kept.secret, &kept.invitation)) {
            secret::store(&data_dir, run, &better)?;
        }
        self.lock().is_kept |= is_taken;
        Ok(())
    }

    /// Whether an invitation of ours is one that admits us anywhere now.
    fn holds(&self, grant: &InvitationKey) -> bool {
        let (office, me, renewal) = {
            let state = self.lock();
            (state.office.clone(), state.pass.me, state.renewal.clone())
        };
        // Not under the lock: signatures take time.
        let Some((office, me)) = office.zip(me) else { return true };
        let invitation = &grant.invitation;
        invitation.admits(me, now_s(), 0).is_ok() && !office.has_ended(invitation, renewal.as_ref())
    }

    /// The same in a thread, and `then` what may be said once it is on disk: what a user does next goes by that.
    pub(crate) fn keep_before(&self, then: impl FnOnce() + Send + 'static) {
        let access = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = access.store() {
                tracing::warn!(%error, "who may be here is not on disk");
            }
            then();
        });
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

/// By which of two invitations `me` comes, the `newer` one of a ticket, or the `older` one that was kept. The former, unless it is
/// for another, or of another founder.
pub(crate) fn better(
    data_dir: &Path,
    (run, founder): (RunId, Option<PeerId>),
    me: PeerId,
    [newer, older]: [Option<InvitationKey>; 2],
) -> Result<Option<InvitationKey>, NodeError> {
    let office = founder.map(|founder| Office::load(data_dir, run, founder));
    // Who was never a member may not have heard who has the founder's place now.
    let is_known = roster(data_dir, run)?.has_seen(&me);
    let suits = |grant: &InvitationKey| {
        let by = |office: &Office| !is_known || office.inviter(&grant.invitation).is_some();
        office.as_ref().is_none_or(|office| grant.invitation.is_for(me).is_ok() && by(office))
    };
    Ok(newer.clone().filter(suits).or(older).or(newer))
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
