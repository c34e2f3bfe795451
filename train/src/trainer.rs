//! A model in training: local gradients out, averaged gradients in.
//!
//! ```text
//!   compute:       my share of the pending step -> device: forward, backward -> gradients, block by block; loss    (local)
//!   contribution:  gradients and loss, weighted by samples, and my speed -> one buffer                             (local)
//!   ...            members sum their buffers and divide by the batch size                                          (not here)
//!   apply:         the result -> optimizer on the flat state -> ledger -> one write to the device        (same bits on all)
//! ```
//!
//! While members reduce, the samples of the next step are loaded, and of what is reduced the update begins, beside the state.

mod beyond;
mod update;
mod warm_up;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::{Device, ExecutionError, Tensor};
use starling_run::draft::{Draft, Space};
use starling_run::state::{ReplicatedState, StateView};
use starling_run::{Gradient, Manifest, ModelSpec, OptimizerState, ResultRecord, Schema, contribution, initial};
use starling_topology::ledger::GAVE_UP;
use starling_topology::{Digest, Ledger, Lineage, PeerId, RunId};

use crate::batch::{Batch, Loader};
use crate::data::Dataset;
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::evaluation::{self, Evaluation};
use crate::flatten;
use crate::network::{Block, Network};
use crate::schema;
pub use beyond::Beyond;
use beyond::Factors;
use warm_up::Delays;

/// Backward pauses once it has gone through so many parameters, for their gradients to be read and to leave: 1 MiB. Each
/// pause costs a read-back, and models that are smaller have none.
const BLOCK_PARAMETERS: usize = 1 << 18;

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
    /// What each member of the view that reduced the step told of its speed, in their order; see
    /// [`contribution::samples_per_s`].
    pub speeds: Vec<u32>,
    /// Why the update was dropped, as a sentence; `None` if it was not, or there was nothing to update with.
    pub skipped: Option<String>,
    /// Who gave its share up, and how many samples that were.
    pub given_up: Vec<(PeerId, u32)>,
    /// Positions of the epoch's order that nobody computes again in this epoch: their share was given up twice.
    pub dropped: Vec<Range<u32>>,
}

/// One member's copy of the model and of the run's replicated state.
pub struct Trainer {
    manifest: Manifest,
    run: RunId,
    schema: Schema,
    dataset: Dataset,
    ledger: Ledger,
    device_name: String,
    /// Whether the device compiles what it computes.
    compiles: bool,
    /// The device with autodiff; samples go to `inner`.
    device: Device,
    inner: Device,
    loader: Loader,
    network: Network,
    /// From the first layers to the last.
    blocks: Vec<Block>,
    loss: CrossEntropyLoss,
    step: u64,
    /// The view in which it was committed.
    lineage: Lineage,
    /// Copies of the state share them until the next update.
    parameters: Arc<Vec<f32>>,
    optimizer: OptimizerState,
    /// What comes of the pending step, as far as that is reduced.
    draft: Option<Draft>,
    /// Room for one.
    space: Space,
    /// What was wrong with the gradient that was computed last.
    beyond: Option<Beyond>,
    delays: Delays,
    factors: Factors,
}

impl Trainer {
    /// A trainer at step 0 of the run that `manifest` describes.
    ///
    /// # Errors
    /// If the manifest is not usable, `dataset` is not the run's, the model built here has another schema or other
    /// initial parameters than the run's, or the device cannot be opened.
    pub fn new(manifest: &Manifest, dataset: Dataset, device: DeviceChoice) -> Result<Self, Error> {
        manifest.check().map_err(starling_run::Error::from)?;
        if let ModelSpec::Raw { elements } = manifest.model {
            return Err(Error::NoModel { elements });
        }
        check_data(manifest, &dataset)?;
        let (shape, classes) = (manifest.data.shape, manifest.data.classes);
        let schema = schema::of(&manifest.model, shape, classes);
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
            blocks: network.blocks(BLOCK_PARAMETERS),
            network: flatten::write_parameters(network, &parameters, &device),
            loss: CrossEntropyLossConfig::new().init(&device),
            optimizer: OptimizerState::new(manifest.optimizer, parameters.len()),
            manifest: manifest.clone(),
            schema,
            dataset,
            device_name: open.name,
            compiles: open.compiles,
            device,
            loader: Loader::new(open.device.clone()),
            inner: open.device,
            step: 0,
            lineage: Lineage::NONE,
            parameters: Arc::new(parameters),
            draft: None,
            space: Space::default(),
            beyond: None,
            delays: Delays::from_environment(),
            factors: Factors::from_environment(),
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

    /// The view in which that step was committed.
    pub fn lineage(&self) -> Lineage {
        self.lineage
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
        if has_changed {
            self.forget_draft();
        }
        self.ledger = ledger;
        has_changed
    }

    /// Whether gradients come about in several blocks, so that a reduction can begin before all is computed.
    pub fn has_blocks(&self) -> bool {
        self.blocks.len() > 1
    }

    /// Computes the share of `me` of the pending step into `gradient`, which is empty, and returns how many samples it has.
    /// Blocks of layers, the last ones first, are there as soon as backward has reached them; `progressed` is told
    /// each time from which position on. An empty share gives zeros and weight 0. The state does not change: who was interrupted
    /// may compute again, or contribute what it has.
    ///
    /// Numbers that no contribution may have are not taken in: what is missing then is [given up](Gradient::give_up), and
    /// [`Self::take_beyond`] tells why.
    ///
    /// Backward is cut at the borders of blocks: what is in front of one is computed from the gradient of its input. The
    /// bits are those of an uncut one.
    ///
    /// # Errors
    /// If nothing is assigned yet, or the device failed.
    pub fn compute(
        &mut self,
        me: PeerId,
        gradient: &Gradient,
        mut progressed: impl FnMut(usize),
    ) -> Result<u64, Error> {
        if !self.ledger.is_assigned() {
            return Err(Error::NotBegun);
        }
        self.beyond = None;
        if self.ledger.share_of(me).is_empty() {
            gradient.set_nothing();
            progressed(0);
            return Ok(0);
        }
        let weight = u64::from(self.ledger.share_len(me));
        let batch = self.loader.load(self.dataset.training(), &self.ledger, me);
        self.differentiate(batch, weight, gradient, progressed)?;
        Ok(gradient.weight())
    }

    /// What was wrong with the gradient that was computed last; `None` if nothing was.
    pub fn take_beyond(&mut self) -> Option<Beyond> {
        self.beyond.take()
    }

    /// The gradient over a batch of `weight` samples, block by block.
    fn differentiate(
        &mut self,
        batch: Batch,
        weight: u64,
        gradient: &Gradient,
        mut progressed: impl FnMut(usize),
    ) -> Result<(), Error> {
        self.delays.pass();
        let Batch { rows, labels } = batch;
        // Of each block, what goes into it, cut off from what computed that, and the same not cut off.
        let (mut passed, mut features) = (Vec::new(), rows);
        for block in &self.blocks {
            let before = features;
            let input = if passed.is_empty() { before.clone() } else { before.clone().detach().require_grad() };
            features = self.network.forward_through(block.layers.clone(), input.clone());
            passed.push((block.parameters.clone(), input, before));
        }
        let loss = self.loss.forward(features, labels);
        let mut gradients = loss.backward();
        let mut loss = Some(loss.inner());
        while let Some((parameters, input, before)) = passed.pop() {
            let start = parameters.start;
            let read = flatten::read_gradients(&self.network, parameters, &mut gradients, loss.take());
            let read = read.map_err(|source| self.failed(source))?;
            let scaled = self.factors.of(self.ledger.step()).map(|factor| beyond::scaled(&read, factor));
            let pieces: Vec<&[f32]> = match &scaled {
                None => read.iter().map(flatten::numbers).collect(),
                Some(scaled) => scaled.iter().map(Vec::as_slice).collect(),
            };
            if let Some(beyond) = self.find_beyond(start, &pieces, weight) {
                self.beyond = Some(Beyond { is_whole: passed.len() + 1 == self.blocks.len(), ..beyond });
                gradient.give_up();
                progressed(0);
                return Ok(());
            }
            gradient.prepend(weight, pieces.iter().copied());
            progressed(start);
            if !passed.is_empty() {
                let behind = input.grad_remove(&mut gradients).expect("invariant: a block depends on its input");
                gradients = (before * Tensor::from_inner(behind)).sum().backward();
            }
        }
        Ok(())
    }

    /// Loads the samples that `me` computes next, as far as that can be told, while `members` reduce the pending step. If it
    /// comes otherwise, they are loaded when they are needed.
    pub fn load_ahead(&mut self, members: &[PeerId], me: PeerId) {
        if self.ledger.is_assigned() {
            self.loader.load_ahead(self.dataset.training(), &self.ledger, members, me);
        }
    }

    /// What this member puts into an operation of the view with `members` behind its [`Gradient`]: `speed`, as
    /// [`speed`](contribution::speed) gives it, in the slot of `me`, zeros in the others' (`[members]`).
    ///
    /// The ring is to sum contributions and divide by the manifest's batch size.
    pub fn slots(members: &[PeerId], me: PeerId, speed: u32) -> Vec<f32> {
        contribution::slots(members, me, speed).collect()
    }

    /// The result of a step that `me` takes alone in its view, from what [`Trainer::compute`] gave: what a ring of one
    /// would reduce.
    pub fn reduce_alone(&self, gradient: &Gradient, me: PeerId, speed: u32) -> ResultRecord {
        let (values, weight) = (gradient.values(), gradient.weight());
        let speed = if gradient.has_given_up() { GAVE_UP } else { speed };
        contribution::alone(self.ledger.step(), values, weight, self.manifest.batch_size, me, speed)
    }

    /// A copy of the replicated state, which costs nothing yet: it shares its vectors with the trainer until the next update,
    /// which copies those that are still shared then.
    pub fn state(&self) -> ReplicatedState {
        ReplicatedState {
            run: self.run,
            step: self.step,
            lineage: self.lineage,
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
            return Err(starling_run::Error::OtherRun { ours: self.run, theirs: state.run }.into());
        }
        let lengths = |parameters: usize, moments: &[usize], scalars: usize| {
            format!("{parameters} parameters, moments of {moments:?} and {scalars} scalars")
        };
        let spec = self.manifest.optimizer;
        let expected = lengths(self.parameters.len(), &vec![self.parameters.len(); spec.moments()], spec.scalars());
        let moments: Vec<usize> = state.moments.iter().map(|moment| moment.len()).collect();
        let found = lengths(state.parameters.len(), &moments, state.scalars.len());
        if expected != found {
            return Err(starling_run::Error::OtherShape { step: state.step, expected, found }.into());
        }
        state.check_ledger().map_err(starling_run::Error::from)?;
        let order = |ledger: &Ledger| {
            let (seed, samples, batch_size) = (ledger.seed(), ledger.samples(), ledger.batch_size());
            format!("a ledger of {samples} samples with seed {seed} and batches of {batch_size}")
        };
        let (expected, found) = (order(&self.ledger), order(&state.ledger));
        if expected != found {
            return Err(starling_run::Error::OtherShape { step: state.step, expected, found }.into());
        }
        state.check_numbers().map_err(starling_run::Error::from)?;
        self.forget_draft();
        self.optimizer = OptimizerState::restore(spec, state.moments, state.scalars);
        self.parameters = state.parameters;
        (self.step, self.lineage) = (state.step, state.lineage);
        self.ledger = state.ledger;
        self.write_parameters();
        Ok(())
    }

    /// Loss and accuracy on the held-out samples. `begins` is called before each batch.
    ///
    /// # Errors
    /// If the device failed.
    pub fn evaluate(&mut self, begins: impl Fn()) -> Result<Evaluation, Error> {
        let evaluated = evaluation::evaluate(&self.network, self.dataset.held_out(), &self.inner, begins);
        evaluated.map_err(|source| self.failed(source))
    }

    fn write_parameters(&mut self) {
        // The module is moved out and back: Burn maps modules by value. The clone shares its tensors.
        let network = self.network.clone();
        self.network = flatten::write_parameters(network, &self.parameters, &self.device);
    }

    fn failed(&self, source: ExecutionError) -> Error {
        Error::Execution { device: self.device_name.clone(), step: self.step, source }
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

/// Checks that `dataset` is the run's, split as the run's.
fn check_data(manifest: &Manifest, dataset: &Dataset) -> Result<(), Error> {
    let here =
        Manifest { data: dataset.description().in_form_of(&manifest.data), seed: dataset.seed(), ..manifest.clone() };
    let differences = manifest.differences(&here);
    if differences.is_empty() { Ok(()) } else { Err(Error::OtherData { differences }) }
}

#[cfg(test)]
mod tests;
