//! How large numbers may be that come from others.

use std::sync::Arc;

use crate::codec::kernel;
use crate::codec::{Codec, ValueLimit};

/// The largest share by which a codec makes a value larger: rounded to seven binary digits behind the first.
const ROUNDING: f64 = 1.0 / 128.0;
/// The same of sums of `f32`.
const EXACT_ROUNDING: f64 = 1.0 / 8_388_608.0;

/// What contributions that are bounded can come to, together.
///
/// Who adds its own contribution to a sum within the limit of `k` and rounds what it sends is within that of `k + 1`: so
/// whoever sends more is to blame for it, whatever others have done.
#[derive(Debug, Clone, PartialEq)]
pub struct SumLimit(Option<Arc<[f64]>>);

impl SumLimit {
    /// Every finite number is within them.
    pub const NONE: Self = Self(None);

    /// Of sums of up to `most` contributions, no number of which is larger than `bound`, sent with `codec`.
    pub fn new(bound: f32, codec: Codec, most: u32) -> Self {
        let rounding = 1.0 + if codec.is_lossy() { ROUNDING } else { EXACT_ROUNDING };
        let next = |sum: &mut f64, _| {
            let this = *sum;
            *sum = (*sum + f64::from(bound)) * rounding;
            Some(this)
        };
        Self(Some((0..=most).scan(0.0, next).collect()))
    }

    /// Of a sum of so many.
    pub(crate) fn of_sum(&self, contributions: u32) -> ValueLimit {
        let Some(limits) = &self.0 else { return ValueLimit::FINITE };
        let at = (contributions as usize).min(limits.len() - 1);
        ValueLimit::new(limits[at])
    }

    /// Of the mean of all: their sum over `divisor`, rounded twice more.
    pub(crate) fn of_mean(&self, divisor: f32) -> ValueLimit {
        let Some(limits) = &self.0 else { return ValueLimit::FINITE };
        let sum = limits.last().copied().unwrap_or_default();
        ValueLimit::new(sum / f64::from(divisor) * (1.0 + 2.0 * ROUNDING))
    }

    /// Whether these can be the mean of all: each was within the limit for whoever received it.
    pub fn admit_mean(&self, mean: &[f32], divisor: f32) -> bool {
        let infinite = f32::INFINITY.to_bits();
        kernel::magnitude(mean).to_bits() < self.of_mean(divisor).limit(infinite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_within_what_its_contributions_can_come_to() {
        for codec in [Codec::F32, Codec::Bf16] {
            let limits = SumLimit::new(10.0, codec, 3);
            assert!(limits.admit_mean(&[0.0, 15.0, -15.0], 2.0) && limits.admit_mean(&[], 2.0));
            assert!(!limits.admit_mean(&[0.0, 16.0], 2.0) && !limits.admit_mean(&[-1e30], 2.0));
            assert!(!limits.admit_mean(&[f32::INFINITY], 2.0));
        }
        assert!(SumLimit::NONE.admit_mean(&[f32::MAX], 2.0) && !SumLimit::NONE.admit_mean(&[f32::NEG_INFINITY], 2.0));
    }
}
