//! `starling audit`: whether any sample was lost or repeated.

use serde_json::json;
use starling_run::audit;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::AuditFlags;
use crate::output::format;

pub(super) fn audit(context: &Context, flags: &AuditFlags) -> Result<u8, CommandError> {
    let report = audit::check(&flags.files)?;
    let last_step = report.first_step + report.steps.saturating_sub(1);
    print(
        context.global.json,
        || {
            json!({
                "first_step": report.first_step,
                "last_step": last_step,
                "steps": report.steps,
                "epochs": report.epochs,
                "samples": report.samples,
                "samples_lost": report.samples_lost,
                "samples_repeated": report.samples_repeated,
                "samples_dropped": report.samples_dropped,
                "peers": report.peers,
            })
        },
        || {
            let dropped = match report.samples_dropped {
                0 => String::new(),
                count => format!("; {} left out, as all agreed", format::thousands(count)),
            };
            format!(
                "steps {} to {last_step}: {} contributed {} samples, {} whole epochs\n\
                 no sample was lost, none was repeated{dropped}\n",
                report.first_step,
                format::peers(usize::try_from(report.peers).unwrap_or(usize::MAX)),
                format::thousands(report.samples),
                report.epochs
            )
        },
    )?;
    Ok(EXIT_DONE)
}
