//! A program that a user wrote: one task, with its own data.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use starling_run::manifest::freeze;
use starling_run::manifest::schema::Entry;
use starling_run::state::initial;
use starling_run::{
    ConstantSpec, DataDescription, DataOptions, DataRecord, Error, InitialOrigin, Kind, LeafKind, Learner, Manifest,
    ManifestError, ModelOptions, ModelSpec, Precision, Program, ReplicatedState, RunSpec, Schema, Workload,
};

use crate::device::ComputeSpec;
use crate::error::{self, TrainingKind};
use crate::export::read_origin;
use crate::network::flatten::{self, LeafValues};
use crate::network::models;
use crate::network::schema::{self, LazyLeaf};
use crate::panics::caught;
use crate::replica::{self, Replica};
use crate::task::draw::beside_others;
use crate::task::{SampleSummary, Task};

/// Trains one task, on a device.
pub struct TaskProgram<T> {
    task: Arc<T>,
    compute: ComputeSpec,
}

impl<T: Task> TaskProgram<T> {
    /// Of `task`, on this device, or computed in this way.
    pub fn new(task: T, compute: impl Into<ComputeSpec>) -> Self {
        Self { task: Arc::new(task), compute: compute.into() }
    }

    /// The leaves of the module, which is built and visited twice, and its constants.
    fn leaves(&self) -> Result<(Vec<Entry>, Vec<ConstantSpec>), error::Error> {
        let (_, device) = self.compute.open()?;
        let unfit = |reason| error::Error::Module { task: self.task.name().to_owned(), reason };
        let leaves = || -> Result<(Vec<Entry>, Vec<ConstantSpec>), error::Error> {
            // The visit draws the values.
            beside_others(|| {
                caught(self.task.name(), "module", || {
                    let module = self.task.module(&device);
                    schema::check_numbers(&module)?;
                    let constants = schema::constants(&module);
                    Ok((schema::leaves(module, LazyLeaf::IsDrawn)?, constants))
                })
            })
            .and_then(|leaves| leaves.map_err(unfit))
        };
        let ((leaves, constants), (again, constants_again)) = (leaves()?, leaves()?);
        check_leaves(&leaves, &again).and_then(|()| check_constants(&constants, &constants_again)).map_err(unfit)?;
        Ok((leaves, constants))
    }

    /// The module with the values of `state`, which is of the run that `manifest` describes, on the device without autodiff.
    ///
    /// # Errors
    /// If it is another task's run, the module has other leaves, or the device can't be opened.
    pub fn module(&self, manifest: &Manifest, state: &ReplicatedState) -> Result<(T::Module, Device), error::Error> {
        self.check_task(manifest)?;
        let (leaves, constants) = self.leaves()?;
        let leaves = frozen(leaves, &manifest.freeze)?;
        let schema = Schema::new(leaves.clone()).with_constants(constants);
        let ours = Manifest { model: self.model()?, ..manifest.clone() }.with_schema(&schema);
        error::Error::unless_alike(manifest, &ours)?;
        if (state.parameters.len(), state.frozen.len()) != (manifest.changing(), manifest.frozen()) {
            let shape = |parameters: usize, frozen: usize| format!("{parameters} parameters and {frozen} frozen ones");
            let expected = shape(manifest.changing(), manifest.frozen());
            let found = shape(state.parameters.len(), state.frozen.len());
            return Err(starling_run::Error::OtherShape { step: state.step, expected, found }.into());
        }
        let (open, device) = self.compute.open()?;
        let module = beside_others(|| caught(self.task.name(), "module", || self.task.module(&device)))?;
        let module = replica::initial::settled(module, &leaves);
        let module = replica::initial::separate(module, &leaves, &device);
        let model = state.model(manifest);
        let values = LeafValues::changing(&*model, manifest.trained()).with_frozen(Some(&state.frozen));
        let kinds: Vec<LeafKind> = leaves.iter().map(|leaf| leaf.kind).collect();
        Ok((flatten::write_leaves(module, &kinds, values, Precision::F32, &device).valid(), open.device))
    }

    fn check_task(&self, manifest: &Manifest) -> Result<(), error::Error> {
        manifest.check().map_err(starling_run::Error::from)?;
        let Some(name) = manifest.model.name() else {
            return Err(error::Error::NoModel { elements: manifest.parameters });
        };
        let ours = self.model()?;
        // What else there is of it is compared later.
        let brings_data = self.task.stands_for().is_none();
        if ours.name() == Some(name) && manifest.data.is_of_program() == brings_data {
            return Ok(());
        }
        let ours =
            if brings_data { TrainingKind::Task(ours.to_string()) } else { TrainingKind::Model(ours.to_string()) };
        Err(error::Error::OtherTask { theirs: TrainingKind::by(manifest), ours })
    }

    /// Checks that the task's samples can be numbered, and are those of the data set that it stands on, if it does: the run numbers
    /// these, and a batch of others would be no batch, or another one, in the middle of it.
    fn check_samples(&self) -> Result<(), error::Error> {
        let Some((_, dataset)) = self.task.stands_for() else {
            let SampleSummary { training, held_out, .. } = self.task.data();
            if training >= 2 && training.checked_add(held_out).is_some() {
                return Ok(());
            }
            return Err(error::Error::SampleCount { task: self.task.name().to_owned(), training, held_out });
        };
        let description = dataset.description();
        let refused = |field, found: String, expected: String| {
            let (task, data) = (self.task.name().to_owned(), description.kind.clone());
            Err(error::Error::OtherSamples { task, data, field, found, expected })
        };
        let (ours, its) = (self.task.data(), SampleSummary::from(dataset));
        if ours.training != its.training {
            return refused("training", ours.training.to_string(), its.training.to_string());
        }
        // It need not evaluate on all.
        if ours.held_out > its.held_out {
            return refused("held_out", ours.held_out.to_string(), format!("{} at most", its.held_out));
        }
        if ours.fingerprint != its.fingerprint {
            return refused("fingerprint", ours.fingerprint.to_string(), its.fingerprint.to_string());
        }
        Ok(())
    }

    /// How the task stands in a manifest.
    fn model(&self) -> Result<ModelSpec, error::Error> {
        let Some((model, _)) = self.task.stands_for() else {
            return Ok(ModelSpec::named(self.task.name(), &self.task.settings()));
        };
        let chosen = models::choose(&model)?;
        if chosen.options != ModelOptions::default() {
            let reason = "a task stands for a model that neither drops numbers nor changes its images: how the command line's does so, \
                          a task can't know";
            let invalid = ManifestError::Invalid { field: "model", reason: reason.to_owned() };
            return Err(starling_run::Error::from(invalid).into());
        }
        Ok(chosen.spec())
    }
}

impl<T: Task> Program for TaskProgram<T> {
    fn check(&self, manifest: &Manifest) -> Result<(), Error> {
        Ok(self.check_task(manifest)?)
    }

    fn kind(&self, name: &str) -> Option<Kind> {
        Some(Kind::PROGRAM).filter(|kind| kind.name == name)
    }

    fn files(&self, _: &str) -> Result<(Kind, Vec<PathBuf>), Error> {
        Ok((Kind::PROGRAM, Vec::new()))
    }

    fn read(&self, options: &DataOptions) -> Result<Box<dyn Workload>, Error> {
        let checked =
            options.check_no_table("this program has data of its own", "train on a table with `starling run`");
        checked.map_err(error::Error::NoTable)?;
        self.check_samples()?;
        let (leaves, constants) = self.leaves()?;
        Ok(Box::new(Own { model: self.model()?, leaves, constants, task: self.task.clone(), compute: self.compute }))
    }
}

impl<T: Task> fmt::Debug for TaskProgram<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskProgram").field("task", &self.task.name()).field("compute", &self.compute).finish()
    }
}

/// A task, and what its module came to.
struct Own<T> {
    task: Arc<T>,
    compute: ComputeSpec,
    /// In visit order.
    leaves: Vec<Entry>,
    /// What is no number to train, in visit order.
    constants: Vec<ConstantSpec>,
    model: ModelSpec,
}

impl<T> Own<T> {
    /// Its parameters in a run that freezes what is under these paths.
    fn schema(&self, paths: &[String]) -> Result<Schema, error::Error> {
        Ok(Schema::new(frozen(self.leaves.clone(), paths)?).with_constants(self.constants.clone()))
    }
}

fn frozen(leaves: Vec<Entry>, paths: &[String]) -> Result<Vec<Entry>, error::Error> {
    freeze::freeze(leaves, paths).map_err(replica::unfreezable)
}

impl<T: Task> Own<T> {
    /// The manifest with what members evaluate together, if they do.
    fn with_measures(&self, manifest: Manifest) -> Result<Manifest, error::Error> {
        let measures = caught(self.task.name(), "measures", || self.task.measures())?;
        Ok(manifest.with_measures(self.task.data().held_out, &measures))
    }

    /// Whether its samples do not all count 1.
    fn is_weighted(&self) -> Result<bool, error::Error> {
        caught(self.task.name(), "weight", || self.task.weight(&[0]).is_some())
    }
}

impl<T: Task> Workload for Own<T> {
    fn description(&self) -> DataDescription {
        let own = || {
            let SampleSummary { training, fingerprint, .. } = self.task.data();
            DataDescription::of_program(training, fingerprint)
        };
        self.task.stands_for().map_or_else(own, |(_, dataset)| dataset.description())
    }

    fn training(&self) -> u64 {
        self.task.data().training.into()
    }

    fn describe(&self, spec: &RunSpec) -> Result<Manifest, Error> {
        let spec = RunSpec { model: self.model.clone(), ..spec.clone() };
        let manifest = Manifest::of(&spec, self.description()).with_schema(&self.schema(&spec.freeze)?);
        Ok(self.with_measures(Manifest { weighted: self.is_weighted()?, ..manifest })?)
    }

    fn found(&self, spec: &RunSpec) -> Result<Manifest, Error> {
        if let Some((_, dataset)) = self.task.stands_for() {
            dataset.check_split(spec.held_out, spec.seed).map_err(error::Error::from)?;
        }
        let mut manifest = self.describe(spec)?;
        manifest.check()?;
        let schema = self.schema(&spec.freeze)?;
        manifest.initial =
            initial::digest(&replica::initial::values(&*self.task, &self.leaves, &schema, manifest.seed)?);
        Ok(manifest)
    }

    fn read_initial(&self, spec: &RunSpec, origin: &InitialOrigin<'_>) -> Result<Vec<f32>, Error> {
        Ok(read_origin(origin, &self.schema(&spec.freeze)?).map_err(error::Error::from)?)
    }

    fn own_initial(&self, spec: &RunSpec) -> Result<Option<Vec<f32>>, Error> {
        if !self.task.draws_itself() {
            return Ok(None);
        }
        Ok(Some(replica::initial::values(&*self.task, &self.leaves, &self.schema(&spec.freeze)?, spec.seed)?))
    }

    fn open_with(self: Box<Self>, manifest: &Manifest, given: Option<Vec<f32>>) -> Result<Box<dyn Learner>, Error> {
        manifest.check()?;
        let data = self.description().in_form_of(&manifest.data);
        // Another seed would hold out other samples.
        let seed = self.task.stands_for().map_or(manifest.seed, |(_, dataset)| dataset.seed());
        let ours =
            Manifest { model: self.model.clone(), data, seed, weighted: self.is_weighted()?, ..manifest.clone() }
                .with_schema(&self.schema(&manifest.freeze)?);
        error::Error::unless_alike(manifest, &self.with_measures(ours)?.in_measures_of(manifest))?;
        let notes = DataRecord::default();
        Ok(Box::new(Replica::open(self.task, self.leaves, manifest, given, notes, self.compute)?))
    }
}

/// What of a module's leaves can't be, as a sentence.
fn check_leaves(leaves: &[Entry], again: &[Entry]) -> Result<(), String> {
    if leaves != again {
        let differs = leaves.iter().zip(again).find(|(first, second)| first != second);
        let place = differs.map(|(leaf, _)| format!(", from `{}` on", leaf.path)).unwrap_or_default();
        return Err(format!("built twice, it has other leaves{place}; build it from the task's settings alone"));
    }
    if !leaves.iter().any(|leaf| leaf.kind == LeafKind::Trained) {
        return Err("it has no trained leaf; give it a layer, or a `Param`".to_owned());
    }
    let mut paths = BTreeSet::new();
    match leaves.iter().find(|leaf| !paths.insert(&leaf.path)) {
        Some(leaf) => Err(format!("two of its leaves are called `{}`", leaf.path)),
        None => Ok(()),
    }
}

/// What of a module's constants can't be, as a sentence.
fn check_constants(constants: &[ConstantSpec], again: &[ConstantSpec]) -> Result<(), String> {
    if constants == again {
        return Ok(());
    }
    let differs = constants.iter().zip(again).find(|(first, second)| first != second);
    let place = differs.map(|(constant, _)| format!(", from `{}` on", constant.path)).unwrap_or_default();
    Err(format!(
        "built twice, what it has of whole numbers and truths is something else{place}; such leaves are constants, on all members alike: build \
         them from the task's settings alone"
    ))
}

#[cfg(test)]
mod tests;
