//! `starling run`: found a run and train.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use starling::{Error as NodeError, FoundOptions, Observer, Report, ResumePolicy, Settings, Summary};
use starling_node::start::host::alone_in_its_directory;
use starling_node::start::node;
use starling_node::start::signals::heed_signals;
use starling_run::ManifestError;
use tokio_util::sync::CancellationToken;

use super::metrics::loss_curve;
use super::{CommandError, Context, EXIT_DONE};
use crate::cli::RunFlags;
use crate::config::Loaded;
use crate::output::{self, Detail, Discreet, Style};
use crate::program::program;

/// How long the curve at the end may take to be written: a terminal that does not read must not keep the process.
const CURVE_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn run(context: &Context, flags: &RunFlags) -> Result<u8, CommandError> {
    let loaded = context.load(flags.keys.values())?;
    let founding = loaded.founding(flags.resume.unwrap_or(ResumePolicy::Fresh))?;
    let (from, init, init_names) = (flags.from.clone(), flags.init.clone(), flags.init_map.clone());
    let founding = FoundOptions { alone: flags.alone, from, init, init_names, ..founding };
    let settings = loaded.settings()?;
    let program = program(&loaded)?;
    context.start_logs(&loaded)?;
    let idle = loaded.idle();
    let found = |settings, observer: Arc<dyn Observer>, stop| {
        idle.into_iter().for_each(|message| observer.report(&Report::Warning { message }));
        node::found(settings, founding, program, observer, stop)
    };
    take_part(context, settings, found).await.map_err(|error| at_its_key(&loaded, error))
}

/// An error that says which key leads to it, if a field of the manifest can't be used: only beside the data it shows what does not fit.
pub(super) fn at_its_key(loaded: &Loaded, error: CommandError) -> CommandError {
    match error {
        CommandError::Node(NodeError::Run(starling_run::Error::Manifest(ManifestError::Invalid { field, reason }))) => {
            let of_key = loaded.unusable(field, &reason).map(CommandError::from);
            of_key.unwrap_or_else(|| NodeError::Run(ManifestError::Invalid { field, reason }.into()).into())
        }
        other => other,
    }
}

/// Runs a node in its data directory: alone there, shown to the user, ended by signals.
pub(super) async fn take_part<Node>(
    context: &Context,
    settings: Settings,
    node: impl FnOnce(Settings, Arc<dyn Observer>, CancellationToken) -> Node,
) -> Result<u8, CommandError>
where
    Node: Future<Output = Result<Summary, NodeError>>,
{
    let (stop, console) = (CancellationToken::new(), context.console.clone());
    let told = move || console.line("leaving in order; Ctrl-C again to quit at once");
    heed_signals(stop.clone(), told).map_err(CommandError::io("listen for signals"))?;
    let style = Style::choose(context.global.json);
    let mut shown = style.observer(&context.console, context.global.detail());
    let is_read = style != Style::Json && io::stdout().is_terminal();
    if !context.global.show_ticket && !is_read {
        // What programs and files are told is kept, and read by more than whoever may join.
        shown = Arc::new(Discreet(shown));
    }
    let dir = settings.data_dir.clone();
    let summary = alone_in_its_directory(settings, shown, |settings, observer| node(settings, observer, stop)).await?;
    if is_read && summary.steps > 0 && context.global.detail() > Detail::Errors {
        let curve = loss_curve(&dir, &summary.run);
        output::within(CURVE_LIMIT, move || {
            let _ = output::print(&curve);
        });
    }
    Ok(EXIT_DONE)
}
