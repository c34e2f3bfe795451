//! Settings that change nothing, because of other ones.

use starling::OptimizerSpec;

use super::checked::{Loaded, settings};
use super::layers::Origin;

impl Loaded {
    /// A sentence for each setting of a founder that somebody wrote and that has no effect.
    pub fn idle(&self) -> Vec<String> {
        let run = &self.config().run;
        let written = |key: &str| Some(self.origin(key)).filter(|origin| **origin != Origin::Default);
        let mut idle = Vec::new();
        let optimizer = OptimizerSpec::named(&run.optimizer);
        for setting in settings() {
            let key = format!("run.{setting}");
            if let Some(origin) = written(&key)
                && optimizer.is_some_and(|optimizer| optimizer.setting(setting).is_none())
            {
                idle.push(format!("{origin}: {key} has no effect, because {} has no {setting}", run.optimizer));
            }
        }
        if let Some(origin) = written("train.update_ahead_mib")
            && self.config().train.update_ahead_mib > 0
            && run.clip.is_some()
        {
            idle.push(format!(
                "{origin}: train.update_ahead_mib has no effect, because run.clip needs the whole gradient first"
            ));
        }
        if let Some(origin) = written("network.fork_after")
            && self.config().security.quorum == "two-thirds"
            && self.config().network.fork_after != "never"
        {
            idle.push(format!("{origin}: network.fork_after has no effect, because security.quorum is two-thirds"));
        }
        idle
    }
}
