//! Clipping: a mean gradient that is too long is made shorter. By its norm, over all parameters, it keeps its direction (Pascanu, Mikolov, Bengio:
//! "On the difficulty of training recurrent neural networks", 2013, algorithm 1); each tensor by its own norm, or each number, it does not.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::BLOCK;

/// What may not be longer than a run says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClipKind {
    /// The gradient, all parameters together.
    #[default]
    Norm,
    /// That of each parameter tensor by itself.
    Tensor,
    /// Each number of it.
    Value,
}

impl ClipKind {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Norm, Self::Tensor, Self::Value];

    /// `gradients` times `scale`, clipped to `most` by tensors of these lengths or by number.
    pub(crate) fn apart(
        self,
        gradients: &[f32],
        scale: f32,
        most: f32,
        tensors: impl Iterator<Item = usize>,
    ) -> Vec<f32> {
        if self == Self::Value {
            return gradients.iter().map(|number| (number * scale).clamp(-most, most)).collect();
        }
        let (mut all, mut rest) = (Vec::with_capacity(gradients.len()), gradients);
        for length in tensors {
            let (tensor, others) = rest.split_at(length);
            let factor = clipped(tensor, scale, most);
            all.extend(tensor.iter().map(|number| number * factor));
            rest = others;
        }
        all
    }
}

impl fmt::Display for ClipKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Norm => "norm",
            Self::Tensor => "tensor",
            Self::Value => "value",
        })
    }
}

impl FromStr for ClipKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| format!("nothing is clipped by `{text}`; write norm, tensor or value"))
    }
}

/// Running sums that a processor can keep beside each other. It decides the order of summation, so it is the same on all.
const LANES: usize = 8;

/// What makes of `scale` the factor by which `gradients` come to a norm of at most `most`. A gradient that is not finite
/// leaves it alone: no factor would make it so, and the update says where it is not.
pub(super) fn clipped(gradients: &[f32], scale: f32, most: f32) -> f32 {
    let norm = norm(gradients) * f64::from(scale.abs());
    if norm.is_finite() && norm > f64::from(most) {
        (f64::from(scale) * (f64::from(most) / norm)) as f32
    } else {
        scale
    }
}

/// The Euclidean length of a vector. Squares of f32 are exact in f64, and their sum stays finite; they are added in one order,
/// whatever computes it: element `i` of a block to running sum `i % 8`, these in pairs, the blocks one after the other.
fn norm(numbers: &[f32]) -> f64 {
    let square = |number: &f32| f64::from(*number) * f64::from(*number);
    let mut total = 0.0;
    for block in numbers.chunks(BLOCK) {
        let (rows, rest) = block.as_chunks::<LANES>();
        let mut lanes = [0.0; LANES];
        for row in rows {
            lanes.iter_mut().zip(row).for_each(|(lane, number)| *lane += square(number));
        }
        lanes.iter_mut().zip(rest).for_each(|(lane, number)| *lane += square(number));
        let [a, b, c, d, e, f, g, h] = lanes;
        total += ((a + e) + (c + g)) + ((b + f) + (d + h));
    }
    total.sqrt()
}

#[cfg(test)]
mod tests {
    use starling_topology::SplitMix64Generator;

    use super::*;
    use crate::state::initial::symmetric;

    #[test]
    fn a_long_gradient_has_the_norm_that_it_may_have() {
        let mut generator = SplitMix64Generator::new(5);
        let gradients: Vec<f32> = (0..3 * BLOCK + 77).map(|_| symmetric(&mut generator, 2.0)).collect();
        let length: f64 = gradients.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
        assert!((norm(&gradients) / length - 1.0).abs() < 1e-12);
        for scale in [1.0, 64.0 / 37.0] {
            // As `torch.nn.utils.clip_grad_norm_`, up to what that adds to the norm against a division by 0.
            let factor = clipped(&gradients, scale, 1.5);
            assert!((f64::from(factor) * length - 1.5).abs() < 1e-6, "{factor}");
        }
        let enough = (length * 1.001) as f32;
        assert_eq!(
            (clipped(&gradients, 1.0, enough), clipped(&[], 0.5, 1.0), clipped(&[0.0], 0.5, 1.0)),
            (1.0, 0.5, 0.5)
        );
        assert_eq!(clipped(&[3.0, 4.0], 2.0, 5.0), 1.0);
    }

    #[test]
    fn tensors_and_numbers_are_clipped_by_themselves() {
        let gradients = [3.0, 4.0, 0.3, -0.4, 0.0, -7.0];
        let apart = |kind: ClipKind, scale, most| kind.apart(&gradients, scale, most, [2, 3, 1].into_iter());
        let is_near = |found: Vec<f32>, expected: [f32; 6]| {
            found.len() == 6 && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
        };
        assert!(is_near(apart(ClipKind::Tensor, 1.0, 1.0), [0.6, 0.8, 0.3, -0.4, 0.0, -1.0]));
        assert!(is_near(apart(ClipKind::Tensor, 2.0, 1.0), [0.6, 0.8, 0.6, -0.8, 0.0, -1.0]));
        assert!(is_near(apart(ClipKind::Value, 0.5, 1.0), [1.0, 1.0, 0.15, -0.2, 0.0, -1.0]));
        assert!(ClipKind::Value.apart(&[f32::NAN], 1.0, 1.0, [1].into_iter())[0].is_nan(), "the update says where");
        for kind in ClipKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("length".parse::<ClipKind>().expect_err("no such").contains("norm, tensor or value"));
    }

    #[test]
    fn the_largest_numbers_have_a_norm_and_no_number_none() {
        assert_eq!(clipped(&[f32::MAX, -f32::MAX], 1.0, 1.0), (1.0 / (f64::from(f32::MAX) * 2_f64.sqrt())) as f32);
        for gradients in [[f32::INFINITY, 1.0], [1.0, f32::NAN]] {
            assert_eq!(clipped(&gradients, 0.25, 1.0), 0.25);
        }
    }

    #[test]
    fn the_bits_are_pinned() {
        // Numbers that another program can draw: it came to the same sum in this order, and to others in others.
        let numbers: Vec<f32> = (0..2 * BLOCK + 5).map(|at| (at * 7919 % 10_007) as f32 / 1000.0 - 5.0).collect();
        assert_eq!(norm(&numbers).to_bits(), 0x4077_1d4f_ba16_ebf5);
    }
}
