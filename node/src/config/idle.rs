//! Settings that change nothing, because of other ones.

use super::checked::Loaded;
use super::layers::Origin;

impl Loaded {
    /// A sentence for each setting of a founder that somebody wrote and that has no effect.
    pub fn idle(&self) -> Vec<String> {
        let run = &self.config().run;
        let written = |key: &str| Some(self.origin(key)).filter(|origin| **origin != Origin::Default);
        let mut idle = Vec::new();
        if let Some(origin) = written("run.momentum")
            && !["momentum", "nesterov"].contains(&run.optimizer.as_str())
        {
            idle.push(format!("{origin}: run.momentum has no effect, because {} has no momentum", run.optimizer));
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
