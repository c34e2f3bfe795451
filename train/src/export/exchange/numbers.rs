//! The numbers of a file: as they are computed, or rounded to half the bytes.

use std::fmt;

use half::{bf16, f16};
use safetensors::tensor::Dtype;

/// Of which kind the numbers of a file are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NumberFormat {
    /// As they are computed: 32 bits, with 24 that are significant.
    #[default]
    F32,
    /// 16 bits, with 8 that are significant, and the range of the above.
    Bf16,
    /// 16 bits, with 11 that are significant, up to 65,504.
    F16,
}

impl NumberFormat {
    /// What it is called in flags and descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// How many bytes a number takes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// What a safetensors file calls it.
    pub(super) fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::Bf16 => Dtype::BF16,
            Self::F16 => Dtype::F16,
        }
    }

    /// The one that a safetensors file calls so.
    pub(in crate::export) fn of(dtype: Dtype) -> Option<Self> {
        [Self::F32, Self::Bf16, Self::F16].into_iter().find(|format| format.dtype() == dtype)
    }

    /// Finite numbers as they stand in a file, little-endian: rounded to the nearest that there is, of two to the even one.
    ///
    /// # Errors
    /// The first one that would become an infinity.
    pub(super) fn encode(self, values: &[f32]) -> Result<Vec<u8>, f32> {
        /// Finite before, and not any more.
        fn rounded<const N: usize>(values: &[f32], round: impl Fn(f32) -> ([u8; N], bool)) -> Result<Vec<u8>, f32> {
            let mut bytes = Vec::with_capacity(N * values.len());
            for value in values {
                let (encoded, is_finite) = round(*value);
                if value.is_finite() && !is_finite {
                    return Err(*value);
                }
                bytes.extend(encoded);
            }
            Ok(bytes)
        }
        match self {
            Self::F32 => rounded(values, |value| (value.to_le_bytes(), true)),
            Self::Bf16 => rounded(values, |value| {
                let short = bf16::from_f32(value);
                (short.to_le_bytes(), short.is_finite())
            }),
            Self::F16 => rounded(values, |value| {
                let short = f16::from_f32(value);
                (short.to_le_bytes(), short.is_finite())
            }),
        }
    }

    /// Numbers that stand in a file, exactly.
    pub(in crate::export) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Self::Bf16 => bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
            Self::F16 => bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
        }
    }
}

impl fmt::Display for NumberFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest_and_ties_to_the_even_one() {
        let through =
            |format: NumberFormat, value: f32| format.encode(&[value]).map(|bytes| format.decode(&bytes)[0].to_bits());
        let cases = [
            // A last bit of 2^-7 and 2^-10 beside 1: halves of it are ties.
            (NumberFormat::Bf16, 1.0 + 1.0 / 256.0, 1.0),
            (NumberFormat::Bf16, 1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (NumberFormat::F16, 1.0 + 1.0 / 2048.0, 1.0),
            (NumberFormat::F16, 1.0 + 3.0 / 2048.0, 1.0 + 4.0 / 2048.0),
            (NumberFormat::F16, 65_519.996, 65_504.0),
            (NumberFormat::F16, 1e-9, 0.0),
            (NumberFormat::F16, -6e-8, -5.960_464_5e-8),
            (NumberFormat::Bf16, 1e38, 75.0 * 2_f32.powi(120)),
            (NumberFormat::F32, 0.1, 0.1),
        ];
        for (format, value, expected) in cases {
            assert_eq!(through(format, value), Ok(f32::to_bits(expected)), "{value} as {format}");
        }
        for (format, value) in [
            (NumberFormat::F16, 65_520.0),
            (NumberFormat::F16, -1e5),
            (NumberFormat::Bf16, f32::MAX),
            (NumberFormat::Bf16, -3.4e38),
        ] {
            assert_eq!(through(format, value), Err(value), "{value} as {format}");
        }
        assert_eq!(NumberFormat::F16.encode(&[1.0, 7e4, 8e4]), Err(7e4), "the first one");
        assert_eq!(NumberFormat::F16.decode(&[0, 60, 1]), [1.0], "half a number is none");
    }
}
