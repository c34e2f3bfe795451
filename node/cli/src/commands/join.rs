//! `starling join`: take part in a run that others founded.

use starling::JoinOptions;
use starling_node::start::node;

use super::run::take_part;
use super::{CommandError, Context};
use crate::cli::JoinFlags;
use crate::config::{parse_secret, parse_target};
use crate::program::program;

pub(super) async fn join(context: &Context, flags: &JoinFlags) -> Result<u8, CommandError> {
    let loaded = context.load(flags.keys.values())?;
    let (secret, invitation) = flags.secret_file.as_deref().map(parse_secret).transpose()?.unzip();
    let joining = JoinOptions {
        target: parse_target(&flags.ticket.read()?)?,
        secret,
        invitation: invitation.flatten(),
        expected: loaded.expectations()?,
        alone: flags.alone,
    };
    let settings = loaded.settings()?;
    let program = program(&loaded)?;
    context.start_logs(&loaded)?;
    take_part(context, settings, |settings, observer, stop| node::join(settings, joining, program, observer, stop))
        .await
}
