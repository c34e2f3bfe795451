//! What is trained: a module with its batches, its loss and its measures, as a user writes it.

pub(crate) mod augment;
pub mod classification;
pub(crate) mod confusion;
pub(crate) mod draw;
pub(crate) mod evaluation;
pub mod language;
pub mod regression;
pub mod tasks;

use std::io;

use burn::module::Module;
use burn::tensor::{Device, ExecutionError, Tensor};
use serde_json::Value;
use starling_data::{Dataset, SampleSet};
use starling_run::state::initial;
use starling_run::{ModelSpec, Schema};
use starling_topology::Digest;
use thiserror::Error;

use crate::network::cut::Cut;
use crate::network::numbers::in_f32;
pub use draw::DrawSeed;

/// The samples of a task, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleSummary {
    /// How many there are to train on: they are numbered from 0.
    pub training: u32,
    /// How many there are to evaluate on: they are numbered after these.
    pub held_out: u32,
    /// What tells this data from other data: [`fingerprint`] of its numbers, for example.
    pub fingerprint: Digest,
}

impl From<&Dataset> for SampleSummary {
    fn from(dataset: &Dataset) -> Self {
        let count =
            |samples: &SampleSet| u32::try_from(samples.len()).expect("invariant: samples fit their description");
        Self {
            training: count(dataset.training()),
            held_out: count(dataset.held_out()),
            fingerprint: dataset.description().fingerprint,
        }
    }
}

/// Why held-out samples can't be measured, which ends this member.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(#[from] ExecutionError),
    /// They can't be read: which, where and why.
    #[error("the samples can't be read: {0}")]
    Samples(#[from] io::Error),
}

/// A module, how samples become batches, and the loss of a batch. All members of a run have the same one, by its name, its
/// settings, its data and the names and shapes of the module's leaves.
///
/// Its methods are called from the thread that takes a member's steps, but for [batches that are read beside it](Self::loads_beside). One that panics
/// ends this member and no other.
pub trait Task: Send + Sync + 'static {
    /// What is trained: its float leaves, but for those that require no gradient, which are frozen, and what its forward passes change, such as the
    /// running mean of a `BatchNorm`, which is averaged over members. Leaves of whole numbers and of truths are constants: members compare them, and nobody
    /// sends them. A leaf is a tensor in a `Param`: of a plain `Tensor` field nobody knows, so that a mask which is one is not compared. Hold it in a
    /// `Param`, of whole numbers or truths or without a gradient, or compute it from the [settings](Self::settings).
    type Module: Module;
    /// Samples on a device.
    type Batch: Send;

    /// What the task is called: 1 to 64 lower-case letters, digits, `-`, `_` and `.`.
    fn name(&self) -> &str;

    /// What it depends on besides its name and its data; 4 KiB at most.
    fn settings(&self) -> Value {
        Value::Null
    }

    /// Its samples, in short: two or more to train on.
    fn data(&self) -> SampleSummary;

    /// The model of the command line that this one is, leaf for leaf, and the data set whose samples it numbers in their order:
    /// members of both programs then take part in the same runs. [`Self::data`] is the data set's, of those held out fewer will
    /// do. As it is, `None`: a run of this task is for its own program.
    fn stands_for(&self) -> Option<(ModelSpec, &Dataset)> {
        None
    }

    /// The module on `device`, which has autodiff. Its values don't count, its leaves do: each time the same ones.
    fn module(&self, device: &Device) -> Self::Module;

    /// Copies the samples of these numbers to `device`, which has autodiff in training and none in evaluation: Burn's dropout goes
    /// by that.
    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch;

    /// The same for training alone, where `draw` has what is to be random: samples that are changed each time they come, for
    /// example. In a run with micro-batches, so has Burn's own generator, here and in [`Self::loss`]: it is set for each of
    /// them. As it is, [`Self::batch`].
    fn training_batch(&self, samples: &[u32], draw: &DrawSeed, device: &Device) -> Self::Batch {
        let _ = draw;
        self.batch(samples, device)
    }

    /// The same where samples may turn out to be unreadable, which ends this member with what the error says. As it is,
    /// [`Self::training_batch`].
    ///
    /// # Errors
    /// What can't be read, where and why.
    fn read_batch(&self, samples: &[u32], draw: &DrawSeed, device: &Device) -> io::Result<Self::Batch> {
        Ok(self.training_batch(samples, draw, device))
    }

    /// Whether all samples of these numbers can be read by now: data may come while it is trained on, in a run that [allows it](starling_run::Manifest::can_arrive).
    /// None is asked for before. As it is, they can.
    fn are_here(&self, samples: &[u32]) -> bool {
        let _ = samples;
        true
    }

    /// Whether all samples can be read by now, those that are held out among them. Where members evaluate together, and in all other runs but such on a
    /// prepared text that is shuffled by blocks, a task of which they can't is refused when it founds or joins. As it is, they can.
    fn is_whole(&self) -> bool {
        true
    }

    /// How many bytes a sample of a batch takes, if batches may be read beside what is computed, some micro-batches ahead: several threads of their own
    /// then call [`Self::read_batch`] and [`Self::weight`], which must not draw from Burn's generator. It pays where samples are read from files, or
    /// changed. As it is, `None`: each is read in its turn.
    fn loads_beside(&self) -> Option<u64> {
        None
    }

    /// What these samples of training count together: how many tokens they have that a loss is the mean over, for example. Each counts 0 to 2^20.
    /// [`Self::loss`] is then the mean by these weights, and so is the gradient of a step over all members' samples, however they are dealt. The same each
    /// time. Of held-out samples it says what the sums that are [measured](Self::measure) are divided by. As it is, `None`: each sample counts 1.
    fn weight(&self, samples: &[u32]) -> Option<f64> {
        let _ = samples;
        None
    }

    /// The mean loss over a batch: one number, `[1]`.
    fn loss(&self, module: &Self::Module, batch: Self::Batch) -> Tensor<1>;

    /// The values that a run of this `seed` begins with, in the order of `schema`: `[parameters]`, on every machine the same
    /// bits. As it is, [`initial::draw`].
    fn initial(&self, schema: &Schema, seed: u64) -> Vec<f32> {
        initial::draw(schema, seed)
    }

    /// Whether a run begins with what the module's own initializers draw, rather than with [`Self::initial`]: drawn once on the CPU, from the run's seed.
    /// Platforms may draw other bits: what the founder has drawn, those who join get from members. As it is, `false`.
    fn draws_itself(&self) -> bool {
        false
    }

    /// Sums over some samples, each as much as it [counts](Self::weight), by name; the first is that of the `loss`. Of what is called `perplexity` they are of logarithms, and of `rmse` of squares: it is the
    /// exponential of their mean, and its root. `module` and `device` have no autodiff. As it is, the
    /// loss alone.
    ///
    /// # Errors
    /// If the device failed, or the samples can't be read.
    fn measure(
        &self,
        module: &Self::Module,
        samples: &[u32],
        device: &Device,
    ) -> Result<Vec<(&'static str, f64)>, MeasureError> {
        let weight = self.weight(samples).unwrap_or(samples.len() as f64);
        if weight == 0.0 {
            return Ok(vec![("loss", 0.0)]);
        }
        let loss = in_f32(self.loss(module, self.batch(samples, device))).try_into_data()?;
        let loss = loss.as_slice::<f32>().ok().and_then(|loss| loss.first().copied()).unwrap_or(f32::NAN);
        Ok(vec![("loss", f64::from(loss) * weight)])
    }

    /// What [`Self::measure`] sums besides the `loss`, by name, each time alike. Where members evaluate together ([`RunSpec::evaluate_every`]), it is these that
    /// they agree on; what is not named here is told at the end of a run alone. Whoever joins has to name all that the founder's task does, and may name more.
    /// As it is, nothing: such a task founds runs that whoever [stands for](Self::stands_for) the same model joins, but joins none of theirs.
    ///
    /// [`RunSpec::evaluate_every`]: starling_run::RunSpec::evaluate_every
    fn measures(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// How many samples are measured together: bounds the memory that it needs. As it is, 512.
    fn measured_at_once(&self) -> u32 {
        evaluation::AT_ONCE
    }

    /// Where [`Self::loss_in_blocks`] can be cut, by how many numbers of all float leaves lie before each place, in the order in which Burn visits
    /// them: ascending. Nowhere, as it is.
    fn borders(&self, module: &Self::Module) -> Vec<usize> {
        let _ = module;
        Vec::new()
    }

    /// [`Self::loss`], which lets features through [`Cut::here`] at each of its [borders](Self::borders), in their order. Before
    /// a border there are none but the parameters before it, and none of these behind it.
    fn loss_in_blocks(&self, module: &Self::Module, batch: Self::Batch, cut: &mut Cut<'_>) -> Tensor<1> {
        let _ = cut;
        self.loss(module, batch)
    }
}

/// What tells numbers from other numbers: blake3 of them as little-endian bytes.
pub fn fingerprint(numbers: &[f32]) -> Digest {
    initial::digest(numbers)
}
