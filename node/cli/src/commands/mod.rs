//! What each verb does. One file per verb.

mod access;
mod audit;
mod bench;
mod checkpoint;
mod data;
mod demo;
mod join;
mod keep;
mod metrics;
mod model;
mod run;
mod setup;
mod status;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use starling::Error as NodeError;
use starling_node::store::data_dir::DataDirError;
use thiserror::Error;

use crate::bench::BenchError;
use crate::cli::{CheckpointVerb, Cli, ConfigVerb, GlobalFlags, ModelVerb, Verb};
use crate::config::{ConfigError, FILE_NAME, FlagValue, Layers, Loaded};
use crate::output::{self, Console};
use crate::telemetry;
use access::{appoint, invite, members, revoke};
#[cfg(feature = "train")]
pub(crate) use model::part::remove_export_when_told;
use setup::{completions, config, init};

/// Exit code: done.
pub const EXIT_DONE: u8 = 0;
/// Exit code: failed.
pub const EXIT_FAILED: u8 = 1;
/// Exit code: the command line or the configuration can't be used.
pub const EXIT_USAGE: u8 = 2;

/// Why a verb failed.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The configuration can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node failed.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A benchmark has no result.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Checkpoints can't be read.
    #[error(transparent)]
    Checkpoint(#[from] starling_run::CheckpointError),
    /// What a run holds can't be used.
    #[error(transparent)]
    Run(#[from] starling_run::Error),
    /// The data directory does not have it, or does not take it.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// There is nothing to train with, nor to name a model's parameters by.
    #[error(
        "this build trains nothing: it was built without `train`; use one that has it, which `cargo install --path node/cli` makes"
    )]
    TrainsNothing,
    /// A file is in the way.
    #[error("{} is there already; pass --force to write over it", .0.display())]
    Exists(PathBuf),
    /// A demo's folder is not empty.
    #[error("{} is not empty; --keep takes a folder that is empty or not there", .0.display())]
    NotEmpty(PathBuf),
    /// What is written can't be JSON and a table.
    #[error(
        "with --json, predictions are JSON lines; leave --json or --format csv out, or pass --out FILE for the table"
    )]
    OneFormat,
    /// An ONNX file has no layout to choose.
    #[error(
        "an ONNX file has no layout and its numbers are f32; leave {0} out, or name a file that does not end with .onnx"
    )]
    OneLayout(&'static str),
    /// There is nothing to go on with.
    #[error("a text is missing that the model goes on with; pass --prompt TEXT, or pipe it in")]
    NoPrompt,
    /// There is no such checkpoint.
    #[error("there is no checkpoint in {}", .0.display())]
    NoCheckpoint(PathBuf),
    /// A trained model can't be used, or not on this data.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Model(#[from] starling::export::ModelError),
    /// Data can't be used, or not prepared.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Data(#[from] starling::errors::TaskError),
    /// The operating system refused.
    #[error("can't {what}: {source}")]
    Io {
        /// What.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// An audit found something.
    #[error(transparent)]
    Audit(#[from] starling_run::audit::AuditError),
    /// A demo did not end well.
    #[error("the demo failed: {0}")]
    Demo(String),
}

impl CommandError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::NotEmpty(_) | Self::OneFormat | Self::OneLayout(_) | Self::NoPrompt => EXIT_USAGE,
            #[cfg(feature = "train")]
            Self::Model(_) | Self::Data(_) => EXIT_FAILED,
            Self::Node(_)
            | Self::Bench(_)
            | Self::Checkpoint(_)
            | Self::Run(_)
            | Self::DataDir(_)
            | Self::TrainsNothing
            | Self::Exists(_)
            | Self::NoCheckpoint(_)
            | Self::Io { .. }
            | Self::Audit(_)
            | Self::Demo(_) => EXIT_FAILED,
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }
}

/// What all verbs have at hand.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) global: GlobalFlags,
    pub(crate) console: Console,
}

impl Context {
    /// Puts all layers of the configuration together, with `flags` on top.
    fn load(&self, flags: &[FlagValue]) -> Result<Loaded, CommandError> {
        let found = Path::new(FILE_NAME);
        let file = match &self.global.config {
            Some(file) => Some(file.as_path()),
            None => found.exists().then_some(found),
        };
        self.load_from(file, flags)
    }

    /// The same, with `file` as the only file.
    fn load_from(&self, file: Option<&Path>, flags: &[FlagValue]) -> Result<Loaded, CommandError> {
        let flags = [&self.global.values(), flags].concat();
        Ok(Layers::load(file, std::env::vars_os(), &flags)?)
    }

    /// Shows on a terminal that `what` goes on, until it is dropped: before anything is printed.
    #[cfg(feature = "train")]
    fn spinner(&self, what: &'static str) -> Option<output::Spinner> {
        use output::{Detail, Spinner, Style};
        let is_shown = Style::choose(self.global.json) == Style::Terminal && self.global.detail() > Detail::Errors;
        is_shown.then(|| Spinner::start(&self.console, what))
    }

    fn start_logs(&self, loaded: &Loaded) -> Result<(), CommandError> {
        telemetry::init(&loaded.log()?, &self.console).map_err(CommandError::io("start the log"))
    }
}

/// Prints `value` as one line of JSON, with the time, or what `text` says.
fn print(
    json: bool,
    value: impl FnOnce() -> serde_json::Value,
    text: impl FnOnce() -> String,
) -> Result<(), CommandError> {
    let shown = if json { format!("{}\n", output::timed(SystemTime::now(), value())) } else { text() };
    output::print(&shown).map_err(CommandError::io("write to stdout"))
}

/// Does what the command line says. Returns the exit code.
///
/// # Errors
/// [`CommandError`]; its [`exit_code`](CommandError::exit_code) is the process's.
pub async fn dispatch(cli: Cli) -> Result<u8, CommandError> {
    let context = Context { global: cli.global, console: Console::new() };
    match cli.verb {
        Verb::Demo(flags) => demo::demo(&context, &flags).await,
        Verb::Init(flags) => init::init(&context, &flags),
        Verb::Run(flags) => run::run(&context, &flags).await,
        Verb::Join(flags) => join::join(&context, &flags).await,
        Verb::Keep(flags) => keep::keep(&context, &flags).await,
        Verb::Invite(flags) => invite::invite(&context, &flags),
        Verb::Metrics(flags) => metrics::metrics(&context, &flags).await,
        Verb::Members(flags) => members::members(&context, &flags),
        Verb::Revoke(flags) => revoke::revoke(&context, &flags),
        Verb::Appoint(flags) => appoint::appoint(&context, &flags),
        Verb::Id(flags) => invite::id(&context, &flags),
        Verb::Status(flags) => status::status(&context, &flags).await,
        Verb::Audit(flags) => audit::audit(&context, &flags),
        Verb::Config(ConfigVerb::Show(flags)) => config::show(&context, &flags),
        Verb::Checkpoint(CheckpointVerb::Ls(flags)) => checkpoint::list(&context, &flags),
        Verb::Checkpoint(CheckpointVerb::Verify(flags)) => checkpoint::verify(&context, &flags),
        Verb::Checkpoint(CheckpointVerb::Export(flags)) => checkpoint::export(&context, &flags),
        Verb::Checkpoint(CheckpointVerb::Fetch(flags)) => keep::fetch(&context, &flags).await,
        Verb::Data(verb) => data::data(&context, &verb),
        Verb::Predict(flags) => model::predict(&context, &flags),
        Verb::Generate(flags) => model::generate(&context, &flags),
        Verb::Eval(flags) => model::eval(&context, &flags),
        Verb::Export(flags) => model::export(&context, &flags),
        Verb::Model(ModelVerb::Show(flags)) => model::show(&context, &flags),
        Verb::Bench(verb) => bench::bench(&context, &verb).await,
        Verb::Completions { shell } => completions::completions(shell),
    }
}
