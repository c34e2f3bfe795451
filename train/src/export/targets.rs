//! What samples are, where that is known, beside what a model says of them.

use starling_data::LabelTable;
use starling_run::LossKind;
use starling_run::data::{BETWEEN_LABELS, LabelScale, shorten};

use super::Model;
use crate::network::forward::OutputKind;
use crate::task::confusion::DetailReport;
use crate::task::evaluation;

/// Classes that an error names.
const MAX_NAMED: usize = 8;

/// What samples are of.
pub(super) enum Targets {
    Classes {
        known: LabelTable,
        names: Vec<String>,
        of: Vec<u32>,
    },
    /// One for each column of labels.
    Numbers {
        scales: Vec<LabelScale>,
        loss: LossKind,
        of: Vec<f64>,
    },
    /// Which of so many labels each has.
    Marks {
        labels: usize,
        of: Vec<f64>,
    },
}

impl Targets {
    /// None yet, of samples for this model.
    pub(super) fn new(model: &Model) -> Self {
        let labels = model.description().labels as usize;
        let numbers = || {
            let options = model.description().model.parts().map(|(_, options)| options).unwrap_or_default();
            let loss = options.loss.unwrap_or(LossKind::Squared);
            match model.learns() {
                OutputKind::Labels => Self::Marks { labels, of: Vec::new() },
                _ => Self::Numbers { scales: model.label_scales(), loss, of: Vec::new() },
            }
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
            Self::Numbers { of, scales, .. } => of.len() / scales.len(),
            Self::Marks { of, labels } => of.len() / labels,
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Classes { of, .. } => of.clear(),
            Self::Numbers { of, .. } | Self::Marks { of, .. } => of.clear(),
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
            Self::Numbers { of, scales, .. } => {
                let numbers = numbers(label, scales.len());
                of.extend(numbers.ok_or("no number, which the model predicts")?);
            }
            Self::Marks { of, labels } => {
                let marks = numbers(label, *labels).filter(|marks| marks.iter().all(|mark| [0.0, 1.0].contains(mark)));
                of.extend(marks.ok_or("none of 0 and 1 for each label")?);
            }
        }
        Ok(())
    }

    /// Counts these samples by their labels, and by what a model says of them that puts this out for them.
    pub(super) fn count(&self, outputs: &[f32], detail: &mut DetailReport) {
        match (self, detail) {
            (Self::Classes { of, .. }, DetailReport::Classes(table)) => {
                let width = (outputs.len() / of.len().max(1)).max(1);
                for (class, outputs) in of.iter().zip(outputs.chunks_exact(width)) {
                    table.add(*class as usize, evaluation::largest(outputs));
                }
            }
            (Self::Marks { of, .. }, DetailReport::Labels(labels)) => {
                let count = labels.len();
                for (at, (mark, output)) in of.iter().zip(outputs).enumerate() {
                    labels[at % count].add(*mark > 0.5, evaluation::is_marked(*output));
                }
            }
            (Self::Numbers { of, scales, .. }, DetailReport::Numbers(targets)) => {
                let count = targets.len();
                for (at, ((number, output), scale)) in of.iter().zip(outputs).zip(scales.iter().cycle()).enumerate() {
                    targets[at % count].add(scale.scaled(*number) - f64::from(*output), scale.deviation);
                }
            }
            _ => {}
        }
    }

    /// Sums over these samples, for which a model puts this out, by name.
    pub(super) fn measure(&self, outputs: &[f32]) -> Vec<(&'static str, f64)> {
        let each = evaluation::counts(None, self.len());
        match self {
            Self::Classes { of, .. } => evaluation::classified(outputs, of.iter().copied(), &each),
            Self::Numbers { scales, loss, of } => evaluation::estimated(outputs, of, scales, *loss, &each),
            Self::Marks { labels, of } => evaluation::marked(outputs, of, *labels, &each),
        }
    }
}

/// So many numbers, with [`BETWEEN_LABELS`] between them; `None` if they are others.
fn numbers(label: &str, count: usize) -> Option<Vec<f64>> {
    let number = |text: &str| text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    let numbers: Option<Vec<f64>> = match count {
        1 => Some(vec![number(label)?]),
        _ => label.split(BETWEEN_LABELS).map(number).collect(),
    };
    numbers.filter(|numbers| numbers.len() == count)
}
