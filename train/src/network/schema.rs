//! The parameters of a model, as Burn visits them.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, DType, Int, Tensor};
use starling_run::manifest::schema::Entry;
use starling_run::{ConstantKind, ConstantSpec, LeafKind, Schema};
use starling_topology::Digest;

/// How many bytes of a constant are hashed together: enough for blake3 to be fast, whatever the size of the whole.
const HASHED_AT_ONCE: usize = 64 * 1024;

/// The float leaves of a built model, as Burn visits them, as if all were trained: what a file of them holds.
pub fn of_module<M: Module>(module: &M) -> Schema {
    Schema::new(visit(module, |_| LeafKind::Trained))
}

/// How the kind of a leaf is found whose value is not drawn yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LazyLeaf {
    /// It is trained: nothing is drawn.
    IsTrained,
    /// It is drawn, and then says it.
    IsDrawn,
}

/// The float leaves of a module on a device with autodiff, as Burn visits them, by what becomes of them.
///
/// # Errors
/// The first leaf that lies on a device without autodiff, as a sentence: whether it is trained can't be told.
pub(crate) fn leaves<M: Module>(module: M, lazy: LazyLeaf) -> Result<Vec<Entry>, String> {
    let apart = std::cell::Cell::new(None);
    let is_known = |is_initialized| is_initialized || lazy == LazyLeaf::IsDrawn;
    let at = std::cell::Cell::new(0);
    let mut leaves = visit(&module, |leaf| {
        if !leaf.is_on_autodiff && apart.get().is_none() {
            apart.set(Some(at.get()));
        }
        at.set(at.get() + 1);
        match is_known(leaf.is_initialized) && !(leaf.requires_grad)() {
            true => LeafKind::Frozen,
            false => LeafKind::Trained,
        }
    });
    if let Some(leaf) = apart.get().and_then(|at| leaves.get(at)) {
        return Err(format!(
            "its leaf `{}` is not on the device that `module` was given; build all of it there",
            leaf.path
        ));
    }
    // What keeps requiring no gradients, whoever asks it to, is what Burn keeps running.
    let thawed = visit(&module.map(&mut Thaw), |leaf| match leaf.is_initialized && !(leaf.requires_grad)() {
        true => LeafKind::Running,
        false => LeafKind::Trained,
    });
    for (leaf, _) in leaves.iter_mut().zip(thawed).filter(|(_, thawed)| thawed.kind == LeafKind::Running) {
        leaf.kind = LeafKind::Running;
    }
    Ok(leaves)
}

/// What a module has of whole numbers and truths, as Burn visits them: they are what the program says, on all members alike.
pub(crate) fn constants<M: Module>(module: &M) -> Vec<ConstantSpec> {
    let mut constants = Constants { path: Vec::new(), found: Vec::new() };
    module.visit(&mut constants);
    constants.found
}

/// Checks that all float leaves of a module hold numbers.
///
/// # Errors
/// The first that is quantised, and what to do, as a sentence: numbers that are rounded to a few levels can't be trained.
pub(crate) fn check_numbers<M: Module>(module: &M) -> Result<(), String> {
    let mut numbers = Numbers { path: Vec::new(), quantised: None };
    module.visit(&mut numbers);
    numbers.quantised.map_or(Ok(()), |path| {
        Err(format!(
            "its leaf `{path}` is quantised; dequantise it where `module` builds it (`param.map(|tensor| tensor.dequantize())`), and quantise what was \
             trained"
        ))
    })
}

/// What is known of a leaf that is visited.
struct Leaf<'a> {
    is_initialized: bool,
    is_on_autodiff: bool,
    /// Draws its value.
    requires_grad: &'a dyn Fn() -> bool,
}

fn visit<M: Module>(module: &M, kind: impl Fn(Leaf<'_>) -> LeafKind) -> Vec<Entry> {
    let mut collect = Collect { path: Vec::new(), kind, entries: Vec::new() };
    module.visit(&mut collect);
    collect.entries
}

struct Collect<K> {
    path: Vec<String>,
    kind: K,
    entries: Vec<Entry>,
}

impl<K: Fn(Leaf<'_>) -> LeafKind> ModuleVisitor for Collect<K> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let leaf = Leaf {
            is_initialized: param.is_initialized(),
            is_on_autodiff: param.lazy_device().is_autodiff(),
            requires_grad: &|| param.val().is_require_grad(),
        };
        let kind = (self.kind)(leaf);
        self.entries.push(Entry { kind, ..Entry::trained(&self.path.join("."), &param.lazy_shape().to_vec()) });
    }
}

struct Constants {
    path: Vec<String>,
    found: Vec<ConstantSpec>,
}

impl Constants {
    fn add<const N: usize>(&mut self, kind: ConstantKind, shape: &[usize], values: impl Iterator<Item = [u8; N]>) {
        let (mut hasher, mut bytes) = (blake3::Hasher::new(), Vec::with_capacity(HASHED_AT_ONCE));
        for value in values {
            bytes.extend(value);
            if bytes.len() >= HASHED_AT_ONCE {
                hasher.update(&bytes);
                bytes.clear();
            }
        }
        let values = Digest(*hasher.update(&bytes).finalize().as_bytes());
        // No tensor has a dimension beyond that.
        let shape = shape.iter().map(|size| u32::try_from(*size).unwrap_or(u32::MAX)).collect();
        self.found.push(ConstantSpec { path: self.path.join("."), shape, kind, values });
    }
}

impl ModuleVisitor for Constants {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        // Devices hold them in unlike widths.
        let data = param.val().into_data();
        self.add(ConstantKind::Int, data.shape().as_slice(), data.iter::<i64>().map(i64::to_le_bytes));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        let data = param.val().into_data();
        self.add(ConstantKind::Bool, data.shape().as_slice(), data.iter::<bool>().map(|value| [value.into()]));
    }
}

struct Numbers {
    path: Vec<String>,
    /// The first that is.
    quantised: Option<String>,
}

impl ModuleVisitor for Numbers {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // What is not drawn yet is drawn as numbers.
        if self.quantised.is_none() && param.is_initialized() && matches!(param.val().dtype(), DType::QFloat(_)) {
            self.quantised = Some(self.path.join("."));
        }
    }
}

struct Thaw;

impl ModuleMapper for Thaw {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.set_require_grad(true)
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
