//! The models, as one Burn module.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use crate::spec::ModelSpec;

/// A classifier: convolutions, then hidden linear layers, then a linear output. Softmax regression has neither of the
/// first two, an MLP no convolutions, a CNN no hidden layers.
///
/// Parameters are visited in the order of the fields, so the order of the fields is part of the protocol.
#[derive(Module, Debug)]
pub struct Network {
    convolutions: Vec<Conv2d>,
    hidden: Vec<Linear>,
    output: Linear,
    pool: MaxPool2d,
    #[module(skip)]
    shape: [usize; 3],
}

impl Network {
    /// The model `spec` on `device`, for images of `shape` (channels, height, width) and `classes` classes. Its
    /// parameters are not yet drawn.
    pub fn new(spec: &ModelSpec, shape: [u32; 3], classes: u32, device: &Device) -> Self {
        let shape = shape.map(|dimension| dimension as usize);
        let mut convolutions = Vec::new();
        let mut hidden = Vec::new();
        let mut inputs = shape.iter().product();
        match spec {
            ModelSpec::Softmax => {}
            ModelSpec::Mlp { hidden: widths } => {
                for width in widths {
                    hidden.push(LinearConfig::new(inputs, *width as usize).init(device));
                    inputs = *width as usize;
                }
            }
            ModelSpec::Cnn { channels } => {
                inputs = shape[0];
                for outputs in channels {
                    let convolution = Conv2dConfig::new([inputs, *outputs as usize], [3, 3]);
                    convolutions.push(convolution.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device));
                    inputs = *outputs as usize;
                }
            }
        }
        Self {
            convolutions,
            hidden,
            output: LinearConfig::new(inputs, classes as usize).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            shape,
        }
    }

    /// The logits `[samples, classes]` of samples `[samples, features]`.
    pub fn forward(&self, samples: Tensor<2>) -> Tensor<2> {
        let mut features = self.convolve(samples);
        for layer in &self.hidden {
            features = relu(layer.forward(features));
        }
        self.output.forward(features)
    }

    /// Runs the convolutions, if there are any: `[samples, features]` to `[samples, channels]`.
    fn convolve(&self, samples: Tensor<2>) -> Tensor<2> {
        if self.convolutions.is_empty() {
            return samples;
        }
        let [count, _] = samples.dims();
        let [channels, height, width] = self.shape;
        let mut images: Tensor<4> = samples.reshape([count, channels, height, width]);
        for convolution in &self.convolutions {
            images = self.pool.forward(relu(convolution.forward(images)));
        }
        let [_, channels, height, width] = images.dims();
        // The mean over the positions that are left makes the output independent of the image size.
        let positions: Tensor<3> = images.reshape([count, channels, height * width]);
        positions.mean_dim(2).reshape([count, channels])
    }
}
