//! Figures in JSON. What is measured may come to no number, or beyond all, which JSON has no word for: it is written as `null`, and read as no
//! number, wherever it stands.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Reads a figure.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Reads figures by name.
pub(crate) fn read_all<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let all = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    Ok(all.into_iter().map(|(name, figure)| (name, figure.unwrap_or(f64::NAN))).collect())
}
