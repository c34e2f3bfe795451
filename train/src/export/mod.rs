//! Trained models away from their runs: written for other programs, and read back to predict and to evaluate.
//!
//! ```text
//!   state, manifest, preprocessing -> [file], [folder] -> bytes -> [description], values -> [Model]: rows -> predictions, measures
//!                                                                                           text -> [TextGenerator]
//! ```
//!
//! For programs that want them otherwise, [`write_exported`] writes them so. A checkpoint goes the same way, in memory: what is predicted with it is what is predicted with its export. The values of a file can be
//! what a run begins with.

pub mod description;
mod error;
pub(crate) mod exchange;
pub mod file;
pub mod folder;
mod model;
mod predictions;
mod read;
mod scores;
mod targets;
mod text_decoder;
mod text_generator;

pub use crate::task::confusion::{ClassSummary, ConfusionTable, DetailReport, NumberSummary, macro_f1};
pub use description::{DataOrigin, Description, Origin};
pub use error::ModelError;
pub(crate) use exchange::read_origin;
pub use exchange::{ExportOptions, Layout, NumberFormat, write_exported, write_exported_onnx};
pub use file::Export;
pub use model::{EvaluationSet, Model, Prediction, PredictionReport};
pub use predictions::{Format, PredictionOptions};
pub use text_decoder::TextDecoder;
pub use text_generator::{SamplingOptions, TextGenerator};

/// What a file says that is written and read here.
const FORMAT: &str = "starling-model-2";

/// What says what the tokens of a text are: they are its bytes, or what this file makes of them.
const BYTES: &str = "bytes";
const TOKENIZER: &str = "tokenizer.json";

#[cfg(test)]
mod tests;
