//! What a manifest may say of the constants of a model's module. It may come from another machine and end on a terminal, so what can't be is not
//! repeated in words.

use serde::{Deserialize, Serialize};
use starling_topology::Digest;

use crate::manifest::schema::Schema;
use crate::manifest::spec::leaf::{MAX_DIMENSIONS, MAX_PATH};

/// What the constants that are listed may take in a manifest, in bytes: those behind are known by its fingerprint of all alone.
const MAX_CONSTANT_BYTES: usize = 12 * 1024;
/// What each of them takes at least.
const LEAST_BYTES: usize = 40;
/// The most that are listed.
pub(crate) const MAX_CONSTANTS: usize = MAX_CONSTANT_BYTES / LEAST_BYTES;

/// What a constant consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstantKind {
    /// Whole numbers.
    Int,
    /// Truths.
    Bool,
}

/// A leaf of a model's module that is no number to train: all members have it alike, and nobody sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantSpec {
    /// Its path in the module.
    pub path: String,
    /// Its shape.
    pub shape: Vec<u32>,
    /// What it consists of.
    pub kind: ConstantKind,
    /// blake3 of its values, in order: whole numbers as `i64`, little-endian, truths as bytes of 0 and 1.
    pub values: Digest,
}

impl ConstantSpec {
    /// Those of a schema, in order, as far as they have a place in a manifest.
    pub fn list(schema: &Schema) -> Vec<Self> {
        let mut bytes = 0;
        let mut has_place = |constant: &&Self| {
            bytes += constant.bytes();
            constant.is_sane() && bytes <= MAX_CONSTANT_BYTES
        };
        schema.constants().iter().take_while(|constant| has_place(constant)).cloned().collect()
    }

    /// At most as many as it takes in a manifest.
    fn bytes(&self) -> usize {
        LEAST_BYTES + self.path.len() + 5 * self.shape.len()
    }

    /// Whether its path is one that a module can have, and a terminal can show.
    fn is_sane(&self) -> bool {
        (1..=MAX_PATH).contains(&self.path.len())
            && self.path.bytes().all(|byte| byte.is_ascii_graphic())
            && self.shape.len() <= MAX_DIMENSIONS
    }
}

/// Checks what is said of constants.
///
/// # Errors
/// What is wrong, as a sentence.
pub(crate) fn check_constants(constants: &[ConstantSpec]) -> Result<(), String> {
    let bytes: usize = constants.iter().map(ConstantSpec::bytes).sum();
    if bytes > MAX_CONSTANT_BYTES || !constants.iter().all(ConstantSpec::is_sane) {
        return Err(format!(
            "constants have paths of 1 to {MAX_PATH} printable ASCII letters without blanks, at most {MAX_DIMENSIONS} dimensions, and \
             {MAX_CONSTANT_BYTES} bytes in all, and these have not"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(path: &str, values: u8) -> ConstantSpec {
        let (path, values) = (path.to_owned(), Digest([values; 32]));
        ConstantSpec { path, shape: vec![3], kind: ConstantKind::Int, values }
    }

    #[test]
    fn constants_that_cannot_be_are_refused_and_not_repeated() {
        assert_eq!(check_constants(&[constant("mask", 1), constant("layers.0.bias", 2)]), Ok(()));
        let deep = ConstantSpec { shape: vec![1; 9], ..constant("mask", 1) };
        let many = vec![constant(&"a".repeat(200), 1); 100];
        for bad in [&[constant("", 1)][..], &[constant("a b", 1)], &[constant("a\u{1b}[2J", 1)], &[deep], &many] {
            let error = check_constants(bad).expect_err("refused");
            assert!(error.contains("and these have not") && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn of_many_the_first_are_listed_and_all_are_in_the_fingerprint() {
        let all: Vec<ConstantSpec> = (0..1_000).map(|at| constant(&format!("tables.{at}"), 1)).collect();
        let schema = Schema::new(Vec::new()).with_constants(all.clone());
        let listed = ConstantSpec::list(&schema);
        assert!(
            (100..999).contains(&listed.len()) && listed[..] == all[..listed.len()] && check_constants(&listed).is_ok()
        );
        let mut others = all;
        others[999].values = Digest([2; 32]);
        let others = Schema::new(Vec::new()).with_constants(others);
        assert_eq!(ConstantSpec::list(&others), listed);
        assert_ne!(others.fingerprint(), schema.fingerprint());
    }
}
