//! The checked form: what a node takes, or why it can't be had.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use etcetera::BaseStrategy;
use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use starling::optimizer::{NAMES, REGISTRY};
use starling::parts::PeerId;
use starling::{
    DataPlane, Expectations, Founding, LayoutSpec, ModelSpec, OptimizerSpec, Resume, RunSpec, Schedule, Settings,
};
use starling_node::identity::from_libp2p;
use starling_node::listen;
use toml::{Table, Value};

use super::duration;
use super::error::ConfigError;
use super::layers::Origin;
use super::raw::Config;

/// The levels that a log may be set to, quietest first.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// All layers put together: values of the right types, within their ranges, each with its origin.
#[derive(Debug)]
pub struct Loaded {
    config: Config,
    origins: BTreeMap<&'static str, Origin>,
}

/// What is logged, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Directives for `tracing_subscriber::EnvFilter`.
    pub level: String,
    /// One JSON object per line instead of text.
    pub json: bool,
}

impl Loaded {
    pub(super) fn new(config: Config, origins: BTreeMap<&'static str, Origin>) -> Self {
        Self { config, origins }
    }

    /// The values.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where the value of `key` came from.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// The data directory, absolute. Not created.
    ///
    /// # Errors
    /// [`ConfigError::NoDataDir`] if none is given and the user has no data folder.
    pub fn data_dir(&self) -> Result<PathBuf, ConfigError> {
        if let Some(dir) = &self.config.train.data_dir {
            return std::path::absolute(dir).map_err(|error| self.meaning("train.data_dir", error));
        }
        let strategy = etcetera::choose_base_strategy().map_err(|error| ConfigError::NoDataDir(error.to_string()))?;
        Ok(strategy.data_dir().join("starling"))
    }

    /// What is logged.
    ///
    /// # Errors
    /// [`ConfigError::Meaning`] if a level is none.
    pub fn log(&self) -> Result<LogSettings, ConfigError> {
        let level = &self.config.log.level;
        for directive in level.split(',') {
            let word = directive.rsplit_once('=').map_or(directive, |(_, word)| word).trim();
            if !LEVELS.contains(&word.to_ascii_lowercase().as_str()) {
                let reason = format!("`{word}` is no level; write one of {}", LEVELS.join(", "));
                return Err(self.meaning("log.level", reason));
            }
        }
        Ok(LogSettings { level: level.clone(), json: self.config.log.format == "json" })
    }

    /// What computes.
    ///
    /// # Errors
    /// [`ConfigError::Meaning`] if the text is no device.
    #[cfg(feature = "train")]
    pub fn device(&self) -> Result<starling::DeviceChoice, ConfigError> {
        self.parse("train.device", &self.config.train.device)
    }

    /// The longest stall, from which all deadlines derive.
    ///
    /// # Errors
    /// [`ConfigError::Meaning`] if `network.fork_after` is no duration.
    pub fn deadlines(&self) -> Result<starling_topology::Config, ConfigError> {
        Ok(starling_topology::Config {
            max_stall: Duration::from_millis(self.config.network.max_stall_ms),
            min_members: self.config.run.min_peers as usize,
            max_members: self.config.network.max_peers as usize,
            fork_after: self.fork_after()?,
            checkpoint_every: self.config.run.checkpoint_every_steps,
            ..starling_topology::Config::default()
        })
    }

    /// What this machine is told.
    ///
    /// # Errors
    /// [`ConfigError`], naming key and origin.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let Config { data, train, network, .. } = &self.config;
        #[cfg(feature = "train")]
        self.device()?;
        if network.listen.is_empty() {
            let reason = "give at least one address, such as /ip4/0.0.0.0/tcp/0";
            return Err(self.meaning("network.listen", reason));
        }
        Ok(Settings {
            data_dir: self.data_dir()?,
            data: (*self.origin("data.source") != Origin::Default).then(|| data.source.clone()),
            label: data.label.clone(),
            header: data.header,
            delimiter: data.delimiter.as_ref().map(|name| self.parse("data.delimiter", name)).transpose()?,
            share_data: data.share,
            data_limit: data.limit_mib << 20,
            listen: match self.origin("network.listen") {
                // What is listened on without being asked for need not all be there.
                Origin::Default => Vec::new(),
                _ => self.listen()?,
            },
            announce: self.addresses("network.announce", &network.announce)?,
            allow: network.allow.iter().map(|text| self.peer("network.allow", text)).collect::<Result<_, _>>()?,
            mdns: network.mdns,
            name: network.name.as_ref().map(|name| self.parse("network.name", name)).transpose()?,
            data_plane: match network.data.as_str() {
                "direct" => DataPlane::Direct,
                "local" => DataPlane::Local,
                "plaintext" => DataPlane::Plaintext,
                "universal" => DataPlane::Universal,
                // The key's kind leaves only `auto`.
                _ => DataPlane::Auto,
            },
            max_peers: network.max_peers as usize,
            fork_after: self.fork_after()?,
            probe_links: network.probe_links,
            state_rate: network.state_rate << 20,
            checkpoint_keep: train.checkpoint_keep as usize,
            update_ahead_bytes: train.update_ahead_mib << 20,
            evaluate_every: train.evaluate_every_steps,
            buckets_in_flight: narrow(self.config.collective.in_flight),
            export: train.export.as_ref().map(PathBuf::from),
            audit: train.audit.as_ref().map(PathBuf::from),
        })
    }

    /// What a founder chooses.
    ///
    /// # Errors
    /// [`ConfigError`], naming key and origin.
    pub fn founding(&self, resume: Resume) -> Result<Founding, ConfigError> {
        let run = &self.config.run;
        if run.min_peers > self.config.network.max_peers {
            let reason = format!(
                "{} peers can't be there, network.max_peers is {}",
                run.min_peers, self.config.network.max_peers
            );
            return Err(self.meaning("run.min_peers", reason));
        }
        Ok(Founding {
            run: RunSpec {
                model: self.parse("run.model", &run.model)?,
                optimizer: self.optimizer()?,
                schedule: Schedule { warm_up: run.warm_up, decay: self.parse("run.schedule", &run.schedule)? },
                clip: run.clip.map(|clip| clip as f32),
                batch_size: self.batch_size(),
                steps: run.steps,
                seed: run.seed,
                held_out: run.held_out as f32,
                layout: self.layout()?,
                codec: self.parse("collective.codec", &self.config.collective.codec)?,
                plan: self.parse("collective.plan", &self.config.collective.plan)?,
                bound: self.config.collective.bound as f32,
                max_stall_ms: self.config.network.max_stall_ms,
                checkpoint_every: run.checkpoint_every_steps,
                quorum: self.parse("security.quorum", &self.config.security.quorum)?,
                balance: self.parse("run.balance", &run.balance)?,
            },
            min_peers: run.min_peers as usize,
            public: run.public,
            resume,
            alone: false,
            from: None,
        })
    }

    /// What a joiner's user insists on: the fields of the manifest that were set, anywhere.
    ///
    /// # Errors
    /// [`ConfigError`], naming key and origin.
    pub fn expectations(&self) -> Result<Expectations, ConfigError> {
        let Config { run, collective, security, .. } = &self.config;
        let is_set = |key: &str| *self.origin(key) != Origin::Default;
        let model = is_set("run.model").then(|| self.parse::<ModelSpec>("run.model", &run.model)).transpose()?;
        let is_about_optimizer = is_set("run.optimizer") || settings().any(|setting| is_set(&format!("run.{setting}")));
        let optimizer = is_about_optimizer.then(|| self.optimizer()).transpose()?;
        Ok(Expectations {
            model,
            optimizer,
            decay: is_set("run.schedule").then(|| self.parse("run.schedule", &run.schedule)).transpose()?,
            warm_up: is_set("run.warm_up").then_some(run.warm_up),
            clip: run.clip.map(|clip| clip as f32),
            batch_size: is_set("run.batch_size").then(|| self.batch_size()),
            steps: is_set("run.steps").then_some(run.steps),
            seed: is_set("run.seed").then_some(run.seed),
            max_stall_ms: is_set("network.max_stall_ms").then_some(self.config.network.max_stall_ms),
            checkpoint_every: is_set("run.checkpoint_every_steps").then_some(run.checkpoint_every_steps),
            balance: is_set("run.balance").then(|| self.parse("run.balance", &run.balance)).transpose()?,
            codec: is_set("collective.codec").then(|| self.parse("collective.codec", &collective.codec)).transpose()?,
            plan: is_set("collective.plan").then(|| self.parse("collective.plan", &collective.plan)).transpose()?,
            quorum: is_set("security.quorum").then(|| self.parse("security.quorum", &security.quorum)).transpose()?,
        })
    }

    /// What to say of a field of the manifest that this configuration leads to, and that no run can have.
    pub fn unusable(&self, field: &str, reason: &str) -> ConfigError {
        let key = match field {
            "optimizer" => "run.optimizer",
            "schedule" => "run.schedule",
            "clip" => "run.clip",
            "batch_size" => "run.batch_size",
            "steps" => "run.steps",
            "max_stall_ms" => "network.max_stall_ms",
            "layout" => "collective.bucket_kib",
            "bound" => "collective.bound",
            "data" => "data.source",
            _ => "run.model",
        };
        self.meaning(key, reason)
    }

    fn fork_after(&self) -> Result<Option<Duration>, ConfigError> {
        duration::parse_or_never(&self.config.network.fork_after)
            .map_err(|reason| self.meaning("network.fork_after", reason))
    }

    fn batch_size(&self) -> u32 {
        u32::try_from(self.config.run.batch_size).expect("invariant: the key's range fits u32")
    }

    fn optimizer(&self) -> Result<OptimizerSpec, ConfigError> {
        let run = &self.config.run;
        let no_such = || self.meaning("run.optimizer", format!("it is none of {}", NAMES.join(", ")));
        let own = OptimizerSpec::named(&run.optimizer).ok_or_else(no_such)?;
        // A setting is the key called so; one that has no value is the optimizer's own.
        let table = Table::try_from(run).expect("invariant: a configuration is plain data");
        let spec =
            own.settings().fold(own, |spec, (setting, _)| match table.get(setting.name).and_then(Value::as_float) {
                Some(value) => spec.with(setting.name, value as f32),
                None => spec,
            });
        spec.check().map_err(|reason| self.meaning("run.optimizer", reason))?;
        Ok(spec)
    }

    fn layout(&self) -> Result<LayoutSpec, ConfigError> {
        let collective = &self.config.collective;
        if collective.segment_kib > collective.bucket_kib {
            let reason = format!(
                "a segment of {} KiB does not fit a bucket of {} KiB (collective.bucket_kib)",
                collective.segment_kib, collective.bucket_kib
            );
            return Err(self.meaning("collective.segment_kib", reason));
        }
        let layout = LayoutSpec {
            bucket_bytes: narrow(collective.bucket_kib * 1024),
            segment_bytes: narrow(collective.segment_kib * 1024),
        };
        layout.check().map_err(|reason| self.meaning("collective.segment_kib", reason))?;
        Ok(layout)
    }

    fn listen(&self) -> Result<Vec<Multiaddr>, ConfigError> {
        let addresses = self.addresses("network.listen", &self.config.network.listen)?;
        let sockets = addresses.iter().try_for_each(|address| listen::socket(address).map(|_| ()));
        sockets.map_err(|reason| self.meaning("network.listen", reason))?;
        Ok(addresses)
    }

    fn addresses(&self, key: &'static str, texts: &[String]) -> Result<Vec<Multiaddr>, ConfigError> {
        let parse = |text: &String| {
            let address = text.parse::<Multiaddr>().map_err(|error| {
                let reason = format!("`{text}` is no multiaddr ({error}); write one such as /ip4/0.0.0.0/tcp/4001");
                self.meaning(key, reason)
            })?;
            if address.iter().any(|part| matches!(part, Protocol::P2p(_))) {
                let reason =
                    format!("`{text}` names a peer; leave out /p2p/..., this machine's peer id is added to it");
                return Err(self.meaning(key, reason));
            }
            Ok(address)
        };
        texts.iter().map(parse).collect()
    }

    fn peer(&self, key: &'static str, text: &str) -> Result<PeerId, ConfigError> {
        let peer = text.parse::<libp2p::PeerId>().ok().and_then(|peer| from_libp2p(&peer));
        peer.ok_or_else(|| self.meaning(key, format!("`{text}` is no peer id; `starling id` prints a machine's")))
    }

    fn parse<T: FromStr<Err: ToString>>(&self, key: &'static str, text: &str) -> Result<T, ConfigError> {
        text.parse().map_err(|error: T::Err| self.meaning(key, error))
    }

    fn meaning(&self, key: &'static str, reason: impl ToString) -> ConfigError {
        ConfigError::Meaning { origin: self.origin(key).clone(), key, reason: reason.to_string() }
    }
}

/// The names of the settings of all optimizers.
pub(super) fn settings() -> impl Iterator<Item = &'static str> {
    let names: BTreeSet<_> =
        REGISTRY.iter().flat_map(|row| row.optimizer.settings()).map(|setting| setting.name).collect();
    names.into_iter()
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).expect("invariant: the key's range fits u32")
}
