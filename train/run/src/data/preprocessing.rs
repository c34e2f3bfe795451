//! What was done to a data set's values before training, and what its numbers stand for: who uses a trained model must do
//! the same.

use serde::{Deserialize, Serialize};
use starling_topology::Digest;

use super::DataDescription;
use super::columns::Column;

/// The longest encoded preprocessing that is kept and handed out: some hundred thousand columns.
pub const MAX_PREPROCESSING_BYTES: usize = 8 << 20;

/// What makes tokens of a text, and text of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerSpec {
    /// The bytes of its `tokenizer.json`, as Hugging Face's `tokenizers` reads and writes it.
    pub json: String,
    /// The token behind each document.
    pub end: u32,
}

impl TokenizerSpec {
    /// blake3 of the file.
    pub fn digest(&self) -> Digest {
        Digest(*blake3::hash(self.json.as_bytes()).as_bytes())
    }
}

/// How values become features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeatureScale {
    /// All are divided by one number.
    Divide(f64),
    /// Each less its column's mean, divided by its column's standard deviation, both over the training samples. A deviation
    /// of 0 makes a column 0.
    Standardize {
        /// One for each feature.
        means: Vec<f64>,
        /// One for each feature.
        deviations: Vec<f64>,
    },
    /// A text becomes tokens, which are the features.
    Tokenize(TokenizerSpec),
}

impl FeatureScale {
    /// A value of the feature `column` as a model takes it: computed in f64, then rounded. NaN, which stands for a gap, counts as the
    /// mean.
    ///
    /// # Panics
    /// If there is no such feature.
    pub fn scaled(&self, column: usize, value: f64) -> f32 {
        match self {
            Self::Divide(divisor) => (value / divisor) as f32,
            Self::Tokenize(_) => value as f32,
            Self::Standardize { deviations, .. } if deviations[column] == 0.0 || value.is_nan() => 0.0,
            Self::Standardize { means, deviations } => ((value - means[column]) / deviations[column]) as f32,
        }
    }
}

/// How labels that are numbers become targets, and outputs numbers again: less their mean, divided by their standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LabelScale {
    /// Of a table, over the training samples; else over all that are not held out apart.
    pub mean: f64,
    /// Over the same; 1 if they are all alike.
    pub deviation: f64,
}

impl LabelScale {
    /// The target of a label.
    pub fn scaled(&self, label: f64) -> f64 {
        (label - self.mean) / self.deviation
    }

    /// The number that an output stands for.
    pub fn unscaled(&self, output: f64) -> f64 {
        output * self.deviation + self.mean
    }

    /// Whether both can be computed.
    pub fn is_usable(&self) -> bool {
        self.mean.is_finite() && self.deviation.is_normal() && self.deviation > 0.0
    }
}

/// Everything that a trained model's user must know of the data besides its description.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreprocessingSpec {
    /// How values become features.
    pub scales: FeatureScale,
    /// What each class is called, in the order of the model's outputs. Empty if they are tokens: their tokenizer says it.
    pub classes: Vec<String>,
    /// What each feature is called, in the order of the model's inputs. Empty if they have no names.
    pub features: Vec<String>,
    /// What the label columns are called, if they have names.
    pub label: Vec<String>,
    /// The columns of a table, but for those of labels, in their order. Empty if each is a number without gaps.
    pub columns: Vec<Column>,
    /// How the labels of each column are scaled, if all of them are numbers.
    pub labels: Vec<LabelScale>,
}

impl PreprocessingSpec {
    /// What made tokens of the text, if it is one that was prepared.
    pub fn tokenizer(&self) -> Option<&TokenizerSpec> {
        match &self.scales {
            FeatureScale::Tokenize(tokenizer) => Some(tokenizer),
            FeatureScale::Divide(_) | FeatureScale::Standardize { .. } => None,
        }
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: it has no type that cannot be encoded")
    }

    /// Whether `other` is the same but for what classes, categories, columns and the label are called.
    pub fn differs_in_names_alone(&self, other: &Self) -> bool {
        let codings = |columns: &[Column]| -> Vec<_> {
            let coding = |column: &Column| (std::mem::discriminant(&column.coding), column.coding.width());
            columns.iter().map(coding).collect()
        };
        (&self.scales, &self.labels) == (&other.scales, &other.labels)
            && self.classes.len() == other.classes.len()
            && codings(&self.columns) == codings(&other.columns)
    }

    /// blake3 of the canonical bytes.
    pub fn digest(&self) -> Digest {
        Digest(*blake3::hash(&self.encode()).as_bytes())
    }

    /// Reads the preprocessing of the data that `description` is of.
    ///
    /// # Errors
    /// Why the bytes are not that, as a sentence.
    pub fn decode(bytes: &[u8], description: &DataDescription) -> Result<Self, String> {
        if bytes.len() > MAX_PREPROCESSING_BYTES {
            return Err(format!("it has {} bytes, but at most {MAX_PREPROCESSING_BYTES} are possible", bytes.len()));
        }
        let found = Digest(*blake3::hash(bytes).as_bytes());
        if found != description.preprocessing {
            return Err(format!("its blake3 should be {}, but is {found}", description.preprocessing));
        }
        let preprocessing: Self = postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        let [features, classes] = [description.features, description.classes].map(|count| count as usize);
        let are_scaled = match &preprocessing.scales {
            FeatureScale::Divide(_) => true,
            FeatureScale::Tokenize(tokenizer) => (tokenizer.end as usize) < classes && preprocessing.classes.is_empty(),
            FeatureScale::Standardize { means, deviations } => means.len() == features && deviations.len() == features,
        };
        let are_named = preprocessing.features.is_empty() || preprocessing.features.len() == features;
        let are_coded = preprocessing.columns.is_empty() || are_coded(&preprocessing.columns, features);
        let labels = &preprocessing.labels;
        let are_usable = labels.iter().all(LabelScale::is_usable)
            && (labels.len() == description.label.len().max(1) || (labels.is_empty() && description.label.len() < 2));
        let names = preprocessing.label.len();
        let are_usable = are_usable && (names == 0 || names == description.label.len().max(1));
        let are_told = preprocessing.tokenizer().is_some() || preprocessing.classes.len() == classes;
        if are_scaled && are_named && are_coded && are_usable && are_told {
            return Ok(preprocessing);
        }
        Err("it does not have the features and classes that the run says".to_owned())
    }
}

/// Whether these columns have so many features together.
pub fn are_coded(columns: &[Column], features: usize) -> bool {
    let widths = columns.iter().map(|column| column.coding.width());
    let total = widths.fold(0_usize, usize::saturating_add);
    total == features && columns.iter().all(|column| column.coding.is_canonical())
}

#[cfg(test)]
mod tests {
    use starling_topology::SplitMix64Generator;

    use super::*;
    use crate::data::columns::ColumnKind;
    use crate::data::digits;

    #[test]
    fn only_the_bytes_that_the_run_names_are_read() {
        let classes = (0..10).map(|class: u32| class.to_string()).collect();
        let scales = FeatureScale::Divide(16.0);
        let preprocessing = PreprocessingSpec {
            scales,
            classes,
            features: Vec::new(),
            label: Vec::new(),
            columns: Vec::new(),
            labels: Vec::new(),
        };
        let description = DataDescription { preprocessing: preprocessing.digest(), ..digits() };
        let bytes = preprocessing.encode();
        assert_eq!(PreprocessingSpec::decode(&bytes, &description).as_ref(), Ok(&preprocessing));
        let mut generator = SplitMix64Generator::new(3);
        for _ in 0..200 {
            let mut damaged = bytes.clone();
            let at = generator.below(bytes.len() as u32) as usize;
            damaged[at] ^= 1 << generator.below(8);
            let reason = PreprocessingSpec::decode(&damaged, &description).expect_err("damaged");
            assert!(reason.contains("blake3"), "{reason}");
        }
        // A run may name bytes that do not fit it.
        for (change, part) in [
            (DataDescription { classes: 11, ..description.clone() }, "features and classes"),
            (DataDescription { preprocessing: Digest([1; 32]), ..description.clone() }, "blake3"),
        ] {
            assert!(PreprocessingSpec::decode(&bytes, &change).is_err_and(|reason| reason.contains(part)));
        }
        let other = PreprocessingSpec { features: vec!["a".to_owned()], ..preprocessing.clone() };
        let named = DataDescription { preprocessing: other.digest(), ..description.clone() };
        assert!(PreprocessingSpec::decode(&other.encode(), &named).is_err_and(|reason| reason.contains("features")));
        let columns = vec![Column { name: String::new(), coding: ColumnKind::Number }; 63];
        let other = PreprocessingSpec { columns, ..preprocessing.clone() };
        let named = DataDescription { preprocessing: other.digest(), ..description.clone() };
        assert!(PreprocessingSpec::decode(&other.encode(), &named).is_err_and(|reason| reason.contains("features")));
        let long = vec![0; MAX_PREPROCESSING_BYTES + 1];
        assert!(PreprocessingSpec::decode(&long, &description).is_err_and(|reason| reason.contains("at most")));
    }
}
