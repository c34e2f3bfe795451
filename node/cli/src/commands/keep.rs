//! `starling keep` and `starling checkpoint fetch`: checkpoints without taking part.

use serde_json::json;
use starling_node::DataDirLock;
use starling_node::keeper;

use super::run::take_part;
use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::{FetchFlags, KeepFlags};
use crate::config::parse_ticket;
use crate::output::format;

pub(super) async fn keep(context: &Context, flags: &KeepFlags) -> Result<u8, CommandError> {
    let loaded = context.load(flags.keys.values())?;
    let ticket = parse_ticket(&flags.ticket.read()?)?;
    let settings = loaded.settings()?;
    context.start_logs(&loaded)?;
    take_part(context, settings, |settings, observer, stop| keeper::keep(settings, ticket, observer, stop)).await
}

pub(super) async fn fetch(context: &Context, flags: &FetchFlags) -> Result<u8, CommandError> {
    let loaded = context.load(flags.keys.values())?;
    let ticket = parse_ticket(&flags.ticket.read()?)?;
    let settings = loaded.settings()?;
    context.start_logs(&loaded)?;
    let _lock = DataDirLock::acquire(&settings.data_dir)?;
    let fetched = keeper::fetch(&settings, &ticket).await?;
    let (run, digest) = (fetched.run.to_string(), fetched.digest.to_string());
    print(
        context.global.json,
        || json!({ "run": run, "step": fetched.step, "digest": digest, "new": fetched.is_new }),
        || {
            let what = if fetched.is_new { "fetched" } else { "is here already:" };
            let (digest, run) = (format::digest(&digest), format::digest(&run));
            format!("{what} the stable checkpoint after step {}, digest {digest}, run {run}\n", fetched.step)
        },
    )?;
    Ok(EXIT_DONE)
}
