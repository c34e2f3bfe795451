//! The initial parameters of a run, drawn once, on the CPU, from the manifest's seed.
//!
//! Burn's own initializers draw lazily, from a seed shared by the whole process, and differently on each backend, so two
//! members would start from different parameters. Here every member draws the same bits.

use std::collections::BTreeMap;

use starling_topology::{Digest, SplitMix64Generator};

use crate::manifest::schema::{Entry, LeafKind, Schema};

/// Draws the initial parameters in the order of the schema: uniform in `[-k, k)` with `k = sqrt(1 / fan_in)`, the default of Burn's
/// linear and convolution layers. A bias has the fan-in of the weight beside it, or, if there is none, of the one before it. The `gamma` and `beta` of a normalization
/// are ones and zeros, and so are its running variance and its running mean.
pub fn draw(schema: &Schema, seed: u64) -> Vec<f32> {
    let mut generator = SplitMix64Generator::for_purpose("starling initial parameters", seed, 0);
    let mut parameters = Vec::with_capacity(schema.parameters());
    let module = |entry: &Entry| entry.path.rsplit_once('.').map_or(String::new(), |(module, _)| module.to_owned());
    let of_module: BTreeMap<String, usize> =
        schema.entries().iter().filter_map(|entry| Some((module(entry), fan_in_of(entry)?))).collect();
    let (mut fan_in, mut seen) = (1, BTreeMap::new());
    for entry in schema.entries() {
        // Wherever the weight is: one of the two may be frozen.
        let beside = || seen.get(&module(entry)).or_else(|| of_module.get(&module(entry))).copied();
        fan_in = fan_in_of(entry).or_else(beside).unwrap_or(fan_in);
        seen.insert(module(entry), fan_in);
        let name = entry.path.rsplit('.').next();
        let constant = match (entry.shape.len(), name) {
            (1, Some("gamma" | "running_var")) => Some(1.0),
            (1, Some("beta" | "running_mean")) => Some(0.0),
            _ => (entry.kind == LeafKind::Running).then_some(0.0),
        };
        if let Some(constant) = constant {
            parameters.extend(std::iter::repeat_n(constant, entry.elements()));
            continue;
        }
        let limit = (1.0 / fan_in as f64).sqrt();
        parameters.extend((0..entry.elements()).map(|_| symmetric(&mut generator, limit)));
    }
    parameters
}

/// How many inputs each output of a weight has; `None` of what has one dimension.
fn fan_in_of(entry: &Entry) -> Option<usize> {
    match entry.shape[..] {
        [inputs, _outputs] => Some(inputs),
        [_outputs, ref inputs @ ..] if inputs.len() > 1 => Some(inputs.iter().product()),
        _ => None,
    }
}

/// A uniform number in `[-limit, limit)`, from 24 random bits.
pub(crate) fn symmetric(generator: &mut SplitMix64Generator, limit: f64) -> f32 {
    // 24 bits are a float's precision; the f64 arithmetic is exact up to the one rounding at the end.
    let unit = (generator.next_u64() >> 40) as f64 / f64::from(1_u32 << 24);
    ((unit * 2.0 - 1.0) * limit) as f32
}

/// blake3 of the parameters as little-endian bytes.
pub fn digest(parameters: &[f32]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = Vec::with_capacity(16 * 1024);
    for block in parameters.chunks(4 * 1024) {
        bytes.clear();
        bytes.extend(block.iter().flat_map(|parameter| parameter.to_le_bytes()));
        hasher.update(&bytes);
    }
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::schema::Entry;

    #[test]
    fn parameters_are_scaled_by_fan_in_and_depend_on_the_seed() {
        // Of `cnn:8,16`.
        let shapes: [&[usize]; 6] = [&[8, 1, 3, 3], &[8], &[16, 8, 3, 3], &[16], &[16, 10], &[10]];
        let entry = |shape: &[usize]| Entry::trained(&format!("{shape:?}"), shape);
        let schema = Schema::new(shapes.map(entry).to_vec());
        let parameters = draw(&schema, 1);
        assert_eq!(parameters.len(), schema.parameters());
        let mut at = 0;
        for (entry, fan_in) in schema.entries().iter().zip([9, 9, 72, 72, 16, 16]) {
            let values = &parameters[at..at + entry.elements()];
            let limit = (1.0 / f64::from(fan_in)).sqrt() as f32;
            let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            assert!(largest <= limit && largest > limit * 0.5, "{}: {largest} for limit {limit}", entry.path);
            at += entry.elements();
        }
        assert_eq!(digest(&parameters), digest(&draw(&schema, 1)));
        assert_ne!(digest(&parameters), digest(&draw(&schema, 2)));
        assert_eq!(digest(&parameters).to_string(), PINNED_DIGEST);
    }

    #[test]
    fn a_normalization_begins_with_ones_and_zeros() {
        let entry = |(path, shape): (&str, &[usize])| Entry::trained(path, shape);
        let leaves: [(&str, &[usize]); 5] = [
            ("a.weight", &[2, 3]),
            ("norm.gamma", &[3]),
            ("norm.beta", &[3]),
            ("b.weight", &[4, 3, 5]),
            ("b.bias", &[4]),
        ];
        let parameters = draw(&Schema::new(leaves.map(entry).to_vec()), 1);
        assert_eq!(parameters[6..12], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
        let limit = (1.0_f32 / 15.0).sqrt();
        assert!(parameters[12..].iter().all(|value| value.abs() <= limit && *value != 0.0));
    }

    #[test]
    fn a_bias_has_the_fan_in_of_its_weight_wherever_that_is() {
        let frozen = Entry { kind: LeafKind::Frozen, ..Entry::trained("a.weight", &[100, 50]) };
        let leaves = [
            frozen,
            Entry::trained("a.bias", &[50]),
            Entry::trained("b.weight", &[4, 50]),
            Entry::trained("b.bias", &[50]),
        ];
        let schema = Schema::new(leaves.to_vec());
        assert_eq!(schema.entries()[0].path, "a.bias");
        let parameters = draw(&schema, 1);
        let largest =
            |range: std::ops::Range<usize>| parameters[range].iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        assert!((0.05..=0.1).contains(&largest(0..50)) && (0.25..=0.5).contains(&largest(250..300)));
    }

    #[test]
    fn symmetric_numbers_fill_their_interval() {
        let mut generator = SplitMix64Generator::new(3);
        let values: Vec<f32> = (0..10_000).map(|_| symmetric(&mut generator, 0.5)).collect();
        assert!(values.iter().all(|value| (-0.5..=0.5).contains(value)));
        assert!(values.iter().any(|value| *value < -0.49) && values.iter().any(|value| *value > 0.49));
        let mean = values.iter().sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.02, "mean {mean}");
    }

    const PINNED_DIGEST: &str = "7e9f8e834eeb99f2a5ac1436fe01f05b9532c81e9acb1dfcf0e243e2afdaebc9";
}
