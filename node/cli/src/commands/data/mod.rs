//! `starling data`: what there is to train on, and texts that are prepared.

#[cfg(feature = "train")]
mod check;
#[cfg(feature = "train")]
mod prepare;
#[cfg(feature = "train")]
mod show;

use super::{CommandError, Context};
use crate::cli::DataVerb;

#[cfg(feature = "train")]
use super::{EXIT_DONE, print};

#[cfg(feature = "train")]
pub(super) fn data(context: &Context, verb: &DataVerb) -> Result<u8, CommandError> {
    match verb {
        DataVerb::Prepare(flags) => prepare::prepare(context, flags),
        DataVerb::Check(flags) => check::check(context, flags),
        DataVerb::Show(flags) => show::show(context, flags),
    }
}

#[cfg(not(feature = "train"))]
pub(super) fn data(_: &Context, _: &DataVerb) -> Result<u8, CommandError> {
    Err(CommandError::TrainsNothing)
}
