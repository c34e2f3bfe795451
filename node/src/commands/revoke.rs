//! `starling revoke`: puts a peer out of the run, by the founder's key.

use serde_json::json;
use starling_topology::RunId;

use super::invite::path;
use super::{CommandError, Context, EXIT_DONE, print};
use crate::appointment::Office;
use crate::cli::RevokeFlags;
use crate::founder::FounderKey;
use crate::identity::to_libp2p;
use crate::manifest_file;
use crate::revocations::{MAX_REVOKED, Renewal};
use crate::secret;

pub(super) fn revoke(context: &Context, flags: &RevokeFlags) -> Result<u8, CommandError> {
    let dir = context.load(&flags.data_dir.values())?.data_dir()?;
    let path = path(&dir, flags.key.as_deref());
    let Some(key) = FounderKey::load(&path)? else { return Err(CommandError::NoFounderKey(path)) };
    let known = manifest_file::Known::load(&dir)?.manifests;
    let is_its = |run: RunId, founder| Office::load(&dir, run, founder).holder() == key.public();
    let runs = known.iter().map(|manifest| (manifest.run_id(), manifest.founder));
    let Some((run, _)) = runs.into_iter().find(|(run, founder)| founder.is_some_and(|it| is_its(*run, it))) else {
        return Err(CommandError::OtherFounder(path));
    };
    let before = Renewal::load(&dir, run)?;
    let count = before.as_ref().map_or(0, |before| before.list.peers.len());
    let is_out = before.as_ref().is_some_and(|before| before.list.names(&flags.peer));
    if count >= MAX_REVOKED && !is_out {
        return Err(CommandError::TooManyRevoked(MAX_REVOKED));
    }
    // A public run has none.
    let secret = secret::load(&dir, run)?.secret;
    let renewal = match before {
        Some(before) if is_out => before,
        before => {
            let renewal = Renewal::after(before.as_ref(), &key, run, flags.peer, secret);
            renewal.store(&dir, run)?;
            renewal
        }
    };
    let (peer, count) = (to_libp2p(flags.peer).to_string(), renewal.list.peers.len());
    print(
        context.global.json,
        || json!({ "run": run.to_string(), "peer": peer, "revoked": count, "new": !is_out }),
        || match is_out {
            true => format!("{peer} was revoked before\n"),
            false => format!(
                "revoked {peer}: members leave it out as soon as they hear of it, and it can't come back\n\
                 invitations that name no peer have ended: `starling invite` makes new ones\n"
            ),
        },
    )?;
    Ok(EXIT_DONE)
}
