//! `starling appoint`: this member's consent to another key in the founder's place.

use serde_json::json;
use starling_node::credentials::identity::to_libp2p;
use starling_node::store::data_dir::{AppointmentReport, appoint as consent};

use crate::cli::AppointFlags;
use crate::commands::{CommandError, Context, EXIT_DONE, print};

pub(crate) fn appoint(context: &Context, flags: &AppointFlags) -> Result<u8, CommandError> {
    let dir = context.load(flags.data_dir.values())?.data_dir()?;
    let key = to_libp2p(flags.key).to_string();
    let AppointmentReport { run, number } = consent(&dir, flags.key)?;
    print(
        context.global.json,
        || match number {
            Some(number) => json!({ "run": run.to_string(), "key": key, "number": number, "new": true }),
            None => json!({ "run": run.to_string(), "key": key, "new": false }),
        },
        || match number {
            Some(_) => format!(
                "this member consents to {key} in the founder's place: it counts once a quorum of the members has said the same\n"
            ),
            None => format!("{key} has the founder's place already\n"),
        },
    )?;
    Ok(EXIT_DONE)
}
