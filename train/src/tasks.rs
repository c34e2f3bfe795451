//! A program that a user wrote: one task, with its own data.

use std::collections::BTreeSet;
use std::fmt;
use std::mem::discriminant;
use std::path::PathBuf;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use serde_json::Value;
use starling_run::{
    DataDescription, DataNotes, DataOptions, Error, Learner, Manifest, ModelSpec, Program, ReplicatedState, RunSpec,
    Schema, Workload, initial,
};

use crate::device::DeviceChoice;
use crate::error;
use crate::flatten;
use crate::panics::caught;
use crate::replica::{self, Replica};
use crate::schema::{self, Visited};
use crate::task::Task;

/// Trains one task, on a device.
pub struct TaskProgram<T> {
    task: Arc<T>,
    device: DeviceChoice,
}

impl<T: Task> TaskProgram<T> {
    /// Of `task`, on this device.
    pub fn new(task: T, device: DeviceChoice) -> Self {
        Self { task: Arc::new(task), device }
    }

    /// The schema of the module, which is built and visited twice.
    fn schema(&self) -> Result<Schema, error::Error> {
        let device = self.device.open()?.device.autodiff();
        let leaves = || caught(self.task.name(), "module", || schema::leaves(&self.task.module(&device)));
        let (leaves, again) = (leaves()?, leaves()?);
        check_leaves(&leaves, &again)
            .map_err(|reason| error::Error::Module { task: self.task.name().to_owned(), reason })?;
        Ok(Schema::new(leaves.into_iter().map(|leaf| leaf.entry).collect()))
    }

    /// The module with the values of `state`, which is of the run that `manifest` describes, on the device without autodiff.
    ///
    /// # Errors
    /// If it is another task's run, the module has other leaves, or the device can't be opened.
    pub fn module(&self, manifest: &Manifest, state: &ReplicatedState) -> Result<(T::Module, Device), error::Error> {
        self.check_task(manifest)?;
        let schema = self.schema()?;
        error::Error::unless_alike(manifest, &Manifest { model: self.model(&schema), ..manifest.clone() })?;
        if schema.fingerprint() != manifest.schema || state.parameters.len() != schema.parameters() {
            let (ours, theirs) = (schema.fingerprint(), manifest.schema);
            return Err(starling_run::Error::OtherSchema { ours, theirs }.into());
        }
        let open = self.device.open()?.device;
        let device = open.clone().autodiff();
        let module = caught(self.task.name(), "module", || self.task.module(&device))?;
        Ok((flatten::write_parameters(module, &state.parameters, &device).valid(), open))
    }

    fn check_task(&self, manifest: &Manifest) -> Result<(), error::Error> {
        let (ours, stands_for) = (self.task.name(), self.task.stands_for());
        let is_ours = match (&manifest.model, &stands_for) {
            (ModelSpec::Raw { elements }, _) => return Err(error::Error::NoModel { elements: *elements }),
            // What else there is of it is compared later.
            (theirs, Some((ours, _))) => discriminant(theirs) == discriminant(ours),
            (ModelSpec::Task { name, .. }, None) => name == ours,
            (ModelSpec::Softmax | ModelSpec::Mlp { .. } | ModelSpec::Cnn { .. }, None) => false,
        };
        let ours = stands_for.map_or_else(|| ours.to_owned(), |(model, _)| model.to_string());
        if is_ours {
            Ok(())
        } else {
            Err(error::Error::OtherTask { name: manifest.model.to_string(), ours: Some(ours) })
        }
    }

    /// How the task stands in a manifest.
    fn model(&self, schema: &Schema) -> ModelSpec {
        let own = || ModelSpec::task(self.task.name(), &self.task.settings(), schema);
        self.task.stands_for().map_or_else(own, |(model, _)| model)
    }
}

impl<T: Task> Program for TaskProgram<T> {
    fn check(&self, manifest: &Manifest) -> Result<(), Error> {
        Ok(self.check_task(manifest)?)
    }

    fn files(&self, _: &str) -> Result<(&'static str, Vec<PathBuf>), Error> {
        Ok((starling_run::data::PROGRAM, Vec::new()))
    }

    fn read(&self, _: &DataOptions) -> Result<Box<dyn Workload>, Error> {
        let schema = self.schema()?;
        Ok(Box::new(Own { model: self.model(&schema), schema, task: self.task.clone(), device: self.device }))
    }
}

impl<T: Task> fmt::Debug for TaskProgram<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskProgram").field("task", &self.task.name()).field("device", &self.device).finish()
    }
}

/// A task, and what its module came to.
struct Own<T> {
    task: Arc<T>,
    device: DeviceChoice,
    schema: Schema,
    model: ModelSpec,
}

impl<T: Task> Workload for Own<T> {
    fn description(&self) -> DataDescription {
        let own = || DataDescription::of_program(self.task.training(), self.task.fingerprint());
        self.task.stands_for().map_or_else(own, |(_, dataset)| dataset.description())
    }

    fn model(&self) -> Option<ModelSpec> {
        Some(self.model.clone())
    }

    fn found(&self, spec: &RunSpec) -> Result<Manifest, Error> {
        if let Some((_, dataset)) = self.task.stands_for() {
            dataset.check_split(spec.held_out, spec.seed).map_err(error::Error::from)?;
        }
        let spec = RunSpec { model: self.model.clone(), ..spec.clone() };
        let mut manifest = Manifest::of(&spec, self.description());
        manifest.check()?;
        manifest.schema = self.schema.fingerprint();
        manifest.initial = initial::digest(&replica::initial(&*self.task, &self.schema, manifest.seed)?);
        Ok(manifest)
    }

    fn open(self: Box<Self>, manifest: &Manifest) -> Result<Box<dyn Learner>, Error> {
        manifest.check()?;
        let data = self.description().in_form_of(&manifest.data);
        // Another seed would hold out other samples.
        let seed = self.task.stands_for().map_or(manifest.seed, |(_, dataset)| dataset.seed());
        let ours = Manifest { model: self.model.clone(), data, seed, ..manifest.clone() };
        error::Error::unless_alike(manifest, &ours)?;
        if manifest.model.is_built_in() {
            // Which leaves those have stands in no manifest.
            let schema = schema::of(&manifest.model, manifest.data.shape, manifest.data.classes);
            let with = |schema| Manifest { model: ModelSpec::task("", &Value::Null, schema), ..manifest.clone() };
            error::Error::unless_alike(&with(&schema), &with(&self.schema))?;
        }
        Ok(Box::new(Replica::open(self.task, manifest, DataNotes::default(), self.device)?))
    }
}

/// What of a module's leaves can't be, as a sentence.
fn check_leaves(leaves: &[Visited], again: &[Visited]) -> Result<(), String> {
    if leaves != again {
        let differs = leaves.iter().zip(again).find(|(first, second)| first != second);
        let place = differs.map(|(leaf, _)| format!(", from `{}` on", leaf.entry.path)).unwrap_or_default();
        return Err(format!("built twice, it has other leaves{place}; build it from the task's settings alone"));
    }
    if leaves.is_empty() {
        return Err("it has no trained leaf; give it a layer, or a `Param`".to_owned());
    }
    if let Some(frozen) = leaves.iter().find(|leaf| !leaf.is_trained) {
        let path = &frozen.entry.path;
        return Err(format!(
            "its leaf `{path}` is not trained, so that nothing keeps it equal on all members; leave it out of the module's \
             parameters (`#[module(skip)]`), or take a layer that keeps no running values"
        ));
    }
    let mut paths = BTreeSet::new();
    match leaves.iter().find(|leaf| !paths.insert(&leaf.entry.path)) {
        Some(leaf) => Err(format!("two of its leaves are called `{}`", leaf.entry.path)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
