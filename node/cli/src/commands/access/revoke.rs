//! `starling revoke`: puts a peer out of the run, by the founder's key.

use serde_json::json;
use starling_node::credentials::identity::to_libp2p;
use starling_node::store::data_dir::{RevocationReport, revoke as put_out};

use crate::cli::RevokeFlags;
use crate::commands::{CommandError, Context, EXIT_DONE, print};

pub(crate) fn revoke(context: &Context, flags: &RevokeFlags) -> Result<u8, CommandError> {
    let dir = context.load(flags.data_dir.values())?.data_dir()?;
    let RevocationReport { run, count, is_new } = put_out(&dir, flags.key.as_deref(), flags.peer)?;
    let peer = to_libp2p(flags.peer).to_string();
    print(
        context.global.json,
        || json!({ "run": run.to_string(), "peer": peer, "revoked": count, "new": is_new }),
        || match is_new {
            false => format!("{peer} was revoked before\n"),
            true => format!(
                "revoked {peer}: members leave it out as soon as they hear of it, and it can't come back\n\
                 invitations that name no peer have ended: `starling invite` makes new ones\n"
            ),
        },
    )?;
    Ok(EXIT_DONE)
}
