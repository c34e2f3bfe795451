//! What a step's gradient and learning rate are multiplied by.

/// The factors of one step: the same on all members.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepFactors {
    /// What gradients are multiplied by first, which makes of the reduced numbers their mean.
    pub gradient: f32,
    /// What the learning rate is multiplied by.
    pub learning_rate: f32,
}

impl StepFactors {
    /// A gradient that is multiplied by `scale`, at the full learning rate.
    pub fn scaled(scale: f32) -> Self {
        Self { gradient: scale, learning_rate: 1.0 }
    }
}
