//! The order, names and shapes of a model's parameters.

use starling_topology::Digest;

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
    /// The schema of these parameters.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self { entries }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_index_is_named_by_its_parameter() {
        let entry =
            |(path, shape): (&str, &[usize])| Entry { path: path.to_owned(), shape: shape.to_vec(), dtype: "f32" };
        let entries: [(&str, &[usize]); 2] = [("output.weight", &[3, 2]), ("output.bias", &[2])];
        let schema = Schema::new(entries.map(entry).to_vec());
        let names: Vec<&str> = (0..schema.parameters() + 3).map(|at| schema.path_at(at)).collect();
        assert_eq!(names[..6], ["output.weight"; 6]);
        assert_eq!(names[6..8], ["output.bias"; 2]);
        assert_eq!(names[8..], ["loss", "speed", "speed"]);
    }
}
