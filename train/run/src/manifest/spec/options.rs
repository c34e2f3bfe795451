//! What a model of the command line is set to besides its sizes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::loss::LossKind;

/// The largest share of a layer's numbers that may be dropped.
pub const MAX_DROPOUT: f64 = 0.95;

/// How images are changed each time they are trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AugmentPolicy {
    /// Moved by up to an eighth of their size in each direction; what comes in is 0.
    Crop,
    /// Mirrored, left to right, every other time.
    Flip,
}

impl AugmentPolicy {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Crop, Self::Flip];
}

impl fmt::Display for AugmentPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crop => "crop",
            Self::Flip => "flip",
        })
    }
}

impl FromStr for AugmentPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|known| known.to_string() == text.trim());
        found.ok_or_else(|| format!("`{text}` is no way to change images; write crop, flip or both"))
    }
}

/// How much the samples of each class count in the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassWeightPolicy {
    /// Each sample as much as any other.
    #[default]
    Equal,
    /// Each class as much as any other: a sample to train on of a class that has *n* of all *N*, with *K* classes, counts *N* / (*K* *n*), which
    /// is 1 in the mean.
    Balanced,
}

impl ClassWeightPolicy {
    /// What they are called.
    pub const NAMES: [&str; 2] = ["equal", "balanced"];
}

impl FromStr for ClassWeightPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "equal" => Ok(Self::Equal),
            "balanced" => Ok(Self::Balanced),
            _ => Err(format!("`{text}` are no weights of classes; write equal or balanced")),
        }
    }
}

/// How a model is said to have batch normalizations.
const BATCH_NORM: &str = "batch-norm";
/// How it is said that its convolutions are residual blocks.
const RESIDUAL: &str = "residual";
/// How it is said that its output is tied to its embeddings.
const TIED_OUTPUT: &str = "tied-output";

/// What a model is set to besides its sizes. Nothing, as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelOptions {
    /// What share of the numbers between its layers is dropped (Srivastava et al.: "Dropout", 2014); the others are made as
    /// much larger.
    pub dropout: f64,
    /// Whether its hidden layers and convolutions are followed by batch normalizations.
    pub batch_norm: bool,
    /// Whether its convolutions are residual blocks.
    pub residual: bool,
    /// Whether the weights of its output are its embeddings.
    pub tied_output: bool,
    /// How its images are changed: sorted, and each once.
    pub augment: Vec<AugmentPolicy>,
    /// What it makes small, if that is not the usual one.
    pub loss: Option<LossKind>,
    /// How much its classes count.
    pub class_weights: ClassWeightPolicy,
}

impl ModelOptions {
    /// How images are changed that are changed in these ways.
    pub fn augmented(ways: impl IntoIterator<Item = AugmentPolicy>) -> Vec<AugmentPolicy> {
        let mut ways: Vec<AugmentPolicy> = ways.into_iter().collect();
        ways.sort_unstable();
        ways.dedup();
        ways
    }

    /// Those that `text` says, as in `batch-norm`, `residual`, `tied-output`, `dropout=0.1`, `augment=crop,flip`, `loss=huber` or `class-weights=balanced`.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(super) fn read(&mut self, text: &str) -> Result<(), String> {
        match text.split_once('=').map(|(name, value)| (name.trim(), value)) {
            None if text.trim() == BATCH_NORM => self.batch_norm = true,
            None if text.trim() == RESIDUAL => self.residual = true,
            None if text.trim() == TIED_OUTPUT => self.tied_output = true,
            Some(("dropout", share)) => {
                self.dropout = share.trim().parse().map_err(|_| format!("`{share}` is not a share"))?;
            }
            Some(("augment", ways)) => {
                let ways = ways.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
                self.augment = Self::augmented(ways);
            }
            Some(("loss", loss)) => self.loss = Some(loss.parse()?),
            Some(("class-weights", weights)) => self.class_weights = weights.parse()?,
            _ => {
                return Err(format!(
                    "`{text}` is none of batch-norm, residual, tied-output, dropout=SHARE, augment=WAYS, loss=LOSS and class-weights=WEIGHTS"
                ));
            }
        }
        self.check()
    }

    /// Checks what may be a stranger's.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let Self { dropout, .. } = *self;
        if !(0.0..=MAX_DROPOUT).contains(&dropout) {
            return Err(format!("it drops {dropout} of its numbers, but 0 to {MAX_DROPOUT} are possible"));
        }
        // Readers of JSON differ in the last digits of long numbers.
        if (dropout * 1e6).round() / 1e6 != dropout {
            return Err(format!("it drops {dropout} of its numbers, but six decimals are possible"));
        }
        self.loss.map_or(Ok(()), LossKind::check)
    }
}

impl fmt::Display for ModelOptions {
    /// What comes behind a model's sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.batch_norm {
            write!(f, "+{BATCH_NORM}")?;
        }
        if self.residual {
            write!(f, "+{RESIDUAL}")?;
        }
        if self.tied_output {
            write!(f, "+{TIED_OUTPUT}")?;
        }
        if self.dropout != 0.0 {
            write!(f, "+dropout={}", self.dropout)?;
        }
        for (at, way) in self.augment.iter().enumerate() {
            write!(f, "{}{way}", if at == 0 { "+augment=" } else { "," })?;
        }
        self.loss.iter().try_for_each(|loss| write!(f, "+loss={loss}"))?;
        if self.class_weights == ClassWeightPolicy::Balanced { f.write_str("+class-weights=balanced") } else { Ok(()) }
    }
}
