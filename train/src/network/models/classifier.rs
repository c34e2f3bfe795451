//! Softmax regression, the MLP and the CNN: a [`Network`](crate::Network) that learns classes.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use starling_data::Dataset;
use starling_run::{ModelOptions, ModelSpec};

use super::{AnyTask, Chosen, Model, check_layers, check_widths, choose, no_blocks, no_embeddings, unusable};
use crate::network::forward::{AnyModule, RowModule};
use crate::network::{LayerSpec, Network};
use crate::task::classification::ClassificationTask;
use crate::task::regression::{LabelKind, RegressionTask};

/// The most channels of a convolution.
const MAX_CHANNELS: u32 = 4_096;

/// A classifier by the layers before its output.
#[derive(Debug)]
pub struct ClassifierModel {
    name: &'static str,
    usual: &'static [u32],
    sizes: Sizes,
}

/// What its sizes are.
#[derive(Debug, Clone, Copy)]
enum Sizes {
    None,
    Widths,
    Channels,
}

impl ClassifierModel {
    /// One linear layer.
    pub const SOFTMAX: Self = Self { name: "softmax", usual: &[], sizes: Sizes::None };
    /// Hidden linear layers, by their widths.
    pub const MLP: Self = Self { name: "mlp", usual: &[64], sizes: Sizes::Widths };
    /// Convolutions, by their channels.
    pub const CNN: Self = Self { name: "cnn", usual: &[8, 16], sizes: Sizes::Channels };

    /// The layers and options of the classifier that is named.
    ///
    /// # Errors
    /// If there is no such model, or it is no classifier.
    pub(crate) fn find(spec: &ModelSpec) -> Result<(LayerSpec, ModelOptions), crate::error::Error> {
        let Chosen { model, sizes, options } = choose(spec)?;
        let found = [Self::SOFTMAX, Self::MLP, Self::CNN].into_iter().find(|own| own.name == model.name());
        let found = found.ok_or_else(|| unusable(format!("{} is no classifier", model.name())))?;
        Ok((found.layers(&sizes, &options), options))
    }

    /// The same of a text.
    #[cfg(test)]
    pub(crate) fn layers_of(text: &str) -> LayerSpec {
        Self::find(&text.parse().expect("a model")).expect("a classifier").0
    }

    /// Checks that the convolutions can halve images of this shape.
    fn check_images(&self, layers: &LayerSpec, [_, height, width]: [u32; 3]) -> Result<(), String> {
        let halved = layers.halved();
        if !layers.convolutions.is_empty() && height.min(width) == 1 {
            return Err(format!(
                "{} needs images, but the data has flat rows of {width} features; take an mlp, or data of images",
                self.name
            ));
        }
        // What is left is a pixel, or, for the 3x3 convolutions behind it, two.
        if height.min(width) >> halved < if layers.residual { 2 } else { 1 } {
            return Err(format!(
                "{} halves its images {halved} times, but they have only {height}x{width} pixels; take fewer {}",
                self.name,
                if layers.residual { "changes of width" } else { "convolutions" }
            ));
        }
        Ok(())
    }

    fn layers(&self, sizes: &[u32], options: &ModelOptions) -> LayerSpec {
        let ModelOptions { batch_norm, residual, .. } = *options;
        let layers = LayerSpec { batch_norm, residual, ..LayerSpec::default() };
        match self.sizes {
            Sizes::None => layers,
            Sizes::Widths => LayerSpec { hidden: sizes.to_vec(), ..layers },
            Sizes::Channels => LayerSpec { convolutions: sizes.to_vec(), ..layers },
        }
    }
}

impl RowModule for Network {
    fn outputs(&self, rows: Tensor<2>) -> Tensor<2> {
        self.forward(rows)
    }
}

impl Model for ClassifierModel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn usual(&self) -> &'static [u32] {
        self.usual
    }

    fn check(&self, sizes: &[u32]) -> Result<(), String> {
        match self.sizes {
            Sizes::None if sizes.is_empty() => Ok(()),
            Sizes::None => Err(format!("{} has no sizes", self.name)),
            Sizes::Widths => check_widths(sizes),
            Sizes::Channels => check_layers(sizes, MAX_CHANNELS, "convolution"),
        }
    }

    fn check_options(&self, options: &ModelOptions) -> Result<(), String> {
        if options.loss.is_some() {
            return Err(format!(
                "{} learns classes, by cross-entropy; leave --loss out, or take regression",
                self.name
            ));
        }
        if options.tied_output {
            return Err(no_embeddings(self.name));
        }
        match self.sizes {
            Sizes::Channels => Ok(()),
            _ if options.residual => Err(no_blocks(self.name)),
            Sizes::Widths if options.augment.is_empty() => Ok(()),
            Sizes::Widths => Err(format!("{} takes no images as such; leave --augment out, or take cnn", self.name)),
            Sizes::None if options.dropout == 0.0 && options.augment.is_empty() && !options.batch_norm => Ok(()),
            Sizes::None if options.batch_norm => {
                Err(format!("{} has no layers to normalize; leave --batch-norm out, or take mlp or cnn", self.name))
            }
            Sizes::None => Err(format!(
                "{} has no layers to drop numbers between, and takes no images as such; leave --dropout and --augment out, or take \
                 mlp or cnn",
                self.name
            )),
        }
    }

    fn task(&self, sizes: &[u32], options: &ModelOptions, dataset: &Arc<Dataset>) -> Result<Box<dyn AnyTask>, String> {
        let layers = self.layers(sizes, options);
        if dataset.description().label.len() > 1 {
            self.check_images(&layers, dataset.description().shape)?;
            let task = RegressionTask::new(self.name, layers, options.clone(), dataset.clone(), LabelKind::Marks)?;
            return Ok(Box::new(task));
        }
        if let Some(fraction) = dataset.class_names().iter().find(|label| is_fraction(label)) {
            return Err(format!(
                "`{fraction}` is a measurement, not a class, but {} learns classes; take `--model regression`, which learns numbers, or \
                 name another label column (`--label`)",
                self.name
            ));
        }
        if dataset.description().classes == 0 {
            return Err(format!(
                "its labels are numbers, and too many different ones to be classes, which {} learns; take `--model regression`, which learns numbers, or \
                 name another label column (`--label`)",
                self.name
            ));
        }
        self.check_images(&layers, dataset.description().shape)?;
        Ok(Box::new(ClassificationTask::new(layers, dataset.clone()).with_options(options.clone())))
    }

    fn computes(
        &self,
        sizes: &[u32],
        options: &ModelOptions,
        shape: [u32; 3],
        outputs: u32,
    ) -> Result<Box<dyn AnyModule>, String> {
        let layers = self.layers(sizes, options);
        self.check_images(&layers, shape)?;
        Ok(Box::new(Network::new(&layers, shape, outputs, &Device::flex())))
    }
}

fn is_fraction(label: &str) -> bool {
    label.parse::<f64>().is_ok_and(|number| number.is_finite() && number.fract() != 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_for_a_regression() {
        let dir = tempfile::tempdir().expect("a directory");
        let table = dir.path().join("table.csv");
        std::fs::write(&table, "area,price\n1,2.5\n2,3\n3,4.25\n").expect("written");
        let source = table.to_str().expect("a path").to_owned();
        let options = starling_data::DataOptions { source, ..Default::default() };
        let dataset = Arc::new(Dataset::load(&options).expect("good data"));
        let none = ModelOptions::default();
        let refused = ClassifierModel::MLP.task(&[8], &none, &dataset).err().expect("refused");
        assert!(refused.contains("`2.5` is a measurement, not a class, but mlp learns classes"), "{refused}");
        assert!(refused.contains("take `--model regression`") && refused.contains("(`--label`)"), "{refused}");
        let linear = choose(&"linear".parse().expect("a text")).expect("a model");
        assert!(linear.model.task(&linear.sizes, &none, &dataset).is_ok());
    }

    #[test]
    fn a_cnn_needs_images_that_it_can_halve() {
        let load = |source: &str| {
            let options = starling_data::DataOptions { source: source.to_owned(), ..Default::default() };
            Arc::new(Dataset::load(&options).expect("good data"))
        };
        let (digits, none) = (load("digits"), ModelOptions::default());
        assert!(ClassifierModel::CNN.task(&[2; 3], &none, &digits).is_ok());
        let refused = |sizes: &[u32], dataset| ClassifierModel::CNN.task(sizes, &none, dataset).err().expect("refused");
        assert!(refused(&[2; 4], &digits).contains("halves its images 4 times, but they have only 8x8"));
        let residual = ModelOptions { residual: true, ..ModelOptions::default() };
        assert!(ClassifierModel::CNN.task(&[4, 4, 8, 8, 16], &residual, &digits).is_ok());
        let refused_blocks = ClassifierModel::CNN.task(&[1, 2, 3, 4], &residual, &digits).err().expect("refused");
        assert!(refused_blocks.contains("halves its images 3 times, but they have only 8x8"), "{refused_blocks}");
        let dir = tempfile::tempdir().expect("a directory");
        let table = dir.path().join("table.csv");
        std::fs::write(&table, "a,b,c\n1,2,x\n2,1,y\n3,5,x\n4,4,y\n").expect("written");
        let table = load(table.to_str().expect("a path"));
        assert!(refused(&[8], &table).contains("needs images, but the data has flat rows of 2 features"));
        assert!(ClassifierModel::MLP.task(&[8], &none, &table).is_ok());
    }
}
