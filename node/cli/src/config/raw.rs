//! The configuration as plain data: what a user may write, before it is checked.

use serde::{Deserialize, Serialize};
use starling_node::listen::EVERYWHERE;

/// All sections. `Default` is what is recommended, and what the documentation says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What is trained and how: the founder's choice.
    pub run: RunConfig,
    /// Where the samples are, on this machine.
    pub data: DataConfig,
    /// How this machine trains.
    pub train: TrainConfig,
    /// How this machine meets others.
    pub network: NetworkConfig,
    /// How gradients travel among all: the founder's choice.
    pub collective: CollectiveConfig,
    /// Who decides: the founder's choice.
    pub security: SecurityConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// Section `[run]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// `softmax`, `mlp:64,64`, `cnn:8,16`.
    pub model: String,
    /// A name of the registry of optimizers.
    pub optimizer: String,
    /// Step size; `None` takes the optimizer's own default.
    pub learning_rate: Option<f64>,
    /// Share of the velocity that momentum and nesterov keep.
    pub momentum: f64,
    /// Share of the first moment that is kept; `None` takes the optimizer's own default.
    pub beta1: Option<f64>,
    /// Share of the second moment that is kept; `None` takes the optimizer's own default.
    pub beta2: Option<f64>,
    /// Added to the root of the second moment; `None` takes the optimizer's own default.
    pub epsilon: Option<f64>,
    /// Penalty on large parameters.
    pub weight_decay: f64,
    /// How the learning rate falls: `constant`, `linear:0.1`, `cosine:0.1,5000` or `step:0.5,1000`.
    pub schedule: String,
    /// Steps in which it goes up first.
    pub warm_up: u64,
    /// The largest norm of a step's mean gradient; `None` leaves gradients as long as they are.
    pub clip: Option<f64>,
    /// Samples per step, over all members.
    pub batch_size: u64,
    /// The run's last step.
    pub steps: u64,
    /// Seed of the initial parameters, the sample order and the held-out split.
    pub seed: u64,
    /// Share of the samples that is kept from training.
    pub held_out: f64,
    /// How samples are shared out: `speed` or `equal`.
    pub balance: String,
    /// Members needed to take steps.
    pub min_peers: u64,
    /// All members save every so many steps; 0 saves only at the end.
    pub checkpoint_every_steps: u64,
    /// Whether anyone who knows an address may join.
    pub public: bool,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            model: "mlp:64".to_owned(),
            optimizer: "adamw".to_owned(),
            learning_rate: None,
            momentum: 0.9,
            beta1: None,
            beta2: None,
            epsilon: None,
            weight_decay: 0.0,
            schedule: "constant".to_owned(),
            warm_up: 0,
            clip: None,
            batch_size: 64,
            steps: 600,
            seed: 42,
            held_out: 0.2,
            balance: "speed".to_owned(),
            min_peers: 1,
            checkpoint_every_steps: 100,
            public: false,
        }
    }
}

/// Section `[data]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// `digits`, or the path of a CSV file, an IDX file, or a folder of IDX files.
    pub source: String,
    /// CSV: name or 0-based index of the label column; `None` is the last one.
    pub label: Option<String>,
    /// CSV: whether the first row holds names; `None` detects it.
    pub header: Option<bool>,
    /// CSV: what separates cells; `None` detects it.
    pub delimiter: Option<String>,
    /// Whether joiners may have the files.
    pub share: bool,
    /// The most MiB of data that a joiner takes from members.
    pub limit_mib: u64,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self { source: "digits".to_owned(), label: None, header: None, delimiter: None, share: false, limit_mib: 1024 }
    }
}

/// Section `[train]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// `auto`, `cpu`, `gpu` or `gpu:N`.
    pub device: String,
    /// Where identity, secrets, status and checkpoints live; `None` is the user's data folder.
    pub data_dir: Option<String>,
    /// Evaluate every so many steps; 0 evaluates only at the end.
    pub evaluate_every_steps: u64,
    /// Checkpoints to keep.
    pub checkpoint_keep: u64,
    /// MiB of memory for updates that begin before their step is committed.
    pub update_ahead_mib: u64,
    /// Write the trained model here at the end.
    pub export: Option<String>,
    /// Write who contributed which samples here.
    pub audit: Option<String>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            device: "auto".to_owned(),
            data_dir: None,
            evaluate_every_steps: 0,
            checkpoint_keep: 3,
            update_ahead_mib: 0,
            export: None,
            audit: None,
        }
    }
}

/// Section `[network]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkConfig {
    /// Multiaddrs to listen on.
    pub listen: Vec<String>,
    /// Multiaddrs to announce besides those.
    pub announce: Vec<String>,
    /// Peers that may come without an invitation.
    pub allow: Vec<String>,
    /// Whether to look for peers on the local network.
    pub mdns: bool,
    /// What people call this machine; `None` is its host's name, or nothing in a public run.
    pub name: Option<String>,
    /// How gradients travel: `auto`, `direct`, `local`, `universal` or `plaintext`.
    pub data: String,
    /// The most members of a view.
    pub max_peers: u64,
    /// The longest that a run may stand still because of one peer, in milliseconds: the founder's choice.
    pub max_stall_ms: u64,
    /// When a side without a quorum goes on as a fork: a duration such as `2m`, or `never`.
    pub fork_after: String,
    /// Whether to measure how fast this machine reaches the other members, so that reductions are planned by it.
    pub probe_links: bool,
    /// MiB of state and data that this machine hands out to joiners per second; 0 sets no limit.
    pub state_rate: u64,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            listen: EVERYWHERE.map(str::to_owned).to_vec(),
            announce: Vec::new(),
            allow: Vec::new(),
            mdns: false,
            name: None,
            data: "auto".to_owned(),
            max_peers: 64,
            max_stall_ms: 10_000,
            fork_after: "2m".to_owned(),
            probe_links: true,
            state_rate: 64,
        }
    }
}

/// Section `[collective]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectiveConfig {
    /// `f32`, `bf16`, `f16` or `int8`.
    pub codec: String,
    /// `ring`, `tree`, `mesh` or `auto`.
    pub plan: String,
    /// The largest number that a member's mean gradient or loss may have.
    pub bound: f64,
    /// KiB of gradient reduced together.
    pub bucket_kib: u64,
    /// Unit of IO within a chunk, in KiB.
    pub segment_kib: u64,
    /// Buckets in flight together.
    pub in_flight: u64,
}

impl Default for CollectiveConfig {
    fn default() -> Self {
        let (codec, plan) = ("f32".to_owned(), "ring".to_owned());
        Self { codec, plan, bound: 1e12, bucket_kib: 4096, segment_kib: 128, in_flight: 4 }
    }
}

/// Section `[security]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecurityConfig {
    /// Which members of a view decide: `majority` or `two-thirds`.
    pub quorum: String,
}

impl Default for SecurityConfig {
    fn default() -> Self {
        Self { quorum: "majority".to_owned() }
    }
}

/// Section `[log]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// A level, or `target=level` pairs, comma-separated.
    pub level: String,
    /// `text` or `json`.
    pub format: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "warn".to_owned(), format: "text".to_owned() }
    }
}
