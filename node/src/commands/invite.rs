//! `starling invite`: the ticket of the run on this machine.

use serde_json::json;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::DataDirFlag;
use crate::status::Status;

pub(super) fn invite(context: &Context, flags: &DataDirFlag) -> Result<u8, CommandError> {
    let dir = context.load(&flags.values())?.data_dir()?;
    let status = Status::read(&dir)?.ok_or_else(|| CommandError::NoStatus(dir.clone()))?;
    if status.is_running() == Some(false) {
        let reason = if status.phase.is_last() {
            format!("the node has {}; start it again, then invite", status.phase)
        } else {
            "the node was killed; start it again, then invite".to_owned()
        };
        return Err(CommandError::NoInvitation { dir, reason });
    }
    if status.ticket.is_empty() {
        let reason = "the node can't be reached yet; try again in a moment".to_owned();
        return Err(CommandError::NoInvitation { dir, reason });
    }
    print(
        context.global.json,
        || json!({ "ticket": status.ticket, "run": status.run, "addresses": status.addresses }),
        || format!("{}\n", status.ticket),
    )?;
    Ok(EXIT_DONE)
}
