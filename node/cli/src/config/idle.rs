//! Settings that change nothing, because of other ones.

use std::collections::BTreeSet;

use starling::OptimizerSpec;
use starling::optimizer::REGISTRY;

use super::checked::Loaded;
use super::layers::Origin;

impl Loaded {
    /// A sentence for each setting of a founder that somebody wrote and that has no effect.
    pub fn idle(&self) -> Vec<String> {
        let optimizer = self.values()["run.optimizer"].text();
        let written = |key: &str| Some(self.origin(key)).filter(|origin| **origin != Origin::Default);
        let mut idle = Vec::new();
        let chosen = OptimizerSpec::named(optimizer);
        let all: BTreeSet<_> =
            REGISTRY.iter().flat_map(|row| row.optimizer.settings()).map(|setting| setting.name).collect();
        for setting in all {
            let key = format!("run.{setting}");
            if let Some(origin) = written(&key)
                && chosen.is_some_and(|chosen| chosen.setting(setting).is_none())
            {
                idle.push(format!("{origin}: {key} has no effect, because {optimizer} has no {setting}"));
            }
        }
        if let Some(origin) = written("train.update_ahead_mib")
            && self.values()["train.update_ahead_mib"].count() > 0
            && self.values().contains_key("run.clip")
        {
            idle.push(format!(
                "{origin}: train.update_ahead_mib has no effect, because run.clip needs the whole gradient first"
            ));
        }
        if let Some(origin) = written("network.fork_after")
            && self.values()["security.quorum"].text() == "two-thirds"
            && self.values()["network.fork_after"].text() != "never"
        {
            idle.push(format!("{origin}: network.fork_after has no effect, because security.quorum is two-thirds"));
        }
        idle
    }
}
