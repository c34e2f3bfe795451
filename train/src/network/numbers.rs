//! In what numbers a module computes: those of its parameters. What lies about them is converted here, and in f32 each of these does nothing.

use burn::module::Param;
use burn::nn::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
use burn::tensor::{FloatDType, Tensor};
use starling_run::Precision;

/// What a device calls them.
pub(crate) fn float_type(precision: Precision) -> FloatDType {
    match precision {
        Precision::F32 => FloatDType::F32,
        Precision::Bf16 => FloatDType::BF16,
        Precision::F16 => FloatDType::F16,
    }
}

/// In f32: losses, and whatever else adds up many numbers.
pub fn in_f32<const D: usize>(numbers: Tensor<D>) -> Tensor<D> {
    numbers.cast(FloatDType::F32)
}

/// As those of this parameter, so that both can be multiplied.
pub fn like<const D: usize, const P: usize>(numbers: Tensor<D>, parameter: &Param<Tensor<P>>) -> Tensor<D> {
    numbers.cast(parameter.val().dtype())
}

/// Normalized in f32, in which all parameters of normalizations are; as precise as they were.
pub fn normalize<N: Normalization, const D: usize>(norm: &N, numbers: Tensor<D>) -> Tensor<D> {
    let before = numbers.dtype();
    norm.apply(in_f32(numbers)).cast(before)
}

/// A normalization of Burn's.
pub trait Normalization {
    /// Of numbers in f32.
    fn apply<const D: usize>(&self, numbers: Tensor<D>) -> Tensor<D>;
}

/// Each goes forward by a method of its own.
macro_rules! normalizations {
    ($($norm:ty),+) => {$(
        impl Normalization for $norm {
            fn apply<const D: usize>(&self, numbers: Tensor<D>) -> Tensor<D> {
                self.forward(numbers)
            }
        }
    )+};
}

normalizations!(BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm);
