//! Gradients and parameters of a module to and from flat vectors of f32, each kind of leaf in visit order, in whatever numbers the module computes.

use std::ops::Range;
use std::sync::Arc;

use burn::module::{Flag, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{
    AllocationProperty, Bytes, DType, Device, ExecutionError, FloatDType, Gradients, Shape, Tensor, TensorData,
    Transaction,
};
use starling_run::manifest::freeze::is_under;
use starling_run::{LeafKind, Precision};

use crate::network::numbers::{float_type, in_f32};

/// Modules of Burn whose parameters are f32 whatever the others are: what they add up is more than other numbers hold.
const NORMS: [&str; 5] =
    ["Struct:BatchNorm", "Struct:GroupNorm", "Struct:InstanceNorm", "Struct:LayerNorm", "Struct:RmsNorm"];

/// Numbers that are written into leaves, one leaf after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeafNumbers<'a> {
    Copied(&'a [f32]),
    /// Those of a vector from a position on: leaves on a CPU have no numbers of their own, and share it as long as they have these.
    Shared(&'a Arc<Vec<f32>>, usize),
}

impl<'a> LeafNumbers<'a> {
    /// Without the first `count`.
    fn behind(self, count: usize) -> Self {
        match self {
            Self::Copied(numbers) => Self::Copied(&numbers[count..]),
            Self::Shared(numbers, from) => Self::Shared(numbers, from + count),
        }
    }

    /// The next ones, as a leaf of this shape.
    fn take(&mut self, shape: Shape) -> TensorData {
        let count = shape.num_elements();
        let data = match *self {
            Self::Copied(numbers) => TensorData::new(numbers[..count].to_vec(), shape),
            Self::Shared(numbers, from) => {
                let part = SharedPart { numbers: numbers.clone(), range: from..from + count };
                let bytes = Bytes::from_shared(bytes::Bytes::from_owner(part), AllocationProperty::Other);
                TensorData::from_bytes(bytes, shape, DType::F32)
            }
        };
        *self = self.behind(count);
        data
    }
}

impl<'a> From<&'a [f32]> for LeafNumbers<'a> {
    fn from(numbers: &'a [f32]) -> Self {
        Self::Copied(numbers)
    }
}

impl<'a> From<&'a Arc<Vec<f32>>> for LeafNumbers<'a> {
    fn from(numbers: &'a Arc<Vec<f32>>) -> Self {
        Self::Shared(numbers, 0)
    }
}

/// What a leaf has of a vector that several share.
struct SharedPart {
    numbers: Arc<Vec<f32>>,
    range: Range<usize>,
}

impl AsRef<[u8]> for SharedPart {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.numbers[self.range.clone()])
    }
}

/// What is written into the leaves of a module, by what becomes of them. `None`: these leaves stay as they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafValues<'a> {
    pub(crate) trained: Option<LeafNumbers<'a>>,
    pub(crate) running: LeafNumbers<'a>,
    pub(crate) frozen: Option<LeafNumbers<'a>>,
}

impl<'a> LeafValues<'a> {
    /// Of numbers as those of a state's parameters, of which the first `trained` are trained, and the others run along. What is frozen stays.
    pub(crate) fn changing(parameters: impl Into<LeafNumbers<'a>>, trained: usize) -> Self {
        let parameters = parameters.into();
        Self { trained: Some(parameters), running: parameters.behind(trained), frozen: None }
    }

    /// Only what runs along.
    pub(crate) fn running(numbers: impl Into<LeafNumbers<'a>>) -> Self {
        Self { trained: None, running: numbers.into(), frozen: None }
    }

    /// What is frozen, too, if there is something to write.
    pub(crate) fn with_frozen(self, numbers: Option<impl Into<LeafNumbers<'a>>>) -> Self {
        Self { frozen: numbers.map(Into::into), ..self }
    }
}

/// The gradients of some of the flat trained parameters of `module`, then `others`, each as it lies on the device. One read-back moves
/// everything off it.
///
/// A parameter without a gradient contributes zeros.
///
/// # Errors
/// If the device failed to compute what is read.
pub(crate) fn read_gradients<M: Module>(
    module: &M,
    parameters: Range<usize>,
    gradients: &mut Gradients,
    others: Vec<Tensor<1>>,
) -> Result<Vec<TensorData>, ExecutionError> {
    let mut gather = Gather { parameters, at: 0, gradients, transaction: Transaction::default() };
    module.visit(&mut gather);
    let Gather { transaction, .. } = gather;
    others.into_iter().map(in_f32).fold(transaction, Transaction::register).try_execute()
}

/// The numbers that were read.
pub(crate) fn numbers(data: &TensorData) -> &[f32] {
    data.as_slice::<f32>().expect("invariant: what is read was converted to f32")
}

/// The same, to be changed.
pub(crate) fn numbers_mut(data: &mut TensorData) -> &mut [f32] {
    data.as_mut_slice::<f32>().expect("invariant: what is read was converted to f32")
}

/// The values of the leaves of `module` that run along, each flat, as its last forward pass left them. `kinds` are those of all its leaves.
pub(crate) fn running_values<M: Module>(module: &M, kinds: &[LeafKind]) -> Vec<Tensor<1>> {
    let mut running = Running { kinds: kinds.iter(), values: Vec::new() };
    // Burn keeps what the last pass left for whoever leaves training: before that, it is not seen.
    module.valid().visit(&mut running);
    running.values
}

/// `module` with its parameters replaced by `flat`, those of all leaves in visit order, and all trained; on `device` (an autodiff device).
///
/// # Panics
/// If `flat` is shorter than the parameters.
pub(crate) fn write_parameters<M: Module>(module: M, flat: &[f32], device: &Device) -> M {
    let values = LeafValues::changing(flat, flat.len());
    module.map(&mut Scatter { kinds: None, values, device, numbers: FloatDType::F32, inside: Vec::new() })
}

/// `module`, whose leaves are of these `kinds` in visit order, with their values replaced, on `device`, as precise as is said but for those of
/// normalizations and those that run along. What is trained requires gradients if that has autodiff. Modules that were cloned from one another share the leaves that run along.
///
/// # Panics
/// If there are fewer values or kinds than leaves.
pub(crate) fn write_leaves<M: Module>(
    module: M,
    kinds: &[LeafKind],
    values: LeafValues<'_>,
    precision: Precision,
    device: &Device,
) -> M {
    let numbers = float_type(precision);
    module.map(&mut Scatter { kinds: Some(kinds.iter()), values, device, numbers, inside: Vec::new() })
}

/// `module`, whose leaves are of these `kinds` in visit order, without the values of those that change: who shares them has them for itself
/// again. Such leaves are there to be [written](write_leaves), and for nothing else.
pub(crate) fn release_leaves<M: Module>(module: M, kinds: &[LeafKind]) -> M {
    module.map(&mut Release { kinds: kinds.iter() })
}

/// `module`, in which what is under one of `paths` no longer behaves as in training: there, dropout drops nothing, and a batch normalization takes
/// its running values and leaves them as they are.
pub(crate) fn disable<M: Module>(module: M, paths: &[String]) -> M {
    module.map(&mut Disable { paths, path: Vec::new() })
}

struct Gather<'a> {
    parameters: Range<usize>,
    /// How many trained parameters have been visited.
    at: usize,
    gradients: &'a mut Gradients,
    transaction: Transaction,
}

impl ModuleVisitor for Gather<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() {
            return;
        }
        let start = self.at;
        self.at += param.lazy_shape().num_elements();
        if !self.parameters.contains(&start) {
            return;
        }
        let gradient = param
            .val()
            .grad_remove(self.gradients)
            .unwrap_or_else(|| Tensor::zeros(param.lazy_shape(), &param.lazy_device().inner()));
        self.transaction = std::mem::take(&mut self.transaction).register(in_f32(gradient));
    }
}

struct Running<'a> {
    kinds: std::slice::Iter<'a, LeafKind>,
    values: Vec<Tensor<1>>,
}

impl ModuleVisitor for Running<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.kinds.next() == Some(&LeafKind::Running) {
            let value = param.val();
            let elements = value.shape().num_elements();
            self.values.push(value.reshape([elements]));
        }
    }
}

struct Scatter<'a> {
    /// Of the leaves that come next; `None` if all are trained.
    kinds: Option<std::slice::Iter<'a, LeafKind>>,
    /// What is not written yet.
    values: LeafValues<'a>,
    device: &'a Device,
    numbers: FloatDType,
    /// For each module about the leaf, whether it is a normalization.
    inside: Vec<bool>,
}

impl ModuleMapper for Scatter<'_> {
    fn enter_module(&mut self, _name: &str, container_type: &str) {
        self.inside.push(NORMS.contains(&container_type));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.inside.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let next = self.kinds.as_mut().map(|kinds| *kinds.next().expect("invariant: each leaf is of a kind"));
        let kind = next.unwrap_or_default();
        let from = match kind {
            LeafKind::Trained => self.values.trained.as_mut(),
            LeafKind::Running => Some(&mut self.values.running),
            LeafKind::Frozen => self.values.frozen.as_mut(),
        };
        let Some(from) = from else { return param };
        let tensor = Tensor::<D>::from_data(from.take(param.lazy_shape()), self.device);
        let is_whole = kind == LeafKind::Running || self.inside.last() == Some(&true);
        let tensor = if is_whole { tensor } else { tensor.cast(self.numbers) };
        let requires = kind == LeafKind::Trained && self.device.is_autodiff();
        // `initialized` keeps the id and never runs the lazy draw that the value replaces.
        Param::initialized(param.id, if requires { tensor.require_grad() } else { tensor })
    }
}

struct Release<'a> {
    /// Of the leaves that come next.
    kinds: std::slice::Iter<'a, LeafKind>,
}

impl ModuleMapper for Release<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let kind = *self.kinds.next().expect("invariant: each leaf is of a kind");
        if kind == LeafKind::Frozen {
            return param;
        }
        let (shape, device) = (param.lazy_shape(), param.lazy_device());
        let of = shape.clone();
        let empty = move |device: &Device, _| Tensor::zeros(of, device);
        Param::uninitialized(param.id, empty, device, kind == LeafKind::Trained, shape)
    }
}

struct Disable<'a> {
    paths: &'a [String],
    path: Vec<String>,
}

impl ModuleMapper for Disable<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        if is_under(self.paths, &self.path.join(".")) { flag.with_value(false) } else { flag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::models::ClassifierModel;
    use crate::network::schema;

    fn network(spec: &str, device: &Device) -> (Network, usize) {
        let network = Network::new(&ClassifierModel::layers_of(spec), [1, 4, 4], 3, device);
        let parameters = schema::of_module(&network).parameters();
        (network, parameters)
    }

    struct Read(Vec<f32>);

    impl ModuleVisitor for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().as_slice::<f32>().expect("f32"));
        }
    }

    #[test]
    fn what_is_written_is_read_back_in_the_same_order() {
        let device = Device::flex().autodiff();
        for spec in ["softmax", "mlp:5,4", "cnn:2,3"] {
            let (network, parameters) = network(spec, &device);
            let flat: Vec<f32> = (0..parameters).map(|at| at as f32 * 0.25 - 3.0).collect();
            let network = write_parameters(network, &flat, &device);
            let mut read = Read(Vec::new());
            network.visit(&mut read);
            assert_eq!(read.0, flat, "{spec}");
        }
    }

    #[test]
    fn gradients_come_in_the_order_of_the_parameters_and_missing_ones_are_zeros() {
        let device = Device::flex().autodiff();
        let (network, parameters) = network("mlp:2", &device);
        let flat: Vec<f32> = (0..parameters).map(|at| 0.01 * at as f32).collect();
        let network = write_parameters(network, &flat, &device);
        // The loss is the sum of all logits: an output bias of 3 classes has gradient 1, its weight sees the hidden layer.
        let samples = Tensor::<2>::ones([1, 16], &device.clone().inner());
        let loss = network.forward(samples.clone()).sum();
        let mut gradients = loss.backward();
        let all = |gradients: &mut Gradients, loss: Tensor<1>| {
            let read = read_gradients(&network, 0..parameters, gradients, vec![loss.inner()]).expect("computed");
            read.iter().flat_map(numbers).copied().collect::<Vec<f32>>()
        };
        let read = all(&mut gradients, loss);
        assert_eq!(read.len(), parameters + 1);
        assert_eq!(read[parameters - 3..parameters], [1.0; 3]);
        // 32 weights and 2 biases of the hidden layer; its inputs are all 1, so weight and bias gradients agree.
        assert_eq!(read[0], read[32]);
        assert_eq!(read[1], read[33]);
        assert!(read[..34].iter().all(|gradient| *gradient != 0.0));

        // A loss that no parameter takes part in leaves all gradients at zero.
        let alone = Tensor::<1>::ones([1], &device).require_grad();
        let loss = alone.clone().sum();
        let mut gradients = loss.backward();
        let read = all(&mut gradients, loss);
        assert_eq!(read[..parameters], vec![0.0; parameters]);
        assert_eq!(read[parameters], 1.0);
    }
}
