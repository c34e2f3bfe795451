//! `starling demo`: several peers on this machine train together.

use super::{CommandError, Context};
use crate::cli::DemoFlags;
use crate::config::Layers;
use crate::demo::{self, Plan};
use crate::output::Style;
use crate::program::program;

pub(super) async fn demo(context: &Context, flags: &DemoFlags) -> Result<u8, CommandError> {
    // A demo is the same on every machine: of the user's configuration, only the flags here count.
    let mut layers = Layers::new();
    layers.flags(&context.global.values())?;
    layers.flags(&flags.values())?;
    let loaded = layers.finish();
    // Each peer is this program.
    program(&loaded)?;
    context.start_logs(&loaded)?;
    let plan = Plan {
        peers: usize::from(flags.peers),
        leaf: flags.leaf,
        steps: flags.steps,
        seed: flags.seed,
        device: flags.device.clone(),
        keep: flags.keep.clone(),
        detail: context.global.detail(),
    };
    demo::run(&plan, Style::choose(context.global.json), &context.console).await
}
