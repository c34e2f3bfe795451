//! The command line as it is written: verbs and raw flags.
//!
//! Flags that set a key of the configuration stay text here. [`crate::config`] reads, checks and explains them, with
//! the same words as for files and variables.

mod bench;
mod data;
mod help;
mod invite;
mod keep;
mod keys;
mod model;
mod ticket;
mod values;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use starling::ResumePolicy;
use starling_run::{RenameSpec, WIRE_VERSION};

pub use bench::{AllReduceFlags, BenchVerb, LinkFlags, MemoryFlags, ReductionFlags, SwarmFlags};
pub use data::{CheckFlags, DataVerb, PrepareFlags, SampleFlags};
pub use help::{command, one_line, parse};
use invite::APPOINT_EXAMPLES;
pub use invite::{AppointFlags, IdFlags, InviteFlags, RevokeFlags};
pub use keep::{FetchFlags, KeepFlags};
pub use keys::{FETCH, JOIN, KEEP, KeyFlags, LOOK, RUN};
use model::{EVAL_EXAMPLES, EXPORT_EXAMPLES, GENERATE_EXAMPLES, PREDICT_EXAMPLES};
pub use model::{
    EvalFlags, FormatName, GenerateFlags, LayoutName, ModelFlags, ModelVerb, NumberName, OutputFlags, PredictFlags,
    WhichFlags,
};
pub use ticket::{TicketFlags, hide_ticket, read_argument};

/// With the wire version, which all members of a run have in common.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (wire version {WIRE_VERSION})", env!("CARGO_PKG_VERSION")));

const EXAMPLES: &str = "\
Examples:
  starling demo                              four peers on this machine train together, in seconds
  starling run --min-peers 2                 found a run on the built-in digits; prints a ticket
  starling join -                            join it from another machine: paste that ticket
  starling run --data table.csv --label y    found a run on your own data
  starling status                            how the run on this machine is doing

Exit codes:
  0    done, or left in order after the first Ctrl-C
  1    failed; stderr says what, where, why and what to do
  2    the command line or the configuration can't be used
  130  interrupted: the second Ctrl-C of run, join and keep, the first of the others";

const RUN_EXAMPLES: &str = "\
Examples:
  starling run --min-peers 3 --data table.csv --data-dir state
  starling run --model cnn:8,16 --data mnist/ --batch-size 128 --steps 2000 --export model.safetensors
  starling run --model gpt:4x128 --data text.txt --schedule cosine --warm-up 100 --clip 1.0 --export out/
  starling run --resume                      go on from the newest checkpoint

The first Ctrl-C (or SIGTERM) leaves in order and saves; the second quits at once, with exit code 130.
-h lists what most runs need, --help all, with flags for tuning.";

const JOIN_EXAMPLES: &str = "\
Examples:
  starling join -                            then paste the ticket; or pipe it in: `... invite | ssh host starling join -`
  starling join --ticket-file ticket --data table.csv --data-dir state2
  starling join /ip4/192.0.2.1/tcp/4001/p2p/12D3KooW… --secret-file secret.hex

Model, optimizer, schedule, clipping, batch size, steps, seed, longest stall, codec, plan, and a table's label column and header come from
the run. Set one anyway, and a run that differs is refused.
Each process needs a data directory of its own, and each machine a copy of the data, unless a member was started with
--share-data. -h lists what joiners mostly need, --help all.";

const INVITE_EXAMPLES: &str = "\
Examples:
  starling invite                            a ticket for whoever holds it
  starling invite --once --expires 2d        for one machine, to be used within two days
  starling invite --role keeper --for 12D3KooW…   for the machine that printed this by `starling id`, to keep checkpoints

Only the founder's key can sign invitations: founder.key in the data directory of whoever ran `starling run`. Elsewhere, the
ticket of the member there is printed, if others may come by it too.";

const METRICS_EXAMPLES: &str = "\
Examples:
  starling metrics state
  starling metrics state --csv > loss.csv
  starling metrics state --tensorboard tb && tensorboard --logdir tb
  starling metrics state --follow --json | ...

Each machine keeps what it sees, in metrics-RUN.jsonl in its data directory: the loss of a step's whole batch and the speed,
several times a second and of at most some 4,000 steps of a run, and each evaluation. What came behind a checkpoint that the run
went back to is left out.";

const REVOKE_EXAMPLES: &str = "\
Examples:
  starling revoke 12D3KooW…                  in the data directory of whoever founded the run
  starling revoke 12D3KooW… --key founder.key --data-dir state   with the founder's key, in that of any member

A node that runs in that data directory hears of it within a second and tells the others. Invitations that name no peer
(`--for`) end with each revocation: `starling invite` makes new ones.";

const KEEP_EXAMPLES: &str = "\
Examples:
  starling keep -
  starling keep --ticket-file ticket --data-dir kept --checkpoint-keep 10 --listen /ip4/0.0.0.0/tcp/4001

A keeper is no member: it changes no view and delays nobody. Members that were killed ask it for a newer stable checkpoint
when they come back. Ctrl-C (or SIGTERM) ends it.";

/// Train one model on many machines that nobody owns in common.
///
/// Start one process on each machine, paste a join ticket, and the machines find each other, form a ring, and average
/// their gradients exactly. There is no master and no server.
#[derive(Debug, Parser)]
#[command(name = "starling", version = VERSION.as_str(), after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    /// Flags of every verb.
    #[command(flatten)]
    pub global: GlobalFlags,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Train with several peers on this machine; kill one, let one join, and compare what they end up with
    Demo(DemoFlags),
    /// Make a data directory with an identity, and a commented starling.toml
    Init(InitFlags),
    /// Found a run, wait for others, train
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunFlags),
    /// Join a run by its ticket or by a member's address
    #[command(after_help = JOIN_EXAMPLES)]
    Join(JoinFlags),
    /// Store a run's checkpoints without taking part in it: no device, no data
    #[command(after_help = KEEP_EXAMPLES)]
    Keep(KeepFlags),
    /// Print a ticket of the run on this machine: for everybody, or as the founder says
    #[command(after_help = INVITE_EXAMPLES)]
    Invite(InviteFlags),
    /// List who is in the run on this machine, how each came and where it is, and who was revoked
    Members(KeyFlags<LOOK>),
    /// Put a peer out of the run, for good: the others go on without it, with a new secret
    #[command(after_help = REVOKE_EXAMPLES)]
    Revoke(RevokeFlags),
    /// Consent to another key in the founder's place, where that one is lost or stolen: it counts once a quorum of the members has
    #[command(after_help = APPOINT_EXAMPLES)]
    Appoint(AppointFlags),
    /// Print the peer id of this machine, for `starling invite --for`; makes its key if there is none
    Id(IdFlags),
    /// Say how the run on this machine is doing
    Status(StatusFlags),
    /// Show how the loss of the run on this machine went over its steps, or write it as CSV, JSON or for TensorBoard
    #[command(after_help = METRICS_EXAMPLES)]
    Metrics(MetricsFlags),
    /// Check the files that members wrote with --audit: that no sample was lost or repeated
    Audit(AuditFlags),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// List, verify, export and fetch checkpoints
    #[command(subcommand)]
    Checkpoint(CheckpointVerb),
    /// Prepare texts for language models, and check what a run would understand of data
    #[command(subcommand)]
    Data(DataVerb),
    /// Predict the labels of a table or of images with a trained model
    #[command(after_help = PREDICT_EXAMPLES)]
    Predict(PredictFlags),
    /// Go on with a text, as a trained language model does
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(GenerateFlags),
    /// Measure how good a trained model is on a table or images with labels, or on a text
    #[command(after_help = EVAL_EXAMPLES)]
    Eval(EvalFlags),
    /// Write a trained model for other programs: PyTorch, Hugging Face's tools, ONNX
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(OutputFlags),
    /// Show a trained model
    #[command(subcommand)]
    Model(ModelVerb),
    /// Measure how fast this machine reduces
    #[command(subcommand)]
    Bench(BenchVerb),
    /// Print a completion script for a shell
    Completions {
        /// bash, elvish, fish, powershell or zsh
        shell: Shell,
    },
}

/// Flags of every verb.
#[derive(Debug, Clone, Default, Args)]
pub struct GlobalFlags {
    /// Print JSON on stdout: one object per line [default: text]
    #[arg(long, global = true)]
    pub json: bool,
    /// Configuration file [default: ./starling.toml if it is there]
    #[arg(long, global = true, value_name = "FILE", env = "STARLING_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Tell everything, and log more, to stderr: -v info, -vv debug, -vvv trace [default: warn]
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Tell and log errors only [default: warn]
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Tell tickets, which hold a private run's secret, also where no person reads: in JSON, files and pipes [default: only on a
    /// terminal, and by `starling invite`]
    #[arg(long, global = true)]
    pub show_ticket: bool,
    /// Log as text or json [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

/// `starling run`.
#[derive(Debug, Clone, Default, Args)]
pub struct RunFlags {
    /// All keys.
    #[command(flatten)]
    pub keys: KeyFlags<RUN>,
    /// Go on from a checkpoint in the data directory: the newest, or the one after STEP; with --steps beyond the end of a
    /// complete run, as a new run [default: start afresh]
    #[arg(
        long,
        value_name = "STEP",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "newest",
        value_parser = parse_resume
    )]
    pub resume: Option<ResumePolicy>,
    /// If others trained this run and none of them answers, go on alone, as a fork [default: wait, or say who is missing]
    #[arg(long)]
    pub alone: bool,
    /// Begin a new run with a checkpoint (a step-*.json file), or with the newest one of a data directory: parameters,
    /// optimizer, ledger and step [default: initial parameters]
    #[arg(long, value_name = "CHECKPOINT|DIR")]
    pub from: Option<PathBuf>,
    /// Begin a new run with the values of an export, a file or a folder, of a safetensors, PyTorch or ONNX file with the same names and
    /// shapes, or of a checkpoint or data directory; joiners get them from members [default: values drawn from the seed]
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "from")]
    pub init: Option<PathBuf>,
    /// In the names of tensors that --init takes, replace what a regular expression matches; may be given several times [default: as they are]
    #[arg(long, value_name = "OLD=NEW", requires = "init")]
    pub init_map: Vec<RenameSpec>,
}

/// `starling join`.
#[derive(Debug, Clone, Args)]
pub struct JoinFlags {
    /// Whom to join.
    #[command(flatten)]
    pub ticket: TicketFlags,
    /// This machine's keys, and what the user insists on.
    #[command(flatten)]
    pub keys: KeyFlags<JOIN>,
    /// File with a private run's secret (hex, or a member's secret-... file), to join by address [default: the ticket's]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// If this machine took part before and none of the others answers, go on alone, as a fork [default: wait for them]
    #[arg(long)]
    pub alone: bool,
}

/// `starling demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoFlags {
    /// How many peers train together
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub peers: u16,
    /// Have one more take part as a leaf of one of them [default: no]
    #[arg(long)]
    pub leaf: bool,
    /// How many steps they take
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Seed of the choice whom to kill
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// auto, cpu, gpu or gpu:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// Keep the peers' data directories here, in a folder that is empty or not there [default: removed at the end]
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// `starling init`.
#[derive(Debug, Clone, Default, Args)]
pub struct InitFlags {
    /// Set in the file that is written.
    #[command(flatten)]
    pub keys: KeyFlags<RUN>,
    /// Write over a file that is there [default: refuse]
    #[arg(long)]
    pub force: bool,
}

/// `starling status`.
#[derive(Debug, Clone, Default, Args)]
pub struct StatusFlags {
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: KeyFlags<LOOK>,
    /// Go on until the node ends: on a terminal in one place, else again when something has changed [default: print once]
    #[arg(long)]
    pub watch: bool,
}

/// `starling metrics`.
#[derive(Debug, Clone, Default, Args)]
pub struct MetricsFlags {
    /// The data directory [default: that of --data-dir]
    #[arg(value_name = "DIR", conflicts_with = "train.data_dir")]
    pub dir: Option<PathBuf>,
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: KeyFlags<LOOK>,
    /// The run whose id begins so [default: the one that was measured last]
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Print a table with a column for each measure, as CSV, whatever --json says
    #[arg(long)]
    pub csv: bool,
    /// Write an event file for TensorBoard into a folder of the run's own in this one [default: none is written]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["csv", "follow"])]
    pub tensorboard: Option<PathBuf>,
    /// Go on with what comes until the node ends
    #[arg(long, conflicts_with = "csv")]
    pub follow: bool,
}

/// `starling audit`.
#[derive(Debug, Clone, Args)]
pub struct AuditFlags {
    /// Files of members of one run; what one of them missed is in another's
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// `starling config`.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigVerb {
    /// Print what is in force, as TOML that can be read again
    Show(ShowFlags),
}

/// `starling config show`.
#[derive(Debug, Clone, Default, Args)]
pub struct ShowFlags {
    /// Flags, as `starling run` would take them.
    #[command(flatten)]
    pub keys: KeyFlags<RUN>,
    /// Say for each value where it came from: default, file and line, variable, or flag [default: values only]
    #[arg(long)]
    pub origin: bool,
}

/// `starling checkpoint`.
#[derive(Debug, Clone, Subcommand)]
pub enum CheckpointVerb {
    /// List the checkpoints in the data directory
    Ls(KeyFlags<LOOK>),
    /// Read every checkpoint and check all hashes; exit code 1 if one is damaged
    Verify(KeyFlags<LOOK>),
    /// Write a checkpoint's model to a safetensors file or a folder
    Export(ExportFlags),
    /// Fetch the newest stable checkpoint from a member or keeper; `starling run --resume` goes on from it
    Fetch(FetchFlags),
}

/// `starling checkpoint export`.
#[derive(Debug, Clone, Args)]
pub struct ExportFlags {
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: KeyFlags<LOOK>,
    /// Which checkpoint.
    #[command(flatten)]
    pub which: WhichFlags,
    /// The safetensors file to write, or, if it ends with a slash or is one already, the folder
    #[arg(long, value_name = "FILE|DIR/")]
    pub to: PathBuf,
}

fn parse_resume(text: &str) -> Result<ResumePolicy, String> {
    match text {
        "newest" => Ok(ResumePolicy::Newest),
        step => {
            step.parse().map(ResumePolicy::Step).map_err(|_| "must be the step of a checkpoint, or `newest`".to_owned())
        }
    }
}
