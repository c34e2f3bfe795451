//! What a manifest may say of the parameters of a model's module. It may come from another machine and end on a terminal, so what
//! can't be is not repeated in words.

use serde::{Deserialize, Serialize};

use crate::manifest::schema::{Entry, LeafKind, Schema};

/// What all leaves of a module may take in a manifest, in bytes: a module that needs more is known by its fingerprint alone.
pub const MAX_LEAF_BYTES: usize = 40 * 1024;
/// The longest path of a leaf, in bytes.
pub(super) const MAX_PATH: usize = 256;
/// The most dimensions of a leaf.
pub(super) const MAX_DIMENSIONS: usize = 8;

/// A parameter of a model's module, as other members are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeafSpec {
    /// Its path in the module.
    pub path: String,
    /// Its shape.
    pub shape: Vec<u32>,
    /// What becomes of it in training.
    pub kind: LeafKind,
}

impl LeafSpec {
    /// Those of a schema; none if they are too many for a manifest.
    pub fn list(schema: &Schema) -> Vec<Self> {
        let leaf = |entry: &Entry| {
            let shape = entry.shape.iter().map(|size| u32::try_from(*size).ok()).collect::<Option<_>>()?;
            Some(Self { path: entry.path.clone(), shape, kind: entry.kind })
        };
        let leaves: Option<Vec<Self>> = schema.entries().iter().map(leaf).collect();
        leaves.filter(|leaves| bytes(leaves) <= MAX_LEAF_BYTES).unwrap_or_default()
    }

    /// The schema with these parameters.
    pub fn schema(leaves: &[Self]) -> Schema {
        let entry = |leaf: &Self| Entry {
            path: leaf.path.clone(),
            shape: leaf.shape.iter().map(|size| *size as usize).collect(),
            dtype: "f32",
            kind: leaf.kind,
        };
        Schema::new(leaves.iter().map(entry).collect())
    }

    /// How many numbers it has; `None` beyond 2^64.
    fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(u64::from(*size)))
    }

    /// Whether its path is one that a module can have, and a terminal can show.
    fn is_sane(&self) -> bool {
        (1..=MAX_PATH).contains(&self.path.len())
            && self.path.bytes().all(|byte| byte.is_ascii_graphic())
            && self.shape.len() <= MAX_DIMENSIONS
    }
}

/// At most as many as they take in a manifest.
fn bytes(leaves: &[LeafSpec]) -> usize {
    leaves.iter().map(|leaf| 5 + leaf.path.len() + 5 * leaf.shape.len()).sum()
}

/// Checks what is said of so many parameters, by their kinds: trained, running, frozen.
///
/// # Errors
/// What is wrong, as a sentence.
pub(crate) fn check_leaves(leaves: &[LeafSpec], numbers: [u64; 3]) -> Result<(), String> {
    if bytes(leaves) > MAX_LEAF_BYTES || !leaves.iter().all(LeafSpec::is_sane) {
        return Err(format!(
            "leaves have paths of 1 to {MAX_PATH} printable ASCII letters without blanks, at most {MAX_DIMENSIONS} dimensions, \
             and {MAX_LEAF_BYTES} bytes in all, and these have not"
        ));
    }
    let mut found = [0_u64; 3];
    let counted = leaves.iter().try_for_each(|leaf| {
        let sum = &mut found[leaf.kind as usize];
        *sum = sum.checked_add(leaf.elements()?)?;
        Some(())
    });
    let is_sorted = leaves.is_sorted_by_key(|leaf| leaf.kind);
    if leaves.is_empty() || (counted.is_some() && is_sorted && found == numbers) {
        return Ok(());
    }
    let [trained, running, frozen] = numbers;
    let also =
        if running + frozen > 0 { format!(", {running} running and {frozen} frozen ones") } else { String::new() };
    Err(format!("its leaves do not have the {trained} parameters{also} that it is said to have"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(path: &str, shape: &[u32]) -> LeafSpec {
        LeafSpec { path: path.to_owned(), shape: shape.to_vec(), kind: LeafKind::Trained }
    }

    #[test]
    fn leaves_that_cannot_be_are_refused_and_not_repeated() {
        let good = [leaf("linear.weight", &[2, 1]), leaf("linear.bias", &[1])];
        assert_eq!(LeafSpec::list(&LeafSpec::schema(&good)), good);
        assert_eq!(check_leaves(&good, [3, 0, 0]), Ok(()));
        let of = |kind, leaf: &LeafSpec| LeafSpec { kind, ..leaf.clone() };
        let kinds = [good[0].clone(), of(LeafKind::Running, &good[1]), of(LeafKind::Frozen, &good[0])];
        assert_eq!(check_leaves(&kinds, [2, 1, 2]), Ok(()));
        for (leaves, numbers) in
            [(&kinds[..], [3, 0, 2]), (&kinds[..2], [2, 1, 2]), (&[kinds[1].clone(), good[0].clone()], [2, 1, 0])]
        {
            let error = check_leaves(leaves, numbers).expect_err("refused");
            assert!(error.contains("running and"), "{error}");
        }
        for (leaves, parameters, reason) in [
            (vec![leaf("a\u{1b}[2J", &[3])], 3, "and these have not"),
            (vec![leaf("", &[3])], 3, "and these have not"),
            (vec![leaf("a b", &[3])], 3, "and these have not"),
            (vec![leaf("a", &[1; 9])], 1, "and these have not"),
            (vec![leaf(&"a".repeat(200), &[1]); 400], 400, "and these have not"),
            (vec![leaf("a", &[3])], 4, "do not have the 4 parameters"),
            (vec![leaf("a", &[u32::MAX; 3])], 4, "do not have the 4 parameters"),
        ] {
            let error = check_leaves(&leaves, [parameters, 0, 0]).expect_err("refused");
            assert!(error.contains(reason) && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn a_module_with_too_many_leaves_is_known_by_its_fingerprint_alone() {
        let leaves: Vec<LeafSpec> =
            (0..2_000).map(|at| leaf(&format!("layers.{at}.attention.query.weight"), &[2])).collect();
        assert_eq!(LeafSpec::list(&LeafSpec::schema(&leaves)), Vec::new());
    }
}
