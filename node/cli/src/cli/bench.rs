//! `starling bench`: what is measured.

use clap::{Args, Subcommand, ValueEnum};
use libp2p::Multiaddr;
use starling::TransportPolicy;
use starling::parts::Codec;
use starling::parts::PlanPolicy;

/// `starling bench`.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchVerb {
    /// Reduce among several members on this machine, over their real links
    Allreduce(AllReduceFlags),
    /// Reduce the same by each plan, one after the other
    Topologies(TopologiesFlags),
    /// Measure one link between two members on this machine: latency, and bytes both ways at once
    Link(LinkFlags),
    /// Be one member of a reduction over the real links between several machines
    Swarm(SwarmFlags),
    /// Measure how much memory members on this machine take at most while they train
    Memory(MemoryFlags),
    /// Be one member of a benchmark, which talks to it over stdin and stdout
    #[command(hide = true)]
    Member,
}

/// `starling bench allreduce`.
#[derive(Debug, Clone, Args)]
pub struct AllReduceFlags {
    /// How many members reduce
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub peers: u32,
    /// How much each member brings, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub mib: u32,
    /// How much each member brings, in KiB, for less than a MiB [default: as --mib says]
    #[arg(long, value_name = "KIB", conflicts_with = "mib", value_parser = clap::value_parser!(u32).range(1..))]
    pub kib: Option<u32>,
    /// How the reduction is scheduled
    #[arg(long, value_enum, default_value_t = PlanName::Ring)]
    pub plan: PlanName,
    /// How values are written
    #[arg(long, value_enum, default_value_t = CodecName::F32)]
    pub codec: CodecName,
    /// Rounds that count
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// How the members reduce.
    #[command(flatten)]
    pub reduction: ReductionFlags,
}

/// `starling bench topologies`.
#[derive(Debug, Clone, Args)]
pub struct TopologiesFlags {
    /// How many members reduce
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub peers: u32,
    /// How much each member brings, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub mib: u32,
    /// How much each member brings, in KiB, for less than a MiB [default: as --mib says]
    #[arg(long, value_name = "KIB", conflicts_with = "mib", value_parser = clap::value_parser!(u32).range(1..))]
    pub kib: Option<u32>,
    /// How values are written
    #[arg(long, value_enum, default_value_t = CodecName::F32)]
    pub codec: CodecName,
    /// Rounds that count, of each plan
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// How the members reduce.
    #[command(flatten)]
    pub reduction: ReductionFlags,
}

/// `starling bench link`.
#[derive(Debug, Clone, Args)]
pub struct LinkFlags {
    /// How much goes each way, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub mib: u32,
    /// Rounds that count
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// How the members reduce.
    #[command(flatten)]
    pub reduction: ReductionFlags,
}

/// `starling bench swarm`. Without `--join` it begins one, and prints the ticket for the others; then what is reduced and
/// how is for this one to say.
#[derive(Debug, Clone, Args)]
pub struct SwarmFlags {
    /// Join the benchmark of this ticket; - reads it from standard input [default: begin one]
    #[arg(long, value_name = "TICKET", conflicts_with_all = ["peers", "mib", "kib", "plan", "codec"])]
    pub join: Option<String>,
    /// How many members reduce
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub peers: u32,
    /// How much each member brings, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub mib: u32,
    /// How much each member brings, in KiB, for less than a MiB [default: as --mib says]
    #[arg(long, value_name = "KIB", conflicts_with = "mib", value_parser = clap::value_parser!(u32).range(1..))]
    pub kib: Option<u32>,
    /// How the reduction is scheduled
    #[arg(long, value_enum, default_value_t = PlanName::Auto)]
    pub plan: PlanName,
    /// How values are written
    #[arg(long, value_enum, default_value_t = CodecName::F32)]
    pub codec: CodecName,
    /// Rounds that count; the same for all members
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// Measure links, and count rounds once all have reduced by one plan for so many seconds; the same for all members; 0
    /// measures nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=3600))]
    pub settle: u32,
    /// How the bytes travel from and to this member
    #[arg(long = "data-plane", alias = "transport", value_enum, default_value_t = TransportName::Auto)]
    pub transport: TransportName,
    /// Multiaddrs to listen on [default: any port of all addresses]
    #[arg(long, value_name = "MULTIADDR")]
    pub listen: Vec<Multiaddr>,
    /// What this machine's link carries each way, in millions of bits per second, to be told how near it came [default: not
    /// told]
    #[arg(long, value_name = "MBIT", value_parser = clap::value_parser!(u32).range(1..))]
    pub mbit: Option<u32>,
}

/// `starling bench memory`.
#[derive(Debug, Clone, Args)]
pub struct MemoryFlags {
    /// The model that is trained; what any member takes is measured with `softmax`
    #[arg(long, value_name = "MODEL", default_value = "mlp:3000,3000,3000,3000,3000,3000,3000")]
    pub model: String,
    /// How many members train it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub peers: u32,
    /// For how many steps
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// What else `starling run` is told; paths are absolute, as members run in folders of their own
    #[arg(last = true, value_name = "FLAGS")]
    pub flags: Vec<String>,
}

/// How the members of a benchmark reduce.
#[derive(Debug, Clone, Args)]
pub struct ReductionFlags {
    /// How the bytes travel
    #[arg(long = "data-plane", alias = "transport", value_enum, default_value_t = TransportName::Auto)]
    pub transport: TransportName,
    /// KiB that are reduced together
    #[arg(long, value_name = "KIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub bucket_kib: u32,
    /// Unit of IO within a chunk, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub segment_kib: u32,
    /// Buckets in flight together
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub in_flight: u32,
    /// Seed of the values that are reduced
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
}

/// Schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanName {
    /// Each member sends to the next one
    Ring,
    /// Two binary trees, each for half of it
    Tree,
    /// Each member sends to all others
    Mesh,
    /// What is expected to be fastest
    Auto,
    /// Over the sites that measured links show
    Hierarchical,
    /// All through one member, that with the fastest links
    Star,
}

/// Forms of values on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CodecName {
    /// As they are
    F32,
    /// The upper half of an f32
    Bf16,
    /// IEEE 754 binary16
    F16,
    /// One byte each, and a scale for every 256
    Int8,
}

/// Ways that bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportName {
    /// The best there is
    Auto,
    /// TCP connections of their own, encrypted
    Direct,
    /// The same, without encryption
    Plaintext,
    /// Memory that processes on one machine share
    Local,
    /// libp2p streams
    #[value(name = "universal", alias = "libp2p")]
    Libp2p,
}

impl From<PlanName> for PlanPolicy {
    fn from(name: PlanName) -> Self {
        match name {
            PlanName::Ring => Self::Ring,
            PlanName::Tree => Self::Tree,
            PlanName::Mesh => Self::Mesh,
            PlanName::Auto => Self::Auto,
            PlanName::Hierarchical => Self::Hierarchical,
            PlanName::Star => Self::Star,
        }
    }
}

impl From<CodecName> for Codec {
    fn from(name: CodecName) -> Self {
        match name {
            CodecName::F32 => Self::F32,
            CodecName::Bf16 => Self::Bf16,
            CodecName::F16 => Self::F16,
            CodecName::Int8 => Self::Int8,
        }
    }
}

impl From<TransportName> for TransportPolicy {
    fn from(name: TransportName) -> Self {
        match name {
            TransportName::Auto => Self::Auto,
            TransportName::Direct => Self::Direct,
            TransportName::Plaintext => Self::Plaintext,
            TransportName::Local => Self::Local,
            TransportName::Libp2p => Self::Universal,
        }
    }
}
