//! The order, names and shapes of a model's parameters.

use serde::{Deserialize, Serialize};
use starling_topology::Digest;

use crate::manifest::spec::ConstantSpec;

/// What becomes of a leaf of a model's module in training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafKind {
    /// The optimizer changes it: it has a gradient, and moments.
    #[default]
    Trained,
    /// Forward passes of training change it, such as the running mean of a batch normalization: it has no gradient, and what members come to
    /// is averaged.
    Running,
    /// Nothing changes it. It is not in what members send each other in a step.
    Frozen,
}

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
    /// What becomes of it.
    pub kind: LeafKind,
}

impl Entry {
    /// One that is trained.
    pub fn trained(path: &str, shape: &[usize]) -> Self {
        Self { path: path.to_owned(), shape: shape.to_vec(), dtype: "f32", kind: LeafKind::Trained }
    }

    /// How many numbers the parameter has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A model's parameters: those that are trained, then those that [run](LeafKind::Running) along, then those that are frozen; each in the order in
/// which Burn visits them, by field, then by index. The flat vectors of a run's parameters, its gradients and its optimizer's moments have this
/// order. Besides them, what a model has of whole numbers and truths: its constants, which no vector holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    entries: Vec<Entry>,
    constants: Vec<ConstantSpec>,
}

impl Schema {
    /// The schema of these parameters, which come in the order in which Burn visits them.
    pub fn new(mut entries: Vec<Entry>) -> Self {
        // Stable: among those of a kind the order stays.
        entries.sort_by_key(|entry| entry.kind);
        Self { entries, constants: Vec::new() }
    }

    /// The same of a model with these constants, in the order in which Burn visits them.
    #[must_use]
    pub fn with_constants(self, constants: Vec<ConstantSpec>) -> Self {
        Self { constants, ..self }
    }

    /// The constants, in order.
    pub fn constants(&self) -> &[ConstantSpec] {
        &self.constants
    }

    /// The parameters, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many numbers all parameters have together.
    pub fn parameters(&self) -> usize {
        self.entries.iter().map(Entry::elements).sum()
    }

    /// How many numbers the parameters of a kind have together.
    pub fn numbers_of(&self, kind: LeafKind) -> usize {
        self.entries.iter().filter(|entry| entry.kind == kind).map(Entry::elements).sum()
    }

    /// The path of the parameter that the flat index `at` lies in.
    ///
    /// # Panics
    /// If none does.
    pub fn path_at(&self, at: usize) -> &str {
        let mut end = 0;
        let entry = self.entries.iter().find(|entry| {
            end += entry.elements();
            at < end
        });
        &entry.expect("invariant: only places of parameters are looked up").path
    }

    /// blake3 of the list of (path, shape, dtype) and, where it is not trained, the kind; and of what is known of the constants, if there are any: two models with
    /// equal fingerprints have the same flat vector, and are the same in all that is not in it.
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
            if entry.kind != LeafKind::Trained {
                hasher.update(&[entry.kind as u8]);
            }
        }
        for constant in &self.constants {
            hasher.update(&[u8::MAX, constant.kind as u8]);
            hasher.update(&(constant.path.len() as u64).to_le_bytes()).update(constant.path.as_bytes());
            hasher.update(&(constant.shape.len() as u64).to_le_bytes());
            for dimension in &constant.shape {
                hasher.update(&dimension.to_le_bytes());
            }
            hasher.update(&constant.values.0);
        }
        Digest(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_index_is_named_by_its_parameter() {
        let schema = Schema::new(vec![Entry::trained("output.weight", &[3, 2]), Entry::trained("output.bias", &[2])]);
        let names: Vec<&str> = (0..schema.parameters()).map(|at| schema.path_at(at)).collect();
        assert_eq!(names[..6], ["output.weight"; 6]);
        assert_eq!(names[6..], ["output.bias"; 2]);
    }

    #[test]
    fn what_is_trained_comes_first_and_what_is_frozen_last() {
        let of = |path: &str, kind| Entry { kind, ..Entry::trained(path, &[2]) };
        let visited = vec![
            of("stem.weight", LeafKind::Frozen),
            of("norm.mean", LeafKind::Running),
            of("norm.gamma", LeafKind::Trained),
            of("output.weight", LeafKind::Trained),
        ];
        let schema = Schema::new(visited.clone());
        let paths: Vec<&str> = schema.entries().iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["norm.gamma", "output.weight", "norm.mean", "stem.weight"]);
        let kinds = [LeafKind::Trained, LeafKind::Running, LeafKind::Frozen];
        assert_eq!(kinds.map(|kind| schema.numbers_of(kind)), [4, 2, 2]);
        assert_eq!(schema.path_at(5), "norm.mean");
        // What becomes of a leaf tells models apart.
        let thawed = visited.into_iter().map(|entry| Entry { kind: LeafKind::Trained, ..entry }).collect();
        assert_ne!(Schema::new(thawed).fingerprint(), schema.fingerprint());
    }
}
