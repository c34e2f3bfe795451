//! A model in training: local gradients out, averaged gradients in.
//!
//! ```text
//!   compute:       my share of the pending step -> device: forward, backward -> one read-back -> gradients, loss   (local)
//!   contribution:  gradients and loss, weighted by samples, and my speed -> one buffer                             (local)
//!   ...            members sum their buffers and divide by the batch size                                          (not here)
//!   apply:         the result -> optimizer on the flat state -> ledger -> one write to the device        (same bits on all)
//! ```

use std::fmt;
use std::ops::Range;

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use starling_topology::ledger::UNMEASURED;
use starling_topology::{Digest, Ledger, Order, PeerId, RunId};

use crate::balance::Balance;
use crate::contribution;
use crate::data::{Dataset, Samples};
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::evaluation::{self, Evaluation};
use crate::flatten;
use crate::initial;
use crate::manifest::Manifest;
use crate::network::Network;
use crate::optimizer::{Optimizer, first_not_finite};
use crate::record::ResultRecord;
use crate::schema::Schema;
use crate::spec::ModelSpec;
use crate::state::{ReplicatedState, StateView};

/// What one step came to: the same on all members.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The step, counted from 1.
    pub step: u64,
    /// The mean loss over the samples that were contributed, before the update; 0 if there were none.
    pub loss: f32,
    /// How many samples were contributed.
    pub samples: u64,
    /// The pass over the data that the step belongs to: 0 for the first.
    pub epoch: u64,
    /// Who contributed which positions of the epoch's order, both ascending.
    pub contributions: Vec<(PeerId, Vec<Range<u32>>)>,
    /// How many samples were assigned to peers that did not contribute, and come first in the next step.
    pub returned: u32,
}

/// One member's copy of the model and of the run's replicated state.
pub struct Trainer {
    manifest: Manifest,
    run: RunId,
    schema: Schema,
    dataset: Dataset,
    ledger: Ledger,
    /// The sample order of the epoch last computed in.
    order: Option<Order>,
    device_name: String,
    /// The device with autodiff; inputs go to `inner`.
    device: Device,
    inner: Device,
    network: Network,
    loss: CrossEntropyLoss,
    step: u64,
    parameters: Vec<f32>,
    optimizer: Optimizer,
}

impl Trainer {
    /// A trainer at step 0 of the run that `manifest` describes.
    ///
    /// # Errors
    /// If the manifest is not usable, `dataset` is not the run's, the model built here has another schema or other
    /// initial parameters than the run's, or the device cannot be opened.
    pub fn new(manifest: &Manifest, dataset: Dataset, device: DeviceChoice) -> Result<Self, Error> {
        manifest.check()?;
        if let ModelSpec::Raw { elements } = manifest.model {
            return Err(Error::NoModel { elements });
        }
        check_data(manifest, &dataset)?;
        let (shape, classes) = (manifest.data.shape, manifest.data.classes);
        let schema = Schema::of(&manifest.model, shape, classes);
        if schema.fingerprint() != manifest.schema {
            return Err(Error::OtherSchema { ours: schema.fingerprint(), theirs: manifest.schema });
        }
        let parameters = initial::draw(&schema, manifest.seed);
        let digest = initial::digest(&parameters);
        if digest != manifest.initial {
            return Err(Error::OtherInitial { ours: digest, theirs: manifest.initial });
        }
        let open = device.open()?;
        let device = open.device.clone().autodiff();
        let network = Network::new(&manifest.model, shape, classes, &device);
        let training = u32::try_from(dataset.training().len()).expect("invariant: samples fit their description");
        Ok(Self {
            run: manifest.run_id(),
            ledger: Ledger::new(manifest.seed, training, manifest.batch_size),
            order: None,
            network: flatten::write_parameters(network, &parameters, &device),
            loss: CrossEntropyLossConfig::new().init(&device),
            optimizer: Optimizer::new(manifest.optimizer, parameters.len()),
            manifest: manifest.clone(),
            schema,
            dataset,
            device_name: open.name,
            device,
            inner: open.device,
            step: 0,
            parameters,
        })
    }

    /// What computes the gradients, for people.
    pub fn device_name(&self) -> &str {
        &self.device_name
    }

    /// How many parameters the model has.
    pub fn parameters(&self) -> usize {
        self.parameters.len()
    }

    /// The last step applied; 0 before the first one.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// How many steps the run takes.
    pub fn steps(&self) -> u64 {
        self.manifest.steps
    }

    /// The run's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The parameters' names and shapes.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The data.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The samples that are done, and who computes those of the next step.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The length of the buffer that a view of `members` members reduces: the parameters, the loss, and a slot for each
    /// member's speed.
    pub fn buffer_len(&self, members: usize) -> usize {
        self.parameters.len() + 1 + members
    }

    /// Assigns the samples of step 1 to `members`, those of the view that is about to take it: all of them have to begin
    /// with the same ones. Until that step is committed, each view begins anew; after it, nothing happens. Says whether
    /// shares have changed: a gradient that was computed before is then of no use, and so is a snapshot of step 0.
    ///
    /// # Panics
    /// If `members` are not those of a view: sorted and distinct.
    pub fn begin(&mut self, members: &[PeerId]) -> bool {
        if self.step > 0 {
            return false;
        }
        let mut ledger = Ledger::new(self.ledger.seed(), self.ledger.samples(), self.ledger.batch_size());
        ledger.assign(members);
        let has_changed = ledger != self.ledger;
        self.ledger = ledger;
        has_changed
    }

    /// Computes the share of `me` of the pending step: replaces `into` by the mean gradient over it, then the mean loss
    /// (`[parameters + 1]`), and returns how many samples it has. An empty share gives zeros and weight 0. The state
    /// does not change: who was interrupted may compute again, or contribute what it has.
    ///
    /// # Errors
    /// If nothing is assigned yet, a number is not finite (the error names its parameter), or the device failed.
    pub fn compute(&mut self, me: PeerId, into: &mut Vec<f32>) -> Result<u64, Error> {
        if !self.ledger.is_assigned() {
            return Err(Error::NotBegun);
        }
        let step = self.ledger.step();
        let share = self.ledger.share_of(me);
        if share.is_empty() {
            into.clear();
            into.resize(self.parameters.len() + 1, 0.0);
            return Ok(0);
        }
        if self.order.as_ref().is_none_or(|order| order.epoch() != self.ledger.epoch()) {
            self.order = Some(self.ledger.order());
        }
        let order = self.order.as_ref().expect("invariant: it was just drawn");
        let indices = order.indices(share);
        let (samples, labels) = batch(self.dataset.training(), &indices, &self.inner);
        let loss = self.loss.forward(self.network.forward(samples), labels);
        let gradients = loss.backward();
        flatten::read_gradients(&self.network, gradients, loss.inner(), into).map_err(|source| Error::Execution {
            device: self.device_name.clone(),
            step,
            source,
        })?;
        self.check_numbers(step, into, "gradient")?;
        Ok(indices.len() as u64)
    }

    /// Replaces `into` by what this member puts into an operation of the view with `members`
    /// (`[parameters + 1 + members]`): gradient and loss times `weight`, as [`Trainer::compute`] gave them, and `speed`,
    /// as [`speed`](contribution::speed) gives it, in the slot of `me`. Without `me`, it is that of a member that
    /// downloads the state: zeros, of `gradient` only the length counts.
    ///
    /// The ring is to sum these and divide by the manifest's batch size.
    pub fn contribution(
        gradient: &[f32],
        weight: u64,
        members: &[PeerId],
        me: Option<PeerId>,
        speed: u32,
        into: &mut Vec<f32>,
    ) {
        contribution::fill(gradient, weight, members, me, speed, into);
    }

    /// The result of a step that `me` takes alone in its view, from what [`Trainer::compute`] gave: what a ring of one
    /// would reduce, without a copy. A full batch costs no pass.
    pub fn reduce_alone(&self, gradient: Vec<f32>, weight: u64, me: PeerId, speed: u32) -> ResultRecord {
        contribution::alone(self.ledger.step(), gradient, weight, self.manifest.batch_size, me, speed)
    }

    /// Commits the pending step: updates the state with what a view reduced, assigns the next step, and writes the
    /// parameters to the device. Members that apply the same record hold the same bits afterwards, on any hardware. If
    /// nobody contributed a sample, only the ledger changes.
    ///
    /// # Errors
    /// If nothing is assigned yet, or the record is of another step, of another length, of no view, or has a number that
    /// is not finite; the state is then as before. If the update itself leaves the finite numbers, the state is lost and
    /// must be loaded anew.
    pub fn apply(&mut self, record: &ResultRecord) -> Result<StepReport, Error> {
        let step = self.step + 1;
        if record.step != step {
            return Err(Error::OtherStep { expected: step, found: record.step });
        }
        record.check(self.parameters.len())?;
        // The first step is assigned to those who reduce it, and whoever fetches its result may not be one of them.
        self.begin(&record.members);
        self.check_numbers(step, &record.mean, "mean gradient")?;
        let (gradients, rest) = record.mean.split_at(self.parameters.len());
        let (loss, slots) = (rest[0], &rest[1..]);
        // The ring divided by a full batch; 1 if it was one.
        let speeds = self.speeds(slots);
        let weight = self.ledger.total(&record.members, &speeds);
        let scale = if weight == 0 { 0.0 } else { self.manifest.batch_size as f32 / weight as f32 };
        let committed = self.ledger.commit(step, &record.members, &speeds);
        self.step = step;
        if weight > 0 {
            self.optimizer.step(&mut self.parameters, gradients, scale);
            if let Some(at) = first_not_finite(&self.parameters) {
                return Err(self.not_finite(step, "parameter", at, self.parameters[at]));
            }
            self.write_parameters();
        }
        Ok(StepReport {
            step,
            loss: loss * scale,
            samples: weight,
            epoch: committed.epoch,
            contributions: committed.contributions,
            returned: committed.returned,
        })
    }

    /// A copy of the replicated state.
    pub fn state(&self) -> ReplicatedState {
        ReplicatedState {
            run: self.run,
            step: self.step,
            parameters: self.parameters.clone(),
            moments: self.optimizer.moments().to_vec(),
            scalars: self.optimizer.scalars().to_vec(),
            ledger: self.ledger.clone(),
        }
    }

    /// The digest of the replicated state, as of [`ReplicatedState::digest`].
    pub fn digest(&self) -> Digest {
        StateView {
            run: self.run,
            step: self.step,
            parameters: &self.parameters,
            moments: self.optimizer.moments(),
            scalars: self.optimizer.scalars(),
            ledger: &self.ledger,
        }
        .digest()
    }

    /// How long the canonical bytes of a state of this run may be.
    pub fn max_state_bytes(&self) -> u64 {
        self.manifest.max_state_bytes()
    }

    /// Replaces the replicated state.
    ///
    /// # Errors
    /// If the state is of another run, has other lengths or another ledger than this run's, or a number that is not
    /// finite. The trainer is then as before.
    pub fn load(&mut self, state: ReplicatedState) -> Result<(), Error> {
        if state.run != self.run {
            return Err(Error::OtherRun { ours: self.run, theirs: state.run });
        }
        let lengths = |parameters: usize, moments: &[usize], scalars: usize| {
            format!("{parameters} parameters, moments of {moments:?} and {scalars} scalars")
        };
        let spec = self.manifest.optimizer;
        let expected = lengths(self.parameters.len(), &vec![self.parameters.len(); spec.moments()], spec.scalars());
        let moments: Vec<usize> = state.moments.iter().map(Vec::len).collect();
        let found = lengths(state.parameters.len(), &moments, state.scalars.len());
        if expected != found {
            return Err(Error::OtherShape { step: state.step, expected, found });
        }
        state.check_ledger()?;
        let order = |ledger: &Ledger| {
            let (seed, samples, batch_size) = (ledger.seed(), ledger.samples(), ledger.batch_size());
            format!("a ledger of {samples} samples with seed {seed} and batches of {batch_size}")
        };
        let (expected, found) = (order(&self.ledger), order(&state.ledger));
        if expected != found {
            return Err(Error::OtherShape { step: state.step, expected, found });
        }
        for (what, numbers) in std::iter::once(("parameter", &state.parameters))
            .chain(state.moments.iter().map(|moment| ("optimizer moment", moment)))
        {
            if let Some(at) = first_not_finite(numbers) {
                return Err(self.not_finite(state.step, what, at, numbers[at]));
            }
        }
        self.optimizer = Optimizer::restore(spec, state.moments, state.scalars);
        self.parameters = state.parameters;
        self.step = state.step;
        self.ledger = state.ledger;
        self.write_parameters();
        Ok(())
    }

    /// Loss and accuracy on the held-out samples.
    ///
    /// # Errors
    /// If the device failed.
    pub fn evaluate(&mut self) -> Result<Evaluation, Error> {
        evaluation::evaluate(&self.network, self.dataset.held_out(), &self.inner).map_err(|source| Error::Execution {
            device: self.device_name.clone(),
            step: self.step,
            source,
        })
    }

    fn write_parameters(&mut self) {
        // The module is moved out and back: Burn maps modules by value. The clone shares its tensors.
        let network = self.network.clone();
        self.network = flatten::write_parameters(network, &self.parameters, &self.device);
    }

    /// The speeds that the ledger is told: with equal shares, only who is ready.
    fn speeds(&self, slots: &[f32]) -> Vec<u32> {
        let speeds = contribution::speeds(slots, self.manifest.batch_size);
        match self.manifest.balance {
            Balance::Speed => speeds,
            Balance::Equal => speeds.into_iter().map(|speed| speed.min(UNMEASURED)).collect(),
        }
    }

    fn check_numbers(&self, step: u64, numbers: &[f32], what: &'static str) -> Result<(), Error> {
        match first_not_finite(numbers) {
            Some(at) => Err(self.not_finite(step, what, at, numbers[at])),
            None => Ok(()),
        }
    }

    fn not_finite(&self, step: u64, what: &'static str, at: usize, value: f32) -> Error {
        Error::NotFinite { step, what, path: self.schema.path_at(at).to_owned(), value }
    }
}

impl fmt::Debug for Trainer {
    /// Names and sizes only: the state may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer")
            .field("run", &self.run)
            .field("step", &self.step)
            .field("parameters", &self.parameters.len())
            .field("device", &self.device_name)
            .finish_non_exhaustive()
    }
}

/// The samples of `indices` on `device`: `[samples, features]`, and their labels `[samples]`.
pub(crate) fn batch(samples: &Samples, indices: &[u32], device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
    let rows = TensorData::new(samples.gather(indices), [indices.len(), samples.features()]);
    let labels: Vec<i64> = indices.iter().map(|index| i64::from(samples.labels()[*index as usize])).collect();
    let labels = TensorData::new(labels, [indices.len()]);
    (Tensor::from_data(rows, device), Tensor::from_data(labels, device))
}

/// Checks that `dataset` is the run's, split as the run's.
fn check_data(manifest: &Manifest, dataset: &Dataset) -> Result<(), Error> {
    let here = Manifest { data: dataset.description(), seed: dataset.seed(), ..manifest.clone() };
    let differences = manifest.differences(&here);
    if differences.is_empty() { Ok(()) } else { Err(Error::OtherData { differences }) }
}

#[cfg(test)]
mod tests;
