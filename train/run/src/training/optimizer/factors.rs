//! What a step's gradient and learning rate are multiplied by.

use super::clip::{self, ClipKind};
use crate::manifest::Manifest;

/// The factors of one step: the same on all members.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepFactors {
    /// What gradients are multiplied by first, which makes of the reduced numbers their mean, clipped by its norm.
    pub gradient: f32,
    /// What the learning rate is multiplied by.
    pub learning_rate: f32,
}

impl StepFactors {
    /// A gradient that is multiplied by `scale`, at the full learning rate.
    pub fn scaled(scale: f32) -> Self {
        Self { gradient: scale, learning_rate: 1.0 }
    }

    /// The factors of `step`, counted from 1, whose reduced `gradients`, all of them, are their mean once they are multiplied
    /// by `scale`, once the learning rate has fallen `falls` times because the held-out loss had not.
    pub fn of(manifest: &Manifest, step: u64, gradients: &[f32], scale: f32, falls: u32) -> Self {
        let gradient = match (manifest.clip, manifest.clip_by) {
            (Some(most), ClipKind::Norm) => clip::clipped(gradients, scale, most),
            _ => scale,
        };
        Self { gradient, learning_rate: manifest.schedule.factor(step, manifest.steps, falls) }
    }

    /// [`Self::of`] before the gradients are known; `None` if the factors depend on them, so that no part of the update can
    /// begin before the whole gradient is there.
    pub fn ahead(manifest: &Manifest, step: u64, scale: f32, falls: u32) -> Option<Self> {
        manifest.clip.is_none().then(|| Self::of(manifest, step, &[], scale, falls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::manifest::spec::RunSpec;

    #[test]
    fn an_update_ahead_has_the_factors_of_the_step_or_waits() {
        let schedule = crate::Schedule { warm_up: 10, ..crate::Schedule::default() };
        let manifest = Manifest::of(&RunSpec { schedule, ..RunSpec::default() }, digits());
        let whole = StepFactors::of(&manifest, 5, &[3.0, 4.0], 0.5, 0);
        assert_eq!(whole, StepFactors { gradient: 0.5, learning_rate: 0.5 });
        assert_eq!(StepFactors::ahead(&manifest, 5, 0.5, 0), Some(whole));
        let clipping = Manifest { clip: Some(1.0), ..manifest };
        assert_eq!(StepFactors::of(&clipping, 5, &[3.0, 4.0], 0.5, 0).gradient, 0.2);
        assert_eq!(StepFactors::ahead(&clipping, 5, 0.5, 0), None);
    }
}
