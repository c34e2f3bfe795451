//! The checked form: what a node takes, or why it can't be had.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use etcetera::BaseStrategy;
use starling::{ExpectedSettings, FoundOptions, OptimizerSpec, ResumePolicy, RunLimit, RunSpec, Settings};
use starling_node::settings::keys::{Key, KeyTarget, Value, keys};

use super::error::ConfigError;
use super::layers::Origin;

/// The levels that a log may be set to, quietest first.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// All layers put together: values of the right types, within their ranges, each with its origin.
#[derive(Debug)]
pub struct Loaded {
    values: BTreeMap<&'static str, Value>,
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
    pub(super) fn new(values: BTreeMap<&'static str, Value>, origins: BTreeMap<&'static str, Origin>) -> Self {
        Self { values, origins }
    }

    /// The values of those that have one, by their ids.
    pub fn values(&self) -> &BTreeMap<&'static str, Value> {
        &self.values
    }

    /// The text of a key that has one.
    fn text(&self, key: &str) -> &str {
        self.values[key].text()
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
        if let Some(dir) = self.values.get("train.data_dir") {
            return std::path::absolute(dir.text()).map_err(|error| self.meaning("train.data_dir", error));
        }
        let strategy = etcetera::choose_base_strategy().map_err(|error| ConfigError::NoDataDir(error.to_string()))?;
        Ok(strategy.data_dir().join("starling"))
    }

    /// What is logged.
    ///
    /// # Errors
    /// [`ConfigError::Meaning`] if a level is none.
    pub fn log(&self) -> Result<LogSettings, ConfigError> {
        let level = self.text("log.level");
        for directive in level.split(',') {
            let word = directive.rsplit_once('=').map_or(directive, |(_, word)| word).trim();
            if !LEVELS.contains(&word.to_ascii_lowercase().as_str()) {
                let reason = format!("`{word}` is no level; write one of {}", LEVELS.join(", "));
                return Err(self.meaning("log.level", reason));
            }
        }
        Ok(LogSettings { level: level.to_owned(), json: self.text("log.format") == "json" })
    }

    /// How what trains computes.
    ///
    /// # Errors
    /// As [`Self::device`].
    #[cfg(feature = "train")]
    pub fn compute(&self) -> Result<starling::ComputeSpec, ConfigError> {
        Ok(starling::ComputeSpec {
            device: self.device()?,
            checkpointing: self.values["train.gradient_checkpointing"].bool(),
            ahead_bytes: self.values["data.ahead_mib"].count() << 20,
        })
    }

    /// What computes.
    ///
    /// # Errors
    /// [`ConfigError::Meaning`] if the text is no device.
    #[cfg(feature = "train")]
    pub fn device(&self) -> Result<starling::DeviceSpec, ConfigError> {
        self.text("train.device").parse().map_err(|error| self.meaning("train.device", error))
    }

    /// The longest stall, from which all deadlines derive.
    ///
    /// # Errors
    /// [`ConfigError`], naming key and origin.
    pub fn deadlines(&self) -> Result<starling_topology::Config, ConfigError> {
        let FoundOptions { run, min_peers, .. } = self.founder()?;
        let mut machine = Settings::new(PathBuf::new());
        for id in ["network.max_peers", "network.fork_after"] {
            self.set_machine(id, &mut machine)?;
        }
        Ok(starling_topology::Config {
            max_stall: Duration::from_millis(run.max_stall_ms),
            min_members: min_peers,
            max_members: machine.max_peers,
            fork_after: machine.fork_after,
            checkpoint_every: run.checkpoint_every,
            ..starling_topology::Config::default()
        })
    }

    /// What this machine is told.
    ///
    /// # Errors
    /// [`ConfigError`], naming key and origin.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        #[cfg(feature = "train")]
        self.device()?;
        let mut settings = Settings::new(self.data_dir()?);
        for id in self.values.keys() {
            self.set_machine(id, &mut settings)?;
        }
        Ok(settings)
    }

    /// What a founder chooses.
    ///
    /// # Errors
    /// [`ConfigError`], naming key and origin.
    pub fn founding(&self, resume: ResumePolicy) -> Result<FoundOptions, ConfigError> {
        let founding = self.founder()?;
        let max_peers = self.values["network.max_peers"].count();
        if founding.min_peers as u64 > max_peers {
            let reason = format!("{} peers can't be there, network.max_peers is {max_peers}", founding.min_peers);
            return Err(self.meaning("run.min_peers", reason));
        }
        Ok(FoundOptions { resume, ..founding })
    }

    fn founder(&self) -> Result<FoundOptions, ConfigError> {
        // With the settings that the registry has for it, which are not those of a program's default.
        let optimizer = OptimizerSpec::named(self.text("run.optimizer")).expect("invariant: one of the registry");
        let mut founding = FoundOptions::new(RunSpec { optimizer, ..RunSpec::default() });
        for key in keys() {
            self.set(key.id, |sets, value| match sets {
                KeyTarget::Run(set) => set(&mut founding.run, value),
                KeyTarget::Founding(set) => set(&mut founding, value),
                KeyTarget::Machine(_) | KeyTarget::Outside => Ok(()),
            })?;
        }
        // Whoever says nothing nearer to the command line than the other goes by the other.
        let [steps, epochs] = ["run.steps", "run.epochs"].map(|key| self.origin(key));
        match steps.rank().cmp(&epochs.rank()) {
            Ordering::Less => {}
            Ordering::Greater => founding.length = RunLimit::Steps,
            Ordering::Equal if *epochs == Origin::Default => founding.length = RunLimit::Usual,
            Ordering::Equal => {
                let reason = format!("{steps} says run.steps, too: how long the run is can be said in one way alone");
                return Err(self.meaning("run.epochs", reason));
            }
        }
        founding.run.optimizer.check().map_err(|reason| self.meaning("run.optimizer", reason))?;
        Ok(founding)
    }

    /// What a joiner's user insists on: the run's keys that were set, anywhere.
    ///
    /// # Errors
    /// [`ConfigError`], naming key and origin.
    pub fn expectations(&self) -> Result<ExpectedSettings, ConfigError> {
        let mut expected = ExpectedSettings::default();
        for key in keys().filter(|key| *self.origin(key.id) != Origin::Default) {
            let value = self.values.get(key.id).into_iter();
            value
                .cloned()
                .try_for_each(|value| expected.expect(key, value))
                .map_err(|reason| self.meaning(key.id, reason))?;
        }
        Ok(expected)
    }

    /// Sets what a key sets of this machine, if that is anything.
    fn set_machine(&self, id: &'static str, machine: &mut Settings) -> Result<(), ConfigError> {
        self.set(id, |sets, value| if let KeyTarget::Machine(set) = sets { set(machine, value) } else { Ok(()) })
    }

    /// Hands what a key sets and its value to `taker`, if it has one.
    fn set(
        &self,
        id: &'static str,
        taker: impl FnOnce(KeyTarget, &Value) -> Result<(), String>,
    ) -> Result<(), ConfigError> {
        let Some((key, value)) = Key::find(id).zip(self.values.get(id)) else { return Ok(()) };
        taker(key.sets, value).map_err(|reason| self.meaning(id, reason))
    }

    /// What to say of a field of the manifest that this configuration leads to, and that no run can have; `None` of one that no key sets.
    pub fn unusable(&self, field: &str, reason: &str) -> Option<ConfigError> {
        let id = match field {
            "layout" => "collective.bucket_kib",
            "data" => "data.source",
            own => keys().find(|key| key.is_of_run && key.parts().1 == own)?.id,
        };
        Some(self.meaning(id, reason))
    }

    fn meaning(&self, key: &'static str, reason: impl ToString) -> ConfigError {
        ConfigError::Meaning { origin: self.origin(key).clone(), key, reason: reason.to_string() }
    }
}
