//! Flags of how parameters follow gradients.

use clap::Args;

use super::values::one;
use crate::config::FlagValue;

/// The optimizer, its settings, and what goes before them.
#[derive(Debug, Clone, Default, Args)]
pub struct OptimizerFlags {
    /// How parameters follow gradients [default: adamw]
    #[arg(long, value_name = "NAME")]
    pub optimizer: Option<String>,
    /// Step size [default: the optimizer's own]
    #[arg(long, visible_alias = "lr", value_name = "RATE", allow_negative_numbers = true)]
    pub learning_rate: Option<String>,
    /// Share of the velocity that momentum and nesterov keep [default: 0.9]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub momentum: Option<String>,
    /// Share of the first moment that is kept [default: the optimizer's own]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub beta1: Option<String>,
    /// Share of the second moment that is kept [default: the optimizer's own]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub beta2: Option<String>,
    /// What is added to the root of the second moment [default: the optimizer's own]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub epsilon: Option<String>,
    /// Penalty on large parameters [default: 0.0]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub weight_decay: Option<String>,
    /// How the learning rate falls: constant, linear:0.1 (to a tenth by the run's end), cosine:0.1,5000 (within 5000 steps) or
    /// step:0.5,1000 (halved after each 1000 steps) [default: constant]
    #[arg(long, value_name = "SCHEDULE")]
    pub schedule: Option<String>,
    /// Steps in which the learning rate goes up to its full value, before it falls [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub warm_up: Option<String>,
    /// The largest norm of a step's mean gradient: a longer one is made as short [default: gradients are as long as they are]
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    pub clip: Option<String>,
}

impl OptimizerFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        let flags = [
            one("run.optimizer", "--optimizer", &self.optimizer),
            one("run.learning_rate", "--learning-rate", &self.learning_rate),
            one("run.momentum", "--momentum", &self.momentum),
            one("run.beta1", "--beta1", &self.beta1),
            one("run.beta2", "--beta2", &self.beta2),
            one("run.epsilon", "--epsilon", &self.epsilon),
            one("run.weight_decay", "--weight-decay", &self.weight_decay),
            one("run.schedule", "--schedule", &self.schedule),
            one("run.warm_up", "--warm-up", &self.warm_up),
            one("run.clip", "--clip", &self.clip),
        ];
        flags.into_iter().flatten().collect()
    }
}
