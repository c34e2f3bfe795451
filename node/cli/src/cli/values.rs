//! From flags to the values of keys.

use super::{
    DataDirFlag, DemoFlags, FoundingFlags, GlobalFlags, KeepFlags, KeyFlags, MachineFlags, ManifestFlags, StoreFlags,
};
use crate::config::FlagValue;
use crate::output::Detail;

impl GlobalFlags {
    /// How much people are told.
    pub fn detail(&self) -> Detail {
        match (self.quiet, self.verbose) {
            (true, _) => Detail::Errors,
            (false, 0) => Detail::Changes,
            (false, 1..) => Detail::All,
        }
    }

    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        let level = match (self.quiet, self.verbose) {
            (true, _) => Some(("--quiet", "error")),
            (false, 0) => None,
            (false, 1) => Some(("--verbose", "info")),
            (false, 2) => Some(("--verbose", "debug")),
            (false, 3..) => Some(("--verbose", "trace")),
        };
        let level = level.map(|(flag, level)| FlagValue { key: "log.level", flag, values: vec![level.to_owned()] });
        level.into_iter().chain(one("log.format", "--log-format", &self.log_format)).collect()
    }
}

impl DataDirFlag {
    /// The flag, if it is given.
    pub fn values(&self) -> Vec<FlagValue> {
        one("train.data_dir", "--data-dir", &self.data_dir).into_iter().collect()
    }
}

impl StoreFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        let keep = one("train.checkpoint_keep", "--checkpoint-keep", &self.checkpoint_keep);
        keep.into_iter().chain(self.data_dir.values()).collect()
    }
}

impl KeepFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        let flags = [
            many("network.listen", "--listen", &self.listen),
            many("network.announce", "--announce", &self.announce),
            one("network.mdns", "--mdns", &self.mdns),
            one("network.name", "--name", &self.name),
            one("network.max_peers", "--max-peers", &self.max_peers),
            one("network.state_rate", "--state-rate", &self.state_rate),
        ];
        flags.into_iter().flatten().chain(self.store.values()).collect()
    }
}

impl ManifestFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        let flags = [
            one("run.model", "--model", &self.model),
            one("run.batch_size", "--batch-size", &self.batch_size),
            one("run.steps", "--steps", &self.steps),
            one("run.seed", "--seed", &self.seed),
            one("network.max_stall_ms", "--max-stall", &self.max_stall_ms),
            one("run.balance", "--balance", &self.balance),
            one("run.checkpoint_every_steps", "--checkpoint-every", &self.checkpoint_every),
            one("collective.codec", "--codec", &self.codec),
            one("collective.plan", "--plan", &self.plan),
        ];
        flags.into_iter().flatten().chain(self.optimizer.values()).collect()
    }
}

impl FoundingFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        let flags = [
            one("run.held_out", "--held-out", &self.held_out),
            one("run.min_peers", "--min-peers", &self.min_peers),
            one("run.public", "--public", &self.public),
            one("security.quorum", "--quorum", &self.quorum),
        ];
        flags.into_iter().flatten().collect()
    }
}

impl MachineFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        let no_header = self.no_header.then(|| "false".to_owned());
        let flags = [
            one("data.source", "--data", &self.data),
            one("data.label", "--label", &self.label),
            one("data.header", "--header", &self.header),
            one("data.header", "--no-header", &no_header),
            one("data.delimiter", "--delimiter", &self.delimiter),
            one("data.share", "--share-data", &self.share_data),
            one("data.limit_mib", "--data-limit", &self.data_limit),
            one("train.device", "--device", &self.device),
            one("train.evaluate_every_steps", "--evaluate-every", &self.evaluate_every),
            one("train.checkpoint_keep", "--checkpoint-keep", &self.checkpoint_keep),
            one("train.update_ahead_mib", "--update-ahead", &self.update_ahead),
            one("train.export", "--export", &self.export),
            one("train.audit", "--audit", &self.audit),
            many("network.listen", "--listen", &self.listen),
            many("network.announce", "--announce", &self.announce),
            many("network.allow", "--allow", &self.allow),
            one("network.mdns", "--mdns", &self.mdns),
            one("network.name", "--name", &self.name),
            one("network.data", "--data-plane", &self.data_plane),
            one("network.max_peers", "--max-peers", &self.max_peers),
            one("network.fork_after", "--fork-after", &self.fork_after),
            one("network.probe_links", "--probe-links", &self.probe_links),
            one("network.state_rate", "--state-rate", &self.state_rate),
        ];
        flags.into_iter().flatten().chain(self.data_dir.values()).collect()
    }
}

impl DemoFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        vec![FlagValue { key: "train.device", flag: "--device", values: vec![self.device.clone()] }]
    }
}

impl KeyFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        [self.manifest.values(), self.founding.values(), self.machine.values()].concat()
    }
}

pub(super) fn one(key: &'static str, flag: &'static str, value: &Option<String>) -> Option<FlagValue> {
    value.as_ref().map(|value| FlagValue { key, flag, values: vec![value.clone()] })
}

fn many(key: &'static str, flag: &'static str, values: &[String]) -> Option<FlagValue> {
    (!values.is_empty()).then(|| FlagValue { key, flag, values: values.to_vec() })
}
