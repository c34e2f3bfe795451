//! What can go wrong in training.

use std::fmt;

use burn::tensor::ExecutionError;
use starling_run::manifest::FROM_MODEL;
use starling_run::{Difference, Manifest};
use thiserror::Error;

use crate::device::DeviceError;
use crate::export::ModelError;
use starling_data::DataError;

/// An error of this crate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// What the run holds cannot be used.
    #[error(transparent)]
    Run(#[from] starling_run::Error),
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A trained model cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Its user says how a table is read, and the program's data is none.
    #[error("{0}")]
    NoTable(String),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The run's members bring buffers of their own.
    #[error(
        "the run trains no model: its members bring {elements} numbers each and take their mean; join it with a program that calls `Swarm::join`"
    )]
    NoModel {
        /// How many numbers a buffer has.
        elements: u64,
    },
    /// The data here is not the run's.
    #[error("the data on this machine is not the run's: {}; use the files the run was founded with", list(differences))]
    OtherData {
        /// What differs: "ours" is the run's.
        differences: Vec<Difference>,
    },
    /// The model that this program trains is not the run's.
    #[error(
        "the model of this program is not the run's: {}; join it with the program that it was founded with",
        list(differences)
    )]
    OtherModel {
        /// What differs: "ours" is the run's.
        differences: Vec<Difference>,
    },
    /// The device failed in the middle of a computation.
    #[error("the device `{device}` failed to compute step {step}: {source}")]
    Execution {
        /// The device.
        device: String,
        /// The step.
        step: u64,
        /// What the device says.
        source: ExecutionError,
    },
    /// Samples can't be read in the middle of a run.
    #[error("the samples of the step after {step} can't be read: {source}")]
    Samples {
        /// The last step that was taken.
        step: u64,
        /// What can't be read, and why.
        source: std::io::Error,
    },
    /// The run's data is of a kind that no reader here has.
    #[error(
        "the run trains on data of the kind `{kind}`, which this program can't read: it reads {}; join it with the release of Starling that it was founded with", ours.join(", ")
    )]
    UnknownKind {
        /// The kind.
        kind: String,
        /// What is read here.
        ours: Vec<&'static str>,
    },
    /// The run trains a model by a name that the command line has none of.
    #[error(
        "the run trains `{model}`, a model that this program lacks: it has {}; join it with the release of Starling, or the program, that it was founded with", ours.join(", ")
    )]
    UnknownModel {
        /// What the run trains.
        model: String,
        /// What there is here.
        ours: Vec<String>,
    },
    /// The run trains what another program has.
    #[error("the run trains {theirs}, and this program has {ours}; {}", theirs.way_in())]
    OtherTask {
        /// What the run trains.
        theirs: TrainingKind,
        /// What this program has.
        ours: TrainingKind,
    },
    /// A task stands for a model on a data set, and has other samples than that.
    #[error(
        "the task `{task}` stands for a model on the data set `{data}`, but `{field}` of its `data` is {found}, where that has \
         {expected}; return what the data set has, whose samples the run numbers"
    )]
    OtherSamples {
        /// The task.
        task: String,
        /// The kind of the data set.
        data: String,
        /// Which of its fields.
        field: &'static str,
        /// What it is.
        found: String,
        /// What it has to be.
        expected: String,
    },
    /// A task has no samples to train on, or more than there are numbers for.
    #[error(
        "the task `{task}` has {training} samples to train on and {held_out} held out, but 2 or more and {} together are possible; say others in its `data`",
        u32::MAX
    )]
    SampleCount {
        /// The task.
        task: String,
        /// To train on.
        training: u32,
        /// Held out.
        held_out: u32,
    },
    /// Members evaluate held-out samples together, and the task has none.
    #[error(
        "members of the run evaluate held-out samples together, and the task `{task}` holds none out; say some in its `data`, or take a run in \
         which nobody evaluates before the end"
    )]
    NothingHeldOut {
        /// The task.
        task: String,
    },
    /// What a task's held-out samples count can't be divided by.
    #[error(
        "the task `{task}` says no weight above 0 that all of its held-out samples have together, which what is summed over them is divided by; return in its \
         `weight` what they count, as for those to train on"
    )]
    HeldOutWeight {
        /// The task.
        task: String,
    },
    /// Members evaluate other samples together than are held out here, or measure what is not measured here.
    #[error(
        "members of the run evaluate held-out samples together, and not as this program does: {}; a task says by `held_out` of its `data` how many there are, \
         and by `measures` what its `measure` sums besides the loss, which has to have all that the run names; else join with the program that it was \
         founded with",
        list(differences)
    )]
    OtherEvaluation {
        /// What differs: "ours" is the run's.
        differences: Vec<Difference>,
    },
    /// A task's samples are on their way, and the run has no place for members that lack some.
    #[error(
        "the task `{task}` does not have all of its samples yet (`is_whole`), and members of this run need them from the start: but for one on a prepared text \
         that is shuffled by blocks, and in which nobody evaluates before the end, no run can be entered with a part of its data; start it once they are there"
    )]
    NotWhole {
        /// The task.
        task: String,
    },
    /// A task does not measure what it says.
    #[error(
        "the task `{task}` measures no `{name}` of its held-out samples; sum the `loss` in its `measure`, and what its `measures` names"
    )]
    Unmeasured {
        /// The task.
        task: String,
        /// What is missing.
        name: &'static str,
    },
    /// A task's module can't be trained.
    #[error("the module of the task `{task}` can't be trained: {reason}")]
    Module {
        /// The task.
        task: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A task's loss is not one number.
    #[error(
        "the loss of the task `{task}` has the shape {shape:?}, but must be one number, [1]; return a mean over the batch"
    )]
    Loss {
        /// The task.
        task: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// What samples count is no weight.
    #[error(
        "the task `{task}` says that {samples} samples count {weight} together, but each may count 0 to 1048576; return the sum of what they count, and \
         `Some` for all samples if for any"
    )]
    Weight {
        /// The task.
        task: String,
        /// How many samples.
        samples: usize,
        /// What it says.
        weight: f64,
    },
    /// A task's own code panicked.
    #[error("the task `{task}` panicked in `{what}`: {reason}; the others go on without this member")]
    Panicked {
        /// The task.
        task: String,
        /// Which of its methods.
        what: &'static str,
        /// What the panic says.
        reason: String,
    },
}

/// What a run trains, or a program can train.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainingKind {
    /// Whatever the command line has.
    Models,
    /// A model of the command line, as it is written.
    Model(String),
    /// A program's own task, by its name.
    Task(String),
}

impl TrainingKind {
    /// What the run that `manifest` describes trains.
    pub(crate) fn by(manifest: &Manifest) -> Self {
        let name = manifest.model.to_string();
        if manifest.data.is_of_program() { Self::Task(name) } else { Self::Model(name) }
    }

    /// What whoever has something else does about it.
    fn way_in(&self) -> &'static str {
        match self {
            Self::Task(_) => "join it with the program that it was founded with",
            Self::Models | Self::Model(_) => {
                "join it with `starling join`, or with a program whose task stands for that model (`Task::stands_for`)"
            }
        }
    }
}

impl fmt::Display for TrainingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Models => f.write_str("the models of the command line"),
            Self::Model(name) => write!(f, "the command line's model `{name}`"),
            Self::Task(name) => write!(f, "the task `{name}`, which is a program's own"),
        }
    }
}

impl Error {
    /// Checks that what is here is what the run has.
    pub(crate) fn unless_alike(run: &Manifest, here: &Manifest) -> Result<(), Self> {
        let differences = run.differences(here);
        match &differences[..] {
            [] => Ok(()),
            found if found.iter().any(is_of_model) => Err(Self::OtherModel { differences }),
            // The same samples to train on, and others that are held out of them.
            found if found.iter().all(|difference| difference.field.starts_with("evaluation.")) => {
                Err(Self::OtherEvaluation { differences })
            }
            _ => Err(Self::OtherData { differences }),
        }
    }
}

impl From<Error> for starling_run::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Run(error) => error,
            other => Self::Program(Box::new(other)),
        }
    }
}

fn is_of_model(difference: &Difference) -> bool {
    difference.field.split('.').next().is_some_and(|field| FROM_MODEL.contains(&field))
}

fn list(differences: &[Difference]) -> String {
    let differences: Vec<String> = differences
        .iter()
        .map(|difference| format!("{} is {}, the run has {}", difference.field, difference.theirs, difference.ours))
        .collect();
    differences.join("; ")
}
