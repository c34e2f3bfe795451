//! The models of the command line.
//!
//! One file holds one [`Model`]: its sizes with their bounds, and the [`Task`] that it is on a [`Dataset`]. [`REGISTRY`] lists them,
//! and whatever takes, shows or completes a name goes by that list: a new model is a file and a line there.

mod classifier;
mod gpt;
mod regressor;

use std::fmt;
use std::sync::Arc;

use burn::tensor::Device;
use starling_data::Dataset;
use starling_run::manifest::schema::Entry;
use starling_run::manifest::{freeze, micro_batch};
use starling_run::{
    ClassWeightPolicy, DataDescription, DataRecord, Learner, Manifest, ManifestError, ModelOptions, ModelSpec, RunSpec,
    Schema,
};

use crate::device::ComputeSpec;
use crate::error::Error;
use crate::network::forward::{AnyModule, OutputKind};
use crate::network::schema::{self, LazyLeaf};
use crate::replica::{self, Replica};
use crate::task::Task;

pub use classifier::ClassifierModel;
use gpt::Gpt;
pub(crate) use gpt::size_of;
use regressor::Regressor;

/// The most layers that sizes are given for.
const MAX_LAYERS: usize = 16;
/// The widest hidden layer.
const MAX_WIDTH: u32 = 65_536;

/// All models. An order that is shown, and nothing else: runs know them by name.
pub const REGISTRY: &[&dyn Model] = &[
    &ClassifierModel::SOFTMAX,
    &ClassifierModel::MLP,
    &ClassifierModel::CNN,
    &Regressor::LINEAR,
    &Regressor::LAYERED,
    &Gpt,
];

/// What the command line trains by a name, on whatever data it reads.
pub trait Model: fmt::Debug + Sync {
    /// Its name in manifests, configurations and flags.
    fn name(&self) -> &'static str;

    /// Its sizes where nobody says others. As it is, it has none.
    fn usual(&self) -> &'static [u32] {
        &[]
    }

    /// These sizes with those that were left out. As it is, none can be.
    fn whole(&self, sizes: Vec<u32>) -> Vec<u32> {
        sizes
    }

    /// Checks sizes, which may be a stranger's: before the data is known, and before anything is built.
    ///
    /// # Errors
    /// What is wrong, as a sentence. As it is, if there are any.
    fn check(&self, sizes: &[u32]) -> Result<(), String> {
        if sizes.is_empty() { Ok(()) } else { Err(format!("{} has no sizes", self.name())) }
    }

    /// Checks that it can have these options, which may be a stranger's.
    ///
    /// # Errors
    /// What is wrong, as a sentence. As it is, if there are any.
    fn check_options(&self, options: &ModelOptions) -> Result<(), String> {
        let name = self.name();
        match options {
            ModelOptions { dropout, .. } if *dropout > 0.0 => Err(format!(
                "{name} has no layers to drop numbers between; leave --dropout out, or take mlp, regression, cnn or gpt"
            )),
            ModelOptions { batch_norm: true, .. } => Err(format!(
                "{name} has no layers to normalize; leave --batch-norm out, or take mlp, regression or cnn"
            )),
            ModelOptions { residual: true, .. } => Err(no_blocks(name)),
            ModelOptions { tied_output: true, .. } => Err(no_embeddings(name)),
            ModelOptions { augment, .. } if !augment.is_empty() => {
                Err(format!("{name} takes no images as such; leave --augment out, or take cnn"))
            }
            ModelOptions { loss: Some(loss), .. } => Err(format!("{name} can't make {loss} small; leave --loss out")),
            ModelOptions { .. } => Ok(()),
        }
    }

    /// Checks that it can compute gradients over so many samples of `shape` and `classes` at once, which a stranger may ask for.
    ///
    /// # Errors
    /// Why it can't and what to do, as a sentence. As it is, it can.
    fn check_batch(&self, sizes: &[u32], shape: [u32; 3], classes: u32, samples: u32) -> Result<(), String> {
        let _ = (sizes, shape, classes, samples);
        Ok(())
    }

    /// The task that a model of these sizes and options is on a data set.
    ///
    /// # Errors
    /// Why it can't work on that and what to do, as a sentence.
    fn task(&self, sizes: &[u32], options: &ModelOptions, dataset: &Arc<Dataset>) -> Result<Box<dyn AnyTask>, String>;

    /// What it learns. As it is, classes.
    fn learns(&self) -> OutputKind {
        OutputKind::Classes
    }

    /// Its module alone, which is described and not drawn, for samples of `shape` (channels, height, width), with so many outputs.
    ///
    /// # Errors
    /// Why it can't work on those, as a sentence.
    fn computes(
        &self,
        sizes: &[u32],
        options: &ModelOptions,
        shape: [u32; 3],
        outputs: u32,
    ) -> Result<Box<dyn AnyModule>, String>;
}

/// A task of any module.
pub trait AnyTask: Send + Sync {
    /// The leaves of its module in the order in which Burn visits them, which are described and not drawn.
    fn leaves(&self) -> Vec<Entry>;

    /// Its parameters in a run that freezes what is under these paths.
    ///
    /// # Errors
    /// If a path is of none, or nothing is left to be trained.
    fn schema(&self, frozen: &[String]) -> Result<Schema, Error> {
        // Of whole numbers and truths no model of the command line has any.
        Ok(Schema::new(freeze::freeze(self.leaves(), frozen).map_err(replica::unfreezable)?))
    }

    /// The manifest with what members evaluate together, if they do.
    fn with_measures(&self, manifest: Manifest) -> Manifest;

    /// The values that a run of this `seed` begins with.
    ///
    /// # Errors
    /// If they are not as many as the parameters.
    fn initial(&self, schema: &Schema, seed: u64) -> Result<Vec<f32>, Error>;

    /// What [`Replica::open`] opens.
    ///
    /// # Errors
    /// As that.
    fn open(
        self: Box<Self>,
        manifest: &Manifest,
        given: Option<Vec<f32>>,
        notes: DataRecord,
        compute: ComputeSpec,
    ) -> Result<Box<dyn Learner>, Error>;
}

impl<T: Task> AnyTask for T {
    fn leaves(&self) -> Vec<Entry> {
        // Parameters are lazy: the visit reads shapes and draws nothing. A model of the command line trains all of them.
        let leaves = schema::leaves(self.module(&Device::flex().autodiff()), LazyLeaf::IsTrained);
        leaves.expect("invariant: the module is on the device that it was given")
    }

    fn with_measures(&self, manifest: Manifest) -> Manifest {
        manifest.with_measures(self.data().held_out, &self.measures())
    }

    fn initial(&self, schema: &Schema, seed: u64) -> Result<Vec<f32>, Error> {
        replica::initial::values(self, &self.leaves(), schema, seed)
    }

    fn open(
        self: Box<Self>,
        manifest: &Manifest,
        given: Option<Vec<f32>>,
        notes: DataRecord,
        compute: ComputeSpec,
    ) -> Result<Box<dyn Learner>, Error> {
        let (leaves, task): (_, Arc<T>) = (self.leaves(), self.into());
        Ok(Box::new(Replica::open(task, leaves, manifest, given, notes, compute)?))
    }
}

/// Checks the widths of hidden layers.
fn check_widths(sizes: &[u32]) -> Result<(), String> {
    check_layers(sizes, MAX_WIDTH, "hidden layer")
}

/// Checks the sizes of layers, of which none is larger than `limit`.
fn check_layers(sizes: &[u32], limit: u32, what: &str) -> Result<(), String> {
    if sizes.is_empty() || sizes.len() > MAX_LAYERS {
        return Err(format!("it has {} {what}s, but 1 to {MAX_LAYERS} are possible", sizes.len()));
    }
    match sizes.iter().find(|size| !(1..=limit).contains(*size)) {
        Some(size) => Err(format!("a {what} has size {size}, but 1 to {limit} are possible")),
        None => Ok(()),
    }
}

/// Why a model can't be residual.
fn no_blocks(name: &str) -> String {
    format!("{name} has no convolutions that could be residual blocks; leave --residual out, or take cnn")
}

/// Why a model's output can't be tied.
fn no_embeddings(name: &str) -> String {
    format!("{name} has no embeddings that its output could be tied to; leave --tied-output out, or take gpt")
}

/// All models as a user may write them.
pub fn names() -> impl Iterator<Item = String> {
    REGISTRY.iter().map(|model| ModelSpec::sized(model.name(), model.usual()).to_string())
}

/// The model called `name`.
pub fn find(name: &str) -> Option<&'static dyn Model> {
    REGISTRY.iter().copied().find(|model| model.name() == name)
}

/// A model with its settings, checked.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) model: &'static dyn Model,
    /// The usual ones if none are said.
    pub(crate) sizes: Vec<u32>,
    pub(crate) options: ModelOptions,
}

impl Chosen {
    /// As it stands in a manifest.
    pub(crate) fn spec(&self) -> ModelSpec {
        ModelSpec::with_options(self.model.name(), &self.sizes, &self.options)
    }
}

/// The model that is named, with its settings.
///
/// # Errors
/// If there is none of that name, or it can't have these sizes or options.
pub(crate) fn choose(spec: &ModelSpec) -> Result<Chosen, Error> {
    // Before its name is repeated: it may be a stranger's.
    spec.check().map_err(unusable)?;
    let Some(model) = spec.name().and_then(find) else {
        return Err(unusable(format!("there is no model `{spec}`; write {}", names().collect::<Vec<_>>().join(", "))));
    };
    let parts = spec.parts();
    let (said, options) =
        parts.ok_or_else(|| unusable(format!("its settings are no sizes, which {} takes", model.name())))?;
    let sizes = if said.is_empty() { model.usual().to_vec() } else { model.whole(said) };
    let checked = model.check(&sizes).and_then(|()| options.check()).and_then(|()| model.check_options(&options));
    checked.map_err(unusable)?;
    if options.class_weights == ClassWeightPolicy::Balanced && model.learns() != OutputKind::Classes {
        let name = model.name();
        let reason = "learns no classes that could be weighed; leave --class-weights out, or take softmax, mlp or cnn";
        return Err(unusable(format!("{name} {reason}")));
    }
    Ok(Chosen { model, sizes, options })
}

/// Checks that what is dropped does not depend on who computes it: a mask is drawn for each micro-batch.
pub(crate) fn check_masks(options: &ModelOptions, spec: &RunSpec) -> Result<(), Error> {
    if options.dropout == 0.0 || spec.micro_batch > 0 {
        return Ok(());
    }
    let reason = "it is 0, but dropout needs micro-batches: their masks are the same whoever computes them";
    unfit(micro_batch::with_example(reason, spec.batch_size))
}

/// Checks that a batch normalization has something to normalize over: of one row, each hidden unit has no variance.
pub(crate) fn check_norms(chosen: &Chosen, spec: &RunSpec) -> Result<(), Error> {
    let has_rows = chosen.options.batch_norm && chosen.model.name() != ClassifierModel::CNN.name();
    if !has_rows || spec.micro_batch != 1 {
        return Ok(());
    }
    let reason = "it is 1, but batch normalizations need several rows: of one, nothing is left";
    unfit(micro_batch::with_example(reason, spec.batch_size))
}

fn unfit(reason: String) -> Result<(), Error> {
    Err(starling_run::Error::from(ManifestError::Invalid { field: "micro_batch", reason }).into())
}

/// What a run of a model over a data set is, but for its initial parameters; and the task.
///
/// # Errors
/// If there is no such model, or it can't work on the data.
pub(crate) fn describe(spec: &RunSpec, dataset: &Arc<Dataset>) -> Result<(Manifest, Box<dyn AnyTask>), Error> {
    let chosen = choose(&spec.model)?;
    check_masks(&chosen.options, spec)?;
    check_norms(&chosen, spec)?;
    if dataset.description().is_text() && chosen.model.learns() != OutputKind::Text {
        let name = chosen.model.name();
        return Err(unusable(format!(
            "{name} learns rows or images, but the data is a text; take --model gpt, or other data"
        )));
    }
    let at_once = if spec.micro_batch == 0 { spec.batch_size } else { spec.micro_batch };
    let DataDescription { shape, classes, .. } = dataset.description();
    chosen.model.check_batch(&chosen.sizes, shape, classes, at_once).map_err(unusable)?;
    let task = chosen.model.task(&chosen.sizes, &chosen.options, dataset).map_err(unusable)?;
    let (model, weighted) = (chosen.spec(), dataset.is_weighted());
    let manifest = Manifest { model, weighted, ..Manifest::of(spec, dataset.description()) };
    Ok((task.with_measures(manifest.with_schema(&task.schema(&spec.freeze)?)), task))
}

fn unusable(reason: String) -> Error {
    starling_run::Error::from(ManifestError::Invalid { field: "model", reason }).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use starling_data::DataOptions;

    use super::*;

    #[test]
    fn sizes_are_written_out_and_bounded() {
        for (text, full) in [
            ("softmax", "softmax"),
            ("mlp", "mlp:64"),
            ("mlp:1,2", "mlp:1,2"),
            ("cnn", "cnn:8,16"),
            ("mlp+dropout=0.5", "mlp:64+dropout=0.5"),
            ("cnn+augment=flip", "cnn:8,16+augment=flip"),
            ("regression+loss=huber", "regression:64+loss=huber"),
            ("linear+loss=quantile:0.90", "linear+loss=quantile:0.9"),
            ("softmax+class-weights=balanced", "softmax+class-weights=balanced"),
            ("cnn+batch-norm", "cnn:8,16+batch-norm"),
            ("cnn+residual+batch-norm", "cnn:8,16+batch-norm+residual"),
            ("gpt", "gpt:4x128x4"),
            ("gpt:2x64", "gpt:2x64x2"),
            ("gpt:2x384+dropout=0.1", "gpt:2x384x6+dropout=0.1"),
            ("gpt:1x20", "gpt:1x20x1"),
            ("gpt:1x64x4x2", "gpt:1x64x4x2"),
            ("gpt:1x64x4x4+tied-output", "gpt:1x64x4+tied-output"),
        ] {
            let chosen = choose(&text.parse().expect("a text")).expect("a model");
            assert_eq!(chosen.spec().to_string(), full);
        }
        let of = |text: &str| text.parse::<ModelSpec>().expect("a text");
        for (spec, reason) in [
            (
                of("vit:1"),
                "there is no model `vit:1`; write softmax, mlp:64, cnn:8,16, linear, regression:64, gpt:4x128x4",
            ),
            (of("gpt:1"), "gpt has layers and their width, as gpt:4x128"),
            (of("gpt:0x64"), "it has 0 layers, but 1 to 128"),
            (of("gpt:1x99999"), "its layers are 99999 wide, but 8 to 16384"),
            (of("gpt:1x64x3"), "it has 3 heads, but they have to share its width of 64"),
            (
                of("gpt:1x24x4"),
                "it has 4 heads, but they have to share its width of 24, an even part of 8 or more each",
            ),
            (of("gpt:1x64x4x3"), "its 4 heads share 3 of keys and values"),
            (of("gpt:1x64x4x0"), "its 4 heads share 0 of keys and values"),
            (of("gpt:1x64x4x2x1"), "gpt has layers and their width"),
            (of("cnn+tied-output"), "cnn has no embeddings that its output could be tied to"),
            (of("softmax+tied-output"), "softmax has no embeddings"),
            (of("regression+tied-output"), "regression has no embeddings"),
            (of("gpt+loss=huber"), "gpt learns tokens, by cross-entropy"),
            (of("gpt+augment=flip"), "gpt takes no images"),
            (of("gpt+batch-norm"), "gpt has no layers to normalize; leave --batch-norm out"),
            (of("softmax+batch-norm"), "softmax has no layers to normalize"),
            (of("linear+batch-norm"), "linear has no layers to normalize"),
            (of("softmax+residual"), "softmax has no convolutions that could be residual blocks"),
            (of("mlp+residual"), "mlp has no convolutions that could be residual blocks; leave --residual out"),
            (of("linear+residual"), "linear has no convolutions"),
            (of("gpt+residual"), "gpt has no convolutions"),
            (of("softmax:3"), "softmax has no sizes"),
            (of("mlp:0"), "a hidden layer has size 0, but 1 to 65536"),
            (of("mlp:70000"), "a hidden layer has size 70000"),
            (of("cnn:5000"), "a convolution has size 5000, but 1 to 4096"),
            (of("mlp:1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"), "it has 17 hidden layers, but 1 to 16"),
            (ModelSpec::named("mlp", &json!({ "hidden": "\u{1b}[2J" })), "its settings are no sizes, which mlp takes"),
            (ModelSpec::named("mlp", &json!([1.5])), "its settings are no sizes"),
            (ModelSpec::named("\u{1b}[2J", &json!(null)), "and this one is none"),
            (ModelSpec::Raw, "there is no model `buffers`"),
            (of("softmax+dropout=0.5"), "softmax has no layers to drop numbers between"),
            (of("linear+dropout=0.5"), "linear has no layers to drop numbers between"),
            (of("mlp+loss=huber"), "mlp learns classes, by cross-entropy; leave --loss out, or take regression"),
            (of("gpt+class-weights=balanced"), "gpt learns no classes that could be weighed"),
            (of("regression+class-weights=balanced"), "regression learns no classes that could be weighed"),
            (of("linear:3"), "linear has no sizes; regression:64 has hidden layers"),
            (of("regression:0"), "a hidden layer has size 0, but 1 to 65536"),
            (of("regression+augment=flip"), "regression takes no images as such"),
            (of("mlp+augment=flip"), "mlp takes no images as such; leave --augment out"),
            (ModelSpec::named("mlp", &json!({ "sizes": [4], "dropout": 0.99 })), "it drops 0.99 of its numbers"),
            (ModelSpec::named("mlp", &json!({ "sizes": [4], "dropout": -1 })), "its settings are no sizes"),
            (
                ModelSpec::named("cnn", &json!({ "sizes": [4], "augment": ["flip", "crop"] })),
                "its settings are no sizes",
            ),
        ] {
            let error = choose(&spec).expect_err("no model").to_string();
            assert!(error.contains("`model` is not usable") && error.contains(reason), "{error}");
            assert!(!error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn every_model_can_work_on_images_or_a_text_and_is_described_as_it_is_built() {
        let digits = Arc::new(Dataset::load(&DataOptions::default()).expect("the embedded digits"));
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("text.txt");
        std::fs::write(&path, "to be or not to be ".repeat(30)).expect("written");
        let source = path.display().to_string();
        let options = DataOptions { source, text: true, ..DataOptions::default() };
        let words = Arc::new(Dataset::load(&options).expect("a text"));
        for text in names() {
            let learns_text =
                find(text.split(':').next().unwrap_or_default()).map(|model| model.learns()) == Some(OutputKind::Text);
            let (dataset, other) = if learns_text { (&words, &digits) } else { (&digits, &words) };
            let spec = RunSpec { model: text.parse().expect("a model"), ..RunSpec::default() };
            let refused = describe(&spec, other).err().expect("it learns something else").to_string();
            assert!(refused.contains("text"), "{refused}");
            let (manifest, task) = describe(&spec, dataset).expect("a run");
            let schema = task.schema(&[]).expect("nothing is frozen");
            assert_eq!((manifest.check(), manifest.listed()), (Ok(()), schema.clone()), "{text}");
            assert_eq!(task.initial(&schema, 1).expect("drawn").len(), manifest.parameters());
            let Chosen { model, sizes, .. } = choose(&manifest.model).expect("a model");
            let computes = model
                .computes(
                    &sizes,
                    &ModelOptions::default(),
                    manifest.data.shape,
                    model.learns().outputs(manifest.data.classes, 1),
                )
                .expect("a module");
            assert_eq!(computes.schema(), schema, "{text}");
        }
    }
}
