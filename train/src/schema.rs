//! The order, names and shapes of a model's parameters.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use starling_topology::Digest;

use crate::network::Network;
use crate::spec::ModelSpec;

/// One parameter of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path in the model, for example `hidden.0.weight`.
    pub path: String,
    /// Its shape, outermost dimension first, in Burn's layout: a linear weight is `[inputs, outputs]`, a convolution's
    /// `[outputs, inputs, height, width]`.
    pub shape: Vec<usize>,
    /// Its element type. All parameters are `f32` on the wire and on disk.
    pub dtype: &'static str,
}

impl Entry {
    /// How many numbers the parameter has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A model's parameters, in the order in which Burn visits them: by field, then by index. The flat vector of a run's
/// parameters, its gradients and its optimizer's moments all have this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    entries: Vec<Entry>,
}

impl Schema {
    /// The schema of the model `spec` for images of `shape` (channels, height, width) and `classes` classes.
    pub fn of(spec: &ModelSpec, shape: [u32; 3], classes: u32) -> Self {
        if let ModelSpec::Raw { elements } = spec {
            let elements = usize::try_from(*elements).expect("invariant: a manifest's sizes are checked");
            return Self { entries: vec![Entry { path: "values".to_owned(), shape: vec![elements], dtype: "f32" }] };
        }
        // Parameters are lazy: the visit reads shapes and draws nothing.
        Self::of_network(&Network::new(spec, shape, classes, &Device::flex()))
    }

    /// The schema of a built model.
    pub fn of_network(network: &Network) -> Self {
        let mut visitor = Collect { path: Vec::new(), entries: Vec::new() };
        network.visit(&mut visitor);
        Self { entries: visitor.entries }
    }

    /// The parameters, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many numbers all parameters have together.
    pub fn parameters(&self) -> usize {
        self.entries.iter().map(Entry::elements).sum()
    }

    /// The path of the parameter that the flat index `at` lies in; `loss` for the element after the last parameter,
    /// `speed` for those after it.
    pub fn path_at(&self, at: usize) -> &str {
        let mut end = 0;
        let entry = self.entries.iter().find(|entry| {
            end += entry.elements();
            at < end
        });
        entry.map_or(if at == end { "loss" } else { "speed" }, |entry| &entry.path)
    }

    /// blake3 of the list of (path, shape, dtype): two models with equal fingerprints have the same flat vector.
    pub fn fingerprint(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.entries.len() as u64).to_le_bytes());
        for entry in &self.entries {
            hasher.update(&(entry.path.len() as u64).to_le_bytes()).update(entry.path.as_bytes());
            hasher.update(&(entry.shape.len() as u64).to_le_bytes());
            for dimension in &entry.shape {
                hasher.update(&(*dimension as u64).to_le_bytes());
            }
            hasher.update(&(entry.dtype.len() as u64).to_le_bytes()).update(entry.dtype.as_bytes());
        }
        Digest(*hasher.finalize().as_bytes())
    }
}

struct Collect {
    path: Vec<String>,
    entries: Vec<Entry>,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.entries.push(Entry { path: self.path.join("."), shape: param.lazy_shape().to_vec(), dtype: "f32" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(spec: &str) -> Vec<(String, Vec<usize>)> {
        let spec: ModelSpec = spec.parse().expect("a model");
        let schema = Schema::of(&spec, [1, 8, 8], 10);
        assert_eq!(Some(schema.parameters() as u64), spec.parameters([1, 8, 8], 10), "the formula of {spec} is wrong");
        schema.entries().iter().map(|entry| (entry.path.clone(), entry.shape.clone())).collect()
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
        let fingerprint = |spec: &str, classes| {
            Schema::of(&spec.parse().expect("a model"), [1, 8, 8], classes).fingerprint().to_string()
        };
        assert_eq!(fingerprint("mlp:32", 10), fingerprint("mlp:32", 10));
        assert_ne!(fingerprint("mlp:32", 10), fingerprint("mlp:33", 10));
        assert_ne!(fingerprint("mlp:32", 10), fingerprint("mlp:32", 11));
        assert_ne!(fingerprint("mlp:32", 10), fingerprint("softmax", 10));
        assert_eq!(fingerprint("mlp:64", 10), PINNED_FINGERPRINT);
    }

    #[test]
    fn a_flat_index_is_named_by_its_parameter() {
        let schema = Schema::of(&"mlp:2".parse().expect("a model"), [1, 1, 3], 2);
        let names: Vec<&str> = (0..schema.parameters() + 3).map(|at| schema.path_at(at)).collect();
        assert_eq!(names[..6], ["hidden.0.weight"; 6]);
        assert_eq!(names[6..8], ["hidden.0.bias"; 2]);
        assert_eq!(names[8..12], ["output.weight"; 4]);
        assert_eq!(names[12..14], ["output.bias"; 2]);
        assert_eq!(names[14..], ["loss", "speed", "speed"]);
    }

    const PINNED_FINGERPRINT: &str = "b5e5e0bfa40decfd15f8afb08024df466a5521bc76ded4541232b0651c0a696e";
}
