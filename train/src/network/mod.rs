//! The models, as Burn modules: which there are ([`models`]), one module for those of rows and images, here, and the [`transformer`] of those
//! for text; how parameters become a flat buffer (`flatten`), in which order and with which names ([`schema`]), where gradients leave it on
//! the way ([`cut`]), how precise they are there (`numbers`), and what they compute once they are trained ([`forward`]).

pub mod cut;
pub(crate) mod dropout;
pub(crate) mod flatten;
pub mod forward;
pub mod models;
pub(crate) mod numbers;
mod residual;
pub(crate) mod rotation;
pub mod schema;
pub mod transformer;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use residual::{ResidualBlock, halves};

/// What lies before a classifier's linear output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerSpec {
    /// Of each 3x3 convolution, which relu and 2x2 max pooling follow: its output channels. With any, a global mean comes next.
    pub convolutions: Vec<u32>,
    /// Whether these are residual blocks of two convolutions each instead, with 2x2 max pooling between those whose widths differ.
    pub residual: bool,
    /// Of each hidden linear layer, which relu follows: its width.
    pub hidden: Vec<u32>,
    /// Whether what comes out of each of them is normalized over the samples that are computed together, before relu (Ioffe and Szegedy: "Batch
    /// Normalization", 2015).
    pub batch_norm: bool,
}

impl LayerSpec {
    /// How often images are halved.
    pub(crate) fn halved(&self) -> usize {
        match self.residual {
            true => halves(&self.convolutions).filter(|halves| *halves).count(),
            false => self.convolutions.len(),
        }
    }
}

/// A classifier: convolutions, then hidden linear layers, then a linear output. Softmax regression has neither of the
/// first two, an MLP no convolutions, a CNN no hidden layers.
///
/// Parameters are visited in the order of the fields, so the order of the fields is part of the protocol.
#[derive(Module, Debug)]
pub struct Network {
    convolutions: Vec<Conv2d>,
    convolution_norms: Vec<BatchNorm>,
    blocks: Vec<ResidualBlock>,
    hidden: Vec<Linear>,
    hidden_norms: Vec<BatchNorm>,
    output: Linear,
    pool: MaxPool2d,
    #[module(skip)]
    shape: [usize; 3],
    /// Whether images are halved before each block.
    #[module(skip)]
    halves: Vec<bool>,
}

impl Network {
    /// These layers and an output on `device`, for images of `shape` (channels, height, width) and `classes` classes. Its
    /// parameters are not yet drawn.
    pub fn new(layers: &LayerSpec, shape: [u32; 3], classes: u32, device: &Device) -> Self {
        let shape = shape.map(|dimension| dimension as usize);
        let (mut convolutions, mut blocks, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
        let norms = |sizes: &[u32]| -> Vec<BatchNorm> {
            let normalized = sizes.iter().filter(|_| layers.batch_norm);
            normalized.map(|size| BatchNormConfig::new(*size as usize).init(device)).collect()
        };
        let mut inputs = if layers.convolutions.is_empty() { shape.iter().product() } else { shape[0] };
        for outputs in layers.convolutions.iter().map(|channels| *channels as usize) {
            if layers.residual {
                blocks.push(ResidualBlock::new([inputs, outputs], layers.batch_norm, device));
                inputs = outputs;
                continue;
            }
            let convolution = Conv2dConfig::new([inputs, outputs], [3, 3]);
            convolutions.push(convolution.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device));
            inputs = outputs;
        }
        for outputs in layers.hidden.iter().map(|width| *width as usize) {
            hidden.push(LinearConfig::new(inputs, outputs).init(device));
            inputs = outputs;
        }
        Self {
            convolution_norms: norms(if layers.residual { &[] } else { &layers.convolutions }),
            halves: halves(&layers.convolutions).take(blocks.len()).collect(),
            convolutions,
            blocks,
            hidden,
            hidden_norms: norms(&layers.hidden),
            output: LinearConfig::new(inputs, classes as usize).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            shape,
        }
    }

    /// The logits `[samples, classes]` of samples `[samples, features]`.
    pub fn forward(&self, samples: Tensor<2>) -> Tensor<2> {
        self.forward_through(samples, |features| features, |features| features)
    }

    /// The same; between two linear layers, features go through `border`, and before it, as those of convolutions, through `drop`.
    pub(crate) fn forward_through(
        &self,
        samples: Tensor<2>,
        mut drop: impl FnMut(Tensor<2>) -> Tensor<2>,
        mut border: impl FnMut(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let mut features = self.convolve(numbers::like(samples, &self.output.weight));
        if self.takes_images() {
            features = drop(features);
        }
        for (at, hidden) in self.hidden.iter().enumerate() {
            let outputs = normalized(self.hidden_norms.get(at), hidden.forward(features));
            features = border(drop(relu(outputs)));
        }
        numbers::in_f32(self.output.forward(features))
    }

    /// How many parameters lie before each of those borders; none if parameters of normalizations, which lie behind those of all layers, are
    /// needed before a border.
    pub(crate) fn borders(&self) -> Vec<usize> {
        if !self.hidden_norms.is_empty() {
            return Vec::new();
        }
        let layers: Vec<&Linear> = self.hidden.iter().chain([&self.output]).collect();
        let mut before = self.num_params();
        let borders = layers[1..].iter().rev().map(|layer| {
            before -= layer.num_params();
            before
        });
        let mut borders: Vec<usize> = borders.collect();
        borders.reverse();
        borders
    }

    /// Whether it has convolutions.
    fn takes_images(&self) -> bool {
        !self.convolutions.is_empty() || !self.blocks.is_empty()
    }

    /// Runs the convolutions, if there are any: `[samples, features]` to `[samples, channels]`.
    fn convolve(&self, samples: Tensor<2>) -> Tensor<2> {
        if !self.takes_images() {
            return samples;
        }
        let [count, _] = samples.dims();
        let [channels, height, width] = self.shape;
        let mut images: Tensor<4> = samples.reshape([count, channels, height, width]);
        for (at, convolution) in self.convolutions.iter().enumerate() {
            let outputs = normalized(self.convolution_norms.get(at), convolution.forward(images));
            images = self.pool.forward(relu(outputs));
        }
        for (block, halves) in self.blocks.iter().zip(&self.halves) {
            images = block.forward(if *halves { self.pool.forward(images) } else { images });
        }
        let [_, channels, height, width] = images.dims();
        // The mean over the positions that are left makes the output independent of the image size.
        let positions: Tensor<3> = images.reshape([count, channels, height * width]);
        positions.mean_dim(2).reshape([count, channels])
    }
}

fn normalized<const D: usize>(norm: Option<&BatchNorm>, outputs: Tensor<D>) -> Tensor<D> {
    match norm {
        Some(norm) => numbers::normalize(norm, outputs),
        None => outputs,
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;
    use crate::network::flatten::write_parameters;
    use crate::network::models::ClassifierModel;
    use crate::network::schema;

    /// The logits of one sample.
    fn logits(spec: &str, shape: [u32; 3], parameters: &[f32], sample: &[f32]) -> Vec<f32> {
        let device = Device::flex().autodiff();
        let network = Network::new(&ClassifierModel::layers_of(spec), shape, 2, &device);
        assert_eq!(schema::of_module(&network).parameters(), parameters.len());
        let network = write_parameters(network, parameters, &device);
        let sample = Tensor::from_data(TensorData::new(sample.to_vec(), [1, sample.len()]), &device.inner());
        network.forward(sample).into_data().as_slice::<f32>().expect("f32").to_vec()
    }

    #[test]
    fn borders_lie_between_linear_layers() {
        let device = Device::flex();
        for (spec, borders) in
            [("mlp:8,6,4", vec![136, 190, 218]), ("mlp:8", vec![136]), ("softmax", vec![]), ("cnn:4,4", vec![])]
        {
            let network = Network::new(&ClassifierModel::layers_of(spec), [1, 4, 4], 2, &device);
            assert_eq!(network.borders(), borders, "{spec}");
        }
    }

    #[test]
    fn softmax_regression_is_linear() {
        // Weights [2 inputs, 2 outputs] by row, then biases.
        assert_eq!(logits("softmax", [1, 1, 2], &[1.0, 2.0, 3.0, 4.0, 0.5, -0.5], &[1.0, -1.0]), [-1.5, -2.5]);
    }

    #[test]
    fn an_mlp_cuts_its_hidden_layer_off_below_zero() {
        let hidden = [1.0, -1.0, 0.25, -0.25];
        let output = [1.0, 10.0, 100.0, 1000.0, 0.0, 1.0];
        // The hidden units are 2 + 0.25 and -2 - 0.25: the second one is cut off.
        let parameters = [&hidden[..], &output].concat();
        assert_eq!(logits("mlp:2", [1, 1, 1], &parameters, &[2.0]), [2.25, 23.5]);
        assert_eq!(logits("mlp:2", [1, 1, 1], &parameters, &[-2.0]), [175.0, 1751.0]);
    }

    #[test]
    fn a_residual_block_adds_what_goes_in() {
        let kernel = |centre: f32| [0.0, 0.0, 0.0, 0.0, centre, 0.0, 0.0, 0.0, 0.0];
        // Of the same width: 2 x - 1, cut off below zero, is taken from x.
        let first = [&kernel(2.0)[..], &[-1.0], &kernel(-1.0), &[0.0]].concat();
        let output = [1.0, -1.0, 0.0, 100.0];
        let image = [0.0, 1.0, 2.0, 3.0];
        let expected = image.map(|pixel: f32| (pixel - (2.0 * pixel - 1.0).max(0.0)).max(0.0));
        let mean = expected.iter().sum::<f32>() / 4.0;
        let same = [&first[..], &output].concat();
        assert_eq!(logits("cnn:1+residual", [1, 2, 2], &same, &image), [mean, 100.0 - mean]);
        // Of two channels: a second block, from one to two of them, sees the largest of each square, and projects it.
        let zeros = |count: usize| vec![0.0; count];
        let second = [zeros(2 * 9 + 2), zeros(4 * 9), vec![0.5, 0.25], vec![2.0, -1.0], vec![0.0, 10.0]].concat();
        let output = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        let image: Vec<f32> = (0..16).map(|at| (at % 5) as f32 / 8.0).collect();
        let parameters = [&[&kernel(0.0)[..], &[0.0], &kernel(0.0), &[0.0]].concat(), &second, &output[..]].concat();
        let largest: Vec<f32> = [0, 2, 8, 10]
            .map(|at: usize| [0, 1, 4, 5].map(|off| image[at + off]).into_iter().fold(0.0, f32::max))
            .to_vec();
        let mean = |of: fn(f32) -> f32| largest.iter().map(|pixel| of(*pixel).max(0.0)).sum::<f32>() / 4.0;
        let expected = [mean(|pixel| 2.0 * pixel + 0.5), mean(|pixel| 10.25 - pixel)];
        assert_eq!(logits("cnn:1,2+residual", [1, 4, 4], &parameters, &image), expected);
    }

    #[test]
    fn a_cnn_takes_the_largest_of_each_square_and_the_mean_over_the_image() {
        // The kernel sees only its centre, so the convolution doubles each pixel and subtracts one.
        let mut parameters = vec![0.0; 9];
        parameters[4] = 2.0;
        parameters.push(-1.0);
        parameters.extend([1.0, -1.0, 0.0, 100.0]);
        let image = [
            0.0, 1.0, 2.0, 0.0, //
            3.0, 2.0, 0.0, 0.0, //
            -9.0, -9.0, 0.0, 4.0, //
            -9.0, -9.0, 1.0, 1.0,
        ];
        // Largest per square: 5, 3, -19 cut off to 0, 7; their mean is 3.75.
        assert_eq!(logits("cnn:1", [1, 4, 4], &parameters, &image), [3.75, 96.25]);
    }
}
