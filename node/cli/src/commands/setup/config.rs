//! `starling config show`: what is in force, and why.

use starling::ResumePolicy;

use crate::cli::ShowFlags;
use crate::commands::{CommandError, Context, EXIT_DONE, print};
use crate::config::{show_json, show_toml};

pub(crate) fn show(context: &Context, flags: &ShowFlags) -> Result<u8, CommandError> {
    let loaded = context.load(flags.keys.values())?;
    // A configuration that a node would refuse is not in force.
    loaded.founding(ResumePolicy::Fresh)?;
    loaded.settings()?;
    loaded.log()?;
    let (json, text) = (show_json(&loaded, flags.origin)?, show_toml(&loaded, flags.origin)?);
    print(context.global.json, || json, || text)?;
    Ok(EXIT_DONE)
}
