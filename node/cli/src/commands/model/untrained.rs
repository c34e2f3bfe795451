//! The same in a build that has no models.

use super::super::{CommandError, Context};
use crate::cli::{EvalFlags, GenerateFlags, ModelFlags, OutputFlags, PredictFlags};

pub(in super::super) fn predict(_: &Context, _: &PredictFlags) -> Result<u8, CommandError> {
    Err(CommandError::TrainsNothing)
}

pub(in super::super) fn generate(_: &Context, _: &GenerateFlags) -> Result<u8, CommandError> {
    Err(CommandError::TrainsNothing)
}

pub(in super::super) fn eval(_: &Context, _: &EvalFlags) -> Result<u8, CommandError> {
    Err(CommandError::TrainsNothing)
}

pub(in super::super) fn export(_: &Context, _: &OutputFlags) -> Result<u8, CommandError> {
    Err(CommandError::TrainsNothing)
}

pub(in super::super) fn show(_: &Context, _: &ModelFlags) -> Result<u8, CommandError> {
    Err(CommandError::TrainsNothing)
}
