//! What can be wrong with exported models, and with what they are given.

use std::io;
use std::path::PathBuf;

use burn::tensor::ExecutionError;
use starling_data::DataError;
use starling_run::manifest::hint::hint;
use thiserror::Error;

use crate::device::DeviceError;

/// A model that can't be used, or not for this.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The system refused.
    #[error("cannot read the model `{}`: {source}{}", path.display(), hint(source))]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something else lies there.
    #[error(
        "`{}` is no model: {reason}; name a .safetensors file or a folder that `--export` or `starling checkpoint export` wrote, a \
         checkpoint (step-*.json), or a data directory",
        path.display()
    )]
    NotAModel {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It has been changed since it was written.
    #[error("the model `{}` is damaged: {reason}; export it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Values that a run can't begin with.
    #[error("a run can't begin with `{}`: {reason}", path.display())]
    OtherWeights {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// It can't be written so.
    #[error("`{model}` can't be written {how}: {reason}")]
    NoSuchExport {
        /// The model.
        model: String,
        /// How, as the end of a sentence.
        how: &'static str,
        /// Why not, and what to do.
        reason: String,
    },
    /// A program's own task.
    #[error(
        "`{}` holds the task `{task}`, which is a program's own: this program lacks it; use it with the program that trained it, \
         by `starling::trained`, or read its tensors",
        path.display()
    )]
    OtherTask {
        /// The file.
        path: PathBuf,
        /// The task.
        task: String,
    },
    /// A model by a name that the command line has none of.
    #[error(
        "`{}` holds `{model}`, a model that this program lacks: it has {}; use the release of Starling that trained it",
        path.display(), ours.join(", ")
    )]
    UnknownModel {
        /// The file.
        path: PathBuf,
        /// What it holds.
        model: String,
        /// What there is here.
        ours: Vec<String>,
    },
    /// Nothing says what the model's inputs are.
    #[error(
        "`{}` does not say how its data is scaled and what its classes are called; export it on a machine that knows, as all do \
         that trained it",
        path.display()
    )]
    NoScales {
        /// The file.
        path: PathBuf,
    },
    /// A regression has no classes.
    #[error("`{model}` predicts numbers and knows no classes; leave out {what}")]
    NoClasses {
        /// The model.
        model: String,
        /// What was asked for.
        what: &'static str,
    },
    /// A language model predicts bytes, and no labels.
    #[error("`{model}` has learned a text and labels no samples; `starling generate` goes on with a text of yours")]
    LearnsText {
        /// The model.
        model: String,
    },
    /// A model that learned rows or images goes on with no text.
    #[error("`{model}` has learned no text; `starling predict` says what it makes of samples")]
    LearnsNoText {
        /// The model.
        model: String,
    },
    /// A prompt can't become tokens.
    #[error("the tokenizer of the model `{model}` makes no tokens of the prompt: {reason}")]
    Prompt {
        /// The model.
        model: String,
        /// Why.
        reason: String,
    },
    /// What comes of a text is no number.
    #[error("the output of the model `{model}` is not finite; its training went wrong")]
    NoNumber {
        /// The model.
        model: String,
    },
    /// The data can't be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The data has no labels.
    #[error("`{}` has no labels to compare predictions with: {reason}", path.display())]
    NoLabels {
        /// The data.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A label that the model was not trained on.
    #[error("`{}`, row {row}: `{label}` is {reason}", path.display())]
    Label {
        /// The data.
        path: PathBuf,
        /// The line of a table, or the number of an image, counted from 1.
        row: u64,
        /// The label, shortened.
        label: String,
        /// What it should be.
        reason: String,
    },
    /// It is not known, or not so, which samples were held out.
    #[error("`{}` does not have the samples that the run held out: {reason}", path.display())]
    HeldOut {
        /// The data.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// What the model computes is no number.
    #[error(
        "`{}`, row {row}: the model's output is not finite; its values are far from all that it was trained on",
        path.display()
    )]
    NotFinite {
        /// The data.
        path: PathBuf,
        /// The line of a table, or the number of an image, counted from 1.
        row: u64,
    },
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device failed in the middle of a computation.
    #[error("the device `{device}` failed: {source}")]
    Execution {
        /// The device.
        device: String,
        /// What it says.
        source: ExecutionError,
    },
    /// Nobody takes what is predicted.
    #[error("cannot write the predictions: {0}")]
    Output(io::Error),
}

impl From<ModelError> for starling_run::Error {
    fn from(error: ModelError) -> Self {
        Self::Program(Box::new(error))
    }
}
