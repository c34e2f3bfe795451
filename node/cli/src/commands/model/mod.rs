//! `starling predict`, `generate`, `eval`, `export` and `model show`: what a trained model is, says, and is worth.

#[cfg(feature = "train")]
mod confusion;
#[cfg(feature = "train")]
mod detail;
#[cfg(feature = "train")]
mod eval;
#[cfg(feature = "train")]
mod export;
#[cfg(feature = "train")]
mod generate;
#[cfg(feature = "train")]
pub(super) mod part;
#[cfg(feature = "train")]
mod predict;
#[cfg(feature = "train")]
mod show;
#[cfg(not(feature = "train"))]
mod untrained;

#[cfg(feature = "train")]
use super::{CommandError, Context, EXIT_DONE, print};

#[cfg(not(feature = "train"))]
pub(super) use untrained::{eval, export, generate, predict, show};
#[cfg(feature = "train")]
pub(super) use {eval::eval, export::export, generate::generate, predict::predict, show::show};
