//! A trained model that computes: predictions for rows, and measures on rows whose labels are known.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use burn::tensor::{Device, ExecutionError, Tensor, TensorData};
use starling_data::Tokenizer;
use starling_data::stream::{Block, InputSpec, Reader, RowRecord};
use starling_run::data::{LabelScale, shorten};
use starling_run::{EvaluationReport, FeatureScale, PreprocessingSpec};

use super::predictions::{self, PredictionOptions};
use super::scores::{HeldOutRows, Scores};
use super::targets::Targets;
use super::{Description, Export, ModelError, read};
use crate::device::DeviceSpec;
use crate::network::forward::{AnyModule, OutputKind};
use crate::network::transformer::TransformerNetwork;
use crate::task::confusion::{ClassSummary, ConfusionTable, DetailReport, NumberSummary};
use crate::task::evaluation::{self, Sums};
use crate::task::language;

/// Blocks that were read and wait to be computed: what reads and what computes need not take turns.
const AHEAD: usize = 2;
/// The most numbers of a block, whatever a sample has: with one that is read and one that is computed, 128 MiB of them.
const MAX_BLOCK_VALUES: usize = (1 << 24) / (AHEAD + 2);

/// A trained model of the command line on a device.
pub struct Model {
    description: Description,
    path: PathBuf,
    computes: Box<dyn AnyModule>,
    learns: OutputKind,
    /// Of a text that is not taken as bytes.
    tokenizer: Option<Tokenizer>,
    device: Device,
    device_name: String,
}

/// What a model says of one sample.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Prediction {
    /// Which class it is of.
    Class {
        /// Its place among the model's classes.
        class: usize,
        /// How probable each class is, in their order: the softmax of the outputs, computed in f64.
        probabilities: Vec<f64>,
    },
    /// A number.
    Number(f32),
    /// A number for each of several columns of labels, in their order.
    Numbers(Vec<f32>),
    /// Which of several labels it has.
    Labels {
        /// Whether it has each, in their order.
        marks: Vec<bool>,
        /// How probable each is: the logistic function of the outputs, computed in f64.
        probabilities: Vec<f64>,
    },
}

/// What was predicted.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PredictionReport {
    /// Of how many samples.
    pub samples: u64,
    /// How good that is, of a table with labels: on which samples, and by what a run measures. Of the samples that the run held out, if the
    /// table is the run's data, by its fingerprint; else of all whose labels the model can have.
    pub measured: Option<(EvaluationSet, EvaluationReport)>,
}

/// On which samples a model is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluationSet {
    /// All that there are.
    All,
    /// Those that its run kept from training, of the data that it was trained on.
    HeldOut,
}

impl Model {
    /// Opens an exported file or folder.
    ///
    /// # Errors
    /// If it can't be read, is none, is damaged, is of a model that this program lacks, or the device can't be opened.
    pub fn open(path: &Path, device: DeviceSpec) -> Result<Self, ModelError> {
        Self::new(read::open(path)?, path, device)
    }

    /// Opens what is to be exported, as if it had been. `path` is for messages.
    ///
    /// # Errors
    /// As [`Self::open`], and if the parts of `export` are not of one run.
    pub fn of(export: &Export<'_>, path: &Path, device: DeviceSpec) -> Result<Self, crate::error::Error> {
        let held = read::decode(&export.encode(path)?, path)?;
        let mut model = Self::new(held, path, device)?;
        model.description.origin = export.origin();
        Ok(model)
    }

    fn new(mut held: read::Held, path: &Path, device: DeviceSpec) -> Result<Self, ModelError> {
        if held.description.is_of_program {
            let task = held.description.model.to_string();
            return Err(ModelError::OtherTask { path: path.to_owned(), task });
        }
        let (model, computes) = held.module(path)?;
        let learns = model.learns().of_labels(held.description.labels);
        let none = |reason| ModelError::NotAModel { path: path.to_owned(), reason };
        let description = &held.description;
        let tokenizer = description.tokenizer().map(Tokenizer::open).transpose().map_err(none)?;
        if tokenizer.as_ref().is_some_and(|tokenizer| tokenizer.tokens() != description.classes) {
            return Err(none(format!("its tokenizer has not the {} tokens that it has", description.classes)));
        }
        let open = device.open()?;
        Ok(Self {
            tokenizer,
            computes: computes.load(&held.values, &open.device),
            learns,
            description: held.description,
            path: path.to_owned(),
            device: open.device,
            device_name: open.name,
        })
    }

    /// What is known of it.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What it is called, and its sizes.
    pub fn name(&self) -> String {
        self.description.model.to_string()
    }

    /// What its classes are called, in the order of its outputs; `None` if it predicts numbers.
    pub fn classes(&self) -> Option<&[String]> {
        let trained_on = self.description.trained_on.as_ref()?;
        (self.learns == OutputKind::Classes).then_some(&trained_on.preprocessing.classes)
    }

    /// What its labels are called, in the order of its outputs, if it takes each of several for itself.
    pub fn labels(&self) -> Option<Vec<String>> {
        (self.description.labels > 1).then(|| self.description.label_names())
    }

    /// What it learns.
    pub(super) fn learns(&self) -> OutputKind {
        self.learns
    }

    /// How its labels were scaled, of each column; of classes, they were not.
    pub(super) fn label_scales(&self) -> Vec<LabelScale> {
        let labels = self.description.trained_on.as_ref().map(|on| on.preprocessing.labels.clone());
        let labels = labels.filter(|labels| !labels.is_empty());
        labels.unwrap_or_else(|| vec![LabelScale { mean: 0.0, deviation: 1.0 }])
    }

    /// What it takes, for a [`Reader`].
    ///
    /// # Errors
    /// If its file doesn't say how data is scaled.
    pub fn inputs(&self) -> Result<InputSpec, ModelError> {
        self.description.inputs().ok_or_else(|| ModelError::NoScales { path: self.path.clone() })
    }

    /// How many samples are computed at once: as in the evaluations of a run, unless they have a great many features.
    pub fn at_once(&self) -> usize {
        let features = self.description.features().max(1);
        let most = match self.computes.text() {
            Some(transformer) => transformer.measured_at_once() as usize,
            None => (MAX_BLOCK_VALUES / features).max(1),
        };
        most.min(evaluation::AT_ONCE as usize)
    }

    /// What it says of samples that are given one after another, as they are written in the data: they are scaled here.
    ///
    /// # Errors
    /// If its file doesn't say how, it has learned a text, the device fails, or what comes out is not finite.
    ///
    /// # Panics
    /// If `values` are no whole samples.
    pub fn predict(&self, values: &[f64]) -> Result<Vec<Prediction>, ModelError> {
        self.check_labels()?;
        let outputs = self.outputs(values)?;
        self.said(&outputs, values.len() / self.description.features())
    }

    /// What the outputs for so many samples say.
    fn said(&self, outputs: &[f32], samples: usize) -> Result<Vec<Prediction>, ModelError> {
        let width = outputs.len() / samples.max(1);
        let scales = self.label_scales();
        let number = |(output, scale): (&f32, &LabelScale)| scale.unscaled(f64::from(*output)) as f32;
        let said = outputs.chunks_exact(width.max(1)).zip(1..).map(|(outputs, row)| {
            if outputs.iter().any(|output| !output.is_finite()) {
                return Err(ModelError::NotFinite { path: self.path.clone(), row });
            }
            Ok(match self.learns {
                OutputKind::Classes => Prediction::Class {
                    class: evaluation::largest(outputs),
                    probabilities: evaluation::probabilities(outputs),
                },
                OutputKind::Labels => Prediction::Labels {
                    marks: outputs.iter().map(|output| evaluation::is_marked(*output)).collect(),
                    probabilities: outputs.iter().map(|output| evaluation::logistic(*output)).collect(),
                },
                OutputKind::Numbers if scales.len() > 1 => {
                    Prediction::Numbers(outputs.iter().zip(&scales).map(number).collect())
                }
                OutputKind::Numbers | OutputKind::Text => Prediction::Number(number((&outputs[0], &scales[0]))),
            })
        });
        said.collect()
    }

    /// Writes what it says of all samples that `reader` has, block by block, and returns how many they were, and how good it is where they
    /// have labels. A block is read while the one before it is computed and written by a thread of its own; no more than two wait in between.
    ///
    /// # Errors
    /// If a sample is not what it should be, what comes out is not finite, or it can't be written: the first of these by the order of blocks.
    pub fn predict_all(
        &self,
        reader: &mut Reader,
        shown: &PredictionOptions,
        out: &mut (dyn Write + Send),
    ) -> Result<PredictionReport, ModelError> {
        self.check_labels()?;
        let table = predictions::Table::begin(self, reader.are_files(), shown, out)?;
        let path = reader.path().to_owned();
        let mut scores = reader.has_labels().then(|| Scores::of(self)).transpose()?;
        let mut write = |block: &Block, out: &mut (dyn Write + Send)| -> Result<u64, ModelError> {
            let outputs = self.outputs(&block.values)?;
            let said = self.said(&outputs, block.len()).map_err(|error| match error {
                ModelError::NotFinite { row, .. } => {
                    ModelError::NotFinite { path: path.clone(), row: block.rows[row as usize - 1] }
                }
                other => other,
            })?;
            let files = block.files.iter().map(|file| Some(&**file)).chain(std::iter::repeat(None));
            let mut said = said.iter().zip(files);
            said.try_for_each(|(prediction, file)| table.write(prediction, file, out)).map_err(ModelError::Output)?;
            // Who reads it from a pipe waits for no more than a block.
            out.flush().map_err(ModelError::Output)?;
            scores.iter_mut().for_each(|scores| scores.add(block, &outputs));
            Ok(block.len() as u64)
        };
        let (blocks, waiting) = mpsc::sync_channel::<Block>(AHEAD);
        thread::scope(|scope| {
            let written = scope.spawn(|| -> Result<u64, ModelError> {
                waiting.into_iter().try_fold(0, |samples, block| Ok(samples + write(&block, out)?))
            });
            let mut read = || {
                while let Some(block) = reader.next_block(self.at_once())? {
                    if blocks.send(block).is_err() {
                        // Nobody takes it any more: what is wrong is told below.
                        break;
                    }
                }
                Ok::<(), ModelError>(())
            };
            let read = read();
            drop(blocks);
            let samples = written.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            read?;
            Ok(samples)
        })
        .map(|samples| PredictionReport { samples, measured: scores.and_then(Scores::finish) })
    }

    /// How good it is on the samples that `reader` has, as a run measures it: with the same batches of the held-out samples of
    /// its own data, it measures the same to the bit on the same device.
    ///
    /// # Errors
    /// If there are no labels, one is none that the model knows, what comes out for a sample is not finite, or the samples that were held
    /// out are not known or not there.
    pub fn evaluate(&self, reader: &mut Reader, which: EvaluationSet) -> Result<EvaluationReport, ModelError> {
        Ok(self.evaluate_in_detail(reader, which)?.0)
    }

    /// The same; and how good it is at each [class](Self::classes), or at each of several [labels](Self::labels). `None` of a text, and of one number.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn evaluate_in_detail(
        &self,
        reader: &mut Reader,
        which: EvaluationSet,
    ) -> Result<(EvaluationReport, Option<DetailReport>), ModelError> {
        if let Some(transformer) = self.computes.text() {
            return Ok((self.evaluate_text(transformer, reader, which)?, None));
        }
        let inputs = self.inputs()?;
        if !reader.has_labels() {
            let listed = |names: Vec<String>| names.join(" and ");
            let column = match (&*inputs.label_name, &*inputs.label) {
                ([], []) => "a column behind its features".to_owned(),
                ([], labels) => listed(labels.iter().map(|label| format!("a column {label}")).collect()),
                (names, _) => listed(names.iter().map(|name| format!("a column `{}`", shorten(name))).collect()),
            };
            let reason = format!("it would need {column} with what each row is");
            return Err(ModelError::NoLabels { path: reader.path().to_owned(), reason });
        }
        let mut wanted = Wanted::of(&self.description, which, reader)?;
        let (mut sums, mut samples) = (Sums::default(), 0_u64);
        let labels = self.description.labels as usize;
        let mut detail = match (self.learns, self.classes()) {
            (_, Some(classes)) => Some(DetailReport::Classes(ConfusionTable::new(classes.len()))),
            (OutputKind::Labels, _) => Some(DetailReport::Labels(vec![ClassSummary::default(); labels])),
            _ if labels > 1 => Some(DetailReport::Numbers(vec![NumberSummary::default(); labels])),
            _ => None,
        };
        let (mut values, mut targets) = (Vec::new(), Targets::new(self));
        let features = self.description.features();
        let at_once = self.at_once();
        let (path, mut rows) = (reader.path().to_owned(), Vec::new());
        let mut measure = |values: &mut Vec<f64>, targets: &mut Targets, rows: &mut Vec<u64>| {
            let outputs = self.outputs(values)?;
            let width = (outputs.len() / rows.len().max(1)).max(1);
            // Of what is no number there is no mean.
            let is_finite = |outputs: &[f32]| outputs.iter().all(|output| output.is_finite());
            let bad = outputs.chunks_exact(width).zip(&*rows).find(|(outputs, _)| !is_finite(outputs));
            if let Some((_, row)) = bad {
                return Err(ModelError::NotFinite { path: path.clone(), row: *row });
            }
            sums.add(targets.measure(&outputs));
            detail.iter_mut().for_each(|detail| targets.count(&outputs, detail));
            values.clear();
            targets.clear();
            rows.clear();
            Ok::<(), ModelError>(())
        };
        while let Some(block) = reader.next_block(at_once)? {
            for (at, label) in block.labels.iter().enumerate() {
                if !wanted.has_next(&block, at).map_err(|reason| wanted_not(reader, reason))? {
                    continue;
                }
                let fault = |reason| {
                    let (path, row, label) = (reader.path().to_owned(), block.rows[at], shorten(label));
                    ModelError::Label { path, row, label, reason }
                };
                targets.push(label).map_err(fault)?;
                values.extend_from_slice(&block.values[at * features..(at + 1) * features]);
                rows.push(block.rows[at]);
                samples += 1;
                if targets.len() == at_once {
                    measure(&mut values, &mut targets, &mut rows)?;
                }
            }
        }
        wanted.check_end(reader)?;
        if samples == 0 {
            return Err(match (which, wanted.seen) {
                (EvaluationSet::HeldOut, seen) if seen > 0 => {
                    wanted_not(reader, format!("none of its {seen} rows is held out"))
                }
                _ => {
                    let reason = "it has no samples at all".to_owned();
                    ModelError::NoLabels { path: reader.path().to_owned(), reason }
                }
            });
        }
        if targets.len() > 0 {
            measure(&mut values, &mut targets, &mut rows)?;
        }
        Ok((sums.mean(samples as f64), detail))
    }

    /// The same of the windows of a text.
    fn evaluate_text(
        &self,
        transformer: &TransformerNetwork,
        reader: &mut Reader,
        which: EvaluationSet,
    ) -> Result<EvaluationReport, ModelError> {
        let mut wanted = Wanted::of(&self.description, which, reader)?;
        let (mut sums, mut samples, mut windows) = (Sums::default(), 0_u64, Vec::new());
        let (window, at_once) = (self.description.features() + 1, self.at_once());
        let mut measure = |windows: &mut Vec<u32>| {
            let measured = language::measure(transformer, windows, self.tokenizer.as_ref(), &self.device);
            let measured = measured.map_err(|source| self.failed(source))?;
            if measured.iter().any(|(_, sum)| !sum.is_finite()) {
                return Err(ModelError::NoNumber { model: self.name() });
            }
            sums.add(measured);
            windows.clear();
            Ok::<(), ModelError>(())
        };
        while let Some(block) = reader.next_block(at_once)? {
            for (at, tokens) in block.values.chunks_exact(window).enumerate() {
                if !wanted.has_next(&block, at).map_err(|reason| wanted_not(reader, reason))? {
                    continue;
                }
                windows.extend(tokens.iter().map(|token| *token as u32));
                samples += 1;
                if windows.len() == at_once * window {
                    measure(&mut windows)?;
                }
            }
        }
        wanted.check_end(reader)?;
        if !windows.is_empty() {
            measure(&mut windows)?;
        }
        Ok(sums.mean(samples as f64))
    }

    /// Whether it says something of samples, one by one.
    ///
    /// # Errors
    /// If it has learned a text.
    pub fn check_labels(&self) -> Result<(), ModelError> {
        match self.learns {
            OutputKind::Text => Err(ModelError::LearnsText { model: self.name() }),
            OutputKind::Classes | OutputKind::Numbers | OutputKind::Labels => Ok(()),
        }
    }

    /// The module, and where it computes, if it has learned a text.
    ///
    /// # Errors
    /// If it has learned something else.
    pub(super) fn transformer(&self) -> Result<(&TransformerNetwork, &Device), ModelError> {
        let transformer = self.computes.text().ok_or_else(|| ModelError::LearnsNoText { model: self.name() })?;
        Ok((transformer, &self.device))
    }

    /// What makes tokens of the text that it takes; `None` if it takes bytes, or no text.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    pub(super) fn failed(&self, source: ExecutionError) -> ModelError {
        ModelError::Execution { device: self.device_name.clone(), source }
    }

    /// `[samples, outputs]` of samples before scaling.
    fn outputs(&self, values: &[f64]) -> Result<Vec<f32>, ModelError> {
        let features = self.description.features();
        assert!(values.len().is_multiple_of(features), "each sample needs its features");
        let preprocessing = self.description.trained_on.as_ref().map(|data| &data.preprocessing);
        let Some(PreprocessingSpec { scales, .. }) = preprocessing else {
            return Err(ModelError::NoScales { path: self.path.clone() });
        };
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let rows = scaled(values, features, scales);
        let rows: Tensor<2> =
            Tensor::from_data(TensorData::new(rows, [values.len() / features, features]), &self.device);
        let outputs = self.computes.outputs(rows).try_into_data().map_err(|source| self.failed(source))?;
        Ok(outputs.as_slice::<f32>().expect("invariant: every device computes in f32").to_vec())
    }
}

impl fmt::Debug for Model {
    /// Names and sizes only: the values may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("path", &self.path)
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

fn scaled(values: &[f64], features: usize, scales: &FeatureScale) -> Vec<f32> {
    values.iter().enumerate().map(|(at, value)| scales.scaled(at % features, *value)).collect()
}

/// Which samples are evaluated, as they come.
struct Wanted {
    which: EvaluationSet,
    /// Those that are held out; `None` if the files say it.
    rows: Option<HeldOutRows>,
    /// How many samples have come.
    seen: u64,
    /// How many samples the run's data had, if that is known and tells which were held out: a column says it of any rows.
    samples: Option<u64>,
}

impl Wanted {
    fn of(description: &Description, which: EvaluationSet, reader: &Reader) -> Result<Self, ModelError> {
        let rows = description.trained_on.as_ref().and_then(HeldOutRows::of);
        let is_split = matches!(rows, Some(HeldOutRows::Split(_)));
        let samples = description.origin.samples.filter(|_| which == EvaluationSet::HeldOut && !is_split);
        let reason = match (&rows, which) {
            (_, EvaluationSet::All) => None,
            (Some(HeldOutRows::Listed(rows)), _) if rows.is_empty() => Some("the run held out none".to_owned()),
            (Some(HeldOutRows::Split(split)), _) if !reader.has_sides() => {
                let column = description.inputs().map(|inputs| inputs.column_name(split.column)).unwrap_or_default();
                Some(format!(
                    "it lacks the run's {column}, which said which rows are held out (--split-by); name a table that has it, or a file of these \
                     rows, without --held-out"
                ))
            }
            (None, _) if !reader.holds_out() => Some(
                "the model does not say which they are: they are too many to be listed, or the data held them out itself; name a file of these \
                 rows, without --held-out, or the folder with the files that the run had"
                    .to_owned(),
            ),
            _ => None,
        };
        match reason {
            Some(reason) => Err(wanted_not(reader, reason)),
            None => Ok(Self { which, rows, seen: 0, samples }),
        }
    }

    /// Whether the next sample is one, which is at this place in its block.
    ///
    /// # Errors
    /// If its row has to say it, and does not, as a sentence.
    fn has_next(&mut self, block: &Block, at: usize) -> Result<bool, String> {
        let number = self.seen;
        self.seen += 1;
        let (EvaluationSet::HeldOut, note) = (self.which, block.notes.get(at)) else { return Ok(true) };
        let Some(rows) = &mut self.rows else { return Ok(block.held_out) };
        rows.take(number, note).ok_or_else(|| {
            let why = match note.and_then(RowRecord::says_side) {
                None => "does not say whether it is held out: its cell in the column of --split-by is empty or no text",
                Some(true) => {
                    "says by a word in the column of --split-by whether it is held out, but the sides of the run's rows were drawn; leave --held-out out"
                }
                Some(false) => {
                    "does not say by a word in the column of --split-by whether it is held out, as `train` or `test`, but the run's rows do"
                }
            };
            format!("row {} {why}", block.rows[at])
        })
    }

    /// Whether all have come, of data that is as long as the run's.
    fn check_end(&self, reader: &Reader) -> Result<(), ModelError> {
        let refused = |reason: String| Err(wanted_not(reader, reason));
        let left = self.rows.as_ref().and_then(HeldOutRows::left).filter(|_| self.which == EvaluationSet::HeldOut);
        match (left, self.samples) {
            (Some((count, row)), _) => {
                let seen = self.seen;
                // Which it has exactly if those were in a file of their own.
                let alone = match seen == u64::from(row) || seen == count as u64 {
                    true => {
                        "; if a file of their own had these rows (--held-out-file), name that one, without --held-out"
                    }
                    false => "",
                };
                refused(format!("it has {seen} samples, but sample {row} was held out, from 0{alone}"))
            }
            (None, Some(samples)) if samples != self.seen => {
                refused(format!("it has {} samples, but the run's data had {samples}", self.seen))
            }
            (None, _) => Ok(()),
        }
    }
}

/// Why the samples that were held out can't be had from there.
fn wanted_not(reader: &Reader, reason: String) -> ModelError {
    ModelError::HeldOut { path: reader.path().to_owned(), reason }
}
