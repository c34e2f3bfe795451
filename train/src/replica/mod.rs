//! A task in training: local gradients out, averaged gradients in.
//!
//! ```text
//!   compute:       my share of the pending step -> device: forward, backward -> gradients, block by block; loss    (local)
//!                  with micro-batches, one after the other: all but the last one are added up, the last one goes by block
//!   contribution:  gradients and loss, weighted by samples, and my speed -> one buffer                             (local)
//!   ...            members sum their buffers and divide by the batch size                                          (not here)
//!   apply:         the result -> optimizer on the flat state -> ledger -> one write to the device        (same bits on all)
//! ```
//!
//! Samples that are in files are loaded beside all this, by threads of their own. While members reduce, of what is reduced the update begins, beside the
//! state.
//!
//! This is the only code that is generic over tasks.

mod batch_reader;
mod beyond;
pub(crate) mod initial;
pub(crate) mod loader;
mod warm_up;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::{Device, ExecutionError, Gradients, Tensor, TensorData};
use starling_run::manifest::freeze;
use starling_run::manifest::schema::Entry;
use starling_run::program::learner::PROBED;
use starling_run::training::held_out::MeasureLimit;
use starling_run::{
    ConstantSpec, ContributionError, DataDescription, DataRecord, EvaluationReport, Gradient, HeldOutReport, LeafKind,
    Learner, Manifest, ManifestError, Precision, PreprocessingSpec, ReplicatedState, ResultRecord, Schema,
    StateReplica, StepReport, TrainingState,
};
use starling_topology::{Digest, Ledger, Lineage, PeerId};

use crate::device::{ComputeSpec, DeviceError};
use crate::error::Error;
use crate::export::Export;
use crate::network::cut::{self, Cut};
use crate::network::flatten::{self, LeafValues};
use crate::network::numbers::{float_type, in_f32};
use crate::network::schema;
use crate::panics::caught;
use crate::replica::batch_reader::{BatchError, BatchReader, drawing};
use crate::replica::loader::{AheadLimit, Loader};
use crate::task::draw::beside_others;
use crate::task::{DrawSeed, MeasureError, SampleSummary, Task, evaluation};
use beyond::Factors;
use warm_up::Delays;

/// Backward pauses once it has gone through so many parameters, for their gradients to be read and to leave: 1 MiB. Each
/// pause costs a read-back, and models that are smaller have none.
const BLOCK_PARAMETERS: usize = 1 << 18;

/// Whoever computes nothing because it lacks data begins again once it has that of so many batches: one may come its way each step.
const BATCHES_AHEAD: u32 = 4;

/// One member's copy of a task's module and of the run's replicated state.
pub struct Replica<T: Task> {
    task: Arc<T>,
    data: SampleSummary,
    notes: DataRecord,
    training: TrainingState,
    device_name: String,
    /// Whether the device compiles what it computes.
    compiles: bool,
    /// The device with autodiff, where training is. Evaluation is on `inner`.
    device: Device,
    inner: Device,
    reader: Arc<BatchReader<T>>,
    loader: Loader<(T::Batch, f32), BatchError>,
    /// For how long nothing was done but to load.
    loading: Duration,
    /// What all held-out samples count together.
    held_out: f64,
    module: T::Module,
    /// What becomes of its leaves, in visit order.
    kinds: Vec<LeafKind>,
    /// In what numbers it goes forward and backward.
    precision: Precision,
    /// Where backward pauses, of the task's borders.
    borders: Vec<Option<usize>>,
    /// What was wrong with the gradient that was computed last.
    beyond: Option<ContributionError>,
    /// The loss over the first samples with the initial parameters.
    probe: Option<f32>,
    /// Whose share was computed last.
    me: PeerId,
    /// What is measured besides the loss where members evaluate together.
    measures: Vec<&'static str>,
    /// What the last part came to which this member evaluated for all, of the state after which step: the sums of the losses, and of each measure.
    judged: Option<(u64, Range<u32>, Vec<f64>)>,
    /// What was measured last, of the model after which step.
    evaluated: Option<(u64, EvaluationReport)>,
    delays: Delays,
    factors: Factors,
}

impl<T: Task> Replica<T> {
    /// A member's part in the run that `manifest` describes, at step 0, with the initial parameters that were `given`, or else drawn. The `leaves`
    /// are the module's, in visit order. That the data is the run's is the caller's concern.
    ///
    /// # Errors
    /// If the initial parameters are given by the run and not here, the device can't be opened, or the module has another schema or other initial parameters than the run's.
    pub fn open(
        task: Arc<T>,
        leaves: Vec<Entry>,
        manifest: &Manifest,
        given: Option<Vec<f32>>,
        notes: DataRecord,
        compute: impl Into<ComputeSpec>,
    ) -> Result<Self, Error> {
        let data = task.data();
        let known = caught(task.name(), "measures", || task.measures())?;
        // A task that describes its samples anew each time may have other ones by now, and no state of the run would fit.
        let description = match manifest.data.is_of_program() {
            true => DataDescription::of_program(data.training, data.fingerprint).in_form_of(&manifest.data),
            false => manifest.data.clone(),
        };
        let here = Manifest { data: description, ..manifest.clone() }.with_measures(data.held_out, &known);
        Error::unless_alike(manifest, &here.in_measures_of(manifest))?;
        if !manifest.can_arrive() && !task.is_whole() {
            return Err(Error::NotWhole { task: task.name().to_owned() });
        }
        let compute = compute.into();
        let (open, device) = compute.open()?;
        let precision = manifest.precision;
        if !open.device.supports_dtype(float_type(precision)) {
            return Err(DeviceError::Precision { wanted: compute.device, device: open.name, precision }.into());
        }
        let module = beside_others(|| caught(task.name(), "module", || task.module(&device)))?;
        let module = initial::settled(module, &leaves);
        let path = |entry: &Entry| (entry.path.clone(), entry.shape.clone());
        if !schema::of_module(&module).entries().iter().map(path).eq(leaves.iter().map(path)) {
            let reason = "built once more, it has other leaves; build it from the task's settings alone".to_owned();
            return Err(Error::Module { task: task.name().to_owned(), reason });
        }
        let constants = schema::constants(&module);
        let module = initial::separate(module, &leaves, &device);
        let own = leaves.clone();
        let leaves = freeze::freeze(leaves, &manifest.freeze).map_err(unfreezable)?;
        let kinds: Vec<LeafKind> = leaves.iter().map(|leaf| leaf.kind).collect();
        let borders = trained_before(&leaves, &task.borders(&module));
        let schema = Schema::new(leaves).with_constants(constants);
        if ConstantSpec::list(&schema) != manifest.constants {
            let reason =
                "built once more, it has other whole numbers or truths; build it from the task's settings alone"
                    .to_owned();
            return Err(Error::Module { task: task.name().to_owned(), reason });
        }
        let parameters = match given {
            Some(given) if given.len() == schema.parameters() => given,
            None if !manifest.given => initial::values(&*task, &own, &schema, manifest.seed)?,
            _ => return Err(starling_run::Error::NotGiven { theirs: manifest.initial }.into()),
        };
        if manifest.evaluation.is_some() && data.held_out == 0 {
            return Err(Error::NothingHeldOut { task: task.name().to_owned() });
        }
        let training = TrainingState::new(manifest, schema, parameters, data.training)?;
        // Where losses are scaled, an overflow leaves with none of the gradient.
        let least = if precision.is_scaled() { usize::MAX } else { BLOCK_PARAMETERS };
        let borders = cut::choose(&borders, training.trained(), least);
        let values = LeafValues::changing(training.shared_parameters(), training.trained())
            .with_frozen(Some(training.shared_frozen()));
        let module = flatten::disable(module, &manifest.freeze);
        let module = flatten::write_leaves(module, &kinds, values, Precision::F32, &device);
        let probe = probe(&*task, &module.valid(), data.training, &open.device);
        let module = match precision {
            Precision::F32 => module,
            _ => flatten::write_leaves(module, &kinds, values, precision, &device),
        };
        let held_out = match manifest.weighted {
            true => {
                let samples: Vec<u32> = (data.training..data.training + data.held_out).collect();
                let weight = caught(task.name(), "weight", || task.weight(&samples))?;
                let weight = weight.filter(|weight| samples.is_empty() || (weight.is_finite() && *weight > 0.0));
                weight.ok_or_else(|| Error::HeldOutWeight { task: task.name().to_owned() })?
            }
            false => data.held_out.into(),
        };
        let named = manifest.evaluation.iter().flat_map(|evaluation| &evaluation.measures);
        let measures = named.filter_map(|name| known.iter().copied().find(|known| known == name)).collect();
        let (is_weighted, micro_batch) = (manifest.weighted, manifest.micro_batch);
        let reader = Arc::new(BatchReader { task: task.clone(), device: device.clone(), is_weighted, micro_batch });
        let beside = task.loads_beside().filter(|_| compute.ahead_bytes > 0);
        let beside = beside.map(|of_sample| AheadLimit { bytes: compute.ahead_bytes, of_sample });
        let of_loader = reader.clone();
        let loader = Loader::new(move |samples, draw| of_loader.read(samples, draw), beside, manifest.steps);
        Ok(Self {
            held_out,
            measures,
            probe,
            module,
            kinds,
            precision,
            task,
            data,
            notes,
            training,
            borders,
            device_name: open.name,
            compiles: open.compiles,
            device,
            inner: open.device,
            reader,
            loader,
            loading: Duration::ZERO,
            beyond: None,
            me: PeerId([0; 32]),
            judged: None,
            evaluated: None,
            delays: Delays::from_environment(),
            factors: Factors::from_environment(),
        })
    }

    /// What it holds.
    pub fn training(&self) -> &TrainingState {
        &self.training
    }

    /// The loss over a batch of training, and behind it what leaves that run along have come to; in the module, these are as before.
    fn forward(&mut self, batch: T::Batch, draw: DrawSeed, cut: &mut Cut<'_>) -> Result<Vec<Tensor<1>>, Error> {
        let compute = || caught(self.task.name(), "loss", || self.task.loss_in_blocks(&self.module, batch, cut));
        let loss = drawing(self.training.manifest().micro_batch, draw, "loss", &self.device, compute);
        // Whatever came of it: what is left in the module is nobody's.
        let mut running = Vec::new();
        if self.kinds.contains(&LeafKind::Running) {
            running = flatten::running_values(&self.module, &self.kinds);
            let (module, before) = (self.module.clone(), &self.training.parameters()[self.training.trained()..]);
            let values = LeafValues::running(before);
            self.module = flatten::write_leaves(module, &self.kinds, values, self.precision, &self.device);
        }
        let loss = loss?;
        if loss.dims() != [1] {
            return Err(Error::Loss { task: self.task.name().to_owned(), shape: loss.dims().to_vec() });
        }
        Ok(std::iter::once(loss).chain(running).collect())
    }

    /// Makes of what was read what is brought: of the first `gradients` of them, without the scale of the loss, which comes next; of leaves that run
    /// along, behind it, by how much they change. All of it as a sample counts that is `worth` so much, and, with what is behind the gradients, that itself.
    fn settle(&self, read: &mut Vec<TensorData>, gradients: usize, worth: f32) {
        let mut before = &self.training.parameters()[self.training.trained()..];
        let factor = self.factors.of(self.training.ledger().step()).unwrap_or(1.0);
        // A power of two: no digit changes.
        let unscaled = 1.0 / self.training.loss_scale();
        for (at, data) in read.iter_mut().enumerate() {
            let factor = worth * if at < gradients { factor * unscaled } else { factor };
            if at <= gradients && factor == 1.0 {
                continue;
            }
            // In place: the gradients are there once.
            let piece = flatten::numbers_mut(data);
            if at > gradients {
                let (own, others) = before.split_at(piece.len());
                before = others;
                piece.iter_mut().zip(own).for_each(|(number, before)| *number -= before);
            }
            match factor {
                1.0 => {}
                // Whatever it is, a mean over nothing.
                _ if worth == 0.0 => piece.fill(0.0),
                _ => piece.iter_mut().for_each(|number| *number *= factor),
            }
        }
        if self.training.manifest().weighted && read.len() > gradients {
            read.push(TensorData::from([worth]));
        }
    }

    /// The gradient over these micro-batches of the pending step, block by block; how many samples they have.
    fn compute_micro_batches(
        &mut self,
        me: PeerId,
        mut micro_batches: Vec<Vec<Range<u32>>>,
        gradient: &Gradient,
        progressed: &mut dyn FnMut(usize),
    ) -> Result<u64, Error> {
        if !self.training.ledger().is_assigned() {
            return Err(starling_run::Error::NotBegun.into());
        }
        self.me = me;
        self.beyond = None;
        let Some(last) = micro_batches.pop() else {
            gradient.set_nothing();
            progressed(0);
            return Ok(0);
        };
        let weight =
            |ranges: &[Range<u32>]| -> u64 { ranges.iter().map(|range| u64::from(range.end - range.start)).sum() };
        for ranges in &micro_batches {
            let (batch, draw) = (self.loaded(ranges)?, loader::draw(self.training.ledger(), ranges));
            if !self.add(batch, draw, weight(ranges), gradient)? {
                gradient.give_up();
                progressed(0);
                return Ok(0);
            }
        }
        let (batch, draw) = (self.loaded(&last)?, loader::draw(self.training.ledger(), &last));
        self.differentiate(batch, draw, weight(&last), gradient, progressed)?;
        Ok(gradient.weight())
    }

    /// Adds the gradient over a batch of `weight` samples to what this share comes to. Says whether it may be contributed.
    fn add(
        &mut self,
        (batch, worth): (T::Batch, f32),
        draw: DrawSeed,
        weight: u64,
        gradient: &Gradient,
    ) -> Result<bool, Error> {
        self.delays.pass();
        let figures = self.forward(batch, draw, &mut Cut::nowhere())?;
        let (mut gradients, figures) = backward(figures, self.training.loss_scale());
        let behind = figures.len();
        let all = 0..self.training.trained();
        let read = flatten::read_gradients(&self.module, all, &mut gradients, figures);
        let mut read = read.map_err(|source| self.failed(source))?;
        let at = read.len() - behind;
        self.settle(&mut read, at, worth);
        let pieces: Vec<&[f32]> = read.iter().map(flatten::numbers).collect();
        let beyond = self.find_beyond(0, &pieces, weight);
        let is_within = beyond.is_none();
        match beyond {
            None => gradient.add(weight, &pieces),
            Some(beyond) => self.note(ContributionError { is_whole: true, ..beyond }),
        }
        Ok(is_within)
    }

    /// Tells of what can't be contributed, unless the scale of the loss may be to blame, which is told once it is halved.
    fn note(&mut self, beyond: ContributionError) {
        self.beyond = Some(beyond).filter(|_| self.training.loss_scale() == 1.0);
    }

    /// The gradient over what was added and a batch of `weight` samples, block by block.
    fn differentiate(
        &mut self,
        (batch, worth): (T::Batch, f32),
        draw: DrawSeed,
        weight: u64,
        gradient: &Gradient,
        progressed: &mut dyn FnMut(usize),
    ) -> Result<(), Error> {
        let held_out = self.held_out_figures(self.me, &|| true)?;
        self.delays.pass();
        let borders = self.borders.clone();
        let mut cut = Cut::new(&borders);
        let figures = self.forward(batch, draw, &mut cut)?;
        let (mut gradients, mut behind_them) = backward(figures, self.training.loss_scale());
        let mut passed = cut.passed();
        let mut figures = held_out.as_slice();
        let parameters = self.training.trained();
        let mut end = parameters;
        loop {
            let (start, behind) = passed.pop().map_or((0, None), |(start, behind)| (start, Some(behind)));
            let others = std::mem::take(&mut behind_them);
            let count = others.len();
            let read = flatten::read_gradients(&self.module, start..end, &mut gradients, others);
            let mut read = read.map_err(|source| self.failed(source))?;
            let at = read.len() - count;
            self.settle(&mut read, at, worth);
            let pieces: Vec<&[f32]> = read.iter().map(flatten::numbers).collect();
            if let Some(beyond) = self.find_beyond(start, &pieces, weight) {
                self.note(ContributionError { is_whole: end == parameters, ..beyond });
                gradient.give_up();
                progressed(0);
                return Ok(());
            }
            gradient.prepend(weight, pieces.iter().copied().chain([figures]));
            figures = &[];
            progressed(start);
            let Some(behind) = behind else { return Ok(()) };
            gradients = behind(&mut gradients);
            end = start;
        }
    }

    /// What is told of the present state behind all else, where members evaluate together: if it is evaluated, what the part of the held-out
    /// samples that falls to this member comes to, so that the mean over the samples of the step is the mean over all of these; else zeros.
    fn held_out_figures(&mut self, me: PeerId, goes_on: &dyn Fn() -> bool) -> Result<Vec<f32>, Error> {
        let manifest = self.training.manifest();
        let (figures, range) = (manifest.held_out_figures(), MeasureLimit::of(manifest));
        if figures == 0 {
            return Ok(Vec::new());
        }
        let Some(means) = self.evaluate_own(me, goes_on)? else { return Ok(vec![0.0; figures]) };
        Ok(means.iter().map(|mean| range.tell(*mean)).collect())
    }

    /// What `me` tells of a state that is evaluated, once it is, which it is once: the loss, and each measure; `None` if there is nothing to tell, or it does
    /// not go on.
    fn evaluate_own(&mut self, me: PeerId, goes_on: &dyn Fn() -> bool) -> Result<Option<Vec<f64>>, Error> {
        let part = self.training.held_out_part(me, self.data.held_out).filter(|_| self.training.is_judged());
        let Some((part, worth)) = part else { return Ok(None) };
        let step = self.training.step();
        let known = self.judged.take().filter(|(of, range, _)| (*of, range) == (step, &part));
        let sums = match known {
            Some((.., sums)) => sums,
            None if part.is_empty() => vec![0.0; 1 + self.measures.len()],
            None => {
                let (module, _) = self.model(false);
                let Some(sums) = self.evaluate_part(&module, part.clone(), &|_, _| goes_on())? else { return Ok(None) };
                let unmeasured = |name| Error::Unmeasured { task: self.task.name().to_owned(), name };
                let names = ["loss"].into_iter().chain(self.measures.iter().copied());
                names.map(|name| sums.sum(name).ok_or_else(|| unmeasured(name))).collect::<Result<_, _>>()?
            }
        };
        let means = sums.iter().map(|sum| sum / self.held_out * worth).collect();
        self.judged = Some((step, part, sums));
        Ok(Some(means))
    }

    /// Makes measures of the means that members have told.
    fn measured(&self, report: HeldOutReport) -> HeldOutReport {
        let mut means = evaluation::Sums::default();
        means.add(self.measures.iter().copied().zip(report.measures.iter().map(|(_, mean)| *mean)).collect());
        let measures = means.mean(1.0).measures.into_iter().map(|(name, mean)| (name.to_owned(), mean)).collect();
        HeldOutReport { measures, ..report }
    }

    /// As [`Learner::evaluate_while`]; of the `best` model if there is one, else of the present one.
    fn evaluate_model(
        &mut self,
        best: bool,
        goes_on: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Option<EvaluationReport>, Error> {
        let (module, step) = self.model(best);
        let held_out = self.data.held_out;
        let Some(sums) = self.evaluate_part(&module, 0..held_out, goes_on)? else { return Ok(None) };
        let evaluation = EvaluationReport { samples: held_out.into(), ..sums.mean(self.held_out) };
        self.evaluated = Some((step, evaluation.clone())).filter(|_| held_out > 0);
        Ok(Some(evaluation))
    }

    /// The model that is evaluated, and after which step it was that.
    fn model(&self, best: bool) -> (T::Module, u64) {
        match (self.training.shared_best().filter(|_| best), self.training.model()) {
            (Some((best, step)), _) => (self.written(best), step),
            (None, Cow::Borrowed(_)) => (self.present(), self.training.step()),
            (None, Cow::Owned(average)) => (self.written(&Arc::new(average)), self.training.step()),
        }
    }

    /// What some of the held-out samples come to, counted from their first; `None` if it does not go on.
    fn evaluate_part(
        &self,
        module: &T::Module,
        part: Range<u32>,
        goes_on: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Option<evaluation::Sums>, Error> {
        let mut sums = evaluation::Sums::default();
        let at_once = self.task.measured_at_once().max(1);
        let before = self.data.training;
        for first in part.clone().step_by(at_once as usize) {
            if !goes_on(u64::from(first - part.start), u64::from(part.end - part.start)) {
                return Ok(None);
            }
            let last = part.end.min(first.saturating_add(at_once));
            let samples: Vec<u32> = (before + first..before + last).collect();
            sums.add(self.measure(module, &samples)?);
        }
        Ok(Some(sums))
    }

    /// The present model, as it is evaluated: in f32, without autodiff.
    fn present(&self) -> T::Module {
        match self.precision {
            Precision::F32 => self.module.valid(),
            _ => self.written(self.training.shared_parameters()),
        }
    }

    /// The same with these parameters, of those that change.
    fn written(&self, numbers: &Arc<Vec<f32>>) -> T::Module {
        let frozen = Some(self.training.shared_frozen()).filter(|_| self.precision != Precision::F32);
        let values = LeafValues::changing(numbers, self.training.trained()).with_frozen(frozen);
        // Not of a clone: that would share what runs along.
        flatten::write_leaves(self.module.valid(), &self.kinds, values, Precision::F32, &self.inner)
    }

    /// These samples, for training, and what one of them counts in the mean.
    fn batch(&self, samples: &[u32], draw: DrawSeed) -> Result<(T::Batch, f32), Error> {
        self.reader.read(samples, draw).map_err(|error| error.after(self.training.step()))
    }

    /// A micro-batch of the pending step.
    fn loaded(&mut self, micro_batch: &[Range<u32>]) -> Result<(T::Batch, f32), Error> {
        let begun = Instant::now();
        let batch = self.loader.load(self.training.ledger(), micro_batch);
        self.loading += begun.elapsed();
        batch.map_err(|error| error.after(self.training.step()))
    }

    /// What the task measures of some samples, by the module without autodiff.
    fn measure(&self, module: &T::Module, samples: &[u32]) -> Result<Vec<(&'static str, f64)>, Error> {
        let measured = caught(self.task.name(), "measure", || {
            // A loss may draw: not from the numbers of who has set a seed.
            beside_others(|| self.task.measure(module, samples, &self.inner))
        })?;
        let step = self.training.step();
        measured.map_err(|error| match error {
            MeasureError::Device(source) => self.failed(source),
            MeasureError::Samples(source) => Error::Samples { step, source },
        })
    }

    /// Writes the parameters that a step has changed.
    fn write_parameters(&mut self) {
        let values = LeafValues::changing(self.training.shared_parameters(), self.training.trained());
        self.module = flatten::write_leaves(self.module.clone(), &self.kinds, values, self.precision, &self.device);
    }

    /// The same, and the frozen ones.
    fn write_all(&mut self) {
        let values = LeafValues::changing(self.training.shared_parameters(), self.training.trained())
            .with_frozen(Some(self.training.shared_frozen()));
        self.module = flatten::write_leaves(self.module.clone(), &self.kinds, values, self.precision, &self.device);
    }

    /// Lets go of the parameters that a step changes: on a CPU, the module shares them with the state, which would have to copy them. They have to
    /// be written again before anything else.
    fn release_parameters(&mut self) {
        // The module is moved out and back: Burn maps modules by value. The clone shares its tensors.
        self.module = flatten::release_leaves(self.module.clone(), &self.kinds);
    }

    fn failed(&self, source: ExecutionError) -> Error {
        let step = self.training.step();
        Error::Execution { device: self.device_name.clone(), step, source }
    }
}

/// The mean loss over the first of `training` samples, by a module without autodiff; `None` if it comes to no number, or to another one each
/// time, as of a loss that draws. A task that fails here fails again where that is told.
fn probe<T: Task>(task: &T, module: &T::Module, training: u32, device: &Device) -> Option<f32> {
    let samples: Vec<u32> = (0..training.min(PROBED)).collect();
    if !task.are_here(&samples) {
        return None;
    }
    let loss = || {
        let compute = || beside_others(|| task.loss(module, task.batch(&samples, device)).try_into_data());
        let loss = caught(task.name(), "loss", compute).ok()?.ok()?;
        loss.as_slice::<f32>().ok()?.first().copied().filter(|loss| loss.is_finite())
    };
    let first = loss()?;
    loss().filter(|again| again.to_bits() == first.to_bits())
}

/// The samples that have to be here for a member to be ready: its share, or where it has none, what it may get next.
fn next_samples(ledger: &Ledger, me: PeerId) -> Vec<u32> {
    match ledger.share_of(me) {
        [] => {
            // What another one gives back comes first in the next batch.
            let pending = ledger.shares().iter().flat_map(|(_, ranges)| ledger.indices(ranges));
            pending.chain(ledger.ahead(ledger.batch_size().saturating_mul(BATCHES_AHEAD))).collect()
        }
        share => ledger.indices(share),
    }
}

/// Goes backward from the loss, the first of these figures, times `scale`, and moves them off what that needs.
fn backward(mut figures: Vec<Tensor<1>>, scale: f32) -> (Gradients, Vec<Tensor<1>>) {
    let loss = in_f32(figures.remove(0));
    let gradients = if scale == 1.0 { loss.backward() } else { (loss.clone() * scale).backward() };
    figures.insert(0, loss.inner());
    (gradients, figures)
}

/// Of borders by how many of all parameters lie before each, by how many that are trained.
fn trained_before(leaves: &[Entry], borders: &[usize]) -> Vec<usize> {
    let before = |border: &usize| {
        let mut end = 0;
        let before = leaves.iter().take_while(|leaf| {
            end += leaf.elements();
            end <= *border
        });
        before.filter(|leaf| leaf.kind == LeafKind::Trained).map(Entry::elements).sum()
    };
    borders.iter().map(before).collect()
}

/// Why a run can't freeze what it is to freeze.
pub(crate) fn unfreezable(reason: String) -> Error {
    starling_run::Error::from(ManifestError::Invalid { field: "freeze", reason }).into()
}

impl<T: Task> StateReplica for Replica<T> {
    fn step(&self) -> u64 {
        self.training.step()
    }

    fn lineage(&self) -> Lineage {
        self.training.lineage()
    }

    fn begin(&mut self, members: &[PeerId]) -> bool {
        self.training.begin(members)
    }

    fn state(&self) -> ReplicatedState {
        self.training.state()
    }

    fn digest(&self) -> Digest {
        self.training.digest()
    }

    fn load(&mut self, state: ReplicatedState) -> Result<(), starling_run::Error> {
        self.training.load(state)?;
        (self.evaluated, self.judged) = (None, None);
        self.write_all();
        Ok(())
    }
}

impl<T: Task> Learner for Replica<T> {
    fn manifest(&self) -> &Manifest {
        self.training.manifest()
    }

    fn ledger(&self) -> &Ledger {
        self.training.ledger()
    }

    fn device(&self) -> &str {
        &self.device_name
    }

    fn notes(&self) -> &DataRecord {
        &self.notes
    }

    fn probe(&self) -> Option<f32> {
        self.probe
    }

    fn take_names(&mut self, preprocessing: PreprocessingSpec) {
        self.notes.preprocessing = Some(preprocessing);
    }

    fn has_blocks(&self) -> bool {
        self.borders.iter().any(Option::is_some)
    }

    fn compute(
        &mut self,
        me: PeerId,
        gradient: &Gradient,
        progressed: &mut dyn FnMut(usize),
    ) -> Result<u64, starling_run::Error> {
        let micro_batches = self.training.ledger().micro_batches_of(me);
        self.loader.expect(self.training.ledger(), &micro_batches, Some(me));
        Ok(self.compute_micro_batches(me, micro_batches, gradient, progressed)?)
    }

    fn compute_part(
        &mut self,
        me: PeerId,
        positions: &[Range<u32>],
        gradient: &Gradient,
    ) -> Result<u64, starling_run::Error> {
        let micro_batches = self.training.ledger().micro_batches(positions);
        self.loader.expect(self.training.ledger(), &micro_batches, None);
        Ok(self.compute_micro_batches(me, micro_batches, gradient, &mut |_| {})?)
    }

    fn judge_while(&mut self, me: PeerId, goes_on: &dyn Fn() -> bool) -> Result<Vec<f32>, starling_run::Error> {
        Ok(self.held_out_figures(me, goes_on)?)
    }

    fn is_starved(&self, me: PeerId) -> bool {
        let ledger = self.training.ledger();
        if self.task.is_whole() || !ledger.is_assigned() {
            return false;
        }
        !self.task.are_here(&next_samples(ledger, me))
    }

    fn has_all_data(&self) -> bool {
        self.task.is_whole()
    }

    fn take_beyond(&mut self) -> Option<ContributionError> {
        self.beyond.take()
    }

    fn load_ahead(&mut self, members: &[PeerId], me: PeerId) {
        if self.training.ledger().is_assigned() {
            let begun = Instant::now();
            self.loader.load_ahead(self.training.ledger(), members, me);
            // Who is alone reduces nothing meanwhile.
            if members == [me] {
                self.loading += begun.elapsed();
            }
        }
    }

    fn take_loading(&mut self) -> Duration {
        std::mem::take(&mut self.loading)
    }

    fn stage_bytes(&self) -> Option<u64> {
        self.training.stage_bytes()
    }

    fn stage(&mut self, members: &[PeerId], start: usize, part: &[f32]) {
        self.training.stage(members, start, part);
    }

    fn forget_staged(&mut self) {
        self.training.forget_staged();
    }

    fn apply_staged(&mut self, record: &ResultRecord) -> Result<StepReport, starling_run::Error> {
        self.release_parameters();
        let applied = self.training.apply_staged(record);
        self.write_parameters();
        applied.map(|report| StepReport { evaluated: report.evaluated.map(|means| self.measured(means)), ..report })
    }

    fn is_over(&self) -> bool {
        self.training.is_over()
    }

    fn warm_up(&mut self, share: u32) -> Result<(), starling_run::Error> {
        Ok(self.warm_up_device(share)?)
    }

    fn evaluate_while(
        &mut self,
        goes_on: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Option<EvaluationReport>, starling_run::Error> {
        Ok(self.evaluate_model(false, goes_on)?)
    }

    fn best_step(&self) -> Option<u64> {
        self.training.best().map(|(_, step, _)| step).filter(|step| *step < self.training.step())
    }

    fn evaluate_outcome_while(
        &mut self,
        goes_on: &dyn Fn(u64, u64) -> bool,
    ) -> Result<Option<EvaluationReport>, starling_run::Error> {
        Ok(self.evaluate_model(true, goes_on)?)
    }

    fn export(&self, path: &Path) -> Result<(), starling_run::Error> {
        let (state, schema, manifest) = (&self.training.state(), self.training.schema(), self.training.manifest());
        let exported = state.best(manifest).map_or(state.step, |(step, _)| step);
        let evaluated = self.evaluated.as_ref().filter(|(step, _)| *step == exported);
        let (preprocessing, evaluation) =
            (self.notes.preprocessing.as_ref(), evaluated.map(|(_, evaluation)| evaluation));
        Export { state, schema, manifest, preprocessing, evaluation }.write(path)
    }
}

impl<T: Task> fmt::Debug for Replica<T> {
    /// Names and sizes only: the state may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("task", &self.task.name())
            .field("run", &self.training.run())
            .field("step", &self.training.step())
            .field("parameters", &self.training.parameters().len())
            .field("device", &self.device_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
