//! Trained models away from their runs: written, read back, used. The command line's `export`, `predict`, `generate`, `eval` and
//! `model show` are these.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use starling_node::NodeError;
use starling_node::start::node::CHECKPOINTS;
use starling_node::store::manifest_file;
use starling_node::store::preprocessing_file::PreprocessingFile;
use starling_node::store::private_file::for_others;
use starling_run::program::export::{DESCRIPTION, MODEL};
use starling_run::{CheckpointFolder, CheckpointStore, Manifest, PreprocessingSpec, ReplicatedState};
use starling_train::DeviceSpec;
use starling_train::export::{write_exported, write_exported_onnx};

#[doc(inline)]
pub use starling_run::EvaluationReport;
#[doc(inline)]
pub use starling_train::export::{
    ClassSummary, ConfusionTable, DataOrigin, Description, DetailReport, EvaluationSet, ExportOptions, Format, Layout,
    Model, ModelError, NumberFormat, NumberSummary, Origin, Prediction, PredictionOptions, PredictionReport,
    SamplingOptions, TextDecoder, TextGenerator, macro_f1,
};
#[doc(inline)]
pub use starling_train::stream::{Block, InputSpec, LabelPolicy, Reader, RowRecord, RowSpec, SidePolicy, SplitSpec};

/// Where a trained model lies: an exported file or folder, a checkpoint, or a data directory, in which a node may be at work.
#[derive(Debug, Clone)]
pub struct ModelLocation {
    path: PathBuf,
    run: Option<String>,
    step: Option<u64>,
}

/// What lies there.
enum Found {
    Exported,
    Saved(Box<Saved>),
}

/// A checkpoint, with what its machine knows of the run.
struct Saved {
    manifest: Manifest,
    state: ReplicatedState,
    preprocessing: Option<PreprocessingSpec>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// The run's id, in hex.
    pub run: String,
    /// The last step that the model includes.
    pub step: u64,
    /// Whether it says how its data is scaled, and what its classes are called.
    pub has_preprocessing: bool,
}

impl ModelLocation {
    /// At this path: a `.safetensors` file or a folder that was exported; a checkpoint's manifest file (`step-*.json`) or the folder
    /// that it is in; or a data directory, whose newest checkpoint of the run that was saved last it is.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), run: None, step: None }
    }

    /// Of a data directory, the run whose id begins so.
    #[must_use]
    pub fn of_run(self, prefix: impl Into<String>) -> Self {
        Self { run: Some(prefix.into()), ..self }
    }

    /// Of a data directory, the checkpoint after this step.
    #[must_use]
    pub fn after_step(self, step: u64) -> Self {
        Self { step: Some(step), ..self }
    }

    /// Opens the model. One of a checkpoint is what its export would be.
    ///
    /// # Errors
    /// If there is none, it is damaged, a program's own task, or of a model that this program lacks; or the device can't be opened.
    pub fn open(&self, device: DeviceSpec) -> Result<Model, NodeError> {
        let model = match self.find()? {
            Found::Exported => Model::open(&self.path, device).map_err(starling_run::Error::from),
            Found::Saved(saved) => saved.as_export(|export| Model::of(&export, &self.path, device)),
        };
        Ok(model?)
    }

    /// What is known of the model, whatever task it is of.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn describe(&self) -> Result<Description, NodeError> {
        let description = match self.find()? {
            Found::Exported => Description::open(&self.path).map_err(starling_run::Error::from),
            Found::Saved(saved) => saved.as_export(|export| Description::of(&export, &self.path)),
        };
        Ok(description?)
    }

    /// Writes the model of a checkpoint: to a folder if `to` ends with a slash or is one already, else to a safetensors file. It
    /// appears whole or not at all.
    ///
    /// # Errors
    /// If there is no such checkpoint, it is damaged, or nothing can be written there.
    pub fn export(&self, to: &Path) -> Result<ExportReport, NodeError> {
        let saved = match self.find()? {
            Found::Saved(saved) => saved,
            Found::Exported => {
                let reason = "it is exported already".to_owned();
                return Err(starling_run::Error::Export { path: to.to_owned(), reason }.into());
            }
        };
        let folder = |path: &Path| path.canonicalize().ok();
        if to.is_file() && to.parent().is_some_and(|parent| folder(parent) == folder(&self.path)) {
            let reason =
                "it is a file of the data directory, and would be replaced; write the model elsewhere".to_owned();
            return Err(starling_run::Error::Export { path: to.to_owned(), reason }.into());
        }
        for_others(to, || saved.as_export(|export| export.write(to)))?;
        Ok(saved.report())
    }

    /// Writes the model for other programs, with tensors in the layout and with the numbers that `options` say: a Llama to a folder, others
    /// to a folder if `to` ends with a slash or is one already, else to a safetensors file. It appears whole or not at all.
    ///
    /// # Errors
    /// If there is no model, it is damaged or has no such layout, a number is beyond the largest of its kind, numbers would be rounded a
    /// second time, or nothing can be written there; also if what is there is what the model is made of.
    pub fn export_as(&self, to: &Path, options: &ExportOptions) -> Result<ExportReport, NodeError> {
        self.write(
            to,
            || write_exported(&self.path, to, options),
            |saved| saved.as_export(|export| export.write_as(to, options)),
        )
    }

    /// Writes the model as an ONNX file: a graph from samples as they are in the data, of a table once its columns are numbers, to what they
    /// are predicted to be. It appears whole or not at all.
    ///
    /// # Errors
    /// If there is no model, it is damaged, a language model, a program's own task or too large for such a file, nothing says how its data is
    /// scaled, or it can't be written there; also if what is there is what the model is made of.
    pub fn export_onnx(&self, to: &Path) -> Result<ExportReport, NodeError> {
        self.write(to, || write_exported_onnx(&self.path, to), |saved| saved.as_export(|export| export.write_onnx(to)))
    }

    /// Writes what lies there, but not over it.
    fn write(
        &self,
        to: &Path,
        exported: impl FnOnce() -> Result<Description, starling_run::Error>,
        saved: impl FnOnce(&Saved) -> Result<(), starling_run::Error>,
    ) -> Result<ExportReport, NodeError> {
        let found = self.find()?;
        let whole = |path: &Path| path.canonicalize().ok();
        // What is not there yet will lie in a folder that is.
        let parent = to.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        let (source, there, parent) = (whole(&self.path), whole(to), parent.and_then(whole));
        let is_source = there.is_some() && there == source;
        let is_in_source = parent == source && (there.is_some() || matches!(found, Found::Exported));
        let is_around_source = to.is_dir() && there.as_deref() == source.as_deref().and_then(Path::parent);
        if source.is_some() && (is_source || is_in_source || is_around_source) {
            let reason = "the model is made of what is there; name another place".to_owned();
            return Err(starling_run::Error::Export { path: to.to_owned(), reason }.into());
        }
        Ok(match found {
            Found::Exported => {
                let description = for_others(to, exported)?;
                let has_preprocessing = description.trained_on.is_some();
                let Origin { run, step, .. } = description.origin;
                ExportReport { run, step, has_preprocessing }
            }
            Found::Saved(state) => {
                for_others(to, || saved(&state))?;
                state.report()
            }
        })
    }

    fn find(&self) -> Result<Found, NodeError> {
        let path = &self.path;
        if self.is_exported() {
            return match (&self.run, self.step) {
                (None, None) => Ok(Found::Exported),
                _ => Err(self.none("it holds one model, of which no run and no step can be chosen")),
            };
        }
        if !path.exists() {
            return Err(self.none("nothing is there"));
        }
        let (data_dir, store, step) = if path.join(CHECKPOINTS).is_dir() {
            (Some(path.clone()), CheckpointFolder::new(path.join(CHECKPOINTS)).store(self.run.as_deref())?, self.step)
        } else {
            let step = path.is_file().then(|| step_of(path)).flatten();
            let folder = if path.is_dir() { Some(path.as_path()) } else { path.parent().filter(|_| step.is_some()) };
            let store =
                folder.map(CheckpointStore::reading).filter(|store| store.steps().is_ok_and(|steps| !steps.is_empty()));
            let store = store.ok_or_else(|| match path.join(MODEL).is_file() {
                true => {
                    self.none(&format!("its `{DESCRIPTION}` is missing; name its `{MODEL}` itself, or export it again"))
                }
                false => self.none("it has neither an exported model nor checkpoints"),
            })?;
            // Only with its whole path is it known what is above it.
            let above = store.directory().canonicalize().ok();
            let above = above.and_then(|folder| folder.ancestors().nth(2).map(Path::to_owned));
            (above, store, step.or(self.step))
        };
        let state = store.load(step)?;
        let data_dir =
            data_dir.ok_or_else(|| self.none("it is not in a data directory, which has the run's manifest"))?;
        let manifest = manifest_file::load(&data_dir, state.run)?;
        let preprocessing = PreprocessingFile::new(&data_dir, &manifest).load()?;
        Ok(Found::Saved(Box::new(Saved { manifest, state, preprocessing })))
    }

    /// Whether it is an exported file or folder, by what lies there.
    fn is_exported(&self) -> bool {
        let is_checkpoint = || self.path.extension() == Some(OsStr::new("json")) && step_of(&self.path).is_some();
        if self.path.is_dir() { self.path.join(DESCRIPTION).is_file() } else { self.path.exists() && !is_checkpoint() }
    }

    fn none(&self, reason: &str) -> NodeError {
        let error = ModelError::NotAModel { path: self.path.clone(), reason: reason.to_owned() };
        starling_run::Error::from(error).into()
    }
}

impl Saved {
    fn report(&self) -> ExportReport {
        let has_preprocessing = self.preprocessing.is_some();
        ExportReport { run: self.state.run.to_string(), step: self.state.step, has_preprocessing }
    }

    fn as_export<T, E>(
        &self,
        then: impl FnOnce(starling_train::Export<'_>) -> Result<T, E>,
    ) -> Result<T, starling_run::Error>
    where
        starling_run::Error: From<E>,
    {
        let (schema, manifest, state) = (&self.manifest.listed(), &self.manifest, &self.state);
        let preprocessing = self.preprocessing.as_ref();
        Ok(then(starling_train::Export { state, schema, manifest, preprocessing, evaluation: None })?)
    }
}

/// The step of a checkpoint's manifest file, by its name.
fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.split('-').next()?.parse().ok()
}
