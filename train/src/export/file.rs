//! A trained model as one file that other programs read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::json;
use starling_run::data::{LabelScale, MAX_PREPROCESSING_BYTES};
use starling_run::program::export::{check_name, is_folder, write_file, write_folder};
use starling_run::state::bytes::write_numbers;
use starling_run::{
    Error, EvaluationReport, FeatureScale, Manifest, ModelSpec, PreprocessingSpec, ReplicatedState, Schema,
};

use starling_data::held_out_rows;

use super::read::Held;
use super::{BYTES, ExportOptions, FORMAT, Origin, TOKENIZER, folder};
use crate::network::forward::OutputKind;
use crate::network::models;

/// What a safetensors file begins with: the length of its header, in so many bytes.
const HEADER_LENGTH: usize = size_of::<u64>();

/// What is exported: a state, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Export<'a> {
    /// Its parameters are the model; or their moving average, or the best of either so far, if the run keeps that.
    pub state: &'a ReplicatedState,
    /// What they are called, and their shapes.
    pub schema: &'a Schema,
    /// Of the state's run.
    pub manifest: &'a Manifest,
    /// What must be done to values before they are the model's inputs, and what its inputs and outputs are called.
    pub preprocessing: Option<&'a PreprocessingSpec>,
    /// How good it is on the held-out samples.
    pub evaluation: Option<&'a EvaluationReport>,
}

impl Export<'_> {
    /// Writes the model: to a folder if `path` ends with a slash or is one already, else to a file that is
    /// [encoded](Self::encode). Either appears whole or not at all.
    ///
    /// # Errors
    /// If the state is not one of the schema and the manifest, nothing can be written there, or its name is another kind of file's.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        if is_folder(path) {
            let model = self.encode(path)?;
            let held = Held::of(self, &model, path)?;
            return write_folder(path, &folder::files(&held, model, &ExportOptions::default()));
        }
        check_name(path)?;
        write_file(path, &self.encode(path)?)
    }

    /// Where it comes from.
    pub(super) fn origin(&self) -> Origin {
        let measures = self.evaluation.iter().flat_map(|evaluation| {
            let measures = evaluation.measures.iter().map(|(name, mean)| (*name, *mean));
            [("loss", evaluation.loss)].into_iter().chain(measures)
        });
        Origin {
            run: self.state.run.to_string(),
            step: self.state.step,
            digest: Some(self.state.digest().to_string()),
            values: Some(self.state.values().to_string()),
            samples: Some(self.manifest.data.samples),
            fingerprint: Some(self.manifest.data.fingerprint.to_string()),
            measures: measures.map(|(name, mean)| (name.to_owned(), mean)).collect(),
        }
    }

    /// The parameters as a [safetensors](https://github.com/huggingface/safetensors) file: one `F32`
    /// tensor per parameter, named by its path, in Burn's layout (a linear weight is `[inputs, outputs]`). The metadata says
    /// which run and step it is, the model, its input shape and its number of classes, or a task's settings; and, with
    /// preprocessing, what that says. It is the same to the byte whenever it is made anew. `path` is for messages.
    ///
    /// # Errors
    /// If the state is not one of the schema and the manifest.
    pub fn encode(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let Self { state, schema, manifest, preprocessing, .. } = *self;
        let fail = |reason: String| Error::Export { path: path.to_owned(), reason };
        if state.run != manifest.run_id() {
            return Err(Error::OtherRun { ours: manifest.run_id(), theirs: state.run });
        }
        let held = state.parameters.len() + state.frozen.len();
        if held != schema.parameters() || state.frozen.len() != manifest.frozen() {
            let (expected, found) = (format!("{} parameters", schema.parameters()), held.to_string());
            return Err(Error::OtherShape { step: state.step, expected, found });
        }
        let model = state.model(manifest);
        let mut bytes = Vec::with_capacity(4 * held);
        for numbers in [&*model, &state.frozen] {
            write_numbers(numbers, &mut bytes).expect("invariant: writing to memory does not fail");
        }
        let mut rest = bytes.as_slice();
        let mut tensors = Vec::with_capacity(schema.entries().len());
        for entry in schema.entries() {
            let (own, others) = rest.split_at(4 * entry.elements());
            rest = others;
            let view =
                TensorView::new(Dtype::F32, entry.shape.clone(), own).map_err(|error| fail(error.to_string()))?;
            tensors.push((entry.path.as_str(), view));
        }
        let [channels, height, width] = manifest.data.shape;
        let mut described = vec![
            ("format", FORMAT.to_owned()),
            ("run", state.run.to_string()),
            ("step", state.step.to_string()),
            ("model", manifest.model.to_string()),
            ("layout", "burn".to_owned()),
        ];
        if let Some((step, loss)) = state.best(manifest) {
            described.extend([("best_step", step.to_string()), ("best_loss", loss.to_string())]);
        }
        if manifest.optimizer.averages() && (matches!(model, Cow::Owned(_)) || state.best(manifest).is_some()) {
            described.push(("ema", manifest.optimizer.setting("ema").unwrap_or_default().to_string()));
        }
        match &manifest.model {
            ModelSpec::Raw => {}
            ModelSpec::Named { settings, .. } if manifest.data.is_of_program() => {
                described.push(("settings", settings.clone()));
            }
            ModelSpec::Named { .. } => described.extend([
                ("shape", format!("{channels},{height},{width}")),
                ("classes", manifest.data.classes.to_string()),
            ]),
        }
        if manifest.data.label.len() > 1 {
            described.push(("labels", manifest.data.label.len().to_string()));
        }
        // Readers of such files refuse headers of 100 MB; those who keep it for a keeper's exports have the same bound.
        let preprocessing = preprocessing.filter(|it| it.encode().len() <= MAX_PREPROCESSING_BYTES);
        let preprocessed = preprocessing.map(|preprocessing| preprocessed(manifest, preprocessing)).unwrap_or_default();
        let metadata: BTreeMap<&str, String> = described.into_iter().chain(preprocessed).collect();
        serialized(tensors, &metadata).map_err(fail)
    }
}

/// A safetensors file of these tensors, by their names; the same to the byte for the same ones.
///
/// # Errors
/// What is wrong with them, as a sentence.
pub(super) fn serialized<'a>(
    tensors: impl IntoIterator<Item = (&'a str, TensorView<'a>)>,
    metadata: &BTreeMap<&str, String>,
) -> Result<Vec<u8>, String> {
    let mut file = serialize(tensors, None).map_err(|error| error.to_string())?;
    add_metadata(&mut file, metadata);
    Ok(file)
}

/// What the metadata say of the data. Lists are JSON.
fn preprocessed(manifest: &Manifest, preprocessing: &PreprocessingSpec) -> Vec<(&'static str, String)> {
    let list = |names: &[String]| json!(names).to_string();
    let mut metadata = match &preprocessing.scales {
        FeatureScale::Divide(divisor) => vec![("scaling", "divide".to_owned()), ("divisor", divisor.to_string())],
        FeatureScale::Standardize { means, deviations } => vec![
            ("scaling", "standardize".to_owned()),
            ("means", json!(means).to_string()),
            ("deviations", json!(deviations).to_string()),
        ],
        FeatureScale::Tokenize(tokenizer) => vec![
            ("scaling", "tokenize".to_owned()),
            ("tokenizer_json", tokenizer.json.clone()),
            ("end_token", tokenizer.end.to_string()),
        ],
    };
    metadata.push(("data", manifest.data.kind.clone()));
    if preprocessing.tokenizer().is_none() {
        metadata.push(("class_names", list(&preprocessing.classes)));
    }
    if !preprocessing.features.is_empty() {
        metadata.push(("feature_names", list(&preprocessing.features)));
    }
    if !preprocessing.columns.is_empty() {
        metadata.push(("columns", json!(preprocessing.columns).to_string()));
    }
    let learns = manifest.model.name().and_then(models::find).map(|model| model.learns());
    match &*preprocessing.labels {
        [LabelScale { mean, deviation }] if learns == Some(OutputKind::Numbers) => metadata
            .extend([("label_mean", json!(mean).to_string()), ("label_deviation", json!(deviation).to_string())]),
        scales if scales.len() > 1 => {
            let [means, deviations] = [|scale: &LabelScale| scale.mean, |scale: &LabelScale| scale.deviation]
                .map(|of| json!(scales.iter().map(of).collect::<Vec<f64>>()).to_string());
            metadata.extend([("label_mean", means), ("label_deviation", deviations)]);
        }
        _ => {}
    }
    let column = (!manifest.data.label.is_empty())
        .then(|| manifest.data.label.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    let label_name = match &*preprocessing.label {
        [] => None,
        [name] if manifest.data.label.len() == 1 => Some(name.clone()),
        names => Some(list(names)),
    };
    let header = manifest.data.header.map(|header| header.to_string());
    let delimiter = manifest.data.delimiter.map(|delimiter| delimiter.to_string());
    let tokenizer = if preprocessing.tokenizer().is_some() { TOKENIZER } else { BYTES };
    let tokenizer = manifest.data.is_text().then(|| tokenizer.to_owned());
    let held_out = held_out_rows(&manifest.data, manifest.seed).map(|rows| json!(rows).to_string());
    // Where words say the sides, nothing was drawn.
    let drawn = manifest.data.split_by.filter(|_| !manifest.data.sides_said);
    let of_table = [
        ("label_column", column),
        ("label_name", label_name),
        ("header", header),
        ("delimiter", delimiter),
        ("held_out_rows", held_out),
        ("held_out_last", manifest.data.held_out_last.map(|last| last.to_string())),
        ("weights_column", manifest.data.weights.map(|column| column.to_string())),
        ("split_column", manifest.data.split_by.map(|column| column.to_string())),
        ("split_permille", drawn.map(|_| manifest.data.held_out.to_string())),
        ("split_seed", drawn.map(|_| manifest.seed.to_string())),
        ("tokenizer", tokenizer),
    ];
    metadata.extend(of_table.into_iter().filter_map(|(key, value)| Some((key, value?))));
    metadata
}

/// Adds `metadata` to the header of a safetensors file that has none. The library keeps it in a hash map, whose order is
/// another one each time; here one state gives one file, to the byte.
fn add_metadata(file: &mut Vec<u8>, metadata: &BTreeMap<&str, String>) {
    let (length, rest) = file.split_first_chunk::<HEADER_LENGTH>().expect("invariant: a file begins with a length");
    let length = usize::try_from(u64::from_le_bytes(*length)).expect("invariant: the header is in memory");
    let text = serde_json::to_string(metadata).expect("invariant: texts are always JSON");
    let tensors = rest[..length].strip_prefix(b"{").expect("invariant: a header is a JSON object").trim_ascii();
    let comma = if tensors == b"}" { "" } else { "," };
    let mut header = [format!("{{\"__metadata__\":{text}{comma}").as_bytes(), tensors].concat();
    // What follows is aligned, as the library does it.
    header.resize(header.len().next_multiple_of(HEADER_LENGTH), b' ');
    let start = (header.len() as u64).to_le_bytes();
    file.splice(..HEADER_LENGTH + length, start.into_iter().chain(header));
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;
    use starling_run::RunSpec;
    use starling_topology::{Ledger, RunId};

    use super::*;
    use crate::found;

    fn write_safetensors(
        path: &Path,
        state: &ReplicatedState,
        schema: &Schema,
        manifest: &Manifest,
        preprocessing: Option<&PreprocessingSpec>,
    ) -> Result<(), Error> {
        Export { state, schema, manifest, preprocessing, evaluation: None }.write(path)
    }
    use starling_data::{DataOptions, Dataset, TableColumn};

    #[test]
    fn a_model_file_holds_every_parameter_by_name() {
        let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
        let spec = RunSpec { model: "mlp:4".parse().expect("a model"), ..RunSpec::default() };
        let manifest = found(&spec, &dataset).expect("a run");
        let schema = manifest.listed();
        let parameters: Vec<f32> = (0..schema.parameters()).map(|at| at as f32 * 0.5).collect();
        let state = ReplicatedState {
            run: manifest.run_id(),
            step: 77,
            lineage: starling_topology::Lineage::NONE,
            parameters: parameters.clone().into(),
            frozen: <_>::default(),
            moments: Vec::new(),
            scalars: Vec::new(),
            ledger: Ledger::new(1, 1, 1),
        };
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.safetensors");
        write_safetensors(&path, &state, &schema, &manifest, Some(dataset.preprocessing())).expect("written");

        let bytes = std::fs::read(&path).expect("read");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
        let metadata = header.metadata().as_ref().expect("metadata");
        assert_eq!(metadata["run"], manifest.run_id().to_string());
        assert_eq!((metadata["step"].as_str(), metadata["model"].as_str()), ("77", "mlp:4"));
        assert_eq!(metadata["shape"], "1,8,8");
        assert_eq!((metadata["scaling"].as_str(), metadata["divisor"].as_str()), ("divide", "16"));
        assert_eq!(metadata["class_names"], r#"["0","1","2","3","4","5","6","7","8","9"]"#);
        let held_out: Vec<u32> = serde_json::from_str(&metadata["held_out_rows"]).expect("a list");
        assert_eq!(held_out.len(), dataset.held_out().len());
        assert!(!metadata.contains_key("means") && !metadata.contains_key("label_column"));
        let file = SafeTensors::deserialize(&bytes).expect("tensors");
        assert_eq!(file.len(), 4);
        let mut read = Vec::new();
        for entry in schema.entries() {
            let tensor = file.tensor(&entry.path).expect("named as in the schema");
            assert_eq!((tensor.shape(), tensor.dtype()), (&entry.shape[..], Dtype::F32));
            read.extend(tensor.data().as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)));
        }
        assert_eq!(read, parameters);
        for _ in 0..8 {
            write_safetensors(&path, &state, &schema, &manifest, Some(dataset.preprocessing())).expect("written again");
            assert!(std::fs::read(&path).expect("read") == bytes, "one state, one file");
        }

        let other = ReplicatedState { run: RunId([0; 32]), ..state.clone() };
        let message = write_safetensors(&path, &other, &schema, &manifest, None).expect_err("another run").to_string();
        assert!(message.contains(&"0".repeat(64)), "{message}");
        let short = ReplicatedState { parameters: vec![0.0; 3].into(), ..state.clone() };
        let message = write_safetensors(&path, &short, &schema, &manifest, None).expect_err("too short").to_string();
        assert!(message.contains("expected 310 parameters"), "{message}");
        let nowhere = directory.path().join("missing").join("model.safetensors");
        let message =
            write_safetensors(&nowhere, &state, &schema, &manifest, None).expect_err("no directory").to_string();
        assert!(message.contains("cannot write the model to") && message.contains("missing"), "{message}");
    }

    #[test]
    fn a_tables_columns_and_scales_are_in_the_metadata() {
        let directory = tempfile::tempdir().expect("a directory");
        let table = directory.path().join("table.csv");
        let rows: String = (0..20).map(|row| format!("{};{};7;{row}.5\n", ["b", "a"][row % 2], row * row)).collect();
        std::fs::write(&table, format!("kind;area;same;height\n{rows}")).expect("written");
        let source = table.display().to_string();
        let label = Some(TableColumn::Written("kind".to_owned()));
        let dataset = Dataset::load(&DataOptions { source, label, ..DataOptions::default() }).expect("a table");
        let spec = RunSpec { model: "softmax".parse().expect("a model"), ..RunSpec::default() };
        let manifest = found(&spec, &dataset).expect("a run");
        let metadata: BTreeMap<_, _> = preprocessed(&manifest, dataset.preprocessing()).into_iter().collect();
        for (key, value) in [
            ("scaling", "standardize"),
            ("data", "csv"),
            ("class_names", r#"["a","b"]"#),
            ("feature_names", r#"["area","same","height"]"#),
            ("label_column", "0"),
            ("label_name", "kind"),
            ("header", "true"),
            ("delimiter", "semicolon"),
        ] {
            assert_eq!(metadata[key], value, "{key}");
        }
        let numbers = |key: &str| serde_json::from_str::<Vec<f64>>(&metadata[key]).expect("a list of numbers");
        let held_out = numbers("held_out_rows");
        assert_eq!(held_out.len(), 4);
        // From the rows of the file: what was trained on, to the last bit.
        let (means, deviations) = (numbers("means"), numbers("deviations"));
        let training = (0..20).filter(|row| !held_out.contains(&f64::from(*row)));
        for (at, row) in training.enumerate() {
            let values = [f64::from(row * row), 7.0, f64::from(row) + 0.5];
            let scaled = |column: usize| match deviations[column] {
                0.0 => 0.0,
                deviation => ((values[column] - means[column]) / deviation) as f32,
            };
            assert_eq!(dataset.training().row(at), [0, 1, 2].map(scaled), "row {row}");
        }
        assert_eq!(deviations[1], 0.0);
    }
}
