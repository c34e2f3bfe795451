//! The one list of all keys: their types, ranges and meaning.

use starling::optimizer::{NAMES, Setting};
use starling_run::sharing::MAX_DATA_BYTES;
use starling_run::{CLIP, MAX_STALL_MS};
use toml::Value;

use super::duration;

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// `section.name`.
    pub id: &'static str,
    /// Its type and range.
    pub kind: Kind,
    /// The flag of `starling run` that sets it, if there is one.
    pub flag: Option<&'static str>,
    /// For a key without a value: what happens then.
    pub unset: Option<&'static str>,
    /// What it does, one sentence.
    pub about: &'static str,
}

/// A key's type and range.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Any text; what it may say is checked later.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Bool,
    /// A whole number within these bounds, both included.
    Integer(i64, i64),
    /// A duration, as a whole number of milliseconds within these bounds, both included, or as text such as `10s`.
    Milliseconds(i64, i64),
    /// A number within these bounds, both included.
    Float(f64, f64),
    /// Texts; in the environment, comma-separated.
    List,
}

/// The most members that a configuration may allow. The wire format has the same bound.
const MAX_PEERS: i64 = starling_topology::message::MAX_MEMBERS as i64;
/// The most data that can be shared, in MiB.
const MAX_DATA_MIB: i64 = (MAX_DATA_BYTES >> 20) as i64;
/// A checkpoint's file name has room for twelve digits.
const MAX_STEPS: i64 = 999_999_999_999;

const fn key(id: &'static str, kind: Kind, flag: Option<&'static str>, about: &'static str) -> Key {
    Key { id, kind, flag, unset: None, about }
}

const fn optional(
    id: &'static str,
    kind: Kind,
    flag: Option<&'static str>,
    unset: &'static str,
    about: &'static str,
) -> Key {
    Key { id, kind, flag, unset: Some(unset), about }
}

/// What a setting of optimizers may be.
const fn range(setting: Setting) -> Kind {
    Kind::Float(setting.least, setting.most)
}

/// What a setting is that nobody said.
const OWN: &str = "the optimizer's own";

/// All keys, in the order in which they are shown.
pub static KEYS: &[Key] = &[
    key("run.model", Kind::Text, Some("--model"), "softmax, mlp:64,64 (hidden layers) or cnn:8,16 (channels)."),
    key("run.optimizer", Kind::Choice(&NAMES), Some("--optimizer"), "How parameters follow gradients."),
    optional("run.learning_rate", range(Setting::LEARNING_RATE), Some("--learning-rate"), OWN, "Step size."),
    key(
        "run.momentum",
        range(Setting::MOMENTUM),
        Some("--momentum"),
        "Share of the velocity that momentum and nesterov keep.",
    ),
    optional("run.beta1", range(Setting::BETA1), Some("--beta1"), OWN, "Share of the first moment that is kept."),
    optional("run.beta2", range(Setting::BETA2), Some("--beta2"), OWN, "Share of the second moment that is kept."),
    optional(
        "run.epsilon",
        range(Setting::EPSILON),
        Some("--epsilon"),
        OWN,
        "What is added to the root of the second moment, against a division by nothing.",
    ),
    key("run.weight_decay", range(Setting::WEIGHT_DECAY), Some("--weight-decay"), "Penalty on large parameters."),
    key(
        "run.schedule",
        Kind::Text,
        Some("--schedule"),
        "How the learning rate falls: constant, linear:0.1 (to a tenth by the run's end), cosine:0.1,5000 (within 5000 steps) or \
         step:0.5,1000 (halved after each 1000 steps).",
    ),
    key(
        "run.warm_up",
        Kind::Integer(0, MAX_STEPS),
        Some("--warm-up"),
        "Steps in which the learning rate goes up to its full value, before it falls.",
    ),
    optional(
        "run.clip",
        Kind::Float(*CLIP.start(), *CLIP.end()),
        Some("--clip"),
        "gradients are as long as they are",
        "The largest norm of a step's mean gradient: a longer one is made as short, before the optimizer has it.",
    ),
    key(
        "run.batch_size",
        Kind::Integer(1, 1 << 20),
        Some("--batch-size"),
        "Samples per step, over all members together.",
    ),
    key("run.steps", Kind::Integer(1, MAX_STEPS), Some("--steps"), "The run's last step."),
    key(
        "run.seed",
        Kind::Integer(0, i64::MAX),
        Some("--seed"),
        "Seed of the initial parameters, the sample order and the held-out split.",
    ),
    key(
        "run.held_out",
        Kind::Float(0.001, 0.9),
        Some("--held-out"),
        "Share of the samples kept from training, to measure accuracy on.",
    ),
    key(
        "run.balance",
        Kind::Choice(&["speed", "equal"]),
        Some("--balance"),
        "speed (a faster machine computes more samples of each step) or equal.",
    ),
    key("run.min_peers", Kind::Integer(1, MAX_PEERS), Some("--min-peers"), "Members needed to take steps."),
    key(
        "run.checkpoint_every_steps",
        Kind::Integer(0, MAX_STEPS),
        Some("--checkpoint-every"),
        "All members save a checkpoint every so many steps; 0 saves only at the end.",
    ),
    key(
        "run.public",
        Kind::Bool,
        Some("--public"),
        "Whether anyone who knows an address may join, without the ticket's secret.",
    ),
    key(
        "data.source",
        Kind::Text,
        Some("--data"),
        "digits (built in), a CSV file (.csv, .csv.gz), an IDX file, or a folder of IDX files (MNIST).",
    ),
    optional(
        "data.label",
        Kind::Text,
        Some("--label"),
        "the last column",
        "CSV: the label column, by name or 0-based index.",
    ),
    optional(
        "data.header",
        Kind::Bool,
        Some("--header"),
        "detected from the first row",
        "CSV: whether the first row holds column names.",
    ),
    optional(
        "data.delimiter",
        Kind::Choice(&["comma", "tab", "semicolon", "pipe", "space"]),
        Some("--delimiter"),
        "detected from the first rows",
        "CSV: what separates the cells: comma, tab, semicolon, pipe, or space for any blanks.",
    ),
    key(
        "data.share",
        Kind::Bool,
        Some("--share-data"),
        "Whether joiners may have the files of the data set from this machine.",
    ),
    key(
        "data.limit_mib",
        Kind::Integer(0, MAX_DATA_MIB),
        Some("--data-limit"),
        "The most MiB of data that a joiner without files of its own takes from members.",
    ),
    key("train.device", Kind::Text, Some("--device"), "auto (a GPU if there is one), cpu, gpu or gpu:N."),
    optional(
        "train.data_dir",
        Kind::Text,
        Some("--data-dir"),
        "`starling` in the user's data folder (XDG_DATA_HOME, ~/.local/share)",
        "Where identity, secrets, status and checkpoints live. One node at a time.",
    ),
    key(
        "train.evaluate_every_steps",
        Kind::Integer(0, MAX_STEPS),
        Some("--evaluate-every"),
        "Measure accuracy every so many steps; 0 measures only at the end.",
    ),
    key("train.checkpoint_keep", Kind::Integer(1, 1000), Some("--checkpoint-keep"), "How many checkpoints to keep."),
    key(
        "train.update_ahead_mib",
        Kind::Integer(0, 1 << 20),
        Some("--update-ahead"),
        "MiB of memory for an update that begins while its step is still being reduced, where cores are to spare. A model \
         that needs more is updated after it.",
    ),
    optional(
        "train.export",
        Kind::Text,
        Some("--export"),
        "nothing is written",
        "Write the trained model to this safetensors file at the end.",
    ),
    optional(
        "train.audit",
        Kind::Text,
        Some("--audit"),
        "nothing is written",
        "Write to this file who contributed which samples to each step; `starling audit` checks it.",
    ),
    key("network.listen", Kind::List, Some("--listen"), "Multiaddrs to listen on; port 0 takes any free port."),
    key(
        "network.announce",
        Kind::List,
        Some("--announce"),
        "Multiaddrs to announce besides those, for a forwarded port.",
    ),
    key(
        "network.allow",
        Kind::List,
        Some("--allow"),
        "Peer ids that may come without an invitation; in a public run, if there are any, nobody else may. Tell it to all members.",
    ),
    key("network.mdns", Kind::Bool, Some("--mdns"), "Whether to look for peers on the local network by multicast."),
    optional(
        "network.name",
        Kind::Text,
        Some("--name"),
        "the host's name; none in a public run",
        "What people call this machine: 1 to 32 printable characters, told to the other members.",
    ),
    key(
        "network.data",
        Kind::Choice(&["auto", "direct", "local", "universal", "plaintext"]),
        Some("--data-plane"),
        "How gradients travel: direct (TCP of their own), local (memory within a machine), universal (libp2p streams), \
         auto (the best of these), or plaintext (direct without encryption; all members must say so).",
    ),
    key("network.max_peers", Kind::Integer(1, MAX_PEERS), Some("--max-peers"), "The most members a run may have."),
    key(
        "network.max_stall_ms",
        Kind::Milliseconds(*MAX_STALL_MS.start() as i64, *MAX_STALL_MS.end() as i64),
        Some("--max-stall"),
        "The longest that a run may stand still because of one peer: milliseconds, or a duration such as 10s. All deadlines derive from it. \
         Joiners take it from the run.",
    ),
    key(
        "network.fork_after",
        Kind::Text,
        Some("--fork-after"),
        "When members that can't reach most of the others go on without them: a duration such as 90s, 2m or 1h, or never.",
    ),
    key(
        "network.probe_links",
        Kind::Bool,
        Some("--probe-links"),
        "Whether to measure how fast this machine reaches the other members, so that reductions are planned by it.",
    ),
    key(
        "network.state_rate",
        Kind::Integer(0, 1 << 20),
        Some("--state-rate"),
        "MiB of state and data that this machine hands out to joiners per second; 0 sets no limit.",
    ),
    key(
        "collective.codec",
        Kind::Choice(&["f32", "bf16", "f16", "int8"]),
        Some("--codec"),
        "How gradients are written on the wire: f32, or shorter as bf16, f16 or int8. What is lost is made up for later.",
    ),
    key(
        "collective.plan",
        Kind::Choice(&["ring", "tree", "mesh", "auto", "hierarchical"]),
        Some("--plan"),
        "Who sends to whom: ring, tree (few hops), mesh (two hops, a link to each other member), hierarchical (sites as \
         measured links show them, a ring if there are none) or auto.",
    ),
    key(
        "collective.bound",
        Kind::Float(1e-6, 1e24),
        None,
        "The largest number of a member's mean gradient or loss. Who sends more is left out. Joiners take it from the run.",
    ),
    key(
        "collective.bucket_kib",
        Kind::Integer(1, 262_144),
        None,
        "KiB of gradient reduced together. Joiners take it from the run.",
    ),
    key(
        "collective.segment_kib",
        Kind::Integer(1, 1024),
        None,
        "Unit of IO within a chunk, in KiB, at most bucket_kib. Joiners take it from the run.",
    ),
    key(
        "collective.in_flight",
        Kind::Integer(1, 1024),
        None,
        "Buckets in flight together. Joiners take it from the run.",
    ),
    key(
        "security.quorum",
        Kind::Choice(&["majority", "two-thirds"]),
        Some("--quorum"),
        "Which members decide who is a member: a majority, so that any fewer may die, or two-thirds, so that fewer than a third \
         can't split the run if they are hostile. Joiners take it from the run.",
    ),
    key(
        "log.level",
        Kind::Text,
        Some("--verbose"),
        "off, error, warn, info, debug or trace; or pairs such as info,libp2p=debug. Logs go to stderr.",
    ),
    key("log.format", Kind::Choice(&["text", "json"]), Some("--log-format"), "text or json."),
];

/// A number as people write it: with an exponent where it would have many zeros.
fn number(value: f64) -> String {
    if has_many_zeros(value) { format!("{value:e}") } else { value.to_string() }
}

/// Whether a number is better written with an exponent.
pub(super) fn has_many_zeros(value: f64) -> bool {
    value.is_finite() && value != 0.0 && !(1e-4..1e9).contains(&value.abs())
}

impl Key {
    /// The key called `id`.
    pub fn find(id: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.id == id)
    }

    /// Section and name.
    pub fn parts(&self) -> (&'static str, &'static str) {
        self.id.split_once('.').expect("invariant: a key's id is section.name")
    }

    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("STARLING_{}", self.id.replace('.', "_").to_uppercase())
    }
}

impl Kind {
    /// What values there are, for messages: "must be ...".
    pub fn allowed(self) -> String {
        match self {
            Self::Text => "text, and not empty".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Bool => "true or false".to_owned(),
            Self::Milliseconds(min, max) => {
                format!("a duration such as 10s, or a whole number of milliseconds, from {min} to {max} of them")
            }
            Self::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Self::Float(min, max) => format!("a number from {} to {}", number(min), number(max)),
            Self::List => "a list of texts".to_owned(),
        }
    }

    /// Advice for a value of another type that only its quotes keep from being one of this kind.
    pub(super) fn hint(self, value: &Value) -> &'static str {
        match (self, value) {
            (Self::Integer(..) | Self::Float(..) | Self::Bool, Value::String(text)) if self.parse(text).is_some() => {
                "; write it without quotes"
            }
            _ => "",
        }
    }

    /// `value` in this kind's own form; `None` if it is of another type or out of range.
    pub(super) fn check(self, value: Value) -> Option<Value> {
        match (self, value) {
            (Self::Text, Value::String(text)) if !text.is_empty() => Some(Value::String(text)),
            (Self::Choice(words), Value::String(text)) => words.contains(&text.as_str()).then_some(Value::String(text)),
            (Self::Bool, Value::Boolean(value)) => Some(Value::Boolean(value)),
            (Self::Integer(min, max), Value::Integer(value)) => {
                (min..=max).contains(&value).then_some(Value::Integer(value))
            }
            (Self::Milliseconds(min, max), Value::Integer(value)) => {
                Self::Integer(min, max).check(Value::Integer(value))
            }
            (Self::Milliseconds(..), Value::String(text)) => {
                let duration = duration::parse(&text).ok()?;
                self.check(Value::Integer(i64::try_from(duration.as_millis()).ok()?))
            }
            (Self::Float(min, max), Value::Float(value)) => (min..=max).contains(&value).then_some(Value::Float(value)),
            // Nobody should have to write `momentum = 0.0`.
            (Self::Float(..), Value::Integer(value)) => self.check(Value::Float(value as f64)),
            (Self::List, Value::Array(values)) => {
                values.iter().all(|value| matches!(value, Value::String(_))).then_some(Value::Array(values))
            }
            (
                Self::Text
                | Self::Choice(_)
                | Self::Bool
                | Self::Integer(..)
                | Self::Milliseconds(..)
                | Self::Float(..)
                | Self::List,
                Value::String(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::Boolean(_)
                | Value::Datetime(_)
                | Value::Array(_)
                | Value::Table(_),
            ) => None,
        }
    }

    /// What `text` says, as a value of this kind; `None` if it says none. Not checked for range.
    pub(super) fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Text | Self::Choice(_) => Some(Value::String(text.to_owned())),
            Self::Bool => text.parse().ok().map(Value::Boolean),
            Self::Integer(..) => text.parse().ok().map(Value::Integer),
            Self::Milliseconds(..) => {
                Some(text.parse().map_or_else(|_| Value::String(text.to_owned()), Value::Integer))
            }
            Self::Float(..) => text.parse().ok().map(Value::Float),
            Self::List => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
            }
        }
    }
}
