//! `chaos`: experiments with real processes that are killed, stopped, cut off and started again.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use starling_tests::chaos::{
    Churn, Fuzz, Goodput, Joining, Leaf, Overhead, Overlap, Partition, Restart, Schedule, Siege, Star, Verdict, Wire,
};
use starling_tests::{FarLink, mounting, switch};

/// A small model: steps that are mostly messages, and more of them than any experiment takes.
const MODEL: &str = "--model mlp:64 --steps 100000000";
/// Steps that are mostly computation, as in real training: a convolutional network, two steps per epoch.
const COMPUTE_BOUND: &str = "--model cnn:32,64 --batch-size 720 --steps 100000000";

/// Experiments with real `starling` processes that are killed, stopped, cut off and started again.
///
/// Each experiment tells on stderr what it does, and ends with one line of JSON on stdout: its figures, the seed that
/// repeats its choices, and the promises that were broken. The exit code is 1 if there are any, and 2 if the experiment
/// could not be carried out. No process, network namespace or directory is left behind.
///
/// Build first: cargo build --release --workspace. Partitions and slow links need root, or user namespaces.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    chaos churn                                  three minutes of kills and starts, one every 500 ms\n  \
    chaos churn --seconds 30 --seed 7            a shorter one, with choices that can be repeated\n  \
    chaos partition --sides 2,2                  a network that breaks in two halves, and heals\n  \
    chaos join --mib 10 --kill-donor             a donor dies while a peer joins\n  \
    chaos goodput --chaos-seconds 120 --logs /tmp/logs\n  \
    chaos fuzz --seed 7 --minutes 10             whatever chance draws, for ten minutes")]
struct Flags {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Experiment(Experiment),
    /// Schedules of kills, stops, restarts and bad disks that are drawn from a seed, each judged from outside.
    Fuzz(FuzzFlags),
    /// Be the switch of a network, in the namespace that this is started in.
    #[command(hide = true)]
    Switch(SwitchFlags),
}

#[derive(Debug, Args)]
struct SwitchFlags {
    #[arg(long)]
    ports: usize,
    #[arg(long)]
    mbit: u32,
    #[arg(long)]
    delay_us: u64,
    #[arg(long)]
    loss: f64,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    joint_mbit: Option<u32>,
}

#[derive(Debug, Args)]
struct FuzzFlags {
    /// Seed of all schedules; drawn and shown if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// How long rounds are begun, in minutes.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// Only this round.
    #[arg(long)]
    round: Option<u64>,
    /// Tell the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Only tell what is done in it.
    #[arg(long, requires = "round")]
    show: bool,
    /// This process may mount, and nobody else sees it.
    #[arg(long, hide = true)]
    may_mount: bool,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// A kill or a start every so often: steps go on, digests stay equal, memory stays flat.
    Churn(ChurnFlags),
    /// Kills, stops and partitions among many processes: what they cost, against a time without.
    Goodput(GoodputFlags),
    /// A peer joins over slow links: the members' steps take as long as before.
    Join(JoinFlags),
    /// A network that breaks in two and heals: one side goes on, the other joins it again.
    Partition(PartitionFlags),
    /// All are killed and come back in another order, one without its disk.
    Restart(RestartFlags),
    /// A network in which one alone reaches all, then two: nobody is left out, also when one of these dies.
    Star(StarFlags),
    /// A machine behind a router that lets nothing in takes part through a member; it is killed again and again, then its carrier is.
    Leaf(LeafFlags),
    /// Many who know an address and no secret: joiners join, and the one that was killed comes back.
    Strangers(StrangersFlags),
    /// What agreement costs when nothing happens.
    Overhead(OverheadFlags),
    /// Whether gradients travel while they are computed.
    Overlap(OverlapFlags),
    /// How near reductions over slow links come to what the links carry.
    Wire(WireFlags),
}

#[derive(Debug, Args)]
struct Common {
    /// Seed of all choices; drawn and shown if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep what each process says and logs in this folder.
    #[arg(long)]
    logs: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ChurnFlags {
    #[command(flatten)]
    common: Common,
    /// The run's longest stall, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    max_stall_ms: u64,
    /// Flags of `starling run`: what is trained.
    #[arg(long, default_value = MODEL, allow_hyphen_values = true)]
    run: String,
    /// The most processes.
    #[arg(long, default_value_t = 8)]
    peers: usize,
    /// Time from one kill or start to the next, in milliseconds.
    #[arg(long, default_value_t = 500)]
    interval_ms: u64,
    /// How long, in seconds.
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// How much longer than the longest stall nobody may have committed a step, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    slack_ms: u64,
}

#[derive(Debug, Args)]
struct GoodputFlags {
    #[command(flatten)]
    common: Common,
    /// The run's longest stall, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    max_stall_ms: u64,
    /// Flags of `starling run`: what is trained.
    #[arg(long, default_value = COMPUTE_BOUND, allow_hyphen_values = true)]
    run: String,
    /// How many processes.
    #[arg(long, default_value_t = 16)]
    peers: usize,
    /// How long with faults, in seconds, in all.
    #[arg(long, default_value_t = 600)]
    chaos_seconds: u64,
    /// How long without faults, in seconds, in all: before, between and after five times with faults.
    #[arg(long, default_value_t = 300)]
    calm_seconds: u64,
    /// Time from one fault to the next, in milliseconds.
    #[arg(long, default_value_t = 15_000)]
    interval_ms: u64,
    /// The share of the fault-free samples per second that must be kept.
    #[arg(long, default_value_t = 0.95)]
    keep: f64,
}

#[derive(Debug, Args)]
struct StrangersFlags {
    /// For how long they are there, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many over TCP.
    #[arg(long, default_value_t = 500)]
    strangers: usize,
    /// How many over QUIC besides; 0: it is not listened on.
    #[arg(long, default_value_t = 0)]
    quic: usize,
    /// How long a joiner may take, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    patience_ms: u64,
    /// What those over TCP may make a member grow by, in MiB.
    #[arg(long, default_value_t = 16)]
    mib: u64,
}

#[derive(Debug, Args)]
struct JoinFlags {
    #[command(flatten)]
    common: Common,
    /// The run's longest stall, in milliseconds.
    #[arg(long, default_value_t = 120_000)]
    max_stall_ms: u64,
    /// How many members before the join.
    #[arg(long, default_value_t = 3)]
    members: usize,
    /// Size of the model, in MiB.
    #[arg(long, default_value_t = 100)]
    mib: u32,
    /// What each host can send and receive, in millions of bits per second; 0 sets no limit.
    #[arg(long, default_value_t = 100)]
    mbit: u32,
    /// Kill a donor when half of the state is there.
    #[arg(long)]
    kill_donor: bool,
    /// Steps that are timed before the join.
    #[arg(long, default_value_t = 5)]
    steps: u64,
    /// How much longer steps may take during the join, as a factor.
    #[arg(long, default_value_t = 1.15)]
    slower: f64,
    /// More flags of every process, in one string.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    machine: String,
}

#[derive(Debug, Args)]
struct PartitionFlags {
    #[command(flatten)]
    common: Common,
    /// The run's longest stall, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    max_stall_ms: u64,
    /// Flags of `starling run`: what is trained.
    #[arg(long, default_value = MODEL, allow_hyphen_values = true)]
    run: String,
    /// How many processes on each side.
    #[arg(long, value_delimiter = ',', default_value = "3,2", num_args = 1)]
    sides: Vec<usize>,
    /// Let a side without a quorum go on as a fork after so long, in milliseconds; it never does if not given.
    #[arg(long)]
    fork_after_ms: Option<u64>,
}

#[derive(Debug, Args)]
struct StarFlags {
    #[command(flatten)]
    common: Common,
    /// The run's longest stall, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    max_stall_ms: u64,
    /// Flags of `starling run`: what is trained.
    #[arg(long, default_value = MODEL, allow_hyphen_values = true)]
    run: String,
    /// How many processes, 4 at least.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(4..=16))]
    peers: u64,
}

#[derive(Debug, Args)]
struct LeafFlags {
    #[command(flatten)]
    common: Common,
    /// The run's longest stall, in milliseconds.
    #[arg(long, default_value_t = 4000)]
    max_stall_ms: u64,
    /// For how many seconds the run is measured, without a leaf and with one.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How often the leaf is killed.
    #[arg(long, default_value_t = 6)]
    kills: u32,
    /// How many seconds it lives each time.
    #[arg(long, default_value_t = 10)]
    life: u64,
}

#[derive(Debug, Args)]
struct RestartFlags {
    #[command(flatten)]
    common: Common,
    /// The run's longest stall, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    max_stall_ms: u64,
    /// Flags of `starling run`: what is trained.
    #[arg(long, default_value = MODEL, allow_hyphen_values = true)]
    run: String,
    /// How many processes.
    #[arg(long, default_value_t = 4)]
    peers: usize,
    /// Kill all so many steps after a checkpoint of all of them.
    #[arg(long, default_value_t = 250)]
    more_steps: u64,
    /// Steps between checkpoints.
    #[arg(long, default_value_t = 100)]
    checkpoint_every: u64,
}

#[derive(Debug, Args)]
struct OverheadFlags {
    #[command(flatten)]
    common: Common,
    /// The run's longest stall, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    max_stall_ms: u64,
    /// Flags of `starling run`: what is trained.
    #[arg(long, default_value = MODEL, allow_hyphen_values = true)]
    run: String,
    /// How many processes.
    #[arg(long, default_value_t = 4)]
    peers: usize,
    /// How often each of the two is measured.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How long each time, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The share of a step that agreement may take.
    #[arg(long, default_value_t = 0.02)]
    limit: f64,
}

#[derive(Debug, Args)]
struct OverlapFlags {
    /// How many hosts train.
    #[arg(long, default_value_t = 4)]
    peers: usize,
    /// What each host can send and receive, in millions of bits per second.
    #[arg(long, default_value_t = 1000)]
    mbit: u32,
    /// How wide the hidden layers are of what they train.
    #[arg(long, value_delimiter = ',', default_values_t = [1000; 11])]
    hidden: Vec<u64>,
    /// Rows of data for each host; a step takes all but the fifth that is held out.
    #[arg(long, default_value_t = 3594)]
    rows: usize,
    /// Steps that count.
    #[arg(long, default_value_t = 6)]
    steps: u64,
    /// MiB of memory for updates that begin while their step is being reduced.
    #[arg(long, default_value_t = 0)]
    update_ahead: u64,
    /// How many times the longer of computing and sending a step may take.
    #[arg(long, default_value_t = 1.1)]
    limit: f64,
    /// Seed of the run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
struct WireFlags {
    /// How many hosts reduce.
    #[arg(long, default_value_t = 4)]
    peers: usize,
    /// What each host can send and receive, in millions of bits per second.
    #[arg(long, default_value_t = 1000)]
    mbit: u32,
    /// There and back between two hosts, in milliseconds.
    #[arg(long, default_value_t = 0)]
    rtt_ms: u64,
    /// The share of frames that are lost.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// How much each brings, in MiB.
    #[arg(long, default_value_t = 64)]
    mib: u32,
    /// How much each brings, in KiB, for less than a MiB.
    #[arg(long, conflicts_with = "mib")]
    kib: Option<u32>,
    /// Rounds that count, for each codec.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// How the reductions are scheduled.
    #[arg(long, default_value = "ring")]
    plan: String,
    /// Cut all links but those of so many hosts, which all reach; with less than three others a ring leads around [default: none]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, conflicts_with_all = ["rtt_ms", "loss", "sites", "slow_mbit"])]
    hubs: usize,
    /// The share of the link's rate that f32 must reach.
    #[arg(long, default_value_t = 0.95)]
    reach: f64,
    /// How many times as fast as f32 at the link's rate int8 must be; 0 leaves it out.
    #[arg(long, default_value_t = 3.5)]
    int8: f64,
    /// What the last host can send and receive, if less: measures what it helps to know that, and no codec [default: as
    /// --mbit says]
    #[arg(long, conflicts_with_all = ["rtt_ms", "loss"], requires = "mbit")]
    slow_mbit: Option<u32>,
    /// Put even and odd hosts at two sites, joined by a link of a tenth of the rate of each: measures what it helps to know that
    /// [default: all at one]
    #[arg(long, conflicts_with = "slow_mbit")]
    sites: bool,
    /// How many times as fast reductions must be once links are known, if one is slow.
    #[arg(long, default_value_t = 1.5)]
    gain: f64,
    /// How many times as long as the best there is they may take then.
    #[arg(long, default_value_t = 1.15)]
    near: f64,
    /// For how many seconds the plan must have been the same before rounds with known links count.
    #[arg(long, default_value_t = 30)]
    settle: u64,
    /// Seed of what is lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let ended = match Flags::parse().verb {
        Verb::Experiment(experiment) => run(experiment).map(|verdict| {
            println!("{}", verdict.to_json());
            u8::from(!verdict.broken().is_empty())
        }),
        Verb::Fuzz(flags) => fuzz(flags),
        Verb::Switch(SwitchFlags { ports, mbit, delay_us, loss, seed, joint_mbit }) => {
            let link = FarLink { mbit, delay: Duration::from_micros(delay_us), loss, joint_mbit };
            switch::serve(ports, link, seed).map(|()| 0)
        }
    };
    ExitCode::from(ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        2
    }))
}

fn fuzz(flags: FuzzFlags) -> anyhow::Result<u8> {
    let seed = flags.seed.unwrap_or_else(draw_seed);
    if let (true, Some(round)) = (flags.show, flags.round) {
        println!("{}", Schedule::draw(seed, round));
        return Ok(0);
    }
    // Whatever becomes of this process, what it mounts goes with it.
    if let (false, Some(mut command)) = (flags.may_mount, mounting(std::env::current_exe()?)) {
        command.args(std::env::args_os().skip(1)).arg("--may-mount");
        if flags.seed.is_none() {
            command.args(["--seed", &seed.to_string()]);
        }
        return Err(command.exec().into());
    }
    let length = Duration::from_secs(60 * flags.minutes);
    let report = Fuzz { seed, length, round: flags.round, mounts: flags.may_mount }.run()?;
    println!("{}", if flags.json { report.to_json().to_string() } else { report.to_string() });
    Ok(u8::from(report.offences() > 0))
}

fn run(experiment: Experiment) -> anyhow::Result<Verdict> {
    match experiment {
        Experiment::Churn(flags) => Churn {
            peers: flags.peers,
            interval: Duration::from_millis(flags.interval_ms),
            length: Duration::from_secs(flags.seconds),
            max_stall: Duration::from_millis(flags.max_stall_ms),
            slack: Duration::from_millis(flags.slack_ms),
            seed: flags.common.seed(),
            run: flags.run,
            logs: flags.common.logs,
        }
        .run(),
        Experiment::Goodput(flags) => Goodput {
            peers: flags.peers,
            calm: Duration::from_secs(flags.calm_seconds),
            chaos: Duration::from_secs(flags.chaos_seconds),
            interval: Duration::from_millis(flags.interval_ms),
            max_stall: Duration::from_millis(flags.max_stall_ms),
            keep: flags.keep,
            seed: flags.common.seed(),
            run: flags.run,
            logs: flags.common.logs,
        }
        .run(),
        Experiment::Join(flags) => Joining {
            members: flags.members,
            mib: flags.mib,
            mbit: (flags.mbit > 0).then_some(flags.mbit),
            kill_donor: flags.kill_donor,
            steps: flags.steps,
            slower: flags.slower,
            max_stall: Duration::from_millis(flags.max_stall_ms),
            seed: flags.common.seed(),
            machine: flags.machine,
            logs: flags.common.logs,
        }
        .run(),
        Experiment::Strangers(flags) => Siege {
            strangers: flags.strangers,
            quic: flags.quic,
            lasts: Duration::from_secs(flags.seconds),
            patience: Some(Duration::from_millis(flags.patience_ms)),
            memory: flags.mib << 20,
            seed: 1,
        }
        .run(),
        Experiment::Partition(flags) => {
            let sides = <[usize; 2]>::try_from(flags.sides)
                .map_err(|sides| anyhow::anyhow!("--sides takes two numbers, such as 3,2, not {sides:?}"))?;
            Partition {
                sides,
                fork_after: flags.fork_after_ms.map(Duration::from_millis),
                max_stall: Duration::from_millis(flags.max_stall_ms),
                seed: flags.common.seed(),
                run: flags.run,
                logs: flags.common.logs,
            }
            .run()
        }
        Experiment::Star(flags) => Star {
            peers: usize::try_from(flags.peers)?,
            max_stall: Duration::from_millis(flags.max_stall_ms),
            with_second: true,
            recovery: Duration::from_secs(1),
            seed: flags.common.seed(),
            run: flags.run,
            logs: flags.common.logs,
        }
        .run(),
        Experiment::Leaf(flags) => Leaf {
            each: Duration::from_secs(flags.seconds),
            kills: flags.kills,
            life: Duration::from_secs(flags.life),
            of_speeds: 0.87,
            of_step: 1.1,
            max_stall: Duration::from_millis(flags.max_stall_ms),
            seed: flags.common.seed(),
            logs: flags.common.logs,
        }
        .run(),
        Experiment::Restart(flags) => Restart {
            peers: flags.peers,
            more_steps: flags.more_steps,
            checkpoint_every: flags.checkpoint_every,
            max_stall: Duration::from_millis(flags.max_stall_ms),
            seed: flags.common.seed(),
            run: flags.run,
            logs: flags.common.logs,
        }
        .run(),
        Experiment::Overhead(flags) => Overhead {
            peers: flags.peers,
            rounds: flags.rounds,
            length: Duration::from_secs(flags.seconds),
            max_stall: Duration::from_millis(flags.max_stall_ms),
            limit: flags.limit,
            seed: flags.common.seed(),
            run: flags.run,
            logs: flags.common.logs,
        }
        .run(),
        Experiment::Overlap(flags) => Overlap {
            peers: flags.peers,
            mbit: flags.mbit,
            hidden: flags.hidden,
            update_ahead_mib: flags.update_ahead,
            rows: flags.rows,
            steps: flags.steps,
            limit: flags.limit,
            seed: flags.seed,
        }
        .run(),
        Experiment::Wire(flags) => Wire {
            peers: flags.peers,
            mbit: flags.mbit,
            rtt: Duration::from_millis(flags.rtt_ms),
            loss: flags.loss,
            kib: flags.kib.unwrap_or(flags.mib << 10),
            rounds: flags.rounds,
            plan: flags.plan,
            hubs: flags.hubs,
            reach: flags.reach,
            int8: flags.int8,
            slow_mbit: flags.slow_mbit,
            sites: flags.sites,
            gain: flags.gain,
            near: flags.near,
            settle: Duration::from_secs(flags.settle),
            seed: flags.seed,
        }
        .run(),
    }
}

fn draw_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |time| u64::from(time.subsec_nanos()))
}

impl Common {
    fn seed(&self) -> u64 {
        let seed = self.seed.unwrap_or_else(draw_seed);
        eprintln!("seed {seed}");
        seed
    }
}
