//! What samples are, where that is known, beside what a model says of them.

use starling_data::LabelTable;
use starling_run::LossKind;
use starling_run::data::{LabelScale, shorten};

use super::Model;
use crate::task::confusion::ConfusionTable;
use crate::task::evaluation;

/// Classes that an error names.
const MAX_NAMED: usize = 8;

/// What samples are of.
pub(super) enum Targets {
    Classes { known: LabelTable, names: Vec<String>, of: Vec<u32> },
    Numbers { scale: LabelScale, loss: LossKind, of: Vec<f64> },
}

impl Targets {
    /// None yet, of samples for this model.
    pub(super) fn new(model: &Model) -> Self {
        let numbers = || {
            let options = model.description().model.parts().map(|(_, options)| options).unwrap_or_default();
            let loss = options.loss.unwrap_or(LossKind::Squared);
            Self::Numbers { scale: model.label_scale(), loss, of: Vec::new() }
        };
        model.classes().map_or_else(numbers, |names| Self::Classes {
            known: LabelTable::new(names),
            names: names.to_vec(),
            of: Vec::new(),
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Classes { of, .. } => of.len(),
            Self::Numbers { of, .. } => of.len(),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Classes { of, .. } => of.clear(),
            Self::Numbers { of, .. } => of.clear(),
        }
    }

    /// Takes the label of one more sample.
    ///
    /// # Errors
    /// Why it is none, as the end of a sentence.
    pub(super) fn push(&mut self, label: &str) -> Result<(), String> {
        match self {
            Self::Classes { known, names, of } => of.push(known.class(label).ok_or_else(|| {
                let shown: Vec<String> =
                    names.iter().take(MAX_NAMED).map(|name| format!("`{}`", shorten(name))).collect();
                let more = if names.len() > MAX_NAMED { ", ..." } else { "" };
                format!("no class that the model knows: it has {}{more}", shown.join(", "))
            })?),
            Self::Numbers { of, .. } => {
                let number = label.parse().ok().filter(|number: &f64| number.is_finite());
                of.push(number.ok_or("no number, which the model predicts")?);
            }
        }
        Ok(())
    }

    /// Counts these samples by their classes, and by what a model says they are that puts this out for them. Of numbers, nothing is counted.
    pub(super) fn confuse(&self, outputs: &[f32], table: &mut ConfusionTable) {
        let Self::Classes { of, .. } = self else { return };
        let width = (outputs.len() / of.len().max(1)).max(1);
        for (class, outputs) in of.iter().zip(outputs.chunks_exact(width)) {
            table.add(*class as usize, evaluation::largest(outputs));
        }
    }

    /// Sums over these samples, for which a model puts this out, by name.
    pub(super) fn measure(&self, outputs: &[f32]) -> Vec<(&'static str, f64)> {
        match self {
            Self::Classes { of, .. } => evaluation::classified(outputs, of.iter().copied()),
            Self::Numbers { scale, loss, of } => evaluation::estimated(outputs, of.iter().copied(), scale, *loss),
        }
    }
}
