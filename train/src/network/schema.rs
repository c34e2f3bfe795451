//! The parameters of a model, as Burn visits them.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use starling_run::Schema;
use starling_run::manifest::schema::Entry;

/// The schema of a built model: its float leaves, as Burn visits them.
pub fn of_module<M: Module>(module: &M) -> Schema {
    let mut entries = Vec::new();
    module.visit(&mut Collect { path: Vec::new(), found: |entry: Entry, _: &dyn Fn() -> bool| entries.push(entry) });
    Schema::new(entries)
}

/// A float leaf of a module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Visited {
    pub(crate) entry: Entry,
    pub(crate) is_trained: bool,
}

/// The float leaves of a module on a device with autodiff. Their values are drawn for it.
pub(crate) fn leaves<M: Module>(module: &M) -> Vec<Visited> {
    let mut leaves = Vec::new();
    let found = |entry: Entry, is_trained: &dyn Fn() -> bool| leaves.push(Visited { entry, is_trained: is_trained() });
    module.visit(&mut Collect { path: Vec::new(), found });
    leaves
}

/// Tells of each leaf, and how to find out whether it is trained.
struct Collect<Found> {
    path: Vec<String>,
    found: Found,
}

impl<Found: FnMut(Entry, &dyn Fn() -> bool)> ModuleVisitor for Collect<Found> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let entry = Entry { path: self.path.join("."), shape: param.lazy_shape().to_vec(), dtype: "f32" };
        (self.found)(entry, &|| param.val().is_require_grad());
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::network::Network;
    use crate::network::models::ClassifierModel;

    fn of(spec: &str, classes: u32) -> Schema {
        of_module(&Network::new(&ClassifierModel::layers_of(spec), [1, 8, 8], classes, &Device::flex()))
    }

    fn paths(spec: &str) -> Vec<(String, Vec<usize>)> {
        of(spec, 10).entries().iter().map(|entry| (entry.path.clone(), entry.shape.clone())).collect()
    }

    #[test]
    fn the_order_of_parameters_is_fixed() {
        let own = |list: &[(&str, &[usize])]| -> Vec<(String, Vec<usize>)> {
            list.iter().map(|(path, shape)| ((*path).to_owned(), shape.to_vec())).collect()
        };
        assert_eq!(paths("softmax"), own(&[("output.weight", &[64, 10]), ("output.bias", &[10])]));
        assert_eq!(
            paths("mlp:32,16"),
            own(&[
                ("hidden.0.weight", &[64, 32]),
                ("hidden.0.bias", &[32]),
                ("hidden.1.weight", &[32, 16]),
                ("hidden.1.bias", &[16]),
                ("output.weight", &[16, 10]),
                ("output.bias", &[10]),
            ])
        );
        assert_eq!(
            paths("cnn:4,6"),
            own(&[
                ("convolutions.0.weight", &[4, 1, 3, 3]),
                ("convolutions.0.bias", &[4]),
                ("convolutions.1.weight", &[6, 4, 3, 3]),
                ("convolutions.1.bias", &[6]),
                ("output.weight", &[6, 10]),
                ("output.bias", &[10]),
            ])
        );
    }

    #[test]
    fn the_fingerprint_depends_on_every_shape_and_is_stable() {
        let fingerprint = |spec: &str, classes| of(spec, classes).fingerprint().to_string();
        assert_eq!(fingerprint("mlp:32", 10), fingerprint("mlp:32", 10));
        assert_ne!(fingerprint("mlp:32", 10), fingerprint("mlp:33", 10));
        assert_ne!(fingerprint("mlp:32", 10), fingerprint("mlp:32", 11));
        assert_ne!(fingerprint("mlp:32", 10), fingerprint("softmax", 10));
        assert_eq!(fingerprint("mlp:64", 10), PINNED_FINGERPRINT);
    }

    const PINNED_FINGERPRINT: &str = "b5e5e0bfa40decfd15f8afb08024df466a5521bc76ded4541232b0651c0a696e";
}
