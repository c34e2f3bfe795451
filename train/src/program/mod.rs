//! The program of the command line: its models, on the data that its users name.

mod length;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use starling_data::{Dataset, files, kinds, shared_files};
use starling_run::data::ArrivalTracker;
use starling_run::state::initial;
use starling_run::{
    DataDescription, DataOptions, DataRecord, DataSummary, Error, InitialOrigin, Kind, Learner, Manifest, ModelSpec,
    PreprocessingSpec, Program, RunSpec, Workload,
};

use crate::device::ComputeSpec;
use crate::error::{self, TrainingKind};
use crate::export::read_origin;
use crate::network::forward::OutputKind;
use crate::network::models::{self, AnyTask, ClassifierModel};
use crate::replica::Replica;
use crate::task::classification::ClassificationTask;

/// Trains what [`models::REGISTRY`] has, on a device.
#[derive(Debug, Clone, Copy)]
pub struct ModelProgram {
    compute: ComputeSpec,
}

impl ModelProgram {
    /// On this device, or computed in this way.
    pub fn new(compute: impl Into<ComputeSpec>) -> Self {
        Self { compute: compute.into() }
    }

    /// What runs over `dataset` are made of.
    pub fn workload(&self, dataset: Arc<Dataset>) -> Box<dyn Workload> {
        Box::new(OnData { dataset, compute: self.compute })
    }

    /// Whether this model learns classes.
    pub fn learns_classes(&self, model: &ModelSpec) -> bool {
        model.name().and_then(models::find).is_some_and(|model| model.learns() == OutputKind::Classes)
    }

    /// Whether this model learns numbers.
    pub fn learns_numbers(&self, model: &ModelSpec) -> bool {
        model.name().and_then(models::find).is_some_and(|model| model.learns() == OutputKind::Numbers)
    }
}

impl Program for ModelProgram {
    fn check(&self, manifest: &Manifest) -> Result<(), Error> {
        check_model(manifest)?;
        if self.kind(&manifest.data.kind).is_none() {
            let (kind, ours) = (manifest.data.kind.clone(), kinds().map(|kind| kind.name).collect());
            return Err(error::Error::UnknownKind { kind, ours }.into());
        }
        let chosen = models::choose(&manifest.model)?;
        Ok(models::check_masks(&chosen.options, &manifest.spec())?)
    }

    fn kind(&self, name: &str) -> Option<Kind> {
        kinds().find(|kind| kind.name == name)
    }

    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), Error> {
        Ok(files(source).map_err(error::Error::from)?)
    }

    fn shared_files(&self, options: &DataOptions, folder: &Path) -> Result<(Kind, Vec<PathBuf>), Error> {
        Ok(shared_files(options, folder).map_err(error::Error::from)?)
    }

    fn learns_text(&self, model: &ModelSpec) -> bool {
        model.name().and_then(models::find).is_some_and(|model| model.learns() == OutputKind::Text)
    }

    fn read(&self, options: &DataOptions) -> Result<Box<dyn Workload>, Error> {
        Ok(self.workload(Arc::new(Dataset::load(options).map_err(error::Error::from)?)))
    }
}

/// Those models, on one data set.
struct OnData {
    dataset: Arc<Dataset>,
    compute: ComputeSpec,
}

impl Workload for OnData {
    fn description(&self) -> DataDescription {
        self.dataset.description()
    }

    fn training(&self) -> u64 {
        self.dataset.training().len() as u64
    }

    fn usual_steps(&self, spec: &RunSpec) -> u64 {
        length::usual(spec, &self.dataset)
    }

    fn preprocessing(&self) -> Option<&PreprocessingSpec> {
        Some(self.dataset.preprocessing())
    }

    fn arrivals(&self) -> Option<Arc<dyn ArrivalTracker>> {
        self.dataset.arrivals()
    }

    fn describe(&self, spec: &RunSpec) -> Result<Manifest, Error> {
        Ok(models::describe(spec, &self.dataset)?.0)
    }

    fn found(&self, spec: &RunSpec) -> Result<Manifest, Error> {
        Ok(found_on(spec, &self.dataset)?)
    }

    fn read_initial(&self, spec: &RunSpec, origin: &InitialOrigin<'_>) -> Result<Vec<f32>, Error> {
        let (_, task) = models::describe(spec, &self.dataset)?;
        Ok(read_origin(origin, &task.schema(&spec.freeze)?).map_err(error::Error::from)?)
    }

    fn open_with(self: Box<Self>, manifest: &Manifest, given: Option<Vec<f32>>) -> Result<Box<dyn Learner>, Error> {
        check(manifest, &self.dataset)?;
        let (_, task) = models::describe(&manifest.spec(), &self.dataset)?;
        Ok(task.open(manifest, given, notes(manifest, &self.dataset), self.compute)?)
    }
}

/// A member's part in a run of a classifier.
pub type ClassifierReplica = Replica<ClassificationTask>;

impl ClassifierReplica {
    /// A trainer at step 0 of the run that `manifest` describes.
    ///
    /// # Errors
    /// If the manifest is not usable or is of no classifier, `dataset` is not the run's, the model built here has another schema or
    /// other initial parameters than the run's, or the device cannot be opened.
    pub fn new(manifest: &Manifest, dataset: Dataset, compute: impl Into<ComputeSpec>) -> Result<Self, error::Error> {
        let dataset = Arc::new(dataset);
        check(manifest, &dataset)?;
        let notes = notes(manifest, &dataset);
        let (layers, options) = ClassifierModel::find(&manifest.model)?;
        let task = ClassificationTask::new(layers, dataset).with_options(options);
        let leaves = task.leaves();
        Self::open(Arc::new(task), leaves, manifest, None, notes, compute)
    }
}

/// The manifest of a new run over `dataset`.
///
/// # Errors
/// If a value is out of range, the model cannot work on the data, or `dataset` was split with another seed or another held-out
/// share than `spec` says.
pub fn found(spec: &RunSpec, dataset: &Dataset) -> Result<Manifest, error::Error> {
    found_on(spec, &Arc::new(dataset.clone()))
}

fn found_on(spec: &RunSpec, dataset: &Arc<Dataset>) -> Result<Manifest, error::Error> {
    dataset.check_split(spec.held_out, spec.seed)?;
    let (mut manifest, task) = models::describe(spec, dataset)?;
    // Before initial values are drawn: that they are not too many must be known.
    manifest.check().map_err(starling_run::Error::from)?;
    manifest.initial = initial::digest(&task.initial(&task.schema(&spec.freeze)?, manifest.seed)?);
    Ok(manifest)
}

/// Checks that the run's model is one of these, and as this program has it; and that `dataset` is the run's, split as the run's.
fn check(manifest: &Manifest, dataset: &Arc<Dataset>) -> Result<(), error::Error> {
    check_model(manifest)?;
    let (ours, _) = models::describe(&manifest.spec(), dataset)?;
    let Manifest { initial, given, from, founder, .. } = *manifest;
    let data = ours.data.clone().in_form_of(&manifest.data);
    let ours = Manifest { data, seed: dataset.seed(), initial, given, from, founder, ..ours };
    error::Error::unless_alike(manifest, &ours.in_measures_of(manifest))
}

/// Checks that the command line has the run's model.
fn check_model(manifest: &Manifest) -> Result<(), error::Error> {
    // Before any of it is repeated in words.
    manifest.check().map_err(starling_run::Error::from)?;
    let Some(name) = manifest.model.name() else {
        return Err(error::Error::NoModel { elements: manifest.parameters });
    };
    if manifest.data.is_of_program() {
        return Err(error::Error::OtherTask { theirs: TrainingKind::by(manifest), ours: TrainingKind::Models });
    }
    match models::find(name) {
        Some(_) => Ok(()),
        None => Err(error::Error::UnknownModel { model: manifest.model.to_string(), ours: models::names().collect() }),
    }
}

fn notes(manifest: &Manifest, dataset: &Dataset) -> DataRecord {
    let learns = manifest.model.name().and_then(models::find).map(|model| model.learns());
    let are_numbers = learns == Some(OutputKind::Numbers);
    DataRecord {
        summary: Some(DataSummary { are_numbers, ..dataset.summary().clone() }),
        preprocessing: Some(dataset.preprocessing().clone()),
        warnings: dataset.warnings(manifest.batch_size, learns == Some(OutputKind::Classes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceSpec;

    fn digits() -> Dataset {
        Dataset::load(&DataOptions::default()).expect("the embedded digits")
    }

    #[test]
    fn a_founders_choice_must_fit_its_data() {
        let dataset = digits();
        let manifest = found(&RunSpec::default(), &dataset).expect("the defaults make a run");
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        let refused = |change: fn(&mut RunSpec)| {
            let mut spec = RunSpec::default();
            change(&mut spec);
            found(&spec, &dataset).expect_err("not a run").to_string()
        };
        for (change, reason) in [
            // Of a model of this size, nothing may be built.
            (
                (|spec| spec.model = ModelSpec::sized("mlp", &[65_536; 3])) as fn(&mut RunSpec),
                "`model` is not usable: it has 8594980874 parameters",
            ),
            (|spec| spec.model = ModelSpec::sized("mlp", &[0]), "`model` is not usable: a hidden layer has size 0"),
            (|spec| spec.seed = 1, "the data was split with held_out 200/1000 and seed 42"),
            (|spec| spec.held_out = 0.5, "but the run says 500/1000"),
        ] {
            let message = refused(change);
            assert!(message.contains(reason), "{message}");
        }
    }

    /// Others may have a reader that this build lacks.
    #[test]
    fn data_of_a_strangers_kind_is_refused_by_name() {
        let manifest = found(&RunSpec::default(), &digits()).expect("a run");
        let program = ModelProgram::new(DeviceSpec::Cpu);
        let data = DataDescription { kind: "parquet".to_owned(), ..manifest.data.clone() };
        let refused = program.check(&Manifest { data, ..manifest.clone() }).expect_err("no reader").to_string();
        assert!(refused.contains("parquet") && refused.contains("csv"), "{refused}");
        let data = DataDescription { kind: "\u{1b}[2J".to_owned(), ..manifest.data.clone() };
        let refused = program.check(&Manifest { data, ..manifest }).expect_err("no kind").to_string();
        assert!(!refused.contains('\u{1b}'), "{refused}");
    }

    /// What such a manifest leads to must neither be built nor printed raw.
    #[test]
    fn a_strangers_model_is_refused_before_any_of_it_is_built() {
        let manifest = found(&RunSpec::default(), &digits()).expect("a run");
        let program = ModelProgram::new(DeviceSpec::Cpu);
        let refused = |model: ModelSpec| {
            let manifest = Manifest { model, ..manifest.clone() };
            let checked = program.check(&manifest).err().map(|error| error.to_string());
            let opened = program.read(&DataOptions::default()).expect("read").open(&manifest);
            (checked, opened.expect_err("not the run's").to_string())
        };
        for (model, early, reason) in [
            (ModelSpec::sized("vit", &[2]), true, "trains `vit:2`, a model that this program lacks"),
            (ModelSpec::named("vit", &"\u{1b}[2J".into()), true, "trains `vit`, a model that this program lacks"),
            (ModelSpec::sized("\u{1b}[2J", &[]), true, "lower-case letters"),
            (ModelSpec::named("mlp", &"\u{1b}[2J".into()), true, "settings are no sizes"),
            (ModelSpec::sized("mlp", &[0]), true, "a hidden layer has size 0"),
            // A huge one with the parameters of a small one.
            (ModelSpec::sized("mlp", &[65_536; 16]), false, "leaves.hidden.0.bias is [65536], the run has [64]"),
            // It would be another manifest of the same run.
            (ModelSpec::sized("mlp", &[]), false, "model is mlp:64, the run has mlp"),
        ] {
            let (checked, opened) = refused(model);
            assert!(opened.contains(reason) && !opened.contains('\u{1b}'), "{opened}");
            let checked = checked.unwrap_or_default();
            assert!(checked.contains(reason) == early && !checked.contains('\u{1b}'), "{checked}");
        }
    }
}
