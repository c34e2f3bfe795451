//! A model in training: local gradients out, averaged gradients in.
//!
//! ```text
//!   compute: samples of my slice -> device: forward, backward -> one read-back -> flat gradients, loss    (local)
//!   ...      members average them, weighted by samples                                                  (not here)
//!   apply:   averaged gradients -> optimizer on the flat state -> one write to the device                (same bits on all)
//! ```

use std::fmt;

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use starling_topology::{Digest, Rank, RunId, WorldSize};

use crate::data::{Dataset, Samples};
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::evaluation::{self, Evaluation};
use crate::flatten;
use crate::initial;
use crate::ledger::{self, Ledger};
use crate::manifest::Manifest;
use crate::network::Network;
use crate::optimizer::{Optimizer, first_not_finite};
use crate::schema::Schema;
use crate::state::{ReplicatedState, StateView};

/// What one step came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The step, counted from 1.
    pub step: u64,
    /// The mean loss over the global batch, before the update.
    pub loss: f32,
    /// How many samples the global batch had.
    pub samples: u64,
    /// The pass over the data that the step belongs to: 0 for the first.
    pub epoch: u64,
}

/// One member's copy of the model and of the run's replicated state.
pub struct Trainer {
    manifest: Manifest,
    run: RunId,
    schema: Schema,
    dataset: Dataset,
    ledger: Ledger,
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

    /// The length of the buffer that members average: the parameters, and one element for the loss. As the weighted
    /// mean of the members' mean losses, it becomes the mean loss of the global batch.
    pub fn buffer_len(&self) -> usize {
        self.parameters.len() + 1
    }

    /// How many samples the members of `world` compute together in the next step: what a weighted sum is divided by.
    pub fn weights(&self, world: WorldSize) -> u64 {
        let batch = self.ledger.batch_len(self.step + 1);
        world.ranks().map(|rank| ledger::share(batch, world, rank).len() as u64).sum()
    }

    /// Computes this member's part of the next step: replaces `into` by the mean gradient over its slice, then the mean
    /// loss, and returns how many samples the slice has. An empty slice gives zeros and weight 0.
    ///
    /// # Errors
    /// If a number is not finite (the error names its parameter), or the device failed.
    ///
    /// # Panics
    /// If `rank` is outside of `world`.
    pub fn compute(&mut self, world: WorldSize, rank: Rank, into: &mut Vec<f32>) -> Result<u64, Error> {
        let step = self.step + 1;
        let slice = self.ledger.slice(step, world, rank);
        if slice.is_empty() {
            into.clear();
            into.resize(self.buffer_len(), 0.0);
            return Ok(0);
        }
        let training = self.dataset.training();
        let (samples, labels) = batch(training, slice, &self.inner);
        let loss = self.loss.forward(self.network.forward(samples), labels);
        let gradients = loss.backward();
        flatten::read_gradients(&self.network, gradients, loss.inner(), into).map_err(|source| Error::Execution {
            device: self.device_name.clone(),
            step,
            source,
        })?;
        let weight = slice.len() as u64;
        self.check_buffer(into, "gradient")?;
        Ok(weight)
    }

    /// Takes the next step: updates the state with the averaged buffer of all members and writes the parameters to the
    /// device. Members that apply the same buffer hold the same bits afterwards, on any hardware.
    ///
    /// # Errors
    /// If the buffer has the wrong length or a number that is not finite; the state is then as before. If the update
    /// itself leaves the finite numbers, the state is lost and must be loaded anew.
    pub fn apply(&mut self, mean: &[f32]) -> Result<StepReport, Error> {
        self.check_buffer(mean, "mean gradient")?;
        let step = self.step + 1;
        let (gradients, loss) = mean.split_at(self.parameters.len());
        self.optimizer.step(&mut self.parameters, gradients);
        self.step = step;
        if let Some(at) = first_not_finite(&self.parameters) {
            return Err(self.not_finite(step, "parameter", at, self.parameters[at]));
        }
        self.write_parameters();
        Ok(StepReport {
            step,
            loss: loss[0],
            samples: self.ledger.batch_len(step) as u64,
            epoch: self.ledger.epoch(step),
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
        }
        .digest()
    }

    /// Replaces the replicated state.
    ///
    /// # Errors
    /// If the state is of another run, has other lengths than this run's, or a number that is not finite. The trainer is then as before.
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

    fn check_buffer(&self, buffer: &[f32], what: &'static str) -> Result<(), Error> {
        let step = self.step + 1;
        if buffer.len() != self.buffer_len() {
            return Err(Error::BufferLength { step, expected: self.buffer_len(), found: buffer.len() });
        }
        match first_not_finite(buffer) {
            Some(at) => Err(self.not_finite(step, what, at, buffer[at])),
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
