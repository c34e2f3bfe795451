//! How good predictions are, measured as they are written: of the samples that the run held out, where it is the run's data, and of all.

use starling_data::stream::{Block, FingerprintTracker, RowRecord, SplitSpec};
use starling_run::EvaluationReport;

use super::targets::Targets;
use super::{DataOrigin, EvaluationSet, Model, ModelError};
use crate::task::evaluation::Sums;

/// What is measured of a model on samples that come one after another.
pub(super) struct Scores<'m> {
    model: &'m Model,
    all: Sums,
    measured: u64,
    held_out: Option<HeldOut>,
    /// How many samples have come.
    seen: u64,
}

/// The samples that the run held out, if this is its data, which shows at the end alone.
struct HeldOut {
    fingerprint: String,
    found: FingerprintTracker,
    rows: HeldOutRows,
    /// How many have come.
    seen: u64,
    sums: Sums,
    measured: u64,
}

/// Which samples a run held out, as they come.
pub(super) enum HeldOutRows {
    /// These numbers, the next one last.
    Listed(Vec<u32>),
    /// Those of which a column says it.
    Split(SplitSpec),
}

impl HeldOutRows {
    /// Those of the run's data; `None` if that is not known.
    pub(super) fn of(data: &DataOrigin) -> Option<Self> {
        match (data.rows.split_by, &data.held_out) {
            (Some(split), _) => Some(Self::Split(split)),
            (None, Some(rows)) => Some(Self::Listed(rows.iter().rev().copied().collect())),
            (None, None) => None,
        }
    }

    /// Whether the sample of this number is one, of which this is noted; `None` if its row had to say it, and does not.
    pub(super) fn take(&mut self, number: u64, note: Option<&RowRecord>) -> Option<bool> {
        match self {
            Self::Listed(rows) => Some(rows.pop_if(|row| u64::from(*row) == number).is_some()),
            Self::Split(split) => note?.is_held_out(split),
        }
    }

    /// How many are listed and have not come, and the next of them.
    pub(super) fn left(&self) -> Option<(usize, u32)> {
        match self {
            Self::Listed(rows) => rows.last().map(|row| (rows.len(), *row)),
            Self::Split(_) => None,
        }
    }
}

impl<'m> Scores<'m> {
    /// Of none yet.
    ///
    /// # Errors
    /// If the model doesn't say how its data is scaled.
    pub(super) fn of(model: &'m Model) -> Result<Self, ModelError> {
        let (inputs, description) = (model.inputs()?, model.description());
        let held_out = || {
            let (on, origin) = (description.trained_on.as_ref()?, &description.origin);
            let rows = HeldOutRows::of(on)?;
            let found = FingerprintTracker::new(&inputs, &on.preprocessing.classes, origin.samples?);
            Some(HeldOut {
                fingerprint: origin.fingerprint.clone()?,
                found,
                rows,
                seen: 0,
                sums: Sums::default(),
                measured: 0,
            })
        };
        Ok(Self { model, all: Sums::default(), measured: 0, held_out: held_out(), seen: 0 })
    }

    /// Takes the next samples, for which the model puts this out. Those whose labels it can't have are not measured.
    pub(super) fn add(&mut self, block: &Block, outputs: &[f32]) {
        let width = (outputs.len() / block.len().max(1)).max(1);
        let (mut all, mut held_out) = (Measured::new(self.model), Measured::new(self.model));
        for ((place, label), outputs) in block.labels.iter().enumerate().zip(outputs.chunks_exact(width)) {
            let at = self.seen;
            self.seen += 1;
            all.add(label, outputs);
            if let Some(of_run) = &mut self.held_out
                && of_run.rows.take(at, block.notes.get(place)) == Some(true)
            {
                of_run.seen += 1;
                held_out.add(label, outputs);
            }
        }
        self.measured += all.add_to(&mut self.all);
        if let Some(of_run) = &mut self.held_out {
            of_run.found.add(block);
            of_run.measured += held_out.add_to(&mut of_run.sums);
        }
    }

    /// On which samples it was measured, and what that came to; `None` if on none.
    pub(super) fn finish(self) -> Option<(EvaluationSet, EvaluationReport)> {
        if let Some(HeldOut { fingerprint, found, rows, seen, sums, measured }) = self.held_out
            && rows.left().is_none()
            && seen > 0
            && found.finish().is_some_and(|found| found.to_string() == fingerprint)
        {
            return Some((EvaluationSet::HeldOut, sums.mean(measured as f64)));
        }
        (self.measured > 0).then(|| (EvaluationSet::All, self.all.mean(self.measured as f64)))
    }
}

/// Some samples, with what the model puts out for them.
struct Measured {
    targets: Targets,
    outputs: Vec<f32>,
}

impl Measured {
    fn new(model: &Model) -> Self {
        Self { targets: Targets::new(model), outputs: Vec::new() }
    }

    fn add(&mut self, label: &str, outputs: &[f32]) {
        if self.targets.push(label).is_ok() {
            self.outputs.extend_from_slice(outputs);
        }
    }

    /// Adds what they come to, and says how many they are.
    fn add_to(&self, sums: &mut Sums) -> u64 {
        if self.targets.len() > 0 {
            sums.add(self.targets.measure(&self.outputs));
        }
        self.targets.len() as u64
    }
}
