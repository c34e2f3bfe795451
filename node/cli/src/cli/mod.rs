//! The command line as it is written: verbs and raw flags.
//!
//! Flags that set a key of the configuration stay text here. [`crate::config`] reads, checks and explains them, with
//! the same words as for files and variables.

mod bench;
mod help;
mod invite;
mod keep;
mod optimizer;
mod ticket;
mod values;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use starling::Resume;

pub use bench::{AllReduceFlags, BenchVerb, LinkFlags, ReductionFlags, SwarmFlags};
pub use help::{command, one_line, parse};
use invite::APPOINT_EXAMPLES;
pub use invite::{AppointFlags, IdFlags, InviteFlags, RevokeFlags};
pub use keep::{FetchFlags, KeepFlags, StoreFlags};
pub use optimizer::OptimizerFlags;
pub use ticket::{TICKET_VARIABLE, TicketFlags, hide_ticket, read_argument};

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
  130  interrupted: the second Ctrl-C, or Ctrl-C in a demo";

const RUN_EXAMPLES: &str = "\
Examples:
  starling run --min-peers 3 --data table.csv --data-dir state
  starling run --model cnn:8,16 --data mnist/ --batch-size 128 --steps 2000 --export model.safetensors
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
#[command(name = "starling", version, after_help = EXAMPLES, max_term_width = 110)]
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
    Members(DataDirFlag),
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
    /// Check the files that members wrote with --audit: that no sample was lost or repeated
    Audit(AuditFlags),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// List, verify, export and fetch checkpoints
    #[command(subcommand)]
    Checkpoint(CheckpointVerb),
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

/// Where a node keeps what it has.
#[derive(Debug, Clone, Default, Args)]
pub struct DataDirFlag {
    /// Where identity, secrets, status and checkpoints live [default: starling in the user's data folder]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
}

/// Flags of what all members share.
#[derive(Debug, Clone, Default, Args)]
pub struct ManifestFlags {
    /// softmax, mlp:64,64 (hidden layers) or cnn:8,16 (channels) [default: mlp:64]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// How its parameters follow gradients.
    #[command(flatten)]
    pub optimizer: OptimizerFlags,
    /// Samples per step, over all members together [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub batch_size: Option<String>,
    /// The run's last step [default: 600]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub steps: Option<String>,
    /// Seed of initial parameters, sample order and held-out split [default: 42]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<String>,
    /// The longest a run may stand still because of one peer, such as 10s; all deadlines derive from it [default: 10s]
    #[arg(long = "max-stall", alias = "max-stall-ms", value_name = "DURATION", allow_negative_numbers = true)]
    pub max_stall_ms: Option<String>,
    /// Share samples out by speed, so that a faster machine computes more of each step, or equal [default: speed]
    #[arg(long, value_name = "HOW")]
    pub balance: Option<String>,
    /// All members save a checkpoint every N steps; 0 only at the end [default: 100]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub checkpoint_every: Option<String>,
    /// How gradients are written on the wire: f32, or shorter as bf16, f16 or int8 [default: f32]
    #[arg(long, value_name = "CODEC")]
    pub codec: Option<String>,
    /// Who sends to whom: ring, tree (few hops), mesh (two hops, a link to each other member), hierarchical (sites as
    /// measured links show them, a ring if there are none) or auto [default: ring]
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<String>,
}

/// Flags of who founds a run.
#[derive(Debug, Clone, Default, Args)]
pub struct FoundingFlags {
    /// Share of the samples kept from training, to measure accuracy on [default: 0.2]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub held_out: Option<String>,
    /// Members needed to take steps [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub min_peers: Option<String>,
    /// Admit anyone who knows an address, without the ticket's secret [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub public: Option<String>,
    /// Which members decide who is a member: majority, or two-thirds, so that fewer than a third can't split the run if they are
    /// hostile; with fewer than four members, it then stands still at the first death [default: majority]
    #[arg(long, value_name = "RULE")]
    pub quorum: Option<String>,
}

/// Flags of this machine alone.
#[derive(Debug, Clone, Default, Args)]
pub struct MachineFlags {
    /// digits (built in), a CSV file (.csv, .csv.gz), an IDX file, or a folder of IDX files; joiners without it ask members
    /// that share the run's data [default: digits]
    #[arg(long, value_name = "SOURCE")]
    pub data: Option<String>,
    /// CSV: the label column, by name or 0-based index; joiners have it from the run [default: the last column]
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// CSV: the first row holds column names; joiners know from the run [default: detected from the first row]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub header: Option<String>,
    /// CSV: the first row holds values
    #[arg(long, conflicts_with = "header")]
    pub no_header: bool,
    /// CSV: what separates cells: comma, tab, semicolon, pipe, or space for any blanks; joiners know from the run
    /// [default: detected from the first rows]
    #[arg(long, value_name = "NAME")]
    pub delimiter: Option<String>,
    /// Let joiners have the files of the data set from this machine [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub share_data: Option<String>,
    /// MiB of data that a joiner without --data takes from members at most [default: 1024]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    pub data_limit: Option<String>,
    /// auto (a GPU if there is one), cpu, gpu or gpu:N [default: auto]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: DataDirFlag,
    /// Measure accuracy every N steps; 0 only at the end [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub evaluate_every: Option<String>,
    /// How many checkpoints to keep [default: 3]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub checkpoint_keep: Option<String>,
    /// MiB of memory for updates that begin while their step is being reduced, where cores are to spare [default: 0]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    pub update_ahead: Option<String>,
    /// Write the trained model to this safetensors file at the end [default: nothing is written]
    #[arg(long, value_name = "FILE")]
    pub export: Option<String>,
    /// Write who contributed which samples to this file; `starling audit` checks it [default: nothing is written]
    #[arg(long, value_name = "FILE")]
    pub audit: Option<String>,
    /// Multiaddr to listen on, repeatable [default: /ip4/0.0.0.0/tcp/0, /ip6/::/tcp/0]
    #[arg(long, value_name = "MULTIADDR")]
    pub listen: Vec<String>,
    /// Multiaddr to announce besides those, repeatable, for a forwarded port [default: none]
    #[arg(long, value_name = "MULTIADDR")]
    pub announce: Vec<String>,
    /// Peer id (`starling id` prints it) that may come without an invitation, repeatable; in a public run, nobody else then may
    /// [default: none]
    #[arg(long, value_name = "PEER")]
    pub allow: Vec<String>,
    /// Look for peers on the local network by multicast [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub mdns: Option<String>,
    /// What people call this machine, told to the other members: 1 to 32 printable characters [default: the host's name; none
    /// in a public run]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// How gradients travel: direct (TCP of their own), local (memory within a machine), universal (libp2p), auto (the
    /// best of these), or plaintext (direct without encryption; all members must say so) [default: auto]
    #[arg(long, value_name = "PLANE")]
    pub data_plane: Option<String>,
    /// The most members the run may have [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_peers: Option<String>,
    /// Go on without most of the members after this long, such as 90s, 2m or 1h, or never [default: 2m]
    #[arg(long, value_name = "DURATION")]
    pub fork_after: Option<String>,
    /// Measure how fast this machine reaches the other members, so that reductions are planned by it [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub probe_links: Option<String>,
    /// MiB of state and data to hand out to joiners per second; 0 sets no limit [default: 64]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    pub state_rate: Option<String>,
}

/// All flags that set keys.
#[derive(Debug, Clone, Default, Args)]
pub struct KeyFlags {
    /// What all members share.
    #[command(flatten)]
    pub manifest: ManifestFlags,
    /// What only a founder says.
    #[command(flatten)]
    pub founding: FoundingFlags,
    /// This machine alone.
    #[command(flatten)]
    pub machine: MachineFlags,
}

/// `starling run`.
#[derive(Debug, Clone, Default, Args)]
pub struct RunFlags {
    /// All keys.
    #[command(flatten)]
    pub keys: KeyFlags,
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
    pub resume: Option<Resume>,
    /// If others trained this run and none of them answers, go on alone, as a fork [default: wait, or say who is missing]
    #[arg(long)]
    pub alone: bool,
    /// Begin a new run with a checkpoint (a step-*.json file), or with the newest one of a data directory: parameters,
    /// optimizer, ledger and step [default: initial parameters]
    #[arg(long, value_name = "CHECKPOINT|DIR")]
    pub from: Option<PathBuf>,
}

/// `starling join`.
#[derive(Debug, Clone, Args)]
pub struct JoinFlags {
    /// Whom to join.
    #[command(flatten)]
    pub ticket: TicketFlags,
    /// What the user insists on.
    #[command(flatten)]
    pub manifest: ManifestFlags,
    /// This machine alone.
    #[command(flatten)]
    pub machine: MachineFlags,
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
    pub keys: KeyFlags,
    /// Write over a file that is there [default: refuse]
    #[arg(long)]
    pub force: bool,
}

/// `starling status`.
#[derive(Debug, Clone, Default, Args)]
pub struct StatusFlags {
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: DataDirFlag,
    /// Go on until the node ends: on a terminal in one place, else again when something has changed [default: print once]
    #[arg(long)]
    pub watch: bool,
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
    pub keys: KeyFlags,
    /// Say for each value where it came from: default, file and line, variable, or flag [default: values only]
    #[arg(long)]
    pub origin: bool,
}

/// `starling checkpoint`.
#[derive(Debug, Clone, Subcommand)]
pub enum CheckpointVerb {
    /// List the checkpoints in the data directory
    Ls(DataDirFlag),
    /// Read every checkpoint and check all hashes; exit code 1 if one is damaged
    Verify(DataDirFlag),
    /// Write a checkpoint's parameters to a safetensors file
    Export(ExportFlags),
    /// Fetch the newest stable checkpoint from a member or keeper; `starling run --resume` goes on from it
    Fetch(FetchFlags),
}

/// `starling checkpoint export`.
#[derive(Debug, Clone, Args)]
pub struct ExportFlags {
    /// Where the data directory is.
    #[command(flatten)]
    pub data_dir: DataDirFlag,
    /// The run, by the first digits of its id [default: the run that was saved last]
    #[arg(long, value_name = "PREFIX")]
    pub run: Option<String>,
    /// The checkpoint after this step [default: the newest]
    #[arg(long, value_name = "STEP")]
    pub step: Option<u64>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

fn parse_resume(text: &str) -> Result<Resume, String> {
    match text {
        "newest" => Ok(Resume::Newest),
        step => step.parse().map(Resume::Step).map_err(|_| "must be the step of a checkpoint, or `newest`".to_owned()),
    }
}
