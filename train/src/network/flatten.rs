//! Gradients and parameters of a module to and from one flat vector, in visit order.

use std::ops::Range;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, ExecutionError, Gradients, Tensor, TensorData, Transaction};

/// The gradients of some of the flat parameters of `module`, then `loss` if there is one, each as it lies on the device.
/// One read-back moves everything off it.
///
/// A parameter without a gradient contributes zeros.
///
/// # Errors
/// If the device failed to compute what is read.
pub(crate) fn read_gradients<M: Module>(
    module: &M,
    parameters: Range<usize>,
    gradients: &mut Gradients,
    loss: Option<Tensor<1>>,
) -> Result<Vec<TensorData>, ExecutionError> {
    let mut gather = Gather { parameters, at: 0, gradients, transaction: Transaction::default() };
    module.visit(&mut gather);
    let Gather { transaction, .. } = gather;
    loss.into_iter().fold(transaction, Transaction::register).try_execute()
}

/// The numbers that were read.
pub(crate) fn numbers(data: &TensorData) -> &[f32] {
    data.as_slice::<f32>().expect("invariant: every device computes in f32")
}

/// `module` with its parameters replaced by `flat`, on `device` (an autodiff device).
///
/// # Panics
/// If `flat` is shorter than the parameters.
pub(crate) fn write_parameters<M: Module>(module: M, flat: &[f32], device: &Device) -> M {
    module.map(&mut Scatter { flat, device })
}

struct Gather<'a> {
    parameters: Range<usize>,
    /// How many parameters have been visited.
    at: usize,
    gradients: &'a mut Gradients,
    transaction: Transaction,
}

impl ModuleVisitor for Gather<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let start = self.at;
        self.at += param.lazy_shape().num_elements();
        if !self.parameters.contains(&start) {
            return;
        }
        let gradient = param
            .val()
            .grad_remove(self.gradients)
            .unwrap_or_else(|| Tensor::zeros(param.lazy_shape(), &param.lazy_device().inner()));
        self.transaction = std::mem::take(&mut self.transaction).register(gradient);
    }
}

struct Scatter<'a> {
    /// What is not written yet.
    flat: &'a [f32],
    device: &'a Device,
}

impl ModuleMapper for Scatter<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let shape = param.lazy_shape();
        let (values, rest) = self.flat.split_at(shape.num_elements());
        self.flat = rest;
        let data = TensorData::new(values.to_vec(), shape);
        // `initialized` keeps the id and never runs the lazy draw that the value replaces.
        Param::initialized(param.id, Tensor::from_data(data, self.device).require_grad())
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
            let read = read_gradients(&network, 0..parameters, gradients, Some(loss.inner())).expect("computed");
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
