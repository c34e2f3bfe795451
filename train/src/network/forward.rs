//! Trained modules without a task: rows in, outputs out.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use starling_run::Schema;

use super::transformer::TransformerNetwork;
use super::{flatten, schema};

/// What a model learns, which its outputs stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputKind {
    /// One output for each class: the largest one says which it is.
    Classes,
    /// One output for each column of labels, which is the number.
    Numbers,
    /// One output for each column of labels: whether a sample has it is said by whether the output is above 0.
    Labels,
    /// One output for each token at each position of a text: which one comes next.
    Text,
}

impl OutputKind {
    /// What a model learns that learns this of one column of labels, where there are so many: of several, whether each is there.
    pub(crate) fn of_labels(self, labels: u32) -> Self {
        if self == Self::Classes && labels > 1 { Self::Labels } else { self }
    }

    /// How many outputs there are, of so many classes and columns of labels.
    pub(crate) fn outputs(self, classes: u32, labels: u32) -> u32 {
        match self {
            Self::Classes | Self::Text => classes,
            Self::Numbers | Self::Labels => labels,
        }
    }
}

/// A module whose outputs come of rows alone.
pub trait RowModule: Module + Sync {
    /// Of rows `[samples, features]`, `[samples, outputs]`.
    fn outputs(&self, rows: Tensor<2>) -> Tensor<2>;

    /// The module itself, if it learns a text.
    fn text(&self) -> Option<&TransformerNetwork> {
        None
    }
}

/// Any such module.
pub trait AnyModule: Send + Sync {
    /// Its parameters.
    fn schema(&self) -> Schema;

    /// The same with these values in the order of its schema, `[parameters]`, on `device`, which has no autodiff.
    ///
    /// # Panics
    /// If there are fewer of them.
    fn load(self: Box<Self>, parameters: &[f32], device: &Device) -> Box<dyn AnyModule>;

    /// Of rows `[samples, features]` on its device, `[samples, outputs]`.
    fn outputs(&self, rows: Tensor<2>) -> Tensor<2>;

    /// The module itself, if it learns a text.
    fn text(&self) -> Option<&TransformerNetwork>;
}

impl<M: RowModule + 'static> AnyModule for M {
    fn schema(&self) -> Schema {
        schema::of_module(self)
    }

    fn load(self: Box<Self>, parameters: &[f32], device: &Device) -> Box<dyn AnyModule> {
        Box::new(flatten::write_parameters(*self, parameters, &device.clone().autodiff()).valid())
    }

    fn outputs(&self, rows: Tensor<2>) -> Tensor<2> {
        RowModule::outputs(self, rows)
    }

    fn text(&self) -> Option<&TransformerNetwork> {
        RowModule::text(self)
    }
}
