//! What members tell each other of held-out samples: figures among those of a step, of which the mean over its samples is the mean over all that
//! are held out.

use starling_topology::PeerId;

use crate::manifest::Manifest;

/// By what figures are multiplied on their way, a power of two, which changes no digit: the square of a price is larger than what a contribution may
/// have.
const SCALE: f64 = 1.0 / (1_u64 << 60) as f64;

/// What a state comes to on held-out samples: the same on all members.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOutReport {
    /// The state after this step was evaluated.
    pub step: u64,
    /// The mean held-out loss; no number where somebody came to none.
    pub loss: f64,
    /// What else was measured, by name: means of what members have told, which its task makes measures of. No number where somebody came to none.
    pub measures: Vec<(String, f64)>,
}

/// That a state was to be evaluated, and nobody knows what it comes to: the same on all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnevaluatedReport {
    /// The state after this step.
    pub step: u64,
    /// Whose parts are missing, ascending; none if nobody had one.
    pub missing: Vec<PeerId>,
}

/// Which numbers members can tell of what they measure.
#[derive(Debug, Clone, Copy)]
pub struct MeasureLimit {
    /// What a contribution may have at most.
    bound: f32,
    /// What a number is at most, on its way: so much less that all of them together stay below what one comes to that is none.
    most: f64,
}

impl MeasureLimit {
    /// In this run.
    pub fn of(manifest: &Manifest) -> Self {
        let bound = manifest.bound;
        Self { bound, most: f64::from(bound) / (4.0 * f64::from(manifest.batch_size)) }
    }

    /// What is told of a mean over the own part, times what this counts: of no number, one that none that is can come to.
    pub fn tell(self, mean: f64) -> f32 {
        let scaled = mean * SCALE;
        if scaled.abs() <= self.most { scaled as f32 } else { self.bound }
    }

    /// What a mean over what all have told says.
    pub fn read(self, mean: f32) -> f64 {
        let mean = f64::from(mean);
        if mean.abs() <= 2.0 * self.most { mean / SCALE } else { f64::NAN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::manifest::spec::RunSpec;

    #[test]
    fn what_is_told_is_read_and_what_is_no_number_is_none_whoever_came_to_it() {
        let range = MeasureLimit::of(&Manifest::of(&RunSpec::default(), digits()));
        for mean in [0.0, 1.0, -0.25, 0.973, 1e-9, 1e18, -1e24] {
            let back = range.read(range.tell(mean));
            assert!((back - mean).abs() <= mean.abs() * 1e-7, "{mean} comes back as {back}");
        }
        for mean in [f64::NAN, f64::INFINITY, 1e30, -1e30] {
            assert!(range.read(range.tell(mean)).is_nan(), "{mean}");
        }
        // One of 64 samples is of who came to no number, the others are as far from it as they may be.
        let most = range.tell(range.most / SCALE);
        assert!(range.read(most).is_finite());
        let mixed = (range.tell(f64::NAN) - 63.0 * most) / 64.0;
        assert!(range.read(mixed).is_nan());
    }
}
