//! Convolutions with a way around them (He et al.: "Deep Residual Learning for Image Recognition", 2015).

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use super::normalized;

/// Two 3x3 convolutions with relu between them, to whose outputs the inputs are added, before another relu. Where the two differ in width, a 1x1 convolution
/// projects the inputs.
///
/// Parameters are visited in the order of the fields, so the order of the fields is part of the protocol.
#[derive(Module, Debug)]
pub(super) struct ResidualBlock {
    first: Conv2d,
    first_norm: Option<BatchNorm>,
    second: Conv2d,
    second_norm: Option<BatchNorm>,
    projection: Option<Conv2d>,
    projection_norm: Option<BatchNorm>,
}

impl ResidualBlock {
    /// From images of so many channels to such with so many, each convolution perhaps followed by a batch normalization, on `device`. Its
    /// parameters are not yet drawn.
    pub(super) fn new([inputs, outputs]: [usize; 2], batch_norm: bool, device: &Device) -> Self {
        let convolution = |inputs| {
            let convolution = Conv2dConfig::new([inputs, outputs], [3, 3]);
            convolution.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
        };
        let norm = || batch_norm.then(|| BatchNormConfig::new(outputs).init(device));
        let widens = inputs != outputs;
        Self {
            first: convolution(inputs),
            first_norm: norm(),
            second: convolution(outputs),
            second_norm: norm(),
            projection: widens.then(|| Conv2dConfig::new([inputs, outputs], [1, 1]).init(device)),
            projection_norm: norm().filter(|_| widens),
        }
    }

    /// Of images `[samples, inputs, height, width]`, `[samples, outputs, height, width]`.
    pub(super) fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let around = match &self.projection {
            Some(projection) => normalized(self.projection_norm.as_ref(), projection.forward(images.clone())),
            None => images.clone(),
        };
        let between = relu(normalized(self.first_norm.as_ref(), self.first.forward(images)));
        relu(normalized(self.second_norm.as_ref(), self.second.forward(between)) + around)
    }
}

/// Whether images are halved before each block of these widths: where the width changes, but not before the first.
pub(super) fn halves(widths: &[u32]) -> impl Iterator<Item = bool> {
    (0..widths.len()).map(|at| at > 0 && widths[at] != widths[at - 1])
}
